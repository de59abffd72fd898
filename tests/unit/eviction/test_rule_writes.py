"""When the worker writes to a rule: only what it can know, only as lease holder, and not too often."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import asking, claim, pod, rule, tolerates
from tests.unit.eviction.world import FREE, Budget, FakeCluster, World, delegated, evicting
from webhook.api.meta import format_time
from webhook.api.rules import EXPIRES_AT, Condition, DeviceSelector, DeviceTaintRule
from webhook.eviction import planner
from webhook.eviction.conditions import EVICTION
from webhook.eviction.expiry import CONTESTED
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, EvictionResult, PodRef, WriteFailure

REFUSED = "403: not allowed"
EXPIRED = {EXPIRES_AT: format_time(NOW + timedelta(seconds=5))}


def reasons(world: World) -> list[str]:
    return [reason for _, kind, reason, _ in world.cluster.writes if kind == EVICTION]


def status_changed(world: World, conditions: tuple[Condition, ...]) -> None:
    """Another writer has changed the status of the rule."""
    world.edit(world.rule(), conditions=conditions)
    world.settle()


# --- trust, and the lease -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "before", "after"),
    [
        pytest.param(Mode.DELEGATED, ["Waiting"], "NothingToDo", id="delegated, which announces"),
        pytest.param(Mode.OBSERVE, [], "ObserveOnly", id="observe"),
        pytest.param(Mode.REPLACEMENT, [], "NothingToDo", id="replacement, nor the in-tree controller's condition"),
    ],
)
def test_nothing_is_written_that_says_no_pod_is_left_while_the_inventory_is_out_of_date(
    mode: Mode, before: list[str], after: str
) -> None:
    world = World(mode, FREE)
    world.trusted = False
    world.add(asking() if mode is Mode.DELEGATED else rule())
    world.advance(60)
    assert [reason for _, _, reason, _ in world.cluster.writes] == before
    world.trusted = True
    world.advance(12)
    assert reasons(world)[len(before) :][-1] == after


def test_progress_is_written_again_when_the_inventory_is_current_again() -> None:
    world = evicting()
    waits = pod("pod")
    world.add(claim("pod", tolerates(3600)), waits, rule())
    world.advance(20)
    world.trusted = False
    world.remove(waits)
    world.advance(60)
    assert world.condition("rule")[:2] == ("True", "Waiting")
    world.trusted = True
    world.advance(2)
    assert world.condition("rule")[:2] == ("False", "NothingToDo")


@pytest.mark.parametrize("lost", ["trusted", "leads"])
def test_no_rule_is_taken_back_by_a_worker_in_doubt(lost: str) -> None:
    world = delegated(rule(annotations=EXPIRED))
    setattr(world, lost, False)
    world.advance(60)
    assert world.cluster.writes == []
    assert world.inventory.rules["rule"].taint.effect == "NoExecute"
    setattr(world, lost, True)
    world.advance(3)
    assert world.inventory.rules["rule"].taint.effect == "None"


def test_rule_that_expired_before_the_start_waits_until_the_inventory_is_current() -> None:
    known = Condition(CONTESTED, "Unknown", "TakingBack", "", 1, NOW + timedelta(seconds=9))
    for conditions in ((), (known,)):
        world = World(Mode.DELEGATED, FREE)
        world.trusted = False
        world.clock.wall += timedelta(seconds=10)
        world.add(structs.replace(asking(annotations=EXPIRED), conditions=conditions))
        world.advance(30)
        assert {kind for _, kind, _, _ in world.cluster.writes} == {EVICTION}
        assert world.inventory.rules["rule"].taint.effect == "NoSchedule"
        world.trusted = True
        world.advance(12)
        assert world.inventory.rules["rule"].taint.effect == "None"


def test_lease_is_checked_again_right_before_the_request() -> None:
    """Counting pods takes time."""
    world = World(Mode.DELEGATED, FREE)
    answers = iter([True, False])
    object.__setattr__(world.deps, "leads", lambda: next(answers, False))
    world.add(asking())
    world.advance(30)
    assert world.cluster.writes == []


def test_announcement_that_fails_while_the_inventory_is_out_of_date_is_tried_again() -> None:
    world = World(Mode.DELEGATED, FREE)
    world.trusted = False
    world.cluster.condition_error = REFUSED
    world.add(asking())
    world.advance(5)
    assert reasons(world) == []
    world.cluster.condition_error = ""
    world.advance(15)
    assert reasons(world) == ["Waiting"]


# --- another writer -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        pytest.param((), id="removed"),
        pytest.param((Condition(EVICTION, "True", "Evicting", "1 pod evicted", 1, NOW),), id="changed"),
    ],
)
def test_condition_that_another_writer_changes_is_restored_at_once(change: tuple[Condition, ...]) -> None:
    world = delegated(asking())
    world.advance(60)
    told = world.condition("rule")
    world.cluster.writes.clear()
    status_changed(world, change)
    assert reasons(world) == ["NothingToDo"]
    assert world.condition("rule") == told
    status_changed(world, ())
    assert reasons(world) == ["NothingToDo"]  # two writers that do not agree write every ten seconds each
    world.advance(10)
    assert reasons(world) == ["NothingToDo"] * 2


def test_condition_that_is_right_before_the_first_write_is_restored_as_well() -> None:
    known = Condition(EVICTION, "False", "Completed", "0 pods evicted", 1, NOW)
    world = evicting(rule(conditions=(structs.replace(known, reason="ObserveOnly"),)), mode=Mode.OBSERVE)
    world.advance(60)
    assert reasons(world) == []
    status_changed(world, ())
    assert reasons(world) == ["ObserveOnly"]


def test_conditions_of_others_and_full_seconds_are_no_reason_to_write() -> None:
    world = World(Mode.DELEGATED, FREE)
    world.clock.wall += timedelta(seconds=0.5)
    world.add(asking())
    world.advance(60)
    ours = world.inventory.rules["rule"].conditions
    rounded = [structs.replace(each, last_transition_time=NOW + timedelta(seconds=6)) for each in ours]
    assert not world.worker.rules.lost_conditions(
        structs.replace(world.inventory.rules["rule"], conditions=(*rounded, Condition("Other", "True")))
    )
    assert not world.worker.rules.lost_conditions(rule("unknown"))


# --- failures -------------------------------------------------------------------------------------


class Refusing(FakeCluster):
    """Refuses what a test says, and counts the attempts."""

    conditions = False
    downgrades = True
    attempts = 0

    async def set_conditions(self, rule: DeviceTaintRule, conditions: Sequence[Condition]) -> WriteFailure | None:
        self.attempts += self.conditions
        return WriteFailure(REFUSED) if self.conditions else await super().set_conditions(rule, conditions)

    async def downgrade(self, rule: DeviceTaintRule) -> WriteFailure | None:
        self.attempts += self.downgrades
        return WriteFailure(REFUSED) if self.downgrades else await super().downgrade(rule)


def warnings(caplog: pytest.LogCaptureFixture, message: str) -> list[int]:
    """The attempts after which it was logged."""
    return [record.__dict__["attempt"] for record in caplog.records if record.message == message]


def failures(world: World) -> int:
    """How often in a row the rule could not be written."""
    return world.worker._core.rules._failures.get("rule", 0)


def refusing() -> tuple[World, Refusing]:
    world = World(Mode.DELEGATED, FREE, cluster=Refusing)
    assert isinstance(world.cluster, Refusing)
    return world, world.cluster


def test_expired_rule_that_may_not_be_changed_is_retried_with_backoff(caplog: pytest.LogCaptureFixture) -> None:
    """Though its conditions can be written."""
    world, server = refusing()
    world.add(rule(annotations=EXPIRED))
    world.advance(605)
    assert 60 <= server.attempts <= 80
    said = warnings(caplog, "expired rule not taken back")
    assert len(said) == 2
    assert said[0] == 1
    assert failures(world) == server.attempts
    server.downgrades = False
    world.advance(10)
    assert world.inventory.rules["rule"].taint.effect == "None"
    world.advance(1)
    assert failures(world) == 0


def test_conditions_that_are_refused_are_logged_when_that_begins_and_each_five_minutes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, server = refusing()
    server.conditions = True
    world.add(asking())
    world.advance(290)
    assert warnings(caplog, "conditions not written") == [1]
    assert 29 <= server.attempts <= 45
    world.advance(20)
    assert len(warnings(caplog, "conditions not written")) == 2
    server.conditions = False
    world.advance(10)
    assert failures(world) == 0
    server.conditions = True
    status_changed(world, ())
    world.advance(20)
    assert warnings(caplog, "conditions not written")[2:] == [1]


def test_changes_of_the_status_do_not_hasten_a_retry_and_failures_are_forgotten_with_the_rule() -> None:
    world, server = refusing()
    server.conditions = True
    world.add(asking())
    world.advance(30)
    before = server.attempts
    status_changed(world, (Condition("Other", "True"),))
    assert (server.attempts, failures(world)) == (before, before)
    world.remove(world.rule())
    world.advance(11)
    assert failures(world) == 0


def test_announcement_is_forgotten_with_its_rule() -> None:
    world = delegated(asking())
    world.advance(30)
    assert len(world.worker._core.announcements._known) == 1
    world.remove(world.inventory.rules["rule"])
    assert len(world.worker._core.announcements._known) == 0


class Forbidding(FakeCluster):
    """No pod may be evicted."""

    text = REFUSED

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:  # noqa: ARG002 -- any
        return EvictionOutcome(EvictionResult.FAILED, self.text)


def test_pods_that_cannot_be_evicted_are_logged_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    world = evicting(claim("a"), pod("a"), claim("b"), pod("b"), rule(), cluster=Forbidding)
    world.advance(299)
    assert warnings(caplog, "pod not evicted") == [1, 1]
    assert isinstance(world.cluster, Forbidding)
    world.cluster.text = "403: now for another reason"
    world.advance(11)
    assert len(warnings(caplog, "pod not evicted")) == 4
    world.advance(280)
    assert len(warnings(caplog, "pod not evicted")) == 4


# --- Events ---------------------------------------------------------------------------------------


@pytest.mark.untraced
def test_events_about_a_blocked_pod_and_its_rule_are_renewed_each_hour() -> None:
    world = evicting(claim("pod"), pod("pod"), rule(), budgets=[Budget()])
    world.advance(3590)
    assert sorted(world.told("EvictionBlocked")) == ["pod", "rule"]
    world.advance(30)
    assert sorted(world.told("EvictionBlocked")) == ["pod", "pod", "rule", "rule"]


@pytest.mark.untraced
@pytest.mark.parametrize("other", [{"hold": "debugging"}, {"hold": None}], ids=["held", "free"])
@pytest.mark.parametrize("part", [True, False], ids=["a part is planned again", "all are"])
def test_event_about_a_held_pod_is_renewed_though_another_pod_comes(
    monkeypatch: pytest.MonkeyPatch, other: dict[str, Any], *, part: bool
) -> None:
    if part:
        monkeypatch.setattr(planner, "WHOLE_MOST", -1)
    world = evicting(claim("pod"), pod("pod", hold="debugging"), rule(), max_hold_seconds=86400)
    world.advance(3000)
    world.add(claim("other"), pod("other", **other))
    world.advance(700)
    assert world.told("EvictionHeld").count("pod") == 2


@pytest.mark.untraced
def test_event_about_what_only_happens_once_is_not_renewed() -> None:
    world = evicting(claim("pod", tolerates(4 * 3600)), pod("pod"), rule())
    world.advance(3 * 3600)
    world.worker.requeue_waiting()
    world.settle()
    assert sorted(world.told("EvictionScheduled")) == ["pod", "rule"]


def test_event_about_a_rule_that_is_done_is_not_renewed() -> None:
    world = delegated(asking())
    world.advance(2 * 3600)
    status_changed(world, ())
    assert reasons(world) == ["Waiting", "NothingToDo", "NothingToDo"]
    assert world.told("NothingToEvict") == ["rule"]


def test_new_leader_repeats_no_event_about_a_rule_before_an_hour_is_over() -> None:
    conditions: tuple[Condition, ...] = ()
    for expected in (["rule"], []):
        world = evicting(max_hold_seconds=86400)
        world.add(claim("pod"), pod("pod", hold="debugging"), rule(conditions=conditions))
        world.advance(3500)
        assert [name for name in world.told("EvictionHeld") if name == "rule"] == expected
        conditions = world.inventory.rules["rule"].conditions
    world.advance(200)
    assert sorted(world.told("EvictionHeld")) == ["pod", "pod", "rule"]


# --- when a rule is looked at again ---------------------------------------------------------------


def test_new_leader_looks_at_rules_within_half_a_second() -> None:
    world = evicting()
    world.leads = False
    world.add(rule())
    world.advance(100)
    assert world.cluster.writes == []
    world.leads = True
    world.advance(0.5)
    assert world.condition("rule")[1] == "Waiting"


@pytest.mark.parametrize(("pending", "seconds"), [(True, 10.0), (False, 30.0)])
def test_rule_whose_pods_are_gone_is_looked_at_again_for_its_released_devices_alone(
    pending: bool,  # noqa: FBT001 -- a table's
    seconds: float,
) -> None:
    world = evicting()
    if pending:
        world.add(claim("pod", tolerates(3600)), pod())
    world.add(rule(selector=DeviceSelector(device="gpu-0")))
    world.advance(20)
    world.clock.elapsed += 20.0
    assert asyncio.run(world.worker.rules.sync("rule")) == seconds


@pytest.mark.parametrize(("seconds", "count"), [(3599.0, 1), (3600.0, 2)])
def test_event_about_a_rule_that_is_held_up_is_renewed_after_an_hour(seconds: float, count: int) -> None:
    world = evicting(claim(), pod(hold="later"), rule(), max_hold_seconds=86400)
    world.advance(20)
    world.clock.elapsed = world.worker.rules._states["uid-rule"].last_event_at + seconds
    asyncio.run(world.worker.rules.sync("rule"))
    world.settle()
    assert world.told("EvictionHeld").count("rule") == count


def sync_at(world: World, seconds: float) -> float | None:
    """Looks at the rule so many seconds after the beginning."""
    world.catch_up()
    world.clock.elapsed = 1000.0 + seconds
    return asyncio.run(world.worker.rules.sync("rule"))


@pytest.mark.parametrize(
    ("seconds", "pending", "left"),
    [(9.75, "1 pod pending", 0.25), (10.0 - 1e-9, "2 pods pending", 10.0), (10.0, "2 pods pending", 10.0)],
)
def test_condition_is_written_again_ten_seconds_after_the_last_time(seconds: float, pending: str, left: float) -> None:
    """A wait that is too short to be added to the time is none."""
    world = evicting(claim("pod", tolerates(3600)), pod(), rule())
    world.settle()
    world.add(claim("more", tolerates(3600)), pod("more"))
    assert sync_at(world, seconds) == left
    assert pending in world.condition("rule")[2]


@pytest.mark.parametrize(("seconds", "reason"), [(4.5, "Waiting"), (5.0, "NothingToDo")])
def test_allocations_are_known_five_seconds_after_the_rule_was_seen(seconds: float, reason: str) -> None:
    world = evicting(rule(), condition_seconds=0.0)
    sync_at(world, 0.0)
    sync_at(world, seconds)
    assert world.condition("rule")[1] == reason


@pytest.mark.parametrize(
    ("selector", "seconds", "left"),
    [
        pytest.param(DeviceSelector(device_class_name="gpu"), 4.5, 0.5, id="when allocations are known"),
        pytest.param(DeviceSelector(device="gpu-0"), 5.0, 3.0, id="they are known"),
        pytest.param(DeviceSelector(device="gpu-0"), 5.5, 3.0, id="they have been known"),
    ],
)
def test_rule_is_looked_at_again_when_its_condition_may_differ(
    selector: DeviceSelector, seconds: float, left: float
) -> None:
    """Nothing is known of the devices of the first one, and the others have a pod that is not due."""
    world = evicting(claim("pod", tolerates(3600)), pod(), rule(selector=selector), condition_seconds=3.0)
    sync_at(world, 0.0)
    assert sync_at(world, seconds) == left
