"""The words of conditions and Events, one table each."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from tests.builders import NOW
from tests.unit.eviction.objects import rule, taint
from webhook.api.rules import EVICTED_PODS, Condition, evicted_pods
from webhook.eviction.conditions import (
    EVICTION,
    IN_TREE,
    ConditionReason,
    ConditionState,
    ImpactForecast,
    Progress,
    eviction_condition,
    in_tree_condition,
    updated,
)
from webhook.eviction.events import PodEventKind, disruption_of, pod_event, rule_event
from webhook.eviction.modes import InTree, Mode, advice, refusal, scope_of
from webhook.eviction.ports import Disruption, PodRef
from webhook.inventory.evictions import Eviction, EvictionReason
from webhook.inventory.pools import Evictor
from webhook.inventory.targets import EvictionScope

EVICTED = Eviction(NOW, (EvictionReason(rule().taint, "rule", "uid-rule"),))
POD = PodRef("ml", "pod", "uid-pod")
END = "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."


OVERALL = {"overall": ["ml/y", "ml/x"]}


ONE_POD, TWO_PODS = "1 pod needs to be evicted in 1 namespace.", "2 pods need to be evicted in 1 namespace."
OTHER = "Eviction only happens for the NoExecute effect."
SINCE = "evicted since starting the controller."


@pytest.mark.parametrize(
    ("effect", "pending", "namespaces", "evicted", "expected"),
    [
        ("NoExecute", 0, 0, 0, ("False", "NotStarted", "")),
        ("NoExecute", 1, 1, 0, ("True", "PodsPendingEviction", ONE_POD)),
        ("NoExecute", 2, 1, 0, ("True", "PodsPendingEviction", TWO_PODS)),
        ("NoExecute", 3, 2, 0, ("True", "PodsPendingEviction", "3 pods need to be evicted in 2 different namespaces.")),
        ("NoExecute", 1, 1, 1, ("True", "PodsPendingEviction", f"{ONE_POD} 1 pod {SINCE}")),
        ("NoExecute", 0, 0, 1000, ("False", "Completed", f"1000 pods {SINCE}")),
        ("NoSchedule", 5, 5, 0, ("False", "OtherEffect", OTHER)),
        ("NoSchedule", 0, 0, 2, ("False", "OtherEffect", f"{OTHER} 2 pods {SINCE}")),
    ],
)
def test_in_tree_condition(
    effect: str, pending: int, namespaces: int, evicted: int, expected: tuple[str, str, str]
) -> None:
    """E-39, E-41, E-42."""
    assert in_tree_condition(effect, pending, namespaces, evicted) == expected


@pytest.mark.parametrize(
    ("forecast", "published", "allocated", "pods", "namespaces"),
    [
        (
            (0, 0, 0, 0),
            "0 published devices",
            "0 allocated devices",
            "0 pods",
            "0 different namespaces",
        ),
        ((1, 1, 1, 1), "1 published device", "1 allocated device", "1 pod", "1 namespace"),
        (
            (2, 3, 4, 5),
            "2 published devices",
            "3 allocated devices",
            "4 pods",
            "5 different namespaces",
        ),
    ],
)
def test_in_tree_condition_of_effect_none(
    forecast: tuple[int, int, int, int], published: str, allocated: str, pods: str, namespaces: str
) -> None:
    """E-40."""
    devices = f"{published} selected. {allocated} selected."
    told = f"{devices} {pods} would be evicted in {namespaces} if the effect was NoExecute. {END}"
    assert in_tree_condition("None", 0, 0, 0, ImpactForecast(*forecast)) == ("False", "NoEffect", told)


@pytest.mark.parametrize(
    ("progress", "state"),
    [
        (Progress(), ConditionReason.NOTHING_TO_DO),
        (Progress(settled=False), ConditionReason.WAITING),
        (Progress(evicted=1), ConditionReason.COMPLETED),
        (Progress(pending=1), ConditionReason.WAITING),
        (Progress(pending=2, due=1), ConditionReason.EVICTING),
        (Progress(pending=2, due=2, blocked=1), ConditionReason.EVICTING),
        (Progress(pending=2, due=1, blocked=1), ConditionReason.BLOCKED),
        (Progress(pending=2, due=2, blocked=1, held=1), ConditionReason.BLOCKED),
        (Progress(pending=2, due=1, held=1), ConditionReason.HELD),
        (Progress(pending=2, due=2, limited=OVERALL, stalled=True), ConditionReason.LIMITED),
        (Progress(pending=2, due=2, limited=OVERALL), ConditionReason.EVICTING),
        (Progress(pending=3, due=3, limited=OVERALL, stalled=True), ConditionReason.EVICTING),
        (Progress(pending=4, due=4, limited=OVERALL, stalled=True, blocked=1, held=1), ConditionReason.LIMITED),
        (Progress(pending=3, due=3, limited=OVERALL, blocked=3), ConditionReason.BLOCKED),
        (Progress(pending=2, due=1, paused=(NOW, "")), ConditionReason.PAUSED),
        (Progress(pending=2, due=1, held=1, paused=(NOW, "")), ConditionReason.HELD),
        (Progress(pending=2, paused=(NOW, "")), ConditionReason.WAITING),
        (Progress(paused=(NOW, ""), stuck=["ml/pod"], evicted=1), ConditionReason.COMPLETED),
    ],
)
def test_state_of_an_eviction(progress: Progress, state: ConditionReason) -> None:
    status, reason, _ = eviction_condition(progress, acts=True)
    assert reason == state.value
    assert status == str(bool(progress.pending or not progress.settled))


def test_message_names_what_holds_pods_up() -> None:
    progress = Progress(
        pending=9,
        namespaces={"ml"},
        due=9,
        limited={"perOwnerUnavailable": ["ml/d", "ml/a", "ml/b", "ml/c", "ml/e"], **OVERALL},
        stuck=["ml/v", "ml/t", "ml/u", "ml/s"],
        paused=(NOW, "storage maintenance"),
    )
    assert eviction_condition(progress, acts=True)[2] == (
        "0 pods evicted; 9 pods pending in 1 namespace; 2 limited by overall (ml/x, ml/y); "
        "5 limited by perOwnerUnavailable (ml/a, ml/b, ml/c and 2 more); "
        "paused until 2026-06-01T12:00:00Z: storage maintenance; "
        "4 stuck in Terminating (ml/s, ml/t, ml/u and 1 more)"
    )


def test_message_tells_everything_there_is() -> None:
    progress = Progress(
        pending=5,
        namespaces={"ml", "web"},
        due=3,
        blocked=1,
        held=1,
        evicted=1,
        skipped=2,
        tolerating_scheduling=1,
        next_due=NOW,
        closed=Counter({"": 8, "2026-06-01T22:00:00+02:00 (Europe/Berlin)": 7}),
        completing=6,
    )
    assert eviction_condition(progress, acts=True)[2] == (
        "1 pod evicted; 5 pods pending in 2 namespaces; 1 blocked; 1 held; "
        "7 waiting for a window that opens at 2026-06-01T22:00:00+02:00 (Europe/Berlin); 8 waiting for a window; "
        "6 left to complete; next due 2026-06-01T12:00:00Z; "
        "2 skipped (pods of DaemonSets, mirror pods, action: skip); 1 left alone (ToleratesScheduling)"
    )


def opening(hour: int, offset: str, pods: int) -> tuple[str, int]:
    return f"2026-06-01T{hour}:00:00{offset}:00 (Zone)", pods


def test_message_names_the_windows_that_open_first_and_counts_the_others() -> None:
    """By time, not by text: ten o'clock at night in Berlin is before five o'clock in New York."""
    first, second, third = opening(22, "+02", 1), opening(17, "-04", 2), opening(22, "+00", 3)
    named = [f"{pods} waiting for a window that opens at {opens}" for opens, pods in (first, second, third)]

    def windows(*closed: tuple[str, int]) -> list[str]:
        message = eviction_condition(Progress(pending=9, closed=Counter(dict(closed))), acts=True)[2]
        return [part for part in message.split("; ") if "waiting" in part]

    assert windows(third, second, first) == named
    assert windows(second, ("", 4), third, first) == [*named, "4 more waiting for other windows"]
    late = opening(23, "+00", 5)
    assert windows(late, ("", 4), third, first, second) == [*named, "9 more waiting for other windows"]
    assert windows(("", 4), first) == [named[0], "4 waiting for a window"]


def test_message_names_the_pods_that_most_others_wait_for_and_counts_the_rest() -> None:
    waiting = [((f"ml/p{number}", "on hold"), number) for number in range(1, 6)]

    def named(*others: tuple[tuple[str, str], int]) -> list[str]:
        message = eviction_condition(Progress(pending=15, waiting_for=Counter(dict(others))), acts=True)[2]
        return [part for part in message.split("; ") if "waiting" in part]

    first = [f"{number} waiting for ml/p{number}, which is on hold" for number in (5, 4, 3)]
    assert named(*waiting) == [*first, "3 more waiting for other pods"]
    assert named(*waiting[2:]) == first


def test_message_names_what_is_alike_by_name() -> None:
    """Else it would change with the order in which pods are counted."""
    waiting = Counter({("ml/b", "on hold"): 2, ("ml/a", "on hold"): 2})
    berlin, utc = "2026-06-01T22:00:00+02:00 (Europe/Berlin)", "2026-06-01T20:00:00+00:00 (UTC)"
    closed = Counter({berlin: 1, utc: 2})
    message = eviction_condition(Progress(pending=7, waiting_for=waiting, closed=closed), acts=True)[2]
    assert message.index("ml/a") < message.index("ml/b")
    assert message.index(utc) < message.index(berlin)


def test_message_is_cut_to_what_a_condition_may_have() -> None:
    assert len(eviction_condition(Progress(), acts=True, stopped="x" * 40_000)[2]) == 32_768


@pytest.mark.parametrize(
    ("acts", "stopped", "waits"), [(True, "", True), (False, "", False), (True, "too many", False)]
)
def test_allocations_are_waited_for_where_pods_are_to_go(acts: bool, stopped: str, waits: bool) -> None:  # noqa: FBT001 -- a table's
    message = eviction_condition(Progress(settled=False), acts=acts, stopped=stopped)[2]
    assert ("waiting until all allocations made before the taint are known" in message) is waits


def test_message_names_the_claims_and_pod_groups_of_most_pods() -> None:
    claims = Counter({(f"ml/c{number}", ""): number for number in range(1, 6)})
    groups = Counter({f"ml/g{number}": number for number in range(1, 5)})
    parts = eviction_condition(Progress(returning=claims, held_by=groups), acts=True)[2].split("; ")
    said = " ".join(parts)
    assert [f"ml/c{number}" in said for number in range(1, 6)] == [False, False, True, True, True]
    assert [f"ml/g{number}" in said for number in range(1, 5)] == [False, True, True, True]
    assert said.index("ml/c5") < said.index("ml/c4") < said.index("ml/c3")
    assert parts[-1] == "the same for 3 more claims and PodGroups"


@pytest.mark.parametrize("evicted", [1, 12345, 999_999_999])
def test_how_many_were_evicted_can_be_read_again(evicted: int) -> None:
    other = Condition(EVICTION, "True", "Evicting", "99 pods evicted")
    counted = Condition(EVICTED_PODS, "True", "PodsEvicted", str(evicted))
    assert evicted_pods((other, counted)) == evicted


@pytest.mark.parametrize("message", ["", "-3", "7 pods evicted", "1e9", "9" * 10])
def test_count_that_is_no_number_of_ours_is_none(message: str) -> None:
    assert evicted_pods((Condition(EVICTED_PODS, "True", "PodsEvicted", message),)) == 0


def test_time_of_a_condition_moves_with_status_and_generation_only() -> None:
    known = Condition(EVICTION, "True", "Waiting", "x", 1, NOW)
    later = NOW + timedelta(seconds=60)
    assert updated(known, EVICTION, ConditionState("True", "Waiting", "x"), 1, later) is known
    assert updated(known, EVICTION, ConditionState("True", "Evicting", "y"), 1, later).last_transition_time == NOW
    assert updated(known, EVICTION, ConditionState("False", "Waiting", "x"), 1, later).last_transition_time == later
    assert updated(known, EVICTION, ConditionState("True", "Waiting", "x"), 2, later).last_transition_time == later
    assert updated(None, EVICTION, ConditionState("True", "Waiting", "x"), 1, later).last_transition_time == later


def test_time_of_the_in_tree_condition_moves_with_any_change() -> None:
    """E-38."""
    known = Condition(IN_TREE, "True", "PodsPendingEviction", "x", 1, NOW)
    later = NOW + timedelta(seconds=60)
    told = ConditionState("True", "PodsPendingEviction", "y")
    assert updated(known, IN_TREE, told, 1, later, any_change=True).last_transition_time == later
    assert (
        updated(known, IN_TREE, ConditionState("True", "PodsPendingEviction", "x"), 1, later, any_change=True) is known
    )


@pytest.mark.parametrize("state", ConditionReason)
def test_every_state_has_an_event(state: ConditionReason) -> None:
    assert rule_event(rule(), state, "message").text == "message"


@pytest.mark.parametrize(
    ("kind", "text"), [(PodEventKind.EVICTED, "Marking for deletion"), (PodEventKind.CANCELLED, "Cancelling deletion")]
)
def test_events_of_replacement_are_those_that_scripts_know(kind: PodEventKind, text: str) -> None:
    """E-34."""
    note = pod_event(Mode.REPLACEMENT, kind, POD, EVICTED)
    assert (note.about, note.reason, note.text, note.warning) == (POD, "DeviceTaintManagerEviction", text, False)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("kind", PodEventKind)
def test_other_events_say_why(mode: Mode, kind: PodEventKind) -> None:
    note = pod_event(mode, kind, POD, EVICTED, "a word of somebody else")
    if mode is Mode.REPLACEMENT and kind in (PodEventKind.EVICTED, PodEventKind.CANCELLED):
        return
    assert note.reason == kind.value
    assert ("DeviceTaintRule rule" in note.text) is (kind is not PodEventKind.CANCELLED)
    quoting = (PodEventKind.HELD, PodEventKind.BLOCKED, PodEventKind.SCHEDULED)
    assert ("a word of somebody else" in note.text) is (kind in quoting)
    at_due_time = pod_event(mode, PodEventKind.SCHEDULED, POD, EVICTED).text
    assert "to be evicted at 2026-" in at_due_time or "would be evicted at 2026-" in at_due_time
    assert note.warning is (kind is PodEventKind.BLOCKED)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (1, "DeviceTaintRule r0"),
        (3, "DeviceTaintRule r0, DeviceTaintRule r1, DeviceTaintRule r2"),
        (4, "DeviceTaintRule r0, DeviceTaintRule r1, DeviceTaintRule r2 and 1 more"),
        (5, "DeviceTaintRule r0, DeviceTaintRule r1, DeviceTaintRule r2 and 2 more"),
    ],
)
def test_event_names_the_first_three_reasons(rules: int, words: str) -> None:
    reasons = tuple([EvictionReason(taint(), f"r{number}", f"uid-{number}") for number in range(rules)])
    note = pod_event(Mode.DELEGATED, PodEventKind.EVICTED, POD, Eviction(NOW, reasons))
    assert note.text == f"evicted because of {words}"


def test_deletion_is_explained_in_the_words_of_whoever_deletes() -> None:
    """E-30."""
    told = Disruption("DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint")
    assert disruption_of(Mode.REPLACEMENT) == told
    others = {disruption_of(mode).reason for mode in Mode if mode is not Mode.REPLACEMENT}
    assert others == {"DeletionByDeviceTaintWebhook"}


# --- modes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "in_tree", "expected"),
    [
        (Mode.OBSERVE, InTree.ACTIVE, EvictionScope(Evictor.IN_TREE, asked=True)),
        (Mode.OBSERVE, InTree.UNKNOWN, EvictionScope(Evictor.IN_TREE, asked=True)),
        (Mode.OBSERVE, InTree.ABSENT, EvictionScope(Evictor.OURS, asked=True)),
        (Mode.DELEGATED, InTree.ACTIVE, EvictionScope(None, asked=True)),
        (Mode.REPLACEMENT, InTree.ABSENT, EvictionScope(Evictor.OURS, asked=True)),
    ],
)
def test_taints_that_are_ours(mode: Mode, in_tree: InTree, expected: EvictionScope) -> None:
    assert scope_of(mode, in_tree) == expected


def test_only_replacement_is_refused_and_only_where_the_in_tree_controller_may_be_at_work() -> None:
    refused = {(mode, in_tree) for mode in Mode for in_tree in InTree if refusal(mode, in_tree)}
    assert refused == {(Mode.REPLACEMENT, InTree.ACTIVE), (Mode.REPLACEMENT, InTree.UNKNOWN)}


def test_nobody_for_noexecute_is_worth_a_word() -> None:
    told = {(mode, in_tree) for mode in Mode for in_tree in InTree if advice(mode, in_tree)}
    assert told == {(Mode.DELEGATED, InTree.ABSENT)}
