"""Gates of taints that are switched off, and on again, on a real control plane (V-4, L-14, S-8)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.apiserver.planes import own_plane
from tests.apiserver.policy.stage import RestartablePlane
from tests.builders import (
    make_claim,
    make_device,
    make_meta,
    make_pod,
    make_result,
    make_rule,
    make_slice,
    make_taint,
    make_template,
    make_toleration,
)
from tests.controlplane import versions
from tests.controlplane.client import Client, path
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import GROUP

pytestmark = pytest.mark.whole

DRIVER: Final = "gates.example.com"
KEY: Final = "gates.example.com/broken"
NAMESPACE: Final = "default"
PODS: Final = path("v1", "pods", namespace=NAMESPACE)
LATER: Final = make_taint("gates.example.com/slow", "None")


@pytest.fixture(scope="module")
def gated_plane(request: pytest.FixtureRequest) -> Iterator[RestartablePlane]:
    """An API server and all controllers."""
    with own_plane(request, "kube-controller-manager") as plane:
        if versions.minor(plane.server_version) >= 38:
            pytest.skip("the gates are locked")
        plane.add_node("node-0")
        yield plane


class Stored:
    """Objects by name, in the newest version that the release serves."""

    def __init__(self, plane: RestartablePlane) -> None:
        self.client: Client = plane.client
        self.version = versions.api_versions(plane.server_version)[0]
        self.rule_version = versions.rule_versions(plane.server_version)[0]
        self.slices = path(f"{GROUP}/{self.version}", "resourceslices")
        self.claims = path(f"{GROUP}/{self.version}", "resourceclaims", namespace=NAMESPACE)
        self.templates = path(f"{GROUP}/{self.version}", "resourceclaimtemplates", namespace=NAMESPACE)
        self.rules = path(f"{GROUP}/{self.rule_version}", "devicetaintrules")

    def create(self, name: str) -> None:
        """A slice with a taint, and a claim and a template with a toleration, all of this name."""
        device = make_device(taints=[make_taint(KEY)])
        value = make_slice([device], driver=DRIVER, pool=name, meta={"name": name}, version=self.version)
        _ = self.client.create(self.slices, value).object
        tolerations = [make_toleration(KEY)]
        meta = make_meta(name, namespace=NAMESPACE)
        _ = self.client.create(self.claims, make_claim(tolerations, meta=meta, version=self.version)).object
        template = make_template(tolerations, meta=meta, version=self.version)
        _ = self.client.create(self.templates, template).object

    def taints(self, name: str) -> int:
        (device,) = self.client.get(f"{self.slices}/{name}").object["spec"]["devices"]
        return len(device.get("taints", ()))

    def tolerations(self, name: str) -> list[int]:
        """How many the claim and the template have."""
        claim = self.client.get(f"{self.claims}/{name}").object["spec"]
        template = self.client.get(f"{self.templates}/{name}").object["spec"]["spec"]
        requests = [each["devices"]["requests"][0]["exactly"] for each in (claim, template)]
        return [len(each.get("tolerations", ())) for each in requests]

    def occupy(self, name: str) -> str:
        """A pod that has the slice's device by a claim of its own, as if it had been scheduled: its path."""
        claim = make_claim(meta=make_meta(f"{name}-used", namespace=NAMESPACE), version=self.version)
        _ = self.client.create(self.claims, claim).object
        spec: Any = {"containers": [{"name": "c", "image": "none"}], "terminationGracePeriodSeconds": 0}
        manifest = make_pod(name, f"{name}-used", namespace=NAMESPACE, **spec)
        metadata = {"name": name, "namespace": NAMESPACE}
        pod = self.client.create(PODS, {**manifest, "metadata": metadata, "status": {}}).object
        result = {**make_result(), "driver": DRIVER, "pool": name}
        status: Any = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}],
        }
        _ = self.client.patch(f"{self.claims}/{name}-used/status", {"status": status}).object
        return f"{PODS}/{name}"

    def add_taint(self, name: str) -> None:
        (device,) = self.client.get(f"{self.slices}/{name}").object["spec"]["devices"]
        more = {**device, "taints": [*device.get("taints", ()), LATER]}
        _ = self.client.patch(f"{self.slices}/{name}", {"spec": {"devices": [more]}}).object


def test_what_is_stored_outlives_the_gates_and_acts_when_they_are_on_again(gated_plane: RestartablePlane) -> None:
    minor = versions.minor(gated_plane.server_version)
    gates = ("DRADeviceTaints", *(("DRADeviceTaintRules",) if minor >= 35 else ()))
    stored = Stored(gated_plane)
    stored.create("before")
    selector = {"driver": DRIVER, "pool": "meanwhile"}
    evicting = make_rule(
        selector=selector,
        taint=make_taint(KEY, "NoExecute"),
        meta={"name": "evicting"},
        version=stored.rule_version,
    )
    _ = stored.client.create(stored.rules, evicting).object

    gated_plane.switch(dict.fromkeys(gates, False))
    stored.add_taint("before")
    stored.create("meanwhile")
    stored.add_taint("meanwhile")
    assert (stored.taints("before"), stored.tolerations("before")) == (2, [1, 1])
    assert (stored.taints("meanwhile"), stored.tolerations("meanwhile")) == (0, [0, 0] if minor >= 35 else [1, 1])
    rule = stored.client.get(f"{stored.rules}/evicting").object
    assert rule["spec"]["taint"]["effect"] == "NoExecute"
    pod = stored.occupy("meanwhile")
    assert not _evictor_runs(gated_plane)

    gated_plane.switch(dict.fromkeys(gates, True))
    wait_until(lambda: stored.client.get(pod).code == 404, "the pod is evicted", seconds=180)
    assert _evictor_runs(gated_plane)
    assert (stored.taints("before"), stored.taints("meanwhile")) == (2, 0)
    assert stored.tolerations("meanwhile") == ([0, 0] if minor >= 35 else [1, 1])


def test_taints_cannot_be_switched_off_while_rules_are_on(gated_plane: RestartablePlane) -> None:
    """From 1.35 on one gate needs the other; programs say so and end."""
    if versions.minor(gated_plane.server_version) < 35:
        pytest.skip("rules have no gate of their own")
    gates = "--feature-gates=DRADeviceTaints=false,DRADeviceTaintRules=true"
    command = [str(gated_plane.assets.program("kube-controller-manager")), gates]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "DRADeviceTaintRules is enabled, but depends on features that are disabled: [DRADeviceTaints]" in done.stderr


def _evictor_runs(plane: RestartablePlane) -> bool:
    return bool(
        re.search(r"^device_taint_eviction_controller_", plane.metrics("kube-controller-manager"), re.MULTILINE)
    )
