"""The state of each pod, and what it waits for, by the worker's own rules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import claim, owned, pod, rule, slice_of, taint, tolerates
from webhook.api.claims import Consumer
from webhook.api.meta import LabelRequirement, LabelSelector, ObjectMeta
from webhook.api.pods import ALL, DisruptionBudget, Owner, Pod, PodClaim, PodGroup
from webhook.api.rules import EVICTED_PODS, EVICTIONS_PER_SECOND, Condition, DeviceSelector, DeviceTaintRule
from webhook.commands.shared.objects import HeldNamespace, StatusObjects
from webhook.commands.status.report import TaintLine, lines_of
from webhook.commands.status.views import PodState, PodStatus, StatusSettings, WaitKind, mode_by_conditions
from webhook.eviction.conditions import EVICTION
from webhook.eviction.modes import InTree, Mode
from webhook.inventory.pools import Evictor
from webhook.policy.match import NamespaceFacts
from webhook.policy.model import BUILTIN, EvictionProfile, EvictionWindow, NamespaceMatch, Pause, Policy

AGO = NOW - timedelta(minutes=5)
WEB: Mapping[str, str] = {"app": "web"}
SELECTS_WEB = LabelSelector((LabelRequirement("app", "In", ("web",)),))


def objects_of(*given: Any, labels: Mapping[str, str] = WEB) -> StatusObjects:
    """Pods bring a claim for a device of their own, unless one is given."""
    objects = StatusObjects()
    pods = [each for each in given if isinstance(each, Pod)]
    for each in given:
        objects.add(structs.replace(each, labels=tuple(labels.items())) if each in pods else each)
    for number, each in enumerate(pods):
        key = f"{each.meta.namespace}/{each.meta.name}-claim"
        if key not in objects.inventory.claims:
            objects.add(claim(each.meta.name, devices=(f"gpu-{number}",), namespace=each.meta.namespace))
    return objects


def lines(
    *given: Any,
    mode: Mode = Mode.REPLACEMENT,
    in_tree: InTree = InTree.ABSENT,
    now: datetime = NOW,
    policy: Policy = BUILTIN,
    **profile: Any,
) -> list[TaintLine]:
    if profile:
        policy = structs.replace(policy, eviction=(EvictionProfile(**profile),))
    return lines_of(objects_of(*given), StatusSettings(policy, mode, in_tree, now))[0]


def statuses(*given: Any, **settings: Any) -> dict[str, PodStatus]:
    """By name of the pod."""
    return {each.name: each for line in lines(*given, **settings) for each in line.pods}


def only(*given: Any, **settings: Any) -> PodStatus:
    (status,) = statuses(*given, **settings).values()
    return status


def told(status: PodStatus) -> tuple[PodState, WaitKind, str]:
    return status.state, status.waits_for.kind, status.waits_for.message


def budget(name: str = "web", allowed: int | None = 0, **fields: Any) -> DisruptionBudget:
    given = {"selector": SELECTS_WEB, "healthy": 2, "desired": 2, **fields}
    return DisruptionBudget(ObjectMeta(name=name, namespace="ml"), allowed=allowed, **given)


def condition(reason: str, message: str = "", status: str = "True", generation: int = 1) -> Condition:
    return Condition(EVICTION, status, reason, message, generation, AGO)


WINDOW = EvictionWindow("0 22 * * *", 3600.0, "Europe/Berlin")


# --- states -------------------------------------------------------------------------------------


def test_pod_with_toleration_seconds_is_not_due() -> None:
    status = only(rule(), pod(), claim("pod", tolerates(60)))
    assert told(status) == (PodState.NOT_DUE, WaitKind.TIME, "its due time")
    assert (status.due, status.since) == (NOW + timedelta(seconds=60), NOW)


def test_grace_of_the_profile_counts_toward_the_due_time() -> None:
    status = only(rule(), pod(), grace_seconds=30.0)
    assert (status.state, status.due) == (PodState.NOT_DUE, NOW + timedelta(seconds=30))
    assert only(rule(), pod(), grace_seconds=30.0, now=NOW + timedelta(seconds=30)).state is PodState.DUE


def test_pod_waits_for_a_window() -> None:
    status = only(rule(), pod(), windows=(WINDOW,))
    text = "a window, which opens at 2026-06-01T22:00:00+02:00 (Europe/Berlin)"
    assert told(status) == (PodState.PUT_OFF, WaitKind.WINDOW, text)
    assert (status.due, status.since, status.state.pending) == (NOW, NOW, True)
    assert only(rule(), pod(), windows=(WINDOW,), now=NOW + timedelta(hours=8)).state is PodState.DUE


def test_pod_is_left_to_complete() -> None:
    status = only(rule(), pod(completes=True), wait_for_completion_seconds=60.0)
    text = "its end, at most until 2026-06-01T12:01:00Z"
    assert told(status) == (PodState.PUT_OFF, WaitKind.COMPLETION, text)
    assert only(rule(), pod(), wait_for_completion_seconds=60.0).state is PodState.DUE


def test_pod_of_a_profile_that_skips_is_skipped() -> None:
    status = only(rule(), pod(), skips=True)
    assert told(status) == (PodState.SKIPPED, WaitKind.EXEMPTION, "nothing: its profile has action: skip")


def test_pod_that_nothing_holds_back_is_due_and_waits_for_its_turn() -> None:
    status = only(rule(), pod(), rate=2.5, max_per_minute=9)
    assert told(status) == (PodState.DUE, WaitKind.RATE, "its turn: at most 2.5 a second and 9 a minute")
    assert status.since == status.due == NOW
    own = rule(annotations={EVICTIONS_PER_SECOND: "40"})
    assert only(own, pod()).waits_for.message == "its turn: at most 40 a second"


def test_hold_on_the_pod_or_its_namespace() -> None:
    held = only(rule(), pod(hold="until Friday"))
    assert told(held) == (PodState.HELD, WaitKind.HOLD, "hold: until Friday")
    namespace = HeldNamespace(NamespaceFacts("ml", {}), "")
    assert only(rule(), pod(), namespace).waits_for.message == "a hold without a text"
    assert only(rule(), pod(hold="x"), max_hold_seconds=60.0, now=NOW + timedelta(seconds=60)).state is PodState.DUE


def test_budget_that_allows_nothing_blocks() -> None:
    since = NOW + timedelta(seconds=20)
    status = only(rule(), pod(), budget(since=since), now=NOW + timedelta(minutes=1))
    text = "disruption budget web: disruptionsAllowed 0 since 2026-06-01T12:00:20Z, 2 healthy of 2 needed"
    assert told(status) == (PodState.BLOCKED, WaitKind.BUDGET, text)
    assert (status.since, status.waits_for.name, status.waits_for.limit) == (since, "web", 0)
    assert only(rule(), pod(), budget(since=AGO)).since == NOW  # it blocks nothing before the pod is due


@pytest.mark.parametrize(
    ("budgets", "state"),
    [
        ([budget(allowed=1)], PodState.DUE),
        ([budget(allowed=None)], PodState.BLOCKED),
        ([budget(allowed=1), budget("other", allowed=1)], PodState.BLOCKED),
        ([budget(selector=LabelSelector())], PodState.BLOCKED),
        ([budget(selector=None)], PodState.DUE),
        ([budget(selector=LabelSelector((LabelRequirement("app", "In", ("db",)),)))], PodState.DUE),
    ],
    ids=["allows one", "no status", "two budgets", "selects all", "selects none", "selects others"],
)
def test_which_budgets_block(budgets: list[DisruptionBudget], state: PodState) -> None:
    assert only(rule(), pod(), *budgets).state is state


def test_two_budgets_are_both_named() -> None:
    status = only(rule(), pod(), budget(), budget("all"))
    assert status.waits_for.name == "all, web"
    assert "the Eviction API refuses pods that more than one selects" in status.waits_for.message


def test_profile_that_deletes_at_once_asks_no_budget() -> None:
    assert only(rule(), pod(), budget(), delete_after_deadline=True, deadline_seconds=0.0).state is PodState.DUE


def test_overall_and_namespace_limits_name_their_numbers() -> None:
    leaving = pod("leaving", deleting=True, grace_ends=NOW + timedelta(seconds=30))
    overall = statuses(rule(), pod(), leaving, overall=1)["pod"]
    assert told(overall) == (PodState.LIMITED, WaitKind.OVERALL, "overall: 1, and 1 are terminating")
    assert (overall.waits_for.limit, overall.waits_for.count) == (1, 1)
    namespace = statuses(rule(), pod(), leaving, per_namespace=1)["pod"]
    assert told(namespace) == (PodState.LIMITED, WaitKind.NAMESPACE, "perNamespace: 1, and 1 of ml are terminating")
    assert statuses(rule(), pod(), leaving, per_namespace=2)["pod"].state is PodState.DUE


def test_owner_limit_names_the_siblings_that_are_unavailable() -> None:
    found = statuses(rule(), owned("web-0"), *[owned(f"web-{number}", ready=False) for number in range(1, 6)])
    waits_for = found["web-0"].waits_for
    assert told(found["web-0"]) == (
        PodState.LIMITED,
        WaitKind.OWNER,
        "perOwnerUnavailable: 1, and 5 of ReplicaSet/rs unavailable: web-1, web-2, web-3 and 2 more",
    )
    assert (waits_for.name, waits_for.limit, waits_for.count) == ("ReplicaSet/rs", 1, 5)
    assert waits_for.pods == [f"ml/web-{number}" for number in range(1, 6)]
    assert found["web-1"].state is PodState.DUE  # its eviction makes no further pod unavailable


def test_budget_takes_the_place_of_the_owners_limit() -> None:
    found = statuses(rule(), owned("web-0"), owned("web-1", ready=False), budget(allowed=1))
    assert found["web-0"].state is PodState.DUE


def test_terminating_pod_is_stuck_after_its_grace_period_and_stuck_after() -> None:
    grace_ends = NOW + timedelta(seconds=30)
    leaving = pod(deleting=True, grace_ends=grace_ends)
    status = only(rule(), leaving)
    assert told(status) == (PodState.TERMINATING, WaitKind.END, "its end, by 2026-06-01T12:00:30Z")
    assert status.since is None
    stuck = only(rule(), leaving, now=grace_ends + timedelta(seconds=300))
    assert (stuck.state, stuck.since) == (PodState.STUCK, grace_ends)
    assert only(rule(), leaving, now=grace_ends + timedelta(seconds=299)).state is PodState.TERMINATING
    assert only(rule(), pod(deleting=True)).waits_for.message == "its end"


def test_limits_do_not_count_stuck_pods() -> None:
    leaving = pod("leaving", deleting=True, grace_ends=AGO)
    assert statuses(rule(), pod(), leaving, overall=1)["pod"].state is PodState.DUE


def test_pods_of_daemon_sets_are_skipped() -> None:
    status = only(rule(), pod(owner=Owner("DaemonSet", "ds", "uid-ds")))
    assert told(status) == (PodState.SKIPPED, WaitKind.EXEMPTION, "nothing: pods of DaemonSets are skipped")
    assert not status.state.pending


def test_finished_pods_and_pods_that_tolerate_are_left_out() -> None:
    assert statuses(rule(), pod(phase="Succeeded"), pod("b"), claim("b", tolerates())) == {}


def test_pause_of_the_policy_holds_until_its_end() -> None:
    policy = structs.replace(BUILTIN, pause=Pause(NOW + timedelta(hours=1), "incident"))
    status = only(rule(), pod(), policy=policy)
    assert told(status) == (PodState.PAUSED, WaitKind.PAUSE, "the end of the pause at 2026-06-01T13:00:00Z: incident")
    assert only(rule(), pod(), policy=policy, now=NOW + timedelta(hours=1)).state is PodState.DUE


def test_rule_that_the_worker_has_stopped() -> None:
    stopped = rule(conditions=(condition("Stopped", "hits 9 pods, at most 4 were confirmed", "False"),))
    status = only(stopped, pod())
    assert told(status) == (PodState.STOPPED, WaitKind.STOP, "stopped: hits 9 pods, at most 4 were confirmed")
    assert status.since == AGO
    earlier = structs.replace(stopped, generation=2)
    assert only(earlier, pod()).state is PodState.DUE


def test_breaker_that_trips_holds_back_pods_of_slices_only() -> None:
    tainted = slice_of({f"gpu-{number}": (taint(),) for number in range(5)})
    objects = objects_of(tainted, pod())
    settings = StatusSettings(BUILTIN, Mode.REPLACEMENT, InTree.ABSENT, NOW)
    (line,), tripped = lines_of(objects, settings)
    assert tripped == {DRIVER}
    assert [told(each)[:2] for each in line.pods] == [(PodState.LIMITED, WaitKind.BREAKER)]
    later = structs.replace(BUILTIN, breaker=structs.replace(BUILTIN.breaker, devices=None))
    assert only(tainted, pod(), policy=later).state is PodState.DUE


def test_profiles_match_labels_of_namespaces() -> None:
    profiles = (EvictionProfile(namespaces=NamespaceMatch(labels=(("tier", "slow"),)), rate=1.0), EvictionProfile())
    policy = structs.replace(BUILTIN, eviction=profiles)
    slow = HeldNamespace(NamespaceFacts("ml", {"tier": "slow"}), None)
    assert only(rule(), pod(), slow, policy=policy).waits_for.message == "its turn: at most 1 a second"
    assert only(rule(), pod(), policy=policy).waits_for.message == "its turn: at most 10 a second"


# --- who acts -----------------------------------------------------------------------------------


ASKED = {"effect": "NoSchedule", "evict": True}


@pytest.mark.parametrize(
    ("mode", "in_tree", "fields", "evictors"),
    [
        (Mode.OBSERVE, InTree.ACTIVE, {}, (Evictor.IN_TREE,)),
        (Mode.OBSERVE, InTree.ABSENT, {}, ()),
        (Mode.OBSERVE, InTree.ACTIVE, ASKED, ()),
        (Mode.DELEGATED, InTree.ACTIVE, {}, (Evictor.IN_TREE,)),
        (Mode.DELEGATED, InTree.ABSENT, {}, ()),
        (Mode.DELEGATED, InTree.ACTIVE, ASKED, (Evictor.OURS,)),
        (Mode.REPLACEMENT, InTree.ABSENT, {}, (Evictor.OURS,)),
        (Mode.REPLACEMENT, InTree.ABSENT, ASKED, (Evictor.OURS,)),
        (Mode.REPLACEMENT, InTree.ABSENT, {"effect": "NoSchedule"}, ()),
    ],
)
def test_who_evicts_for_a_rule(mode: Mode, in_tree: InTree, fields: Any, evictors: tuple[Evictor, ...]) -> None:
    (line,) = lines(rule(**fields), mode=mode, in_tree=in_tree)
    assert line.computed.evictors == list(evictors)


def test_in_tree_controller_knows_no_limits() -> None:
    found = statuses(rule(), pod(hold="x"), budget(), mode=Mode.OBSERVE, in_tree=InTree.ACTIVE)
    assert told(found["pod"]) == (PodState.DUE, WaitKind.IN_TREE, "the in-tree controller")
    waiting = only(rule(), pod(), claim("pod", tolerates(60)), mode=Mode.DELEGATED, in_tree=InTree.ACTIVE)
    assert (waiting.state, waiting.evictor) == (PodState.NOT_DUE, Evictor.IN_TREE)


def test_observe_evicts_no_pod() -> None:
    status = only(rule(), pod(), mode=Mode.OBSERVE)
    assert told(status)[:2] == (PodState.DUE, WaitKind.OBSERVE)


def test_rule_with_evict_waits_for_the_workers_condition() -> None:
    settings = {"mode": Mode.DELEGATED, "in_tree": InTree.ACTIVE}
    status = only(rule(effect="NoSchedule", evict=True), pod(), **settings)
    assert told(status)[:2] == (PodState.NOT_DUE, WaitKind.ANNOUNCEMENT)
    assert status.due is None
    announced = rule(effect="NoSchedule", evict=True, conditions=(condition("Evicting"),))
    assert only(announced, pod(), **settings).state is PodState.DUE


@pytest.mark.parametrize(
    ("rules", "in_tree", "mode"),
    [
        ([], InTree.ACTIVE, None),
        ([rule()], InTree.ABSENT, None),
        ([rule(conditions=(condition("Evicting"),))], InTree.ACTIVE, Mode.DELEGATED),
        ([rule(conditions=(condition("Completed"),))], InTree.ABSENT, Mode.REPLACEMENT),
        (
            [rule(conditions=(condition("ObserveOnly"),)), rule(conditions=(condition("Stopped"),))],
            InTree.ABSENT,
            Mode.OBSERVE,
        ),
    ],
)
def test_mode_is_shown_by_conditions(rules: list[DeviceTaintRule], in_tree: InTree, mode: Mode | None) -> None:
    assert mode_by_conditions(rules, in_tree) is mode


# --- lines --------------------------------------------------------------------------------------


def test_line_counts_devices_pods_and_progress() -> None:
    evicted = Condition(EVICTED_PODS, "True", "PodsEvicted", "7", 1, AGO)
    found = lines(
        slice_of({f"gpu-{number}": () for number in range(4)}),
        rule(conditions=(condition("Evicting"), evicted)),
        pod("a"),
        pod("b", hold="x"),
        pod("c", deleting=True),
        pod("d"),
        claim("d", tolerates(60), devices=("gpu-3",)),
    )
    (line,) = found
    assert (line.computed.devices, line.computed.allocated, line.evicted, line.pending) == (4, 4, 7, 3)
    assert line.computed.next_due == NOW + timedelta(seconds=60)
    counts = {PodState.DUE: 1, PodState.HELD: 1, PodState.TERMINATING: 1, PodState.NOT_DUE: 1}
    assert line.computed.pods == {**dict.fromkeys(PodState, 0), **counts}


def test_rule_of_which_the_worker_has_said_nothing_has_no_count_of_evicted_pods() -> None:
    assert [line.evicted for line in lines(rule("a"), rule("b", conditions=(condition("Waiting"),)))] == [None, 0]


def test_each_driver_with_taints_in_slices_has_a_line_after_the_rules() -> None:
    tainted = slice_of({"gpu-0": (taint(key="b"), taint(key="a")), "gpu-1": (taint("NoSchedule"),), "gpu-2": ()})
    found = lines(tainted, rule(selector=DeviceSelector(driver="other")), pod())
    assert [(line.name, line.rule is None) for line in found] == [("rule", False), (DRIVER, True)]
    line = found[1]
    assert ([each.key for each in line.taints], line.computed.devices, line.computed.allocated) == (["a", "b"], 1, 1)
    assert [each.name for each in line.pods] == ["pod"]
    assert (line.evicted, line.said, line.computed.evictors) == (None, None, [Evictor.OURS])


def test_pod_that_two_rules_hit_counts_for_both() -> None:
    found = lines(rule("a"), rule("b", key="other"), pod())
    assert [[each.name for each in line.pods] for line in found] == [["pod"], ["pod"]]


def test_pod_with_extended_resources_is_said_to_wait_for_a_release_that_evicts_it() -> None:
    extended = pod("extended", claims=(), extended_claim="extended-claim")
    both = pod("both", claims=(PodClaim("both-claim"),), extended_claim="both-extended-claim")
    made = (claim("extended", devices=("gpu-1",), extended=True), claim("both-extended", owner="uid-both"))
    found = statuses(rule(), extended, both, *made, mode=Mode.DELEGATED, in_tree=InTree.ACTIVE)
    waits = {name: (each.evictor, each.waits_for.message) for name, each in found.items()}
    release = "the in-tree controller evicts such pods from 1.37.2 on; before, it leaves them alone"
    assert waits == {
        "extended": (Evictor.IN_TREE, f"the in-tree controller, for an extended resource: {release}"),
        "both": (Evictor.IN_TREE, "the in-tree controller"),
    }


def test_pods_of_a_gang_count_as_one_place() -> None:
    end = NOW + timedelta(seconds=30)
    leaving = [pod(f"rank-{number}", deleting=True, grace_ends=end, gang="train") for number in range(3)]
    overall = statuses(rule(), pod(), *leaving, overall=1)["pod"].waits_for
    assert (overall.message, overall.count) == ("overall: 1, and 3 pods in 1 place are terminating", 1)
    inside = statuses(rule(), pod(), *leaving, per_namespace=1)["pod"].waits_for
    assert (inside.message, inside.count) == ("perNamespace: 1, and 3 pods of ml in 1 place are terminating", 1)
    ranks = [owned(f"rank-{number}", ready=False, gang="train") for number in range(4)]
    owner = statuses(rule(), *ranks, owned("other-0", gang="other"))["other-0"].waits_for
    assert owner.message == (
        "perOwnerUnavailable: 1, and 4 pods of ReplicaSet/rs in 1 place unavailable: rank-0, rank-1, rank-2 and 1 more"
    )
    assert (owner.limit, owner.count, len(owner.pods)) == (1, 1, 4)


def ring_of(uid: str = "uid-ring") -> list[Any]:
    """A PodGroup of mode all; its pod `hit` uses a claim that is reserved for it, and `beside` uses another device."""
    crew = Consumer("scheduling.k8s.io", "podgroups", "ring", "uid-ring")
    return [
        PodGroup(ObjectMeta("ring", namespace="ml", uid=uid), ALL),
        pod("hit", pod_group="ring"),
        claim("hit", devices=("gpu-0",), consumers=(crew,)),
        pod("beside", pod_group="ring"),
        claim("beside", devices=("gpu-1",)),
    ]


def test_pod_whose_group_keeps_its_claims_waits_for_nothing() -> None:
    only_first = rule(selector=DeviceSelector(DRIVER, None, "gpu-0"))
    found = statuses(only_first, *ring_of())
    text = "nothing: its PodGroup keeps its claims reserved"
    assert {name: told(each) for name, each in found.items()} == {
        "hit": (PodState.SKIPPED, WaitKind.EXEMPTION, text)
    }, "and takes no other pod along"
    assert statuses(only_first, *ring_of("another"))["hit"].state is PodState.DUE


def test_only_the_worker_takes_pods_of_a_group_along() -> None:
    """All of them, in whatever order they are planned."""
    ring = ring_of()
    ring[2] = claim("hit", devices=("gpu-0",))
    for number in range(20):
        ring += [pod(f"rank-{number}", pod_group="ring"), claim(f"rank-{number}", devices=("gpu-1",))]
    only_first = rule(selector=DeviceSelector(DRIVER, None, "gpu-0"))
    assert set(statuses(only_first, *ring)) == {"hit", "beside", *[f"rank-{number}" for number in range(20)]}
    assert set(statuses(only_first, *ring, mode=Mode.DELEGATED, in_tree=InTree.ACTIVE)) == {"hit"}


def test_breaker_hides_neither_an_exemption_nor_a_due_time() -> None:
    tainted = slice_of({"gpu-0": (taint(),), "gpu-1": (taint(),), "gpu-2": (taint(),)})
    given = tainted, owned("daemon", kind="DaemonSet"), pod("later"), pod("now")
    policy = structs.replace(BUILTIN, breaker=structs.replace(BUILTIN.breaker, devices=1))
    later = claim("later", tolerates(600), devices=("gpu-1",))
    found = statuses(*given, later, policy=policy)
    assert {name: (each.state, each.waits_for.kind) for name, each in found.items()} == {
        "daemon": (PodState.SKIPPED, WaitKind.EXEMPTION),
        "later": (PodState.NOT_DUE, WaitKind.TIME),
        "now": (PodState.LIMITED, WaitKind.BREAKER),
    }


def test_pods_of_a_dump_without_uids_are_told_apart_or_left_out() -> None:
    same = owned("daemon", kind="DaemonSet", uid="none"), pod("plain", uid="none", hold="debugging")
    taken = [
        claim(each.meta.name, consumers=(Consumer("", "pods", each.meta.name, "none"),), owner="none") for each in same
    ]
    assert len(statuses(rule(), *same, *taken)) <= 1


def test_pod_of_a_dump_is_not_taken_for_a_stopped_one_with_the_same_uid() -> None:
    over = rule("over", selector=DeviceSelector(device="gpu-0"), conditions=(condition("Stopped", "over", "False"),))
    fine = rule("fine", selector=DeviceSelector(device="gpu-1"))
    same = pod("a", uid="none"), pod("b", uid="none")
    users = [(each.meta.name, (Consumer("", "pods", each.meta.name, "none"),)) for each in same]
    taken = [
        claim(name, consumers=consumers, owner="none", devices=(f"gpu-{number}",))
        for number, (name, consumers) in enumerate(users)
    ]
    assert {name: each.state for name, each in statuses(over, fine, *same, *taken).items()} == {"b": PodState.DUE}


def test_companion_that_goes_for_another_rule_is_not_stopped() -> None:
    group = PodGroup(ObjectMeta(name="ring", namespace="ml", uid="uid-ring"), ALL)
    rules = [
        rule("r1", selector=DeviceSelector(device="gpu-0"), conditions=(condition("Stopped", "over", "False"),)),
        rule("r2", selector=DeviceSelector(device="gpu-1")),
    ]
    pods = [pod("p1", pod_group="ring"), pod("p2", pod_group="ring"), pod("c", claims=(), pod_group="ring")]
    found = statuses(group, *rules, *pods, now=NOW + timedelta(minutes=1))
    assert {name: each.state for name, each in found.items()} == dict.fromkeys(("p1", "p2", "c"), PodState.DUE)
