"""The state of each pod, and what it waits for, by the worker's own rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.tables import table
from tests.unit.eviction.objects import claim, owned, pod, rule, slice_of, taint, tolerates
from webhook.api.claims import Consumer
from webhook.api.meta import LabelRequirement, LabelSelector, ObjectMeta
from webhook.api.pods import ALL, DisruptionBudget, Pod, PodClaim, PodGroup
from webhook.api.rules import EVICTED_PODS, EVICTIONS_PER_SECOND, Condition, DeviceSelector, DeviceTaintRule
from webhook.commands.shared.objects import HeldNamespace, StatusObjects
from webhook.commands.status.report import TaintLine, lines_of
from webhook.commands.status.views import PodState, PodStatus, StatusSettings, mode_by_conditions
from webhook.eviction.conditions import EVICTION
from webhook.eviction.modes import InTree, Mode
from webhook.inventory.pools import Evictor
from webhook.policy.match import NamespaceFacts
from webhook.policy.model import BUILTIN, EvictionProfile, EvictionWindow, NamespaceMatch, Pause, Policy

AGO, SOON = NOW - timedelta(minutes=5), NOW + timedelta(seconds=20)
WEB = (("app", "web"),)
WINDOW = EvictionWindow("0 22 * * *", 3600.0, "Europe/Berlin")
OPENS = "a window, which opens at 2026-06-01T22:00:00+02:00 (Europe/Berlin)"
PAUSED = structs.replace(BUILTIN, pause=Pause(NOW + timedelta(hours=1), "incident"))
GRACE_ENDS = NOW + timedelta(seconds=30)
LEAVING, LEAVING_TOO = (pod(name, deleting=True, grace_ends=GRACE_ENDS) for name in ("pod", "leaving"))
ASKED: dict[str, Any] = {"effect": "NoSchedule", "evict": True}
HEALTHY = "2 healthy of 2 needed"
BLOCKED = "blocked, disruptionBudget: disruption budget"
SELECTED = "web: the Eviction API refuses pods that more than one selects"
NOT_ANNOUNCED = "the worker, which has not written the condition of the rule yet; check that it runs"
AT_MOST = "at most until 2026-06-01T12:01:00Z"
# --- settings
AFTER: dict[str, Any] = {"now": NOW + timedelta(minutes=1)}
LATE: dict[str, Any] = {"now": GRACE_ENDS + timedelta(seconds=300)}
DELEGATED: dict[str, Any] = {"mode": Mode.DELEGATED, "in_tree": InTree.ACTIVE}
OBSERVED = {"mode": Mode.OBSERVE, "in_tree": InTree.ACTIVE}
COMPLETING: dict[str, Any] = {"wait_for_completion_seconds": 60.0}
AT_ONCE: dict[str, Any] = {"delete_after_deadline": True, "deadline_seconds": 0.0}


def found_in(
    *given: Any,
    mode: Mode = Mode.REPLACEMENT,
    in_tree: InTree = InTree.ABSENT,
    now: datetime = NOW,
    policy: Policy = BUILTIN,
    labels: tuple[tuple[str, str], ...] = WEB,
    **profile: Any,
) -> tuple[list[TaintLine], frozenset[str]]:
    """Pods have these labels, if any are given, and bring a claim for a device of their own, unless one is given."""
    objects = StatusObjects()
    pods = [each for each in given if isinstance(each, Pod)]
    for each in given:
        objects.add(structs.replace(each, labels=labels) if labels and each in pods else each)
    for number, each in enumerate(pods):
        if f"{each.meta.namespace}/{each.meta.name}-claim" not in objects.inventory.claims:
            objects.add(claim(each.meta.name, devices=(f"gpu-{number}",), namespace=each.meta.namespace))
    if profile:
        policy = structs.replace(policy, eviction=(EvictionProfile(**profile),))
    return lines_of(objects, StatusSettings(policy, mode, in_tree, now))


def lines(*given: Any, **settings: Any) -> list[TaintLine]:
    """A dictionary among what is given holds settings."""
    for each in given:
        settings |= each if isinstance(each, dict) else {}
    return found_in(*[each for each in given if not isinstance(each, dict)], **settings)[0]


def statuses(*given: Any, **settings: Any) -> dict[str, PodStatus]:
    """By name of the pod."""
    return {each.name: each for line in lines(*given, **settings) for each in line.pods}


def only(*given: Any, **settings: Any) -> PodStatus:
    (status,) = statuses(*given, **settings).values()
    return status


def told(status: PodStatus) -> str:
    return f"{status.state.value}, {status.waits_for.kind.value}: {status.waits_for.message}"


def states(found: dict[str, PodStatus]) -> dict[str, PodState]:
    return {name: each.state for name, each in found.items()}


def budget(name: str = "web", allowed: int | None = 0, **fields: Any) -> DisruptionBudget:
    given = {"selector": selects("web"), "healthy": 2, "desired": 2, **fields}
    return DisruptionBudget(ObjectMeta(name=name, namespace="ml"), allowed=allowed, **given)


def selects(app: str) -> LabelSelector:
    return LabelSelector((LabelRequirement("app", "In", (app,)),))


def condition(reason: str, message: str = "", status: str = "True", generation: int = 1) -> Condition:
    return Condition(EVICTION, status, reason, message, generation, AGO)


STOPPED = rule(conditions=(condition("Stopped", "hits 9 pods, at most 4 were confirmed", "False"),))


# --- states -------------------------------------------------------------------------------------


WAITING: Mapping[str, list[Any]] = {
    "notDue, time: its due time": [pod(), claim("pod", tolerates(60))],
    f"putOff, window: {OPENS}": [pod(), {"windows": (WINDOW,)}],
    f"putOff, completion: its end, {AT_MOST}": [pod(completes=True), COMPLETING],
    "skipped, exemption: nothing: its profile has action: skip": [pod(), {"skips": True}],
    "skipped, exemption: nothing: pods of DaemonSets are skipped": [owned("pod", kind="DaemonSet")],
    "due, rate: its turn: at most 2.5 a second and 9 a minute": [pod(), {"rate": 2.5, "max_per_minute": 9}],
    "due, rate: its turn: at most 40 a second": [pod(), rule(annotations={EVICTIONS_PER_SECOND: "40"})],
    "held, hold: hold: until Friday": [pod(hold="until Friday")],
    "held, hold: a hold without a text": [pod(), HeldNamespace(NamespaceFacts("ml", {}), "")],
    f"{BLOCKED} web: disruptionsAllowed 0 since 2026-06-01T12:00:20Z, {HEALTHY}": [pod(), budget(since=SOON), AFTER],
    f"{BLOCKED} web: its status is not up to date": [pod(), budget(allowed=None)],
    f"{BLOCKED} web: disruptionsAllowed 0, {HEALTHY}": [pod(), budget(selector=LabelSelector())],
    f"{BLOCKED}s all, {SELECTED}": [pod(), budget(allowed=1), budget("all", allowed=1)],
    "terminating, end: its end, by 2026-06-01T12:00:30Z": [LEAVING, {"now": GRACE_ENDS + timedelta(seconds=299)}],
    "terminating, end: its end": [pod(deleting=True)],
    "stuck, end: its end, expected at 2026-06-01T12:00:30Z: see its finalizers and its node": [LEAVING, LATE],
    "paused, pause: the end of the pause at 2026-06-01T13:00:00Z: incident": [pod(), {"policy": PAUSED}],
    "stopped, stop: stopped: hits 9 pods, at most 4 were confirmed": [pod(), STOPPED],
    "due, observe: nothing: the worker evicts no pod in mode observe": [pod(), {"mode": Mode.OBSERVE}],
    "due, inTreeController: the in-tree controller": [pod(hold="x"), budget(), OBSERVED],
    f"notDue, announcement: {NOT_ANNOUNCED}": [pod(), rule(**ASKED), DELEGATED],
}


@pytest.mark.parametrize(("expected", "given"), WAITING.items(), ids=WAITING)
def test_pod_waits_for(expected: str, given: list[Any]) -> None:
    assert told(only(rule(), *given)) == expected


@table(
    "given",
    {
        "a grace that is over": [pod(), {"grace_seconds": 30.0, "now": GRACE_ENDS}],
        "a window that is open": [pod(), {"windows": (WINDOW,), "now": NOW + timedelta(hours=8)}],
        "completion, where the pod will not complete": [pod(), COMPLETING],
        "a hold that is too old": [pod(hold="x"), {"max_hold_seconds": 60.0, **AFTER}],
        "a budget that allows one": [pod(), budget(allowed=1)],
        "a budget that selects none": [pod(), budget(selector=None)],
        "a budget that selects others": [pod(), budget(selector=selects("db"))],
        "a budget, where the profile deletes at once": [pod(), budget(), AT_ONCE],
        "a pause that is over": [pod(), {"policy": PAUSED, "now": NOW + timedelta(hours=1)}],
        "a stop of an earlier generation": [pod(), structs.replace(STOPPED, generation=2)],
        "a condition that is written": [pod(), rule(**ASKED, conditions=(condition("Evicting"),)), DELEGATED],
        "a namespace that has room": [pod(), LEAVING_TOO, {"per_namespace": 2}],
        "pods that are stuck": [pod(), pod("leaving", deleting=True, grace_ends=AGO), {"overall": 1}],
        "its owner, where a budget counts": [owned("pod"), owned("web-1", ready=False), budget(allowed=1)],
        "its owner, if it is unavailable itself": [owned("web-0"), owned("pod", ready=False)],
    },
)
def test_pod_does_not_wait_for(given: list[Any]) -> None:
    assert statuses(rule(), *given)["pod"].state is PodState.DUE


@table(
    "given, due, since",
    {
        "tolerates for a while": ([pod(), claim("pod", tolerates(60))], NOW + timedelta(minutes=1), NOW),
        "tolerates for a while, whoever evicts": (
            [pod(), claim("pod", tolerates(60)), DELEGATED],
            *(NOW + timedelta(minutes=1), NOW),
        ),
        "has a grace": ([pod(), {"grace_seconds": 30.0}], GRACE_ENDS, NOW),
        "waits for a window": ([pod(), {"windows": (WINDOW,)}], NOW, NOW),
        "waits for its turn": ([pod()], NOW, NOW),
        "is blocked": ([pod(), budget(since=SOON), AFTER], NOW, SOON),
        "is blocked by what blocked before it was due": ([pod(), budget(since=AGO)], NOW, NOW),
        "is terminating": ([LEAVING], NOW, None),
        "is stuck": ([LEAVING, LATE], NOW, GRACE_ENDS),
        "is of a rule that was stopped": ([pod(), STOPPED], NOW, AGO),
        "is of a rule that is not announced": ([pod(), rule(**ASKED), DELEGATED], None, NOW),
    },
)
def test_pod_is_due_and_in_its_state_since_a_time_if_it(
    given: list[Any], due: datetime | None, since: datetime | None
) -> None:
    status = only(rule(), *given)
    assert (status.due, status.since) == (due, since)


def test_only_pods_that_are_still_to_be_evicted_are_pending() -> None:
    not_pending = {PodState.SKIPPED, PodState.TERMINATING, PodState.STUCK}
    assert {state for state in PodState if not state.pending} == not_pending


def test_budget_is_named_with_what_it_allows() -> None:
    waits_for = only(rule(), pod(), budget()).waits_for
    assert (waits_for.name, waits_for.limit) == ("web", 0)
    assert only(rule(), pod(), budget(), budget("all")).waits_for.name == "all, web"


def test_limits_name_their_numbers_and_who_takes_their_places() -> None:
    leaving = pod("leaving", deleting=True, grace_ends=GRACE_ENDS)
    overall = statuses(rule(), pod(), leaving, overall=1)["pod"]
    assert told(overall) == "limited, overall: overall: 1, and 1 are terminating"
    assert (overall.waits_for.limit, overall.waits_for.count) == (1, 1)
    namespace = statuses(rule(), pod(), leaving, per_namespace=1)["pod"]
    assert told(namespace) == "limited, perNamespace: perNamespace: 1, and 1 of ml are terminating"
    owner = statuses(rule(), owned("web-0"), *[owned(f"web-{number}", ready=False) for number in range(1, 6)])["web-0"]
    text = "perOwnerUnavailable: 1, and 5 of ReplicaSet/rs unavailable: web-1, web-2, web-3 and 2 more"
    assert told(owner) == f"limited, perOwnerUnavailable: {text}"
    assert (owner.waits_for.name, owner.waits_for.limit, owner.waits_for.count) == ("ReplicaSet/rs", 1, 5)
    assert owner.waits_for.pods == [f"ml/web-{number}" for number in range(1, 6)]


def test_pods_of_a_gang_count_as_one_place() -> None:
    leaving = [pod(f"rank-{number}", deleting=True, grace_ends=GRACE_ENDS, gang="train") for number in range(3)]
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


def test_finished_pods_and_pods_that_tolerate_are_left_out() -> None:
    assert statuses(rule(), pod(phase="Succeeded"), pod("b"), claim("b", tolerates())) == {}


def test_breaker_that_trips_holds_back_pods_of_slices_only() -> None:
    tainted = slice_of({f"gpu-{number}": (taint(),) for number in range(5)})
    (line,), tripped = found_in(tainted, pod())
    assert tripped == {DRIVER}
    assert [told(each).partition(": ")[0] for each in line.pods] == ["limited, breaker"]
    later = structs.replace(BUILTIN, breaker=structs.replace(BUILTIN.breaker, devices=None))
    assert only(tainted, pod(), policy=later).state is PodState.DUE


def test_breaker_hides_neither_an_exemption_nor_a_due_time() -> None:
    tainted = slice_of({f"gpu-{number}": (taint(),) for number in range(3)})
    given = tainted, owned("daemon", kind="DaemonSet"), pod("later"), pod("now")
    policy = structs.replace(BUILTIN, breaker=structs.replace(BUILTIN.breaker, devices=1))
    found = statuses(*given, claim("later", tolerates(600), devices=("gpu-1",)), policy=policy)
    assert {name: told(each).partition(": ")[0] for name, each in found.items()} == {
        "daemon": "skipped, exemption",
        "later": "notDue, time",
        "now": "limited, breaker",
    }


def test_profiles_match_labels_of_namespaces() -> None:
    profiles = (EvictionProfile(namespaces=NamespaceMatch(labels=(("tier", "slow"),)), rate=1.0), EvictionProfile())
    policy = structs.replace(BUILTIN, eviction=profiles)
    slow = HeldNamespace(NamespaceFacts("ml", {"tier": "slow"}), None)
    assert only(rule(), pod(), slow, policy=policy).waits_for.message == "its turn: at most 1 a second"
    assert only(rule(), pod(), policy=policy).waits_for.message == "its turn: at most 10 a second"


def test_pods_of_a_dump_without_uids_are_told_apart_or_left_out() -> None:
    same = owned("daemon", kind="DaemonSet", uid="none"), pod("plain", uid="none", hold="debugging")
    taken = [
        claim(each.meta.name, consumers=(Consumer("", "pods", each.meta.name, "none"),), owner="none") for each in same
    ]
    assert len(statuses(rule(), *same, *taken)) <= 1


def test_pod_of_a_dump_is_not_taken_for_a_stopped_one_with_the_same_uid() -> None:
    over = rule("over", selector=DeviceSelector(device="gpu-0"), conditions=(condition("Stopped", "over", "False"),))
    fine = rule("fine", selector=DeviceSelector(device="gpu-1"))
    taken = [
        claim(name, consumers=(Consumer("", "pods", name, "none"),), owner="none", devices=(f"gpu-{number}",))
        for number, name in enumerate("ab")
    ]
    found = statuses(over, fine, pod("a", uid="none"), pod("b", uid="none"), *taken)
    assert states(found) == {"b": PodState.DUE}


# --- who acts -----------------------------------------------------------------------------------


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


@table(
    "reasons, in_tree, mode",
    {
        "no rule": ([], InTree.ACTIVE, None),
        "no condition": ([""], InTree.ABSENT, None),
        "one that evicts": (["Evicting"], InTree.ACTIVE, Mode.DELEGATED),
        "one that evicts alone": (["Completed"], InTree.ABSENT, Mode.REPLACEMENT),
        "one that observes, beside an older one": (["ObserveOnly", "Stopped"], InTree.ABSENT, Mode.OBSERVE),
    },
)
def test_mode_is_shown_by_conditions(reasons: list[str], in_tree: InTree, mode: Mode | None) -> None:
    rules: list[DeviceTaintRule] = [rule(conditions=(condition(each),) if each else ()) for each in reasons]
    assert mode_by_conditions(rules, in_tree) is mode


def test_pod_with_extended_resources_is_said_to_wait_for_a_release_that_evicts_it() -> None:
    extended = pod("extended", claims=(), extended_claim="extended-claim")
    both = pod("both", claims=(PodClaim("both-claim"),), extended_claim="both-extended-claim")
    made = (claim("extended", devices=("gpu-1",), extended=True), claim("both-extended", owner="uid-both"))
    found = statuses(rule(), extended, both, *made, **DELEGATED)
    release = "the in-tree controller evicts such pods from 1.37.2 on; before, it leaves them alone"
    assert {name: (each.evictor, each.waits_for.message) for name, each in found.items()} == {
        "extended": (Evictor.IN_TREE, f"the in-tree controller, for an extended resource: {release}"),
        "both": (Evictor.IN_TREE, "the in-tree controller"),
    }


# --- lines --------------------------------------------------------------------------------------


def test_line_counts_devices_pods_and_progress() -> None:
    evicted = Condition(EVICTED_PODS, "True", "PodsEvicted", "7", 1, AGO)
    (line,) = lines(
        slice_of({f"gpu-{number}": () for number in range(4)}),
        rule(conditions=(condition("Evicting"), evicted)),
        pod("a"),
        pod("b", hold="x"),
        pod("c", deleting=True),
        pod("d"),
        claim("d", tolerates(60), devices=("gpu-3",)),
    )
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


# --- groups -------------------------------------------------------------------------------------


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


ON_FIRST = rule(selector=DeviceSelector(DRIVER, None, "gpu-0"))


def test_pod_whose_group_keeps_its_claims_waits_for_nothing() -> None:
    found = statuses(ON_FIRST, *ring_of())
    text = "skipped, exemption: nothing: its PodGroup keeps its claims reserved"
    assert {name: told(each) for name, each in found.items()} == {"hit": text}, "and takes no other pod along"
    assert statuses(ON_FIRST, *ring_of("another"))["hit"].state is PodState.DUE


def test_only_the_worker_takes_pods_of_a_group_along() -> None:
    """All of them, in whatever order they are planned."""
    ring = ring_of()
    ring[2] = claim("hit", devices=("gpu-0",))
    for number in range(20):
        ring += [pod(f"rank-{number}", pod_group="ring"), claim(f"rank-{number}", devices=("gpu-1",))]
    assert set(statuses(ON_FIRST, *ring)) == {"hit", "beside", *[f"rank-{number}" for number in range(20)]}
    assert set(statuses(ON_FIRST, *ring, **DELEGATED)) == {"hit"}


def test_companion_that_goes_for_another_rule_is_not_stopped() -> None:
    rules = [
        rule("r1", selector=DeviceSelector(device="gpu-0"), conditions=(condition("Stopped", "over", "False"),)),
        rule("r2", selector=DeviceSelector(device="gpu-1")),
    ]
    pods = [pod("p1", pod_group="ring"), pod("p2", pod_group="ring"), pod("c", claims=(), pod_group="ring")]
    found = statuses(ring_of()[0], *rules, *pods, **AFTER)
    assert states(found) == dict.fromkeys(("p1", "p2", "c"), PodState.DUE)


def member(name: str, after: int | None = None, gang: str = "train", **fields: Any) -> list[Any]:
    """A pod of a gang with a claim of its own."""
    tolerations = () if after is None else (tolerates(after),)
    return [claim(name, *tolerations, devices=(f"gpu-{name}",)), pod(name, gang=gang, **fields)]


def members(names: str, **fields: Any) -> list[Any]:
    return [each for name in names for each in member(name, **fields)]


def together(
    *given: Any, profiles: Sequence[EvictionProfile] = (EvictionProfile(),), seconds: float = 0.0
) -> dict[str, PodStatus]:
    """Of pods with labels of their own."""
    policy = structs.replace(BUILTIN, eviction=tuple(profiles))
    return statuses(rule(), *given, labels=(), policy=policy, now=NOW + timedelta(seconds=seconds))


WITH_A = "ml/a, which it goes together with"
PLAIN = EvictionProfile()


def test_pods_wait_for_the_last_of_their_gang_and_are_due_with_it() -> None:
    given = [*member("a", 10), *member("b", 50), *member("c", 30)]
    found = together(*given, seconds=20)
    assert told(found["a"]) == "notDue, gang: ml/b, which it goes together with and which is not due yet"
    assert found["a"].waits_for.pods == ["ml/b"]
    assert {told(found[name]) for name in "bc"} == {"notDue, time: its due time"}
    assert {(each.due, each.since) for each in found.values()} == {(NOW + timedelta(seconds=50), NOW)}
    found = together(*given, seconds=50)
    assert {(each.state, each.since) for each in found.values()} == {(PodState.DUE, NOW + timedelta(seconds=50))}


@table(
    "given, profiles, expected",
    {
        "is on hold": (
            [*member("a", hold="debugging"), *member("b")],
            [PLAIN],
            ["held, hold: hold: debugging", f"held, gang: {WITH_A} and which is on hold: debugging"],
        ),
        "is on hold without a text": (
            [*member("a", hold=""), *member("b")],
            [PLAIN],
            ["held, hold: a hold without a text", f"held, gang: {WITH_A} and which is on hold"],
        ),
        "may complete": (
            [*member("a", completes=True), *member("b")],
            [EvictionProfile(**COMPLETING)],
            [
                f"putOff, completion: its end, {AT_MOST}",
                f"putOff, gang: {WITH_A} and which is left to complete, {AT_MOST}",
            ],
        ),
        "has a window": (
            [*member("a", priority=-1), *member("b")],
            [EvictionProfile(priority_at_most=-1, windows=(WINDOW,)), PLAIN],
            [f"putOff, window: {OPENS}"] * 2,
        ),
        "two budgets select": (
            [*member("a", labels=WEB), *member("b"), budget(allowed=1), budget("all", allowed=1)],
            [PLAIN],
            [f"{BLOCKED}s all, {SELECTED}", f"blocked, disruptionBudget: {WITH_A}: disruption budgets all, {SELECTED}"],
        ),
    },
)
def test_pods_wait_for_one_of_theirs_that(
    given: list[Any], profiles: list[EvictionProfile], expected: list[str]
) -> None:
    first, second = together(*given, profiles=profiles).values()
    assert [told(first), told(second)] == expected
    assert second.waits_for.pods == ([] if expected[0] == expected[1] else ["ml/a"])


def test_pods_wait_for_the_budget_of_another_one() -> None:
    given = [*member("a"), *member("b", labels=WEB), *member("c"), *member("lone", gang="")]
    found = together(*given, budget(since=NOW - timedelta(seconds=20)))
    blocked = f"disruption budget web: disruptionsAllowed 0 since 2026-06-01T11:59:40Z, {HEALTHY}"
    assert (told(found["b"]), found["b"].waits_for.pods) == (f"blocked, disruptionBudget: {blocked}", [])
    for name in "ac":
        assert told(found[name]) == f"blocked, disruptionBudget: ml/b, which it goes together with: {blocked}"
        assert (found[name].waits_for.name, found[name].waits_for.pods) == ("web", ["ml/b"])
    assert found["lone"].state is PodState.DUE
    assert {*states(together(*given, budget(allowed=1))).values()} == {PodState.DUE}


def test_pods_wait_for_a_budget_that_allows_fewer_than_go_together() -> None:
    given = members("abc", labels=WEB)
    found = together(*given, budget(allowed=2, since=SOON), seconds=60)
    text = f"web: disruptionsAllowed 2, for 3 pods that go together, {HEALTHY}"
    assert [told(each) for each in found.values()] == [f"{BLOCKED} {text}"] * 3
    assert {each.since for each in found.values()} == {NOW}, "it is not known since when it allows too few"
    assert {*states(together(*given, budget(allowed=3))).values()} == {PodState.DUE}


def test_only_pods_that_need_a_disruption_count() -> None:
    mixed = [*members("ab", labels=WEB), *member("c", labels=WEB, ready=False)]
    mixed += member("d", labels=WEB, phase="Pending")
    found = together(*mixed, budget(allowed=1, always=True))
    text = f"disruption budget web: disruptionsAllowed 1, for 2 pods that go together, {HEALTHY}"
    assert [told(found[name]) for name in "ab"] == [f"blocked, disruptionBudget: {text}"] * 2
    assert [told(found[name]) for name in "cd"] == [f"blocked, disruptionBudget: {WITH_A}: {text}"] * 2
    assert {*states(together(*mixed, budget(allowed=2, always=True))).values()} == {PodState.DUE}


def test_pod_that_is_deleted_at_once_needs_nothing_of_a_budget() -> None:
    given = [*member("a", labels=WEB, priority=-1), *member("b", labels=WEB)]
    profiles = [EvictionProfile(priority_at_most=-1, **AT_ONCE), PLAIN]
    assert {*states(together(*given, budget(allowed=1), profiles=profiles)).values()} == {PodState.DUE}


def test_pods_that_are_never_evicted_are_skipped_and_not_waited_for() -> None:
    found = together(*member("mirror", 50, mirror=True), *members("ab"))
    assert states(found) == {"mirror": PodState.SKIPPED, "a": PodState.DUE, "b": PodState.DUE}
