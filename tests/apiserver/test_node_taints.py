"""Taints of nodes and of devices beside each other: a toleration of the one is none of the other (G-10)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.builders import make_claim, make_device, make_request, make_rule, make_slice, make_taint, make_toleration
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import GROUP
from tests.controlplane.webhook_process import our_environment

pytestmark = pytest.mark.whole

NAME: Final = "node-taints"
DRIVER: Final = "node-taints.example.com"
CLOSED: Final = "example.com/closed"
EMPTIED: Final = "example.com/emptied"
PODS: Final = path("v1", "pods", namespace=NAME)
NODE: Final = path("v1", "nodes", name=NAME)


class Stage:
    """A node of its own with four devices, and pods that can run only there."""

    def __init__(self, plane: ControlPlane) -> None:
        self.client = plane.client
        self.version = versions.api_versions(plane.server_version)[0]
        group_version = f"{GROUP}/{self.version}"
        self.classes = path(group_version, "deviceclasses")
        self.slices = path(group_version, "resourceslices")
        self.claims = path(group_version, "resourceclaims", namespace=NAME)
        self.rule_version = versions.rule_versions(plane.server_version)[0]
        self.rules = path(f"{GROUP}/{self.rule_version}", "devicetaintrules")
        plane.add_node(NAME)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}}
        _ = self.client.create(path("v1", "namespaces"), namespace).object
        selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
        device_class = {"apiVersion": group_version, "kind": "DeviceClass", "metadata": {"name": NAME}}
        _ = self.client.create(self.classes, {**device_class, "spec": {"selectors": selectors}}).object

    def publish(self, *taints: Any) -> None:
        """The devices, each with these taints."""
        devices = [make_device(f"gpu-{number}", list(taints)) for number in range(4)]
        given: Any = {"driver": DRIVER, "pool": NAME, "node_name": NAME, "meta": {"name": NAME}}
        self.client.delete(f"{self.slices}/{NAME}")
        _ = self.client.create(self.slices, make_slice(devices, version=self.version, **given)).object

    def taint_node(self, *taints: Any) -> None:
        _ = self.client.patch(NODE, {"spec": {"taints": list(taints)}}).object

    def wait_closed(self) -> None:
        """Until the scheduler has heard of the node's taint: it places no pod there that does not tolerate it."""
        labels = {"kubernetes.io/hostname": NAME}
        spec = {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": labels,
            "containers": [{"name": "c", "image": "no"}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": NAME}, "spec": spec}

        def closed() -> bool:
            self.client.create(PODS, pod)
            placed = self.client.get(f"{PODS}/probe").body.get("spec", {}).get("nodeName")
            if placed:
                self.client.delete(f"{PODS}/probe")
            return not placed and self.state("probe") == "Unschedulable"

        wait_until(closed, "the scheduler knows that the node is closed", every=0.2)
        self.client.delete(f"{PODS}/probe")

    def run(self, name: str, key: str, effect: str, *, pod: bool, claim: bool) -> None:
        """A pod of which it, its claim, both or none tolerates."""
        tolerations = [make_toleration(key, effect=effect)]
        requests = [make_request("gpu", tolerations if claim else None, deviceClassName=NAME)]
        meta = {"name": name, "namespace": NAME}
        _ = self.client.create(self.claims, make_claim(requests=requests, meta=meta, version=self.version)).object
        spec = {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": NAME},
            "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            "tolerations": tolerations if pod else [],
        }
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        _ = self.client.create(PODS, manifest).object

    def state(self, name: str) -> str:
        """`Running`, why it is not scheduled, or `gone`."""
        reply = self.client.get(f"{PODS}/{name}")
        if reply.code == 404:
            return "gone"
        status = reply.object["status"]
        waits = [each["reason"] for each in status.get("conditions", []) if each["status"] == "False"]
        return status["phase"] if status["phase"] == "Running" else "".join(waits)

    def wait(self, **states: str) -> None:
        """Until the pods are in these states."""
        wait_until(lambda: {name: self.state(name) for name in states} == states, f"{states}", seconds=240)

    def clear(self) -> None:
        """Pods and claims go, and nothing is tainted."""
        self.taint_node()
        for collection in (self.rules, PODS, self.claims):
            self.client.delete(collection)
        wait_until(lambda: not self.client.get(self.claims).items, "the claims are gone", seconds=180)


@pytest.fixture(scope="module")
def whole_stage(full_plane: ControlPlane) -> Iterator[Stage]:
    stage = Stage(full_plane)
    yield stage
    for url in (f"{stage.slices}/{NAME}", f"{stage.classes}/{NAME}", NODE, path("v1", "namespaces", name=NAME)):
        stage.client.delete(url)


@pytest.fixture
def stage(whole_stage: Stage) -> Iterator[Stage]:
    yield whole_stage
    whole_stage.clear()


def test_a_pod_on_both_has_to_tolerate_both(stage: Stage) -> None:
    """The node's in the pod, the device's in the claim."""
    stage.publish(make_taint(CLOSED))
    stage.taint_node({"key": CLOSED, "effect": "NoSchedule"})
    stage.wait_closed()
    for name, pod, claim in (("neither", False, False), ("pod", True, False), ("claim", False, True)):
        stage.run(name, CLOSED, "NoSchedule", pod=pod, claim=claim)
    stage.run("both", CLOSED, "NoSchedule", pod=True, claim=True)
    stage.wait(both="Running", pod="Unschedulable", claim="Unschedulable", neither="Unschedulable")


def test_each_evicts_those_that_tolerate_only_the_other(stage: Stage, full_plane: ControlPlane, tmp_path: Path) -> None:
    """Of a DeviceTaintRule, `preview` says so beforehand."""
    stage.publish()
    stage.run("pod", EMPTIED, "NoExecute", pod=True, claim=False)
    stage.run("claim", EMPTIED, "NoExecute", pod=False, claim=True)
    stage.wait(pod="Running", claim="Running")
    rule = make_rule(
        selector={"driver": DRIVER},
        taint=make_taint(EMPTIED, "NoExecute", time_added=None),
        meta={"name": NAME},
        version=stage.rule_version,
    )
    file = tmp_path / "rule.json"
    file.write_text(json.dumps(rule))
    asked = [sys.executable, "-m", "webhook", "preview", str(file), "--kubeconfig", str(full_plane.kubeconfig)]
    done = subprocess.run([*asked, "-o", "json"], capture_output=True, text=True, check=True, env=our_environment())
    (previewed,) = json.loads(done.stdout)["previews"]
    assert {each["name"]: each["outcome"] for each in previewed["pods"]} == {"pod": "Evicted", "claim": "Tolerates"}

    stage.taint_node({"key": EMPTIED, "effect": "NoExecute"})
    stage.wait(claim="gone", pod="Running")
    stage.taint_node()
    stage.client.delete(f"{stage.claims}/claim")
    wait_until(lambda: stage.client.get(f"{stage.claims}/claim").code == 404, "its claim is gone", seconds=180)

    stage.run("claim", EMPTIED, "NoExecute", pod=False, claim=True)
    stage.wait(claim="Running", pod="Running")
    _ = stage.client.create(stage.rules, rule).object
    stage.wait(pod="gone", claim="Running")
