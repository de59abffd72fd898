"""Expired rules are taken back once, whatever comes between: restarts, late watches, other writers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import rule
from tests.unit.eviction.world import FREE, FakeCluster, World, delegated
from webhook.api.meta import format_time
from webhook.api.rules import EXPIRES_AT, Condition, DeviceTaintRule
from webhook.eviction.conditions import EVICTION, RELEASED
from webhook.eviction.expiry import CONTESTED
from webhook.eviction.modes import Mode
from webhook.eviction.ports import WriteFailure

TAKING_BACK = Condition(
    CONTESTED, "Unknown", "TakingBack", f"expired at {format_time(NOW)}; the effect is about to be set to None", 1, NOW
)

BOTH = ("True", "False")


def expires(seconds: float) -> dict[str, str]:
    return {EXPIRES_AT: format_time(NOW + timedelta(seconds=seconds))}


class Server(FakeCluster):
    """Moves the generation with the effect, and records in which order it was asked for what."""

    asked: list[str]
    refused = False
    lost = False
    """The watch brings nothing."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.asked = []

    async def set_conditions(self, rule: DeviceTaintRule, conditions: Sequence[Condition]) -> WriteFailure | None:
        self.asked += [each.reason for each in conditions if each.type == CONTESTED]
        return None if self.lost else await super().set_conditions(rule, conditions)

    async def downgrade(self, rule: DeviceTaintRule) -> WriteFailure | None:  # noqa: ARG002 -- there is one
        self.asked.append("downgrade")
        if self.refused:
            return WriteFailure("409: the object has been modified")
        if not self.lost:
            self.edit(effect="None")
        return None

    def edit(self, **fields: Any) -> None:
        """The specification changes."""
        known = self.world.inventory.rules["rule"]
        taint = structs.replace(known.taint, **fields)
        self.world.edit(known, taint=taint, generation=known.generation + 1)

    def annotate(self, **annotations: str) -> None:
        known = self.world.inventory.rules["rule"]
        self.world.edit(known, meta=structs.replace(known.meta, annotations=annotations))


def world_with(known: DeviceTaintRule, mode: Mode = Mode.DELEGATED, **settings: Any) -> tuple[World, Server]:
    world = World(mode, FREE, cluster=Server, **settings)
    assert isinstance(world.cluster, Server)
    world.add(known)
    return world, world.cluster


def test_expired_rule_is_announced_taken_back_and_reported() -> None:
    world, server = world_with(rule(annotations=expires(10)))
    world.advance(9)
    assert server.asked == []
    world.advance(3)
    assert server.asked == ["TakingBack", "downgrade", "TakenBack"]
    told = f"expired at {expires(10)[EXPIRES_AT]}; effect set to None"
    assert world.condition("rule", CONTESTED) == ("False", "TakenBack", told)
    world.advance(100)
    assert server.asked == ["TakingBack", "downgrade", "TakenBack"]


def test_rule_is_changed_once_the_watch_shows_the_condition_or_a_second_later() -> None:
    """The change names the version that was read, so it would be refused before that."""
    world, server = world_with(rule(annotations=expires(0)))
    world.settle()
    assert server.asked == ["TakingBack"]
    world.advance(0.3)
    assert "downgrade" in server.asked
    world, server = world_with(rule(annotations=expires(0)))
    server.lost = True
    world.advance(0.9)
    assert server.asked == ["TakingBack"]
    world.advance(0.4)
    assert server.asked == ["TakingBack", "downgrade"]


def test_rule_is_not_changed_twice_while_the_watch_is_late() -> None:
    world, server = world_with(rule(annotations=expires(0)))
    server.lost = True
    world.advance(60)
    assert server.asked.count("downgrade") == 1
    assert set(server.asked) == {"TakingBack", "downgrade"}
    server.lost = False
    server.edit(effect="None")
    world.advance(11)
    assert world.condition("rule", CONTESTED)[:2] == ("False", "TakenBack")


@pytest.mark.parametrize(
    ("effect", "generation", "status", "asked"),
    [
        pytest.param("NoExecute", 1, "Unknown", ["downgrade", "TakenBack"], id="before the change"),
        pytest.param("None", 2, "Unknown", ["TakenBack"], id="after it"),
        pytest.param("NoExecute", 3, "Unknown", ["Restored"], id="after it, and somebody has restored the rule"),
        *[pytest.param("NoExecute", 1, status, ["Restored"], id=f"after it has said {status}") for status in BOTH],
    ],
)
def test_process_that_ended_is_followed_by_one_that_does_the_rest(
    effect: str, generation: int, status: str, asked: list[str]
) -> None:
    conditions = (structs.replace(TAKING_BACK, status=status),)
    world, server = world_with(
        rule(effect=effect, annotations=expires(0), conditions=conditions, generation=generation)
    )
    world.advance(20)
    assert list(dict.fromkeys(server.asked)) == asked
    assert server.asked.count("downgrade") <= 1
    assert world.condition("rule", CONTESTED)[:2] == ("True" if asked[-1] == "Restored" else "False", asked[-1])


def test_restored_rule_that_changes_later_is_not_reported_again() -> None:
    world, server = world_with(rule(annotations=expires(0)))
    world.advance(2)
    server.edit(effect="NoExecute")
    world.advance(20)
    [before] = [each for each in world.inventory.rules["rule"].conditions if each.type == CONTESTED]
    assert (before.status, before.observed_generation) == ("True", 3)
    server.edit(value="other")
    world.advance(20)
    assert before in world.inventory.rules["rule"].conditions
    assert server.asked.count("downgrade") == 1


def test_rule_that_another_writer_changes_first_is_announced_anew_and_taken_back() -> None:
    """Its generation has moved, but not because it was taken back."""
    world, server = world_with(rule(annotations=expires(0)))
    server.refused = True
    world.advance(2)
    server.edit(value="other")
    server.refused = False
    server.asked.clear()
    world.advance(12)
    assert server.asked == ["TakingBack", "downgrade", "TakenBack"]


def test_rule_that_another_writer_sets_to_none_counts_as_taken_back() -> None:
    world, server = world_with(rule(annotations=expires(0)))
    server.refused = True
    world.advance(2)
    server.edit(effect="None")
    world.advance(12)
    assert world.condition("rule", CONTESTED)[:2] == ("False", "TakenBack")
    server.refused = False
    server.asked.clear()
    server.edit(effect="NoSchedule")
    world.advance(20)
    assert set(server.asked) == {"Restored"}


def test_later_expiry_is_a_new_one_whatever_became_of_the_last() -> None:
    world, server = world_with(rule(annotations=expires(0)))
    server.refused = True
    world.advance(2)
    server.refused = False
    server.annotate(**expires(30))
    server.asked.clear()
    world.advance(20)
    assert "downgrade" not in server.asked
    world.advance(12)
    assert server.asked[-3:] == ["TakingBack", "downgrade", "TakenBack"]
    server.annotate(**expires(60))
    server.edit(effect="NoExecute")
    server.asked.clear()
    world.advance(30)
    assert server.asked[-3:] == ["TakingBack", "downgrade", "TakenBack"]


def test_condition_about_a_new_expiry_has_its_time() -> None:
    """A new leader compares the two."""
    world, server = world_with(rule(annotations=expires(30), conditions=(TAKING_BACK,)))
    server.refused = True
    world.advance(40)
    [known] = [each for each in world.inventory.rules["rule"].conditions if each.type == CONTESTED]
    assert known.status == "Unknown"
    assert known.last_transition_time is not None
    assert known.last_transition_time >= NOW + timedelta(seconds=30)


def test_rule_that_is_restored_before_the_watch_shows_the_change_is_left() -> None:
    class Restored(Server):
        async def downgrade(self, rule: DeviceTaintRule) -> WriteFailure | None:
            failure = await super().downgrade(rule)
            self.edit(effect="NoExecute")
            return failure

    world = delegated(rule(annotations=expires(0)), cluster=Restored)
    world.advance(30)
    assert isinstance(world.cluster, Restored)
    assert world.cluster.asked.count("downgrade") == 1
    assert world.condition("rule", CONTESTED)[:2] == ("True", "Restored")


def test_observe_leaves_the_condition_of_another_mode_as_it_is() -> None:
    world, server = world_with(rule(annotations=expires(0), conditions=(TAKING_BACK,)), Mode.OBSERVE)
    world.advance(30)
    assert set(server.asked) <= {"TakingBack"}
    assert TAKING_BACK in world.inventory.rules["rule"].conditions
    server.edit(effect="None")
    world.advance(30)
    assert TAKING_BACK in world.inventory.rules["rule"].conditions


def test_rule_that_is_deleted_at_its_expiry_gets_no_condition() -> None:
    world, server = world_with(rule(annotations=expires(0)), delete_expired=True)
    world.advance(2)
    assert server.asked == []
    assert "rule" not in world.inventory.rules


def test_condition_about_the_expiry_is_written_beside_the_others() -> None:
    """An apply without one of them would remove it."""
    written: list[set[str]] = []

    class Recording(Server):
        async def set_conditions(self, rule: DeviceTaintRule, conditions: Sequence[Condition]) -> WriteFailure | None:
            written.append({each.type for each in conditions})
            return await super().set_conditions(rule, conditions)

    world = delegated(rule(effect="NoSchedule", evict=True, annotations=expires(10)), cluster=Recording)
    world.advance(60)
    every = {EVICTION, CONTESTED, RELEASED}
    assert every in written
    assert written[written.index(every) :] == [every] * written.count(every)


def test_second_that_the_watch_may_take_is_over_after_a_second() -> None:
    world, server = world_with(rule(annotations=expires(0)))
    server.lost = True
    world.settle()
    assert server.asked == ["TakingBack"]
    known, began, changed = world.inventory.rules["rule"], world.clock.elapsed, list[bool]()
    expiry = world.worker.rules._state_of(known).expiry
    for seconds in (0.99, 1.0):
        world.clock.elapsed = began + seconds
        changed.append(asyncio.run(expiry.step(known)).changed)
    assert changed == [False, True]


def test_what_was_said_of_a_restored_rule_stays_when_a_person_takes_it_back() -> None:
    world, server = world_with(rule(annotations=expires(0), conditions=(TAKING_BACK,), generation=3))
    world.advance(20)
    server.edit(effect="None")
    world.advance(20)
    assert world.condition("rule", CONTESTED)[:2] == ("True", "Restored")
