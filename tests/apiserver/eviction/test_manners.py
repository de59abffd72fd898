"""Manners on a real control plane: budgets, rates, numbers, order, holds, deadlines; and `kubectl wait` for their end.

All scenarios are played side by side, each in a namespace of its own that has a profile of its own. The disruption
controller, ReplicaSets, scheduler and claims are real; only kubelets are kwok's, and the in-tree evictor is off. Who
went, and when, is taken from the API server's audit log, and how many pods were ready from a watch: not from us.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import pytest

from tests.apiserver.evicting import stays
from tests.apiserver.eviction.bench import RULES, SOON_SECONDS, now
from tests.apiserver.eviction.buckets import (
    bucket_without_pods_is_not_forgotten_before_it_is_full,
    changed_rule_starts_no_fresh_burst,
    changed_taint_of_a_slice_starts_no_fresh_burst,
    highest_of_several_rates_wins,
    rate_is_ten_a_second_where_neither_rule_nor_profile_says,
    rule_that_is_deleted_keeps_those_that_still_wait,
    ten_go_at_once_and_the_others_one_a_second,
)
from tests.apiserver.eviction.ground import Fleet, Ground
from tests.apiserver.eviction.readiness import ReadyWatch
from tests.apiserver.eviction.turns import WAITER, Stage, play, played, staged
from tests.apiserver.eviction.witness import Deletion
from tests.apiserver.policy.stage import make_policy
from tests.conftest import _assets
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until
from webhook.api.meta import format_time

pytestmark = pytest.mark.slow

Json = dict[str, Any]

ALL: Final = os.environ.get("EVICTION_SCALE") == "all"
"""Otherwise two minutes of the ten that it takes have to do."""
CROWD: Final = 100
CROWD_GONE: Final = CROWD if ALL else 21
WAITING: Final = 60
"""Pods whose Events wait as a worker ends."""
REPLACED_WITHIN: Final = timedelta(seconds=5)
"""How long an evicted pod counts that is not replaced."""
MINUTE: Final = timedelta(seconds=60)
MARKED: Final = ("DeviceTaintManagerEviction", "Marking for deletion")
FAST: Final = {"rate": 1000, "burst": 1000, "perOwnerUnavailable": None}
PROFILES: Final[Mapping[str, Json]] = {
    "budget": {"rate": 10, "burst": 100, "maxPerMinute": 10},
    "changed-slice": {"rate": 1, "burst": 10, "perOwnerUnavailable": None},
    "default-rate": {"perOwnerUnavailable": None},
    "few": FAST | {"perNamespace": 2},
    "few-here": FAST | {"overall": 3},
    "few-there": FAST | {"overall": 3},
    "owner": {"rate": 1000, "burst": 1000, "perOwnerUnavailable": 1},
    "order": {"rate": 2, "burst": 1},
    "held-for-long": FAST | {"maxHold": "6s"},
    "given-up": FAST | {"deadline": "5s", "afterDeadline": "delete"},
    "kept": FAST | {"deadline": "2s", "afterDeadline": "keep"},
    "grace-period": FAST | {"gracePeriodSeconds": 7},
    "grace": FAST | {"grace": "5s"},
}
"""By namespace."""
NO_LIMITS: Final = {"limits": [{"pods": None, "claims": None, "devices": None, "namespaces": None}]}
POLICY: Final = make_policy(
    inTreeEvictor="absent",
    impact=NO_LIMITS,
    breaker={"devices": None},  # a slice taints all devices of its driver at once here
    eviction=[*[{"namespaces": {"names": [name]}, **profile} for name, profile in PROFILES.items()], FAST],
)


# --- a budget and a number a minute --------------------------------------------------------------


def budget_of_one_and_ten_a_minute_are_kept_for_a_hundred_pods(stage: Stage) -> Iterator[None]:
    ground = stage.ground("budget")
    Fleet(ground, CROWD)
    ground.budget(maxUnavailable=1)
    yield
    yield
    with ReadyWatch(ground) as watch:
        ground.taint(pool="old")
        times = [each.at for each in ground.wait_gone(CROWD_GONE, seconds=60.0 * CROWD_GONE / 5)]
    print(f"{len(times)} evictions in {(times[-1] - times[0]).total_seconds():.0f} s, {watch.seen} events")
    assert watch.fewest == CROWD - 1
    assert all(later - earlier >= MINUTE for earlier, later in zip(times, times[10:], strict=False))
    assert all(each.by_eviction for each in ground.asked())
    gone = ground.gone()  # once: it goes on
    assert len(set(gone)) == len(gone)
    assert ground.condition()["status"] == "True" or ALL
    if ALL:
        ground.wait_message("Completed", f"{CROWD} pods evicted")


# --- numbers and order --------------------------------------------------------------------------


def no_more_than_two_of_a_namespace_are_on_their_way_out(stage: Stage) -> None:
    ground = stage.ground("few")
    check_under_way(2, ground)


def no_more_than_three_are_on_their_way_out_in_all(stage: Stage) -> Iterator[None]:
    check_under_way(3, stage.ground("few-here"), stage.ground("few-there"))
    yield


def check_under_way(most: int, *grounds: Ground) -> None:
    """Six pods that stay until they are let go: as many as may be are being deleted at any time, and never more."""
    of = {}
    for number in range(6):
        ground = of[f"pod-{number}"] = grounds[number % len(grounds)]
        ground.admit(f"pod-{number}", stays=True)
    for ground in grounds:
        ground.taint()

    def gone() -> list[str]:
        found = [each for ground in grounds for each in ground.granted()]
        return [each.pod[1] for each in sorted(found, key=lambda each: each.at)]

    def check(expected: int) -> None:
        wait_until(lambda: len(gone()) >= expected, "as many as may be", seconds=SOON_SECONDS, every=0.1)
        assert stays((len(gone()) == expected for _ in iter(int, 1)), 0.7)

    for let_go in range(6):
        check(min(let_go + most, 6))
        name = gone()[let_go]
        of[name].let_go(name)
    assert sorted(gone()) == sorted(of)


def owner_without_a_budget_misses_one_pod_at_most(stage: Stage) -> Iterator[None]:
    ground = stage.ground("owner")
    fleet = Fleet(ground, 4)
    yield
    yield
    with ReadyWatch(ground) as watch:
        ground.taint(pool="old")
        times = [each.at for each in ground.wait_gone(fleet.replicas, seconds=180)]
    # A busy machine may take longer to make a replacement than it is waited for: the next pod may go then.
    waited_out = sum(later - earlier >= REPLACED_WITHIN for earlier, later in pairwise(times))
    print(f"{watch.fewest} of {fleet.replicas} ready at the least, {waited_out} replacements may have been late")
    assert fleet.replicas - 1 - waited_out <= watch.fewest <= fleet.replicas - 1
    ground.wait_message("Completed", "4 pods evicted")


def lowest_priority_goes_first_then_the_oldest_due(stage: Stage) -> None:
    ground = stage.ground("order")
    for name, value in (("low", 10), ("high", 1000)):
        metadata = {"name": f"{ground.name}-{name}"}
        priorities = path("scheduling.k8s.io/v1", "priorityclasses")
        _ = ground.client.create(priorities, {"metadata": metadata, "value": value}).object
    ground.admit("d", seconds=10, priority_class="order-low")
    ground.admit("b", seconds=20, priority_class="order-low")
    ground.admit("c", seconds=5, priority_class="order-high")
    ground.admit("a", seconds=25, priority_class="order-high")
    ground.taint(effect="None")
    ground.wait_forecast(4)
    ground.change(taint={"effect": "NoExecute", "timeAdded": format_time(now() - timedelta(seconds=60))})
    ground.wait_gone(4)
    # One whose status the kubelet writes meanwhile is asked for again, behind the others.
    assert [*dict.fromkeys(each.pod[1] for each in ground.asked())] == ["d", "b", "c", "a"]


# --- holds, deadlines, grace --------------------------------------------------------------------


def held_pod_stays_until_it_is_held_no_more(stage: Stage) -> None:
    ground = stage.ground("held-pod")
    ground.admit("held", hold="ask anna")
    ground.admit("other")
    ground.taint()
    ground.wait_message("Held", "1 pod evicted; 1 pod pending in 1 namespace; 1 held")
    why = "due for eviction because of DeviceTaintRule held-pod-r, but held: ask anna"
    wait_until(lambda: ("EvictionHeld", why) in ground.told(), "told", seconds=SOON_SECONDS)
    assert ground.gone() == ["other"]
    ground.unhold("held")
    ground.wait_gone(2)
    ground.wait_message("Completed", "2 pods evicted")


def held_namespace_stays_until_it_is_held_no_more(stage: Stage) -> None:
    ground = stage.ground("held-namespace")
    ground.hold_all("release week")
    ground.crowd(3, seconds=15)  # by when they are due the worker has heard of the hold
    ground.taint()
    ground.wait_message("Held", "0 pods evicted; 3 pods pending in 1 namespace; 3 held")
    assert ground.asked() == []
    ground.hold_all(None)
    ground.wait_gone(3)


def hold_is_honoured_for_no_longer_than_the_policy_says(stage: Stage) -> None:
    ground = stage.ground("held-for-long")
    ground.admit("held", hold="for ever")
    end = ground.taint() + timedelta(seconds=6)
    check_soon(ground.wait_gone(1), end)


def pod_is_deleted_when_its_budget_says_no_beyond_the_deadline(stage: Stage) -> None:
    ground = stage.ground("given-up")
    ground.admit("a")
    ground.budget(minAvailable=1)
    ground.taint()
    [deletion] = ground.wait_gone(1)
    refused = [each for each in ground.asked() if each.code == 429]
    assert all(each.by_eviction for each in refused)
    assert not deletion.by_eviction
    assert deletion.uid == ground.uids["a"]
    check_soon([deletion], refused[0].at + timedelta(seconds=5))
    [mark] = ground.witness.marks(deletion.uid)
    assert mark.reason == "DeletionByDeviceTaintManager"
    assert refused[-1].at < mark.at <= deletion.at
    blocked = (
        "due for eviction because of DeviceTaintRule given-up-r, but blocked: Cannot evict pod as it would violate"
    )
    wait_until(
        lambda: any(reason == "EvictionBlocked" and text.startswith(blocked) for reason, text in ground.told()),
        "told",
        seconds=SOON_SECONDS,
    )


def pod_is_kept_when_its_budget_says_no_and_the_policy_says_so(stage: Stage) -> None:
    ground = stage.ground("kept")
    ground.admit("a")
    ground.budget(minAvailable=1)
    ground.taint()
    ground.wait_message("Blocked", "0 pods evicted; 1 pod pending in 1 namespace; 1 blocked")
    wait_until(lambda: ground.asked()[-1].at - ground.asked()[0].at > timedelta(seconds=4), "asked on", every=0.5)
    assert {(each.code, each.by_eviction) for each in ground.asked()} == {(429, True)}
    ground.drop_budget()
    [deletion] = ground.wait_gone(1)
    assert deletion.by_eviction
    assert ground.witness.marks(deletion.uid) == []


def grace_period_of_the_policy_is_asked_for(stage: Stage) -> None:
    ground = stage.ground("grace-period")
    ground.admit("a")
    ground.taint()
    [deletion] = ground.wait_gone(1)
    assert deletion.options["gracePeriodSeconds"] == 7


def grace_of_the_policy_comes_on_top(stage: Stage) -> None:
    ground = stage.ground("grace")
    ground.admit("at-once")
    ground.admit("tolerant", seconds=3)
    due = ground.taint() + timedelta(seconds=5)
    evictions = {each.pod[1]: each for each in ground.wait_gone(2)}
    check_soon([evictions["at-once"]], due)
    check_soon([evictions["tolerant"]], due + timedelta(seconds=3))


def check_soon(evictions: Sequence[Deletion], due: datetime) -> None:
    """None before its time, and none long after."""
    for each in evictions:
        assert due <= each.at <= due + timedelta(seconds=SOON_SECONDS)


# --- kubectl wait, restarts ---------------------------------------------------------------------


def kubectl_waits_from_before_there_is_a_condition(stage: Stage) -> Iterator[None]:
    ground = stage.ground("waited-for")
    ground.crowd(13)
    yield
    ground.taint(rate=1)
    returned = stage.kubectl_wait(ground)
    wait_until(lambda: stage.waits(ground), "kubectl waits", seconds=SOON_SECONDS, every=0.3)
    assert ground.condition() == {}
    yield
    check_returned(ground, returned, 13)


def kubectl_waits_for_the_generation_that_is(stage: Stage) -> Iterator[None]:
    """Also where the condition still says of the one before that nothing is left."""
    ground = stage.ground("waited-for-again")
    ground.crowd(26)
    ground.taint(rate=1, device="pod-000")
    ground.wait_message("Completed", "1 pod evicted")
    yield
    ground.change(deviceSelector={"device": "pod-001"})
    status = ground.client.get(f"{RULES}/{ground.rule()}").object["status"]["conditions"]
    assert {each["status"] for each in status if each["type"] == "devicetaint.io/Eviction"} == {"False"}
    returned = stage.kubectl_wait(ground)
    wait_until(lambda: stage.waits(ground), "kubectl waits", seconds=SOON_SECONDS, every=0.3)
    yield
    check_returned(ground, returned, 2, left=24)
    ground.change(deviceSelector={"device": None})
    check_returned(ground, stage.kubectl_wait(ground), 26)


def check_returned(ground: Ground, returned: Future[datetime], evicted: int, left: int = 0) -> None:
    """Once nobody was left to evict, and soon then."""
    at = returned.result()
    assert len(ground.present()) == left
    evictions = ground.wait_gone(evicted)  # who is gone from the store may not be in the audit log yet
    assert len(evictions) == evicted
    assert evictions[-1].at < at <= evictions[-1].at + timedelta(seconds=2 * SOON_SECONDS)
    assert ground.condition()["reason"] == "Completed"


def progress_survives_a_restart(stage: Stage) -> Iterator[None]:
    ground = stage.ground("progress")
    for number in range(8):
        ground.admit(f"pod-{number}", hold="" if number < 5 else "not yet")
    ground.taint()
    ground.wait_gone(5)
    yield
    told = "5 pods evicted; 3 pods pending in 1 namespace; 3 held"
    assert (ground.condition()["reason"], ground.condition()["message"]) == ("Held", told)
    yield
    for number in range(5, 8):
        ground.unhold(f"pod-{number}")
    ground.wait_gone(8)
    ground.wait_message("Completed", "8 pods evicted")


def events_that_wait_are_written_at_the_end(stage: Stage) -> Iterator[None]:
    ground = stage.ground("told")
    ground.crowd(WAITING)
    yield
    ground.taint()
    ground.wait_gone(WAITING, seconds=180)
    print(f"{WAITING - len(marked(ground))} of {WAITING} Events wait as the worker ends")
    yield
    told = [each.uid for each in ground.witness.deletions() if each.pod[0] == ground.name]
    assert sorted(told) == sorted(ground.uids.values())
    assert marked(ground) == {*told}
    yield


def marked(ground: Ground) -> set[str]:
    """The uids of its pods that an Event was written about, as the audit log has it."""
    told = {each.uid for each in ground.witness.told() if (each.reason, each.text) == MARKED}
    return told & {*ground.uids.values()}


# --- the play -----------------------------------------------------------------------------------

ACROSS: Final = (
    budget_of_one_and_ten_a_minute_are_kept_for_a_hundred_pods,
    owner_without_a_budget_misses_one_pod_at_most,
    no_more_than_three_are_on_their_way_out_in_all,
    kubectl_waits_from_before_there_is_a_condition,
    kubectl_waits_for_the_generation_that_is,
    progress_survives_a_restart,
)
"""Each goes on to where it says `yield`: with one worker, while there is none, and with the next."""
LAST: Final = events_that_wait_are_written_at_the_end
"""Likewise, and once more before that: right after it the first worker ends."""
WITHIN: Final = (
    ten_go_at_once_and_the_others_one_a_second,
    rate_is_ten_a_second_where_neither_rule_nor_profile_says,
    highest_of_several_rates_wins,
    changed_rule_starts_no_fresh_burst,
    changed_taint_of_a_slice_starts_no_fresh_burst,
    bucket_without_pods_is_not_forgotten_before_it_is_full,
    rule_that_is_deleted_keeps_those_that_still_wait,
    no_more_than_two_of_a_namespace_are_on_their_way_out,
    lowest_priority_goes_first_then_the_oldest_due,
    held_pod_stays_until_it_is_held_no_more,
    held_namespace_stays_until_it_is_held_no_more,
    hold_is_honoured_for_no_longer_than_the_policy_says,
    pod_is_deleted_when_its_budget_says_no_beyond_the_deadline,
    pod_is_kept_when_its_budget_says_no_and_the_policy_says_so,
    grace_period_of_the_policy_is_asked_for,
    grace_of_the_policy_comes_on_top,
)
"""With the second worker."""
NAMES: Final = [each.__name__ for each in (*ACROSS, LAST, *WITHIN)]


@pytest.fixture(scope="module")
def errors(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Exception]]:
    """What went wrong, by scenario."""
    assets = _assets(request, "kube-controller-manager", "kube-scheduler", "kwok")
    waiting = {"level": "Metadata", "users": [WAITER]}
    with staged(assets, tmp_path_factory.mktemp("manners"), audited=[waiting]) as plane:
        yield played(plane, lambda stage: play(stage, json.dumps(POLICY), ACROSS, LAST, WITHIN))


@pytest.mark.parametrize("name", NAMES)
def test_manners(errors: Mapping[str, Exception], name: str) -> None:
    if name in errors:
        raise errors[name]
