"""Scenarios of the worker's token buckets: rates, bursts, and what makes no fresh one. Played by test_manners."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from tests.apiserver.evicting import stays
from tests.apiserver.eviction.bench import RULES, SOON_SECONDS, now
from tests.apiserver.eviction.ground import Ground
from tests.apiserver.eviction.scenario import KEY
from tests.apiserver.eviction.turns import Stage
from tests.apiserver.eviction.witness import Deletion
from tests.controlplane.processes import wait_until

BURST: Final = 10


def ten_go_at_once_and_the_others_one_a_second(stage: Stage) -> None:
    """N-13, N-23; with those of other rules of the same key beside it N-15."""
    ground = stage.ground("slow")
    ground.crowd(25, seconds=3)
    due = ground.taint(rate=1) + timedelta(seconds=3)
    check_rate(ground.wait_gone(25, seconds=120), due, 1)


def rate_is_ten_a_second_where_neither_rule_nor_profile_says(stage: Stage) -> None:
    """N-11, and a burst of ten."""
    ground = stage.ground("default-rate")
    ground.crowd(40, seconds=10)
    due = ground.taint() + timedelta(seconds=10)
    check_rate(ground.wait_gone(40, seconds=120), due, 10)


def highest_of_several_rates_wins(stage: Stage) -> None:
    """N-14."""
    ground = stage.ground("slow-and-fast")
    ground.crowd(25, seconds=20)
    due = ground.taint("slow", rate=1) + timedelta(seconds=20)
    other_due = ground.taint("fast", rate=100) + timedelta(seconds=20)
    assert now() < due, "both rules have to be there before anybody is due"
    check_rate(ground.wait_gone(25, seconds=120), min(due, other_due), 100)


def changed_rule_starts_no_fresh_burst(stage: Stage) -> None:
    """N-17, N-18; and who comes late, waits like all others (N-24)."""
    ground = stage.ground("changed-rule")
    ground.crowd(15)
    ground.taint(rate=1)
    since = ground.asked_at
    ground.wait_gone(10)
    ground.change(taint={"key": KEY, "value": "another", "effect": "NoExecute"})
    ground.admit("late")
    check_rate(ground.wait_gone(16, seconds=120), since, 1)


def changed_taint_of_a_slice_starts_no_fresh_burst(stage: Stage) -> None:
    """Taints in slices share what their driver and key allow, whatever their values."""
    ground = stage.ground("changed-slice")
    ground.crowd(30)
    since = now()
    taint = {"key": KEY, "effect": "NoExecute"}
    ground.publish(ground.name, sorted(ground.uids), taint)
    ground.wait_gone(11)
    ground.publish(ground.name, sorted(ground.uids), taint | {"value": "another"})
    check_rate(ground.wait_gone(30, seconds=120), since, 1)


def bucket_without_pods_is_not_forgotten_before_it_is_full(stage: Stage) -> None:
    """N-16: the rule has nothing left to do when more pods come."""
    ground = stage.ground("idle")
    ground.crowd(10)
    ground.taint(rate=1)
    since = ground.asked_at
    ground.wait_gone(10)
    wait_until(lambda: not ground.present(), "no pods are left", seconds=SOON_SECONDS)
    for number in range(8):
        ground.admit(f"later-{number}")
    there = now()
    check_rate(ground.wait_gone(18, seconds=120), since, 1, there)


def rule_that_is_deleted_keeps_those_that_still_wait(stage: Stage) -> None:
    """N-25: of forty, while they go one a second."""
    ground = stage.ground("mistake")
    ground.crowd(40)
    ground.taint(rate=1)
    ground.wait_gone(12)
    _ = ground.client.delete(f"{RULES}/{ground.rule()}").object
    deleted = now()

    def at_rest() -> bool:
        left = ground.present()
        return stays((ground.present() == left for _ in iter(int, 1)), 4)

    wait_until(at_rest, "no more go", seconds=SOON_SECONDS)
    gone, left = ground.gone(), ground.present()
    assert len(gone) >= 12
    assert left == ground.uids.keys() - gone != set()
    assert ground.granted()[-1].at <= deleted + timedelta(seconds=20)  # of the 28 that they would all need
    uids = {ground.uids[name] for name in left}
    wait_until(lambda: cancelled(ground) >= uids, "an Event says so of each", seconds=SOON_SECONDS)


def cancelled(ground: Ground) -> set[str]:
    """The uids of pods that are no longer to be evicted, as Events say."""
    return {each.uid for each in ground.witness.told() if each.text == "Cancelling deletion"}


def check_rate(evictions: Sequence[Deletion], due: datetime, rate: float, there: datetime | None = None) -> None:
    """Pod k went (k - 10) / rate seconds after all were due, not before, and soon enough after the last was `there`.

    One of the last within 8 s: after a pause of the machine what it has missed is made up for.
    """
    late = []
    for number, each in enumerate(evictions, 1):
        turn = due + timedelta(seconds=max(number - BURST, 0) / rate)
        assert turn <= each.at, f"number {number} of {len(evictions)}"
        late.append(each.at - max(turn, there or due))
    assert max(late) <= timedelta(seconds=SOON_SECONDS)
    assert min(late[-5:]) <= timedelta(seconds=8)
