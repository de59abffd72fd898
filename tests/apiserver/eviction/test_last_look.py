"""What is changed while evictions wait for a slot, and who stays in a PodGroup, on a real API server.

The answers to evictions are kept back by a proxy, so that all slots are taken and the rest of a gang waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.apiserver.evicting import GENTLE, RULES, EvictProcess, Ward, stays
from tests.apiserver.eviction.ranks import ALL, GATES, SERVED
from tests.apiserver.eviction.witness import AUDIT_POLICY, Witness
from tests.apiserver.planes import own_plane
from tests.controlplane.client import path
from tests.controlplane.late_answers import LateAnswers
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.unit.cluster.acting import RULES as RULE_COLLECTION
from tests.unit.cluster.acting import now
from webhook.cluster.client.credentials import KubeConfig
from webhook.cluster.client.rest import ThrottledCluster
from webhook.cluster.events import EventWriter
from webhook.cluster.eviction_writer import EvictionWriter
from webhook.eviction.ports import Disruption, EvictionOutcome, EvictionResult, PodRef, WorkerSettings
from webhook.flowcontrol.loop import Throttle

pytestmark = pytest.mark.slow

Json = dict[str, Any]

SLOTS: Final = WorkerSettings().workers
MORE: Final = 16
ACCOUNT: Final = "evictor"
USER: Final = f"system:serviceaccount:default:{ACCOUNT}"
LATE_SECONDS: Final = 6.0
STILL_SECONDS: Final = 12.0
PAUSE: Final = f'{GENTLE}pause: {{until: "2999-01-01T00:00:00Z", why: storage}}\n'
DISRUPTION: Final = Disruption("DeletionByDeviceTaintWebhook", "because")


@pytest.fixture(scope="module")
def grouped(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver with PodGroups, which keeps an audit log; an account that may do everything."""
    gates = {"feature_gates": GATES, "runtime_config": SERVED}
    with own_plane(request, since=37, audit_policy=AUDIT_POLICY, **gates) as found:
        accounts = path("v1", "serviceaccounts", namespace="default")
        _ = found.client.create(accounts, {"metadata": {"name": ACCOUNT}}).object
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"kind": "ServiceAccount", "namespace": "default", "name": ACCOUNT}
        bindings = path("rbac.authorization.k8s.io/v1", "clusterrolebindings")
        binding = {"metadata": {"name": ACCOUNT}, "roleRef": role, "subjects": [subject]}
        _ = found.client.create(bindings, binding).object
        yield found


def pause(process: EvictProcess, _ward: Ward, _rule: str) -> None:
    process.set_policy(PAUSE)


def hold(_process: EvictProcess, ward: Ward, _rule: str) -> None:
    held = {"metadata": {"annotations": {"devicetaint.io/hold": "debugging"}}}
    for pod in ward.present():
        _ = ward.client.patch(f"{ward.pods}/{pod}", held)


def delete_rule(_process: EvictProcess, ward: Ward, rule: str) -> None:
    _ = ward.client.delete(f"{RULES}/{rule}").object


@pytest.mark.parametrize("change", [pause, hold, delete_rule])
@pytest.mark.whole
def test_no_eviction_is_sent_after_a_change_although_every_slot_was_taken(
    grouped: ControlPlane, change: Callable[[EvictProcess, Ward, str], None]
) -> None:
    witness = Witness(grouped.folder / "audit.log", USER)
    flags = ("--in-tree=absent", "--kube-api-qps=1000", "--kube-api-burst=2000")
    with Ward(grouped.client) as ward, LateAnswers(grouped, LATE_SECONDS) as late:
        kubeconfig = late.kubeconfig(grouped.kubeconfig_of_account("default", ACCOUNT))
        with EvictProcess(grouped, "replacement", *flags, policy=GENTLE, kubeconfig=kubeconfig) as process:
            process.wait_working()
            for number in range(SLOTS + MORE):
                ward.admit(f"pod-{number:02}", annotations={"devicetaint.io/gang": "train"})
            rule = ward.taint()

            def evicted() -> int:
                return sum(each.pod[0] == ward.name for each in witness.deletions())

            wait_until(lambda: evicted() >= SLOTS, "every slot is taken", every=0.05)
            change(process, ward, rule)
            assert stays((evicted() == SLOTS for _ in iter(int, 1)), STILL_SECONDS)
            assert len(ward.present()) == MORE


@pytest.mark.whole
def test_member_that_stays_takes_nobody_of_its_pod_group_along(grouped: ControlPlane) -> None:
    witness = Witness(grouped.folder / "audit.log", USER)
    with Ward(grouped.client) as ward:

        def asked() -> set[str]:
            return {each.pod[1] for each in witness.deletions() if each.pod[0] == ward.name}

        kubeconfig = grouped.kubeconfig_of_account("default", ACCOUNT)
        groups = path("scheduling.k8s.io/v1beta1", "podgroups", namespace=ward.name)
        spec = {"schedulingPolicy": {"basic": {}}, "disruptionMode": ALL}
        _ = ward.client.create(groups, {"metadata": {"name": "ring"}, "spec": spec}).object
        daemon_set = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d", "controller": True}
        group: Json = {"schedulingGroup": {"podGroupName": "ring"}}
        ward.admit("stays", spec=group, ownerReferences=[daemon_set])
        ward.admit("untouched", pool="another", spec=group)
        with EvictProcess(grouped, "replacement", "--in-tree=absent", policy=GENTLE, kubeconfig=kubeconfig) as process:
            process.wait_working()
            rule = ward.taint(device="stays")
            wait_until(lambda: ward.condition(rule).get("reason") == "NothingToDo", "it is said")
            assert ward.present() == {"stays", "untouched"}
            ward.admit("goes", spec=group)
            ward.taint(device="goes")
            wait_until(lambda: ward.present() == {"stays"}, "the others go together")
            wait_until(lambda: asked() == {"goes", "untouched"}, "it was us, as the audit log says")
    assert asked() == {"goes", "untouched"}


@pytest.mark.parametrize("way", ["evict", "delete"])
def test_api_server_refuses_a_version_that_is_not_the_newest_and_says_which_pod_is_another(
    plane: ControlPlane, way: str
) -> None:
    async def test() -> None:
        async with ThrottledCluster(KubeConfig(str(plane.kubeconfig)), Throttle(0, 1)) as cluster:
            events = EventWriter(cluster, instance="evict-0", now=now)
            writer = EvictionWriter(cluster, RULE_COLLECTION, events, now)

            async def ask(uid: str, version: str) -> EvictionOutcome:
                pod = PodRef(ward.name, "pod", uid)
                pod.version = version
                return await (writer.evict(pod, None) if way == "evict" else writer.delete(pod, None, DISRUPTION))

            seen = ward.admit("pod")["metadata"]
            old = await ask(seen["uid"], seen["resourceVersion"])
            assert (old.result, old.changed, old.unsure) == (EvictionResult.FAILED, True, False)
            another = await ask("another", seen["resourceVersion"])
            # of a PATCH the server looks at the version first; the watch shows then that the pod is another one
            assert another.changed if way == "delete" else another.result is EvictionResult.GONE
            newest = ward.client.get(f"{ward.pods}/pod").object["metadata"]
            assert (await ask(seen["uid"], newest["resourceVersion"])).evicted
            assert ward.present() == set()

    with Ward(plane.client) as ward:
        asyncio.run(test())


def test_live_hold_is_read_although_it_is_not_known(plane: ControlPlane) -> None:
    async def test() -> None:
        async with ThrottledCluster(KubeConfig(str(plane.kubeconfig)), Throttle(0, 1)) as cluster:
            writer = EvictionWriter(cluster, RULE_COLLECTION, EventWriter(cluster, instance="evict-0", now=now), now)
            pod = PodRef(ward.name, "pod", ward.admit("pod")["metadata"]["uid"])
            assert await writer.read(pod) is None
            _ = ward.client.patch(
                f"{ward.pods}/pod", {"metadata": {"annotations": {"devicetaint.io/hold": "x"}}}
            ).object
            found = await writer.read(pod)
            assert found is not None
            assert found.changed
            marked = await writer.delete(pod, None, DISRUPTION)
            assert (marked.changed, ward.present()) == (True, {"pod"})

    with Ward(plane.client) as ward:
        asyncio.run(test())
