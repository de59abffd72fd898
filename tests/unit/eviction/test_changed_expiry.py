"""Condition ExpiryContested once `/expires-at` was changed: it no longer speaks of the expiry before."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import rule
from tests.unit.eviction.world import World, delegated
from webhook.api.meta import format_time
from webhook.api.rules import EXPIRES_AT, Condition
from webhook.eviction.expiry import CONTESTED

PAST = format_time(NOW)
LATER = format_time(NOW + timedelta(hours=2))
RESTORED = Condition(CONTESTED, "True", "Restored", "in any words", 1, NOW)
BEGUN = Condition(CONTESTED, "Unknown", "TakingBack", "in any words", 1, NOW)
TAKEN_BACK = Condition(CONTESTED, "False", "TakenBack", "in any words", 1, NOW)
CHANGED = ("False", "ExpiryChanged", "the expiry was changed")
IN_TIME = ("False", "ExpiryChangedInTime", "the expiry was changed before the rule was taken back")


def annotate(world: World, text: str) -> None:
    known = world.rule()
    world.edit(known, meta=structs.replace(known.meta, annotations={EXPIRES_AT: text} if text else {}))


@pytest.mark.parametrize("effect", ["NoSchedule", "None"])
@pytest.mark.parametrize("text", [LATER, "", "soon"], ids=["later", "none", "no time"])
@pytest.mark.parametrize(
    ("known", "generation", "says"),
    [(RESTORED, 1, CHANGED), (BEGUN, 1, IN_TIME), (BEGUN, 2, CHANGED)],
    ids=["restored", "begun", "taken back"],
)
def test_condition_about_another_expiry_is_taken_back(
    known: Condition, generation: int, says: tuple[str, str, str], text: str, effect: str
) -> None:
    given = rule(effect=effect, annotations={EXPIRES_AT: text}, conditions=(known,), generation=generation)
    world = delegated(given)
    world.advance(30)
    assert world.condition("rule", CONTESTED) == says


def test_condition_of_a_rule_that_was_taken_back_in_peace_stays() -> None:
    world = delegated(rule(annotations={EXPIRES_AT: LATER}, conditions=(TAKEN_BACK,)))
    world.advance(30)
    assert TAKEN_BACK in world.rule().conditions


def test_rule_without_the_condition_gets_none_before_its_expiry() -> None:
    world = delegated(rule(annotations={EXPIRES_AT: LATER}))
    world.advance(30)
    assert CONTESTED not in {each.type for each in world.rule().conditions}


def test_new_expiry_of_a_restored_rule_is_followed_and_the_old_one_is_still_contested() -> None:
    world = delegated(rule("rule", "NoSchedule", annotations={EXPIRES_AT: PAST}, conditions=(RESTORED,), generation=3))
    world.advance(30)
    assert world.condition("rule", CONTESTED)[:2] == ("True", "Restored")
    annotate(world, LATER)
    world.advance(30)
    assert world.condition("rule", CONTESTED) == CHANGED
    annotate(world, PAST)
    world.advance(30)
    assert world.condition("rule", CONTESTED)[:2] == ("True", "Restored")
    annotate(world, LATER)
    world.advance(7200)
    assert world.condition("rule", CONTESTED)[:2] == ("False", "TakenBack")
    assert world.rule().taint.effect == "None"
