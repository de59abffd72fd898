"""Eviction of what belongs together, on a real control plane: gangs, shared claims, and claims of PodGroups.

All scenarios are played on one control plane with one worker and the default manners, each in a namespace with a driver
of its own. Jobs, Deployments, scheduler, claims and budgets are real, kubelets are kwok's. Evictions are taken from the
API server's audit log, and breaks from a watch: a break is a rank that leaves after all were ready. Run with `-s` to
see the figures.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import pytest

from tests.apiserver.eviction.bench import RULES, SOON_SECONDS, VERSION
from tests.apiserver.eviction.ground import NODE, Ground, pod_spec_of
from tests.apiserver.eviction.ranks import ALL, GATES, SERVED, Ranks, in_pod_group, make_daemon_set, make_pod_group
from tests.apiserver.eviction.readiness import GATED, ReadyWatch, SlowStart
from tests.apiserver.eviction.turns import Scenario, Stage, all_played, staged
from tests.apiserver.policy.stage import make_policy
from tests.conftest import _assets
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

pytestmark = pytest.mark.slow

Json = dict[str, Any]

RANKS: Final = 8
SHARING: Final = 3
ROUNDS_MOST: Final = 2
TOGETHER: Final = timedelta(seconds=1 if os.environ.get("EVICTION_SCALE") == "all" else 14)
"""Between the first and the last rank of a gang; machines of CI pause for seconds.

Four that wait for their budget between two of them need 15 s, and a gang that is replaced meanwhile breaks twice.
"""
TWO_TOGETHER: Final = min(TOGETHER, timedelta(seconds=4))
"""Between two pods: one that waits for its budget after the other needs 5 s."""
AT_THE_RATE: Final = timedelta(seconds=5)
"""Between twelve pods of no gang: those that wait for their budget need 5 s between two."""
STILL_SECONDS: Final = 8.0
"""Longer than any retry of what is left alone, or waits."""
JOB_SET: Final = {"jobset.sigs.k8s.io/jobset-name": "training", "jobset.sigs.k8s.io/jobset-uid": "f3b0"}
LEADER_WORKER_SET: Final = {
    "leaderworkerset.sigs.k8s.io/name": "serving",
    "leaderworkerset.sigs.k8s.io/group-key": "0a",
}
FAST: Final = {"rate": 1000, "burst": 1000}
"""Beside it the default manners, of which `perOwnerUnavailable: 1` is one."""
POLICY: Final = make_policy(
    inTreeEvictor="absent",
    impact={"limits": [{"pods": None, "claims": None, "devices": None, "namespaces": None}]},
    eviction=[{"namespaces": {"names": ["one-place"]}, "perNamespace": 1, **FAST}, FAST],
)


# --- gangs --------------------------------------------------------------------------------------


def ranks_of_a_pod_group_leave_at_once(stage: Stage) -> Iterator[None]:
    yield from _leaves_at_once(stage.ground("pod-group"), pod_group=True)


def ranks_of_a_job_set_leave_at_once(stage: Stage) -> Iterator[None]:
    yield from _leaves_at_once(stage.ground("job-set"), JOB_SET)


def ranks_of_a_leader_worker_set_leave_at_once(stage: Stage) -> Iterator[None]:
    yield from _leaves_at_once(stage.ground("leader-worker-set"), LEADER_WORKER_SET)


def _leaves_at_once(
    ground: Ground, labels: Mapping[str, str] | None = None, *, pod_group: bool = False
) -> Iterator[None]:
    ground.publish("old", _devices(RANKS))
    ground.make_template()
    if pod_group:
        make_pod_group(ground, "gang", ALL)
    Ranks(ground, RANKS, labels=labels, **(in_pod_group("gang") if pod_group else {}))
    ground.publish("new", _devices(RANKS))
    yield
    with ReadyWatch(ground) as watch:
        ground.taint(pool="old")
        evictions = ground.wait_gone(RANKS)
        _wait_whole(watch)
    took = evictions[-1].at - evictions[0].at
    print(f"{ground.name}: {RANKS} ranks left within {took.total_seconds():.3f} s, {watch.breaks} breaks")
    assert took <= TOGETHER
    assert watch.breaks == 1
    assert len(ground.granted()) == RANKS
    ground.wait_message("Completed", f"{RANKS} pods evicted")


def member_that_no_taint_hits_leaves_with_its_pod_group(stage: Stage) -> Iterator[None]:
    """Disruption mode `all`: one of four devices is tainted."""
    ground = stage.ground("mode-all")
    ground.publish("old", _devices(4))
    ground.make_template()
    make_pod_group(ground, "gang", ALL)
    Ranks(ground, 4, **in_pod_group("gang"))
    ground.publish("new", _devices(4))
    yield
    with ReadyWatch(ground) as watch:
        ground.taint(pool="old", device="device-0")
        evictions = ground.wait_gone(4)
        _wait_whole(watch)
    took = evictions[-1].at - evictions[0].at
    print(f"{ground.name}: 4 ranks left within {took.total_seconds():.3f} s, {watch.breaks} breaks")
    assert took <= TOGETHER
    assert watch.breaks == 1
    assert len(ground.granted()) == 4


def second_gang_starts_when_the_first_is_whole_again(stage: Stage) -> Iterator[None]:
    ground = stage.ground("one-place")
    ground.publish("old", _devices(2 * 4))
    ground.make_template()
    for name in ("ada", "bob"):
        make_pod_group(ground, name, ALL)
        Ranks(ground, 4, name, **in_pod_group(name))
    ground.publish("new", _devices(2 * 4))
    yield
    with ReadyWatch(ground, "ada-") as ada, ReadyWatch(ground, "bob-") as bob:
        ground.taint(pool="old")
        evictions = ground.wait_gone(8, seconds=180)
        for watch in (ada, bob):
            _wait_whole(watch)
    order = [each.pod[1].split("-")[0] for each in evictions]
    print(f"{ground.name}: {' '.join(order)}, {ada.breaks} and {bob.breaks} breaks")
    assert order in (["ada"] * 4 + ["bob"] * 4, ["bob"] * 4 + ["ada"] * 4)
    assert (ada.breaks, bob.breaks) == (1, 1)
    first = ada if order[0] == "ada" else bob
    assert first.whole_at is not None
    assert evictions[4].at >= first.whole_at
    print(f"{ground.name}: the second gang began {(evictions[4].at - first.whole_at).total_seconds():.2f} s after that")


def no_rank_leaves_unless_the_budget_allows_all(stage: Stage) -> Iterator[None]:
    ground = stage.ground("budget")
    ground.publish("old", _devices(4))
    ground.make_template()
    make_pod_group(ground, "gang", ALL)
    Ranks(ground, 4, **in_pod_group("gang"))
    ground.publish("new", _devices(4))
    ground.budget(minAvailable=2)
    yield
    ground.taint(pool="old")
    wait_until(lambda: ground.condition().get("reason") == "Blocked", "it says so", seconds=SOON_SECONDS, every=0.5)
    time.sleep(STILL_SECONDS)
    assert ground.granted() == []
    said = "budget budget allows 2 of 4 evictions that belong together"
    uids = _uids_of(ground)
    wait_until(
        lambda: any(said in each.text for each in ground.witness.told() if each.uid in uids),
        "an Event says so",
        seconds=SOON_SECONDS,
        every=0.5,
    )
    ground.drop_budget()
    evictions = ground.wait_gone(4)
    assert evictions[-1].at - evictions[0].at <= TOGETHER


def members_without_a_taint_stay_with_one_that_stays(stage: Stage) -> Iterator[None]:
    """Disruption mode `all`: the only tainted device is a DaemonSet's, whose pods would come back to it (R2)."""
    ground = stage.ground("daemon-in-gang")
    ground.publish("old", _devices(1))
    ground.make_template()
    make_pod_group(ground, "gang", ALL)
    make_daemon_set(ground, **in_pod_group("gang"))
    ground.publish("new", _devices(2))
    Ranks(ground, 2, **in_pod_group("gang"))
    yield
    ground.taint(pool="old")
    wait_until(lambda: ground.condition().get("reason") == "NothingToDo", "it says so", seconds=240, every=0.5)
    time.sleep(STILL_SECONDS)
    assert ground.granted() == []


def _wait_whole(watch: ReadyWatch) -> None:
    wait_until(lambda: watch.whole_at is not None, "all are ready again", seconds=240, every=0.2)


def _uids_of(ground: Ground) -> set[str]:
    """Of the pods that are there."""
    return {pod["metadata"]["uid"] for pod in ground.client.get(ground.pods).items}


# --- shared claims ------------------------------------------------------------------------------


class Sharers:
    """A Deployment whose pods share one claim, allocated on the only device of pool `old`; one in `new` is free."""

    def __init__(self, ground: Ground, metadata: Json, **pod_spec: Any) -> None:
        self.ground = ground
        ground.publish("old", ["device"])
        ground.make_class()
        claims = path(VERSION, "resourceclaims", namespace=ground.name)
        claim = {"metadata": {"name": "shared"}, "spec": {"devices": {"requests": [ground.request]}}}
        _ = ground.client.create(claims, claim).object
        self.claim = f"{claims}/shared"
        pod = {
            "metadata": {"labels": {"app": ground.name}, **metadata},
            "spec": pod_spec_of({"resourceClaimName": "shared"}) | pod_spec,
        }
        spec = {"replicas": SHARING, "selector": {"matchLabels": {"app": ground.name}}, "template": pod}
        deployments = path("apps/v1", "deployments", namespace=ground.name)
        self._url = f"{deployments}/sharers"
        _ = ground.client.create(deployments, {"metadata": {"name": "sharers"}, "spec": spec}).object
        self.wait_ready()
        ground.publish("new", ["device"])

    def wait_ready(self) -> None:
        def ready() -> bool:
            status = self.ground.client.get(self._url).object.get("status", {})
            return bool(status.get("readyReplicas", 0) == SHARING)

        wait_until(ready, f"{SHARING} pods are ready", seconds=120, every=0.5)

    def scale(self, replicas: int) -> None:
        _ = self.ground.client.patch(self._url, {"spec": {"replicas": replicas}}).object

    def pool(self) -> str:
        """Of the device that the claim has; empty while it has none."""
        allocation = self.ground.client.get(self.claim).object.get("status", {}).get("allocation")
        return allocation["devices"]["results"][0]["pool"] if allocation else ""


def pods_that_share_a_claim_leave_once_and_come_back_elsewhere(stage: Stage) -> Iterator[None]:
    """Replacements are not scheduled before the last pod has vanished."""
    ground = stage.ground("shared")
    with SlowStart(ground) as start:
        sharers = Sharers(ground, {}, **GATED)
        start.seconds = 4.0
        yield
        ground.taint(pool="old")
        ground.wait_gone(SHARING)
        wait_until(lambda: sharers.pool() == "new", "the claim is on another device", seconds=SOON_SECONDS, every=0.2)
        sharers.wait_ready()
        wait_until(lambda: _released(ground), "Released", seconds=SOON_SECONDS, every=0.5)
    print(f"{ground.name}: {len(ground.granted())} evictions of {SHARING} pods")
    assert len(ground.granted()) == SHARING


def pods_that_come_back_to_an_allocated_claim_are_left_alone_after_two_rounds(stage: Stage) -> Iterator[None]:
    """Replacements join the claim while a terminating pod holds it."""
    ground = stage.ground("returning")
    sharers = Sharers(ground, {"finalizers": ["example.com/stays"]})
    yield
    ground.taint(pool="old")
    ground.wait_gone(SHARING)
    # Before that the Deployment may still count the pods that were evicted as ready.
    wait_until(lambda: _ready(ground) == SHARING, "the replacements are ready", seconds=SOON_SECONDS, every=0.2)
    left = "left alone (ReturnsToDevice)"
    wait_until(lambda: left in ground.condition().get("message", ""), "it says so", seconds=240, every=0.5)
    # One that kwok wrote to as it was asked for is tried again, and waits until no other of its owner is missing.
    _let_go(ground)
    wait_until(lambda: ground.condition().get("reason") == "ReturnsToDevice", "all are", seconds=240, every=0.5)
    _let_go(ground)
    evicted = len(ground.granted())
    text = ground.condition()["message"]
    print(f"{ground.name}: {text}")
    assert "claim returning/shared" in text
    assert "Deployment/sharers" in text
    time.sleep(STILL_SECONDS)
    # Replacements that turn up once the second round has begun belong to the third one, and stay.
    assert SHARING < len(ground.granted()) == evicted <= ROUNDS_MOST * SHARING
    assert sharers.pool() == "old"
    assert not _released(ground)
    sharers.scale(0)
    wait_until(lambda: not ground.present(), "scaled down", seconds=SOON_SECONDS, every=0.2)
    _let_go(ground)
    wait_until(lambda: sharers.pool() == "", "the device is free", seconds=SOON_SECONDS, every=0.2)
    wait_until(lambda: _released(ground), "Released", seconds=SOON_SECONDS, every=0.5)
    sharers.scale(SHARING)
    sharers.wait_ready()
    assert sharers.pool() == "new"
    assert len(ground.granted()) == evicted


def _ready(ground: Ground) -> int:
    """Pods that are ready and not on their way out."""
    pods = [each for each in ground.client.get(ground.pods).items if "deletionTimestamp" not in each["metadata"]]
    conditions = [each for pod in pods for each in pod["status"].get("conditions", ())]
    return sum(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _let_go(ground: Ground) -> None:
    """Pods that are marked for deletion vanish."""
    for pod in ground.client.get(ground.pods).items:
        if "deletionTimestamp" in pod["metadata"]:
            ground.let_go(pod["metadata"]["name"])


def _released(ground: Ground) -> bool:
    conditions = ground.client.get(f"{RULES}/{ground.rule()}").object.get("status", {}).get("conditions", ())
    return any(each["type"] == "devicetaint.io/Released" and each["status"] == "True" for each in conditions)


# --- pods that are not ready ---------------------------------------------------------------------

PAIR: Final = ("pod-000", "pod-001")


def gang_that_is_not_ready_leaves_whatever_its_budget_allows(stage: Stage) -> Iterator[None]:
    ground = _pair(stage.ground("failing-gang"))
    ground.fail(*PAIR)
    ground.budget(failing=2, minAvailable=2, unhealthyPodEvictionPolicy="AlwaysAllow")
    yield
    ground.taint()
    evictions = ground.wait_gone(2)
    assert evictions[-1].at - evictions[0].at <= TWO_TOGETHER


def gang_needs_a_disruption_for_the_member_that_is_ready(stage: Stage) -> Iterator[None]:
    ground = _pair(stage.ground("half-failing-gang"))
    ground.fail(PAIR[0])
    ground.budget(failing=1, minAvailable=1, unhealthyPodEvictionPolicy="AlwaysAllow")
    yield
    ground.taint()
    wait_until(lambda: ground.condition().get("reason") == "Blocked", "it says so", seconds=SOON_SECONDS, every=0.5)
    time.sleep(STILL_SECONDS)
    assert ground.granted() == []
    budget = path("policy/v1", "poddisruptionbudgets", namespace=ground.name, name="budget")
    _ = ground.client.patch(budget, {"spec": {"minAvailable": 0}}).object
    evictions = ground.wait_gone(2)
    assert evictions[-1].at - evictions[0].at <= TWO_TOGETHER


def _pair(ground: Ground) -> Ground:
    """With two pods of one gang."""
    for pod in PAIR:
        ground.admit(pod, gang="ring")
    return ground


def pods_on_one_claim_that_are_not_ready_leave_whatever_their_budget_allows(stage: Stage) -> Iterator[None]:
    ground = stage.ground("failing-shared")
    ground.admit("first")
    spec = pod_spec_of({"resourceClaimName": "first"}) | {"nodeName": NODE}
    other = {"metadata": {"name": "other", "labels": {"app": ground.name}}, "spec": spec}
    uid = ground.client.create(ground.pods, other).object["metadata"]["uid"]
    claim = path(VERSION, "resourceclaims", namespace=ground.name, name="first")

    def users() -> list[str]:
        return [each["uid"] for each in ground.client.get(claim).object["status"]["reservedFor"]]

    wait_until(lambda: uid in users(), "the claim is reserved for both", seconds=SOON_SECONDS, every=0.2)
    ground.fail("first", "other")
    ground.budget(failing=2, minAvailable=2, unhealthyPodEvictionPolicy="AlwaysAllow")
    yield
    ground.taint()
    evictions = ground.wait_gone(2)
    assert evictions[-1].at - evictions[0].at <= TWO_TOGETHER


def single_pods_that_are_not_ready_leave_at_the_rate(stage: Stage) -> Iterator[None]:
    """They do not wait for what their budget says between two of them."""
    ground = stage.ground("failing-crowd")
    ground.crowd(12)
    ground.fail(*sorted(ground.uids))
    ground.budget(failing=12, minAvailable=12, unhealthyPodEvictionPolicy="AlwaysAllow")
    yield
    ground.taint()
    evictions = ground.wait_gone(12)
    took = evictions[-1].at - evictions[0].at
    print(f"{ground.name}: 12 pods left within {took.total_seconds():.3f} s")
    assert took <= AT_THE_RATE
    assert all(each.by_eviction for each in ground.asked())


# --- claims of PodGroups ------------------------------------------------------------------------


def pods_of_a_group_that_keeps_their_claim_stay(stage: Stage) -> Iterator[None]:
    """The scheduler reserves the claim for the PodGroup, and only its end frees the device."""
    ground = stage.ground("held-by-group")
    ground.publish("old", ["device"])
    ground.make_template()
    use = {"name": "gpu", "resourceClaimTemplateName": ground.name}
    uid = make_pod_group(ground, "gang", ALL, resourceClaims=[use])
    Ranks(ground, 2, **in_pod_group("gang"))
    yield
    ground.taint(pool="old")
    wait_until(lambda: ground.condition().get("reason") == "HeldByPodGroup", "it says so", seconds=240, every=0.5)
    print(f"{ground.name}: {ground.condition()['message']}")
    time.sleep(STILL_SECONDS)
    assert ground.granted() == []

    def events() -> list[tuple[str, str]]:
        return [(each.type, each.reason) for each in ground.witness.told() if each.uid == uid]

    wait_until(lambda: bool(events()), "an Event says so", seconds=SOON_SECONDS, every=0.5)
    assert events() == [("Warning", "EvictionHeldByPodGroup")]


# --- the play -----------------------------------------------------------------------------------


def _devices(count: int) -> list[str]:
    return [f"device-{number}" for number in range(count)]


SCENARIOS: Final[tuple[Scenario, ...]] = (
    ranks_of_a_pod_group_leave_at_once,
    ranks_of_a_job_set_leave_at_once,
    ranks_of_a_leader_worker_set_leave_at_once,
    member_that_no_taint_hits_leaves_with_its_pod_group,
    second_gang_starts_when_the_first_is_whole_again,
    no_rank_leaves_unless_the_budget_allows_all,
    members_without_a_taint_stay_with_one_that_stays,
    pods_that_share_a_claim_leave_once_and_come_back_elsewhere,
    pods_that_come_back_to_an_allocated_claim_are_left_alone_after_two_rounds,
    gang_that_is_not_ready_leaves_whatever_its_budget_allows,
    gang_needs_a_disruption_for_the_member_that_is_ready,
    pods_on_one_claim_that_are_not_ready_leave_whatever_their_budget_allows,
    single_pods_that_are_not_ready_leave_at_the_rate,
    pods_of_a_group_that_keeps_their_claim_stay,
)
"""All get ready side by side, and are played side by side from the first `yield` on."""


@pytest.fixture(scope="module")
def errors(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Exception]]:
    """What went wrong, by scenario."""
    assets = _assets(request, "kube-controller-manager", "kube-scheduler", "kwok")
    folder = tmp_path_factory.mktemp("together")
    with staged(assets, folder, feature_gates=GATES, runtime_config=SERVED) as plane:
        yield all_played(plane, json.dumps(POLICY), SCENARIOS)


@pytest.mark.parametrize("name", [each.__name__ for each in SCENARIOS])
def test_together(errors: Mapping[str, Exception], name: str) -> None:
    if name in errors:
        raise errors[name]
