"""docs/eviction.md and docs/patches.md: their commands, with the worker and the controller of patches as processes."""

from __future__ import annotations

import re
from typing import Final

import pytest
import yaml

from tests.apiserver.evicting import GENTLE, EvictProcess
from tests.apiserver.manifests.installing import MANIFESTS
from tests.apiserver.pages.fleet import DRIVER, NODE, RULES, Fleet
from tests.apiserver.pages.following import Reader, blocks
from tests.apiserver.patches.values import DEFINITION
from tests.apiserver.patching import PatchProcess
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

pytestmark = pytest.mark.whole

EVICTION: Final = "docs/eviction.md"
PATCHES: Final = "docs/patches.md"
SLICE: Final = path("resource.k8s.io/v1", "resourceslices", name=NODE)
_VARIES: Final = (
    (re.compile(r"(?<=train-[01]-gpu-)\w{5}"), "xxxxx"),
    (re.compile(r"\d+[sm]\b"), "AGE"),
    (re.compile(r" +"), " "),
)


def _commands(page: str, heading: str) -> list[tuple[str, str]]:
    """The commands of a section, each with what the page says that it prints."""
    parts = [
        each.partition("\n") for block in blocks(page, heading) for each in re.split(r"^\$ ", block, flags=re.MULTILINE)
    ]
    return [(command, _same(said)) for command, _, said in parts if command]


def _same(text: str) -> str:
    for pattern, instead in _VARIES:
        text = pattern.sub(instead, text)
    return text.strip()


def _wait_printed(reader: Reader, command: str, said: str) -> None:
    wait_until(lambda: _same(reader.run(command, codes={0, 1})) == said, f"{command} prints: {said}", seconds=240)


def test_holds_dates_and_conditions_are_as_the_page_says(reader: Reader, fleet: Fleet) -> None:
    (rule,) = blocks(EVICTION, "Ask for an eviction", "yaml")
    (hold,) = blocks(EVICTION, "Stop an eviction")
    (date,) = blocks(EVICTION, "When: windows, completion, maintenance dates")
    (progress, said), (wait_evicted, evicted) = _commands(EVICTION, "Progress on the rule")
    (holders, held), (wait_released, released) = _commands(EVICTION, "When is the device free?")
    reader.run(hold)
    try:
        with EvictProcess(reader.plane, "delegated", policy=GENTLE) as worker:
            worker.wait_working()
            reader.apply(yaml.safe_load(rule))
            wait_until(lambda: "2 held" in reader.run(progress), "both pods are held", seconds=240)
            reader.run("kubectl annotate namespace ml devicetaint.io/hold-")
            _wait_printed(reader, progress, said)
            _wait_printed(reader, holders, held)

            reader.run(date)
            reader.run("kubectl -n ml annotate pod train-0 devicetaint.io/hold-")
            wait_until(lambda: "2030-01-31T22:00:00Z" in reader.run(progress), "the date counts", seconds=240)
            assert fleet.running() == {"train-0"}
            reader.run(date.split("=")[0] + "-")
            assert _same(reader.run(wait_evicted)) == evicted
            assert _same(reader.run(wait_released)) == released
            assert fleet.running() == set()
    finally:
        reader.run("kubectl annotate namespace ml devicetaint.io/hold-")


def test_patch_is_previewed_applied_and_listed_as_the_page_says(reader: Reader, fleet: Fleet) -> None:
    definition = yaml.safe_load((MANIFESTS / DEFINITION).read_text())
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    named = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}}
    firmware = {"attributes": {"firmware": {"string": "1.0"}}}
    (patch,) = blocks(PATCHES, "Write a patch", "yaml")
    (write,) = blocks(PATCHES, "Write a patch")
    ((listing, listed),) = _commands(PATCHES, "What becomes of its taints")
    reader.write("patch.yaml", patch)
    reader.apply(definition, {**named, "spec": {"selectors": selectors}})
    wait_until(lambda: "devicetaint.io" in reader.run("kubectl api-resources --api-group=devicetaint.io"), "served")
    devices = [{"name": name, **firmware} for name in ("gpu-0", "gpu-1")]
    _ = reader.client.patch(SLICE, {"spec": {"devices": devices}}).object
    try:
        with PatchProcess(reader.plane) as controller:
            controller.wait_for("working")
            printed = reader.run(write)
            assert "ResourceSlicePatch firmware: 2 attributes, 1 capacity, 1 taint on class gpu, driver" in printed
            _wait_printed(reader, listing, listed)
            (rule,) = reader.client.get(RULES).items
            assert rule["spec"]["deviceSelector"] == {"driver": DRIVER, "pool": NODE, "device": "gpu-0"}
            reader.run("kubectl delete resourceslicepatch firmware")
            wait_until(lambda: not reader.client.get(RULES).items, "its rule goes with it", seconds=240)
    finally:
        _ = reader.client.patch(SLICE, {"spec": {"devices": [{"name": "gpu-0"}, {"name": "gpu-1"}]}}).object
        reader.run(f"kubectl delete crd {definition['metadata']['name']}; kubectl delete deviceclass gpu")
    assert fleet.running()
