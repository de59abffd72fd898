"""`preview` of patches in a real cluster: its devices before and after, and rules that the server accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.patches.values import COLLECTION, patch
from tests.builders import make_rule, make_slice
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from webhook.commands.preview import command as preview
from webhook.commands.shared.main import main_of

DRIVER: Final = "patched.example.com"
IS_HIGH: Final = f'device.attributes["{DRIVER}"].model == "h100"'
TAINT: Final = {"key": "patched.example.com/firmware", "effect": "NoSchedule"}
EXTRAS: Final = {"data": {"advisory": "2026-7"}, "description": "corrupts memory", "evictionsPerSecond": 5}


def gpu(name: str, model: str) -> Any:
    return {
        "name": name,
        "attributes": {"model": {"string": model}, "serial": {"string": f"s-{name}"}},
        "capacity": {"memory": {"value": "40Gi"}},
    }


@pytest.fixture(scope="module")
def fleet(defined: ControlPlane) -> Iterator[ControlPlane]:
    """Two pools, a class, and a patch that is stored; all in the newest version that is served."""
    group = f"{versions.GROUP}/{versions.api_versions(defined.server_version)[0]}"
    models = {"node-a": ("a100", "h100"), "node-b": ("h100", "h100")}
    made = [
        (path(group, "resourceslices"), _slice(group, node, [gpu(f"gpu-{n}", each) for n, each in enumerate(found)]))
        for node, found in models.items()
    ]
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    device_class = {"apiVersion": group, "kind": "DeviceClass", "metadata": {"name": "patched"}}
    made.append((path(group, "deviceclasses"), {**device_class, "spec": {"selectors": selectors}}))
    stored = {"filter": {"driver": DRIVER, "device": "gpu-0"}, "priority": 1, "attributes": _int("slots", 7)}
    made.append((COLLECTION, patch(stored, "stored")))
    for collection, each in made:
        _ = defined.client.create(collection, each).object
    yield defined
    for collection, each in made:
        defined.client.delete(f"{collection}/{each['metadata']['name']}")


def _slice(group: str, node: str, devices: list[Any]) -> Any:
    made = make_slice(devices, driver=DRIVER, pool=node, node_name=node, meta={"name": f"patched-{node}"})
    return made | {"apiVersion": group}


def _int(name: str, value: int) -> Any:
    return {f"{DRIVER}/{name}": {"int": value}}


def previewed(plane: ControlPlane, folder: Path, asked: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    file = folder / "patch.yaml"
    file.write_text(yaml.safe_dump(asked))
    kubeconfig = str(plane.kubeconfig_of("previews", ["system:masters"]))
    assert main_of(preview, [str(file), "--kubeconfig", kubeconfig, "-o", "json"]) == 0
    [item] = json.loads(capsys.readouterr().out)["previews"]
    return item


def test_class_and_cel_select_devices_of_the_cluster(
    fleet: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P-2, P-8, P-10 to P-12."""
    devices = {
        "filter": {"deviceClassName": "patched", "selectors": [{"cel": {"expression": IS_HIGH}}]},
        "attributes": {**_int("slots", 1), f"{DRIVER}/serial": {"null": {}}},
        "capacity": {f"{DRIVER}/memory": {"value": "0"}},
        "taints": [{**TAINT, **EXTRAS}],
    }
    item = previewed(fleet, tmp_path, patch(devices, "asked"), capsys)
    changes = {
        (each["pool"], each["device"], each["name"].rpartition("/")[2]): (each["before"], each["after"], each["patch"])
        for each in item["patch"]["changes"]
    }
    assert {(pool, device) for pool, device, _ in changes} == {
        ("node-a", "gpu-1"),
        ("node-b", "gpu-0"),
        ("node-b", "gpu-1"),
    }
    assert changes["node-b", "gpu-0", "slots"] == (None, {"int": 7}, "stored")
    assert changes["node-b", "gpu-1", "slots"] == (None, {"int": 1}, "asked")
    assert changes["node-b", "gpu-1", "serial"] == ({"string": "s-gpu-1"}, None, "asked")
    assert changes["node-b", "gpu-1", "memory"] == ({"value": "40Gi"}, {"value": "0"}, "asked")


def test_rules_of_a_patch_are_accepted_and_keep_what_servers_drop(
    fleet: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P-22, N-12: a rule for each device."""
    devices = {"filter": {"selectors": [{"cel": {"expression": IS_HIGH}}]}, "taints": [{**TAINT, **EXTRAS}]}
    rules = previewed(fleet, tmp_path, patch(devices, "asked"), capsys)["patch"]["rules"]
    assert len(rules) == 3
    version = f"{versions.GROUP}/{versions.rule_versions(fleet.server_version)[0]}"
    for rule in rules:
        names = {name: rule[name] for name in ("driver", "pool", "device") if rule[name] is not None}
        taint, meta = ({key: rule[key] for key in keys} for keys in (("key", "effect"), ("name", "annotations")))
        made = make_rule(selector=names, taint=taint, meta=meta) | {"apiVersion": version}
        collection = path(version, "devicetaintrules")
        reply = fleet.client.create(collection, made, dry_run=True, field_validation="Strict")
        assert reply.ok, reply.message
        assert reply.object["metadata"]["annotations"] == {
            "devicetaint.io/data": '{"advisory":"2026-7"}',
            "devicetaint.io/description": "corrupts memory",
            "devicetaint.io/evictions-per-second": "5",
        }
