"""Upstream's own scale test with us in the place of its controller: a thousand pods, a thousand claims, one taint.

Source: k8s.io/kubernetes/test/integration/dra, evictions by slice taint and by rule: 20 slices with 50 devices, every
pod to be marked for deletion. Who was, and how often, is counted from the API server's audit log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.apiserver.evicting import BLUNT, EvictProcess
from tests.apiserver.eviction.play import NO_CEILING, OUR_USER
from tests.apiserver.eviction.witness import Witness
from tests.controlplane import versions
from tests.controlplane.assets import Assets
from tests.controlplane.client import Client, path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.whole]

Json = dict[str, Any]

SLICES: Final = 20
DEVICES: Final = 50
PODS: Final = SLICES * DEVICES
THREADS: Final = 8
GONE_WITHIN_SECONDS: Final = 120.0
ALL: Final = os.environ.get("EVICTION_SCALE") == "all"
"""Otherwise one taint, of the version that everybody uses, has to do."""
_VERSION: Final = (os.environ.get("ENVTEST_K8S_VERSION") or versions.DEFAULT).removeprefix("v")
_RULES: Final = [("rule", name) for name in versions.rule_versions(_VERSION)]
WAYS: Final = [*_RULES, *[("slices", name) for name in versions.api_versions(_VERSION) if name != "v1alpha3"]][
    : None if ALL else 1
]


class Crowd:
    """The pods, and the devices that they have; all names begin with that of the crowd."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name
        self.driver = f"{name}.example.com"
        self.uids: set[str] = set()

    def gather(self) -> None:
        """All are there when it returns."""
        _ = self._client.create(path("v1", "namespaces"), {"metadata": {"name": self.name}}).object
        self.publish(f"{versions.GROUP}/{versions.api_versions(_VERSION)[0]}")
        self.uids = set(self._client.each(self._admit, range(PODS), threads=THREADS))

    def publish(self, version: str, *taints: Json) -> None:
        """The slices come, or their devices get taints."""

        def put(number: int) -> None:
            told: Json = {"taints": list(taints)} if taints else {}
            told = {"basic": told} if version.endswith("v1beta1") else told
            devices = [{"name": f"device-{device}", **told} for device in range(DEVICES)]
            pool = {"name": f"pool-{number}", "generation": 1, "resourceSliceCount": 1}
            name = f"{self.name}-{number}"
            spec = {"driver": self.driver, "nodeName": "nowhere", "pool": pool, "devices": devices}
            collection = path(version, "resourceslices")
            if taints:
                _ = self._client.patch(f"{collection}/{name}", {"spec": spec}).object
            else:
                _ = self._client.create(collection, {"metadata": {"name": name}, "spec": spec}).object

        self._client.each(put, range(SLICES), threads=THREADS)

    def _admit(self, number: int) -> str:
        """One pod with its device: its uid."""
        version, name = f"{versions.GROUP}/{versions.api_versions(_VERSION)[0]}", f"pod-{number}"
        claims = path(version, "resourceclaims", namespace=self.name)
        claim = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": self.driver}}]}}
        _ = self._client.create(claims, {"metadata": {"name": name}, "spec": claim}).object
        spec = {
            "nodeName": "nowhere",
            "terminationGracePeriodSeconds": 300,
            "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        }
        created = self._client.create(self._pods, {"metadata": {"name": name}, "spec": spec}).object
        uid: str = created["metadata"]["uid"]
        place = {"pool": f"pool-{number // DEVICES}", "device": f"device-{number % DEVICES}"}
        status = {
            "allocation": {"devices": {"results": [{"request": "r", "driver": self.driver, **place}]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
        }
        _ = self._client.patch(f"{claims}/{name}/status", {"status": status}).object
        return uid

    @property
    def _pods(self) -> str:
        return path("v1", "pods", namespace=self.name)

    def marked(self) -> set[str]:
        """The uids of the pods that are being deleted."""
        pods = self._client.get(self._pods).items
        return {pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" in pod["metadata"]}


@pytest.fixture(scope="module")
def audited(assets: Assets, audit_policy: Path) -> Iterator[ControlPlane]:
    """Nobody but us evicts here: there is no controller at all."""
    with ControlPlane(assets, audit=True, api_server_arguments=[f"--audit-policy-file={audit_policy}"]) as plane:
        yield plane


@pytest.mark.parametrize(("sort", "version"), WAYS)
def test_a_thousand_pods_are_evicted_once_each(audited: ControlPlane, sort: str, version: str) -> None:
    crowd = Crowd(audited.client, f"{sort}-{version}")
    crowd.gather()
    witness = Witness(audited.folder / "audit.log", OUR_USER)
    before = witness.requests()
    flags = (f"--kubeconfig={audited.kubeconfig_of(OUR_USER, ['system:masters'])}", "--in-tree=absent")
    fast = ("--kube-api-qps=1000", "--kube-api-burst=2000")
    with EvictProcess(audited, "replacement", *flags, *fast, policy=f"{BLUNT}{NO_CEILING}") as process:
        process.wait_working()
        began = time.monotonic()
        taint = {"key": "example.com/broken", "effect": "NoExecute"}
        if sort == "rule":
            rules = path(f"{versions.GROUP}/{version}", "devicetaintrules")
            spec = {"deviceSelector": {"driver": crowd.driver}, "taint": taint}
            _ = audited.client.create(rules, {"metadata": {"name": crowd.name}, "spec": spec}).object
        else:
            crowd.publish(f"{versions.GROUP}/{version}", taint)
        wait_until(lambda: witness.evicted().keys() >= crowd.uids, "all", seconds=GONE_WITHIN_SECONDS, every=0.2)
        took = time.monotonic() - began
        deleted = "device_taint_eviction_controller_pod_deletions_total"
        wait_until(lambda: process.metric(deleted) == {"": float(PODS)}, "told")
    made = {what: count - before.get(what, 0) for what, count in witness.requests().items()}
    print(f"{sort} {version}: {PODS} pods in {took:.1f} s; requests: {made}")
    ours = [each for each in witness.deletions() if each.pod[0] == crowd.name]
    assert sorted(each.uid for each in ours) == sorted(crowd.uids)
    assert crowd.marked() == crowd.uids
    assert all(each.code < 300 for each in ours)
    of_pods = {what: count for what, count in made.items() if "pods" in what and count}
    marks = of_pods.pop("patch pods/status")
    assert of_pods == {"delete pods": PODS}
    assert PODS <= marks <= PODS * 1.1  # a mark whose deletion was not wanted any more, as trust was lost, comes again
