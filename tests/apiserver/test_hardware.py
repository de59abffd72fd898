"""Partitions of GPUs as Kubernetes' example driver publishes them: a rule on a full device, and who uses its parts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.apiserver.objects import rule_for
from tests.apiserver.pages.following import blocks
from tests.apiserver.patching import PatchProcess
from tests.apiserver.planes import own_stage
from tests.apiserver.policy.stage import Stage, make_policy
from tests.controlplane.assets import EXAMPLE_DRIVER
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import Process, wait_until
from tests.controlplane.versions import GROUP
from webhook.api.rules import HARDWARE_LABEL, SCOPE

Json = dict[str, Any]

NODE: Final = "node-0"
DRIVER: Final = "gpu.example.com"
NAMESPACE: Final = "partitioned"
PODS: Final = ("a", "b", "c")
USERS: Final = "partitioned/a, partitioned/b, partitioned/c"
STAY: Final = f"4 other devices of the same hardware stay in service, 3 of them in use by pods {USERS}"


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The webhook, a real driver with two GPUs of four partitions each, and pods on three partitions of the first."""
    programs = ("kube-controller-manager", "kube-scheduler", "kwok", EXAMPLE_DRIVER)
    with own_stage(request, *programs, since=37) as stage:
        stage.plane.add_node(NODE)
        with _driver(stage.plane, tmp_path_factory.mktemp("driver")):
            stage.start_webhook()
            stage.use(make_policy(mode="warn"))
            stage.register()
            _use_partitions(stage)
            yield stage
            stage.stop_webhook()


def _driver(plane: ControlPlane, folder: Path) -> Process:
    """The driver's plugin; directories of a kubelet that is not there are enough for it to publish its devices."""
    for name in ("registry", "plugins", "cdi"):
        (folder / name).mkdir()
    command: list[str | Path] = [
        plane.assets.program(EXAMPLE_DRIVER), "--node-name", NODE, "--kubeconfig", plane.kubeconfig,
        "--num-devices", "2", "--gpu-partitions", "4", "--healthcheck-port", "-1", "--cdi-root", folder / "cdi",
        "--kubelet-registrar-directory-path", folder / "registry",
        "--kubelet-plugins-directory-path", folder / "plugins",
    ]  # fmt: skip
    driver = Process(EXAMPLE_DRIVER, command, folder / "driver.log")
    slices = path(f"{GROUP}/v1", "resourceslices")

    def published() -> bool:
        found = [each["spec"] for each in plane.client.get(slices).items]
        return sum(len(spec.get("devices") or ()) for spec in found) == 10

    try:
        driver.wait_ready(published)
    except BaseException:
        driver.stop()
        raise
    return driver


def _use_partitions(stage: Stage) -> None:
    client = stage.client
    stage.create("v1", "Namespace", NAMESPACE)
    stage.create(
        f"{GROUP}/v1",
        "DeviceClass",
        "partition",
        spec={"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
    )
    for number, name in enumerate(PODS):
        _use_partition(stage, name, number)
    pods = path("v1", "pods", namespace=NAMESPACE)
    wait_until(
        lambda: all(each["status"].get("phase") == "Running" for each in client.get(pods).items), "pods on partitions"
    )
    rule = _rule("gpu-0-full")
    wait_until(lambda: "siblingPods=3" in _impact(stage, rule), "the webhook knows who uses them")


def _use_partition(stage: Stage, name: str, number: int) -> None:
    """A pod that wants a partition of the first GPU."""
    client = stage.client
    own = f"device.attributes['{DRIVER}']"
    wanted = f"{own}.index == 0 && 'partition' in {own} && {own}.partition == {number}"
    request = {"deviceClassName": "partition", "selectors": [{"cel": {"expression": wanted}}]}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}
    claim = {"apiVersion": f"{GROUP}/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}
    _ = client.create(path(f"{GROUP}/v1", "resourceclaims", namespace=NAMESPACE), claim).object
    pod_spec = {
        "containers": [{"name": "main", "image": "none"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec}
    wait_until(lambda: client.create(path("v1", "pods", namespace=NAMESPACE), pod).ok, f"pod {name}")


def _remove_pod(stage: Stage, name: str) -> None:
    """With its claim; returns when both are gone."""
    pod = path("v1", "pods", namespace=NAMESPACE, name=name)
    claim = path(f"{GROUP}/v1", "resourceclaims", namespace=NAMESPACE, name=name)
    stage.client.request("DELETE", pod, {"gracePeriodSeconds": 0})
    stage.client.delete(claim)
    wait_until(lambda: not any(stage.client.get(each).ok for each in (pod, claim)), f"pod {name} is gone")


def _rule(device: str, effect: str = "NoExecute") -> Json:
    selector = {"driver": DRIVER, "pool": NODE, "device": device}
    return rule_for(selector, {"key": "example.com/faulty", "effect": effect}, name="faulty")


def _impact(stage: Stage, rule: Json) -> str:
    return str(stage.ask(rule).get("auditAnnotations", {}).get("impact", ""))


@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule"])
@pytest.mark.whole
def test_rule_on_the_full_device_names_the_pods_on_its_partitions(stage: Stage, effect: str) -> None:
    reply = stage.client.create(f"{path(f'{GROUP}/v1', 'devicetaintrules')}?dryRun=All", _rule("gpu-0-full", effect))
    assert reply.ok, reply
    (warning,) = [each for each in reply.warnings if "DT205" in each]
    assert warning.endswith(f"{STAY} [DT205]")
    assert "devices=1 " in _impact(stage, _rule("gpu-0-full", effect))
    assert "siblings=4 siblingPods=3" in _impact(stage, _rule("gpu-0-full", effect))


def test_the_other_gpu_has_nothing_to_do_with_them(stage: Stage) -> None:
    reply = stage.client.create(f"{path(f'{GROUP}/v1', 'devicetaintrules')}?dryRun=All", _rule("gpu-1-full"))
    (warning,) = [each for each in reply.warnings if "DT205" in each]
    assert "4 other devices of the same hardware stay in service; no pod uses them" in warning


def test_a_rule_for_the_whole_pool_leaves_none_in_service(stage: Stage) -> None:
    rule = _rule("gpu-0-full")
    del rule["spec"]["deviceSelector"]["device"]
    assert "sibling" not in _impact(stage, rule)


@pytest.mark.whole
def test_preview_names_them(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "rule.json"
    file.write_text(json.dumps(_rule("gpu-0-full")))
    command = [sys.executable, "-m", "webhook", "preview", str(file), f"--kubeconfig={stage.plane.kubeconfig}"]
    text = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    assert STAY in text
    values = json.loads(subprocess.run([*command, "-o", "json"], check=False, capture_output=True, text=True).stdout)
    siblings = {each["device"]: each["pods"] for each in values["previews"][0]["siblings"]}
    assert siblings == {
        "gpu-0-partition-0": ["partitioned/a"],
        "gpu-0-partition-1": ["partitioned/b"],
        "gpu-0-partition-2": ["partitioned/c"],
        "gpu-0-partition-3": [],
    }


def test_a_rule_that_stays_on_a_partition_takes_it_out_of_the_answer(stage: Stage) -> None:
    """The in-tree controller evicts its pod, and the other two are left."""
    rules = path(f"{GROUP}/v1", "devicetaintrules")
    stored = _rule("gpu-0-partition-0") | {"metadata": {"name": "first-partition"}}
    reply = stage.client.create(rules, stored)
    assert reply.ok, reply
    try:
        wait_until(lambda: "siblings=3 siblingPods=2" in _impact(stage, _rule("gpu-0-full")), "the rule is known")
    finally:
        stage.client.delete(f"{rules}/first-partition")


def test_hardware_scope_closes_the_partitions_and_opens_them_again(stage: Stage) -> None:
    """A rule on the full device alone leaves the fourth partition open: the next pod is placed on it (8a)."""
    client, rules = stage.client, path(f"{GROUP}/v1", "devicetaintrules")
    pods = path("v1", "pods", namespace=NAMESPACE)

    def added() -> set[str]:
        labelled = [each for each in client.get(rules).items if HARDWARE_LABEL in each["metadata"].get("labels", {})]
        return {each["spec"]["deviceSelector"]["device"] for each in labelled}

    def is_unschedulable() -> bool:
        """Or gone, to come again: the scheduler may hear of the rules after it has placed the pod."""
        if not client.get(f"{pods}/d").ok:
            _use_partition(stage, "d", 3)
        pod = client.get(f"{pods}/d").object
        if "nodeName" in pod["spec"]:
            _remove_pod(stage, "d")
            return False
        return any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", ()))

    with PatchProcess(stage.plane) as process:
        process.wait_for("working")
        _ = client.create(rules, _rule("gpu-0-full", "NoSchedule")).object
        try:
            (command,) = blocks("docs/patches.md", "Taint a GPU with its partitions")
            assert stage.plane.kubectl(*command.split()[1:]).code == 0
            wait_until(lambda: len(added()) == 4, "the partitions are closed")
            assert added() == {f"gpu-0-partition-{number}" for number in range(4)}
            wait_until(is_unschedulable, "the fourth partition is closed")
            _ = client.patch(f"{rules}/faulty", {"metadata": {"annotations": {SCOPE: None}}}).object
            wait_until(lambda: not added(), "the partitions are open")
            wait_until(lambda: client.get(f"{pods}/d").object["status"].get("phase") == "Running", "the pod runs")
            _ = client.patch(f"{rules}/faulty", {"metadata": {"annotations": {SCOPE: "hardware"}}}).object
            wait_until(lambda: len(added()) == 4, "they are closed again")
        finally:
            client.delete(f"{rules}/faulty")
        wait_until(lambda: not added(), "they go with the rule")
