"""Codes that confirm more than a ceiling that several rules have: when they count, and for what."""

from __future__ import annotations

from msgspec import structs

from tests.unit.eviction.patched import (
    TOGETHER,
    counted,
    drop,
    fill,
    limited,
    name_of,
    owner_of_siblings,
    part,
    patch,
    sibling,
    stopped,
)
from webhook.api.rules import CONFIRM_IMPACT
from webhook.eviction.conditions import COUNTED_PODS


def test_code_of_its_own_that_a_rule_gets_again_allows_no_more() -> None:
    world = limited(2, {"mine": 2})
    fill(world, 0)
    world.add(part(0), part(1))
    world.advance(20)
    assert len(world.evicted) == 2
    for code, pods, expected in (("mine", 2, 4), ("", 0, 4), ("mine", 1, 4)):
        known = world.inventory.rules[name_of(0)]
        world.change(known, structs.replace(known, meta=part(0, annotations={CONFIRM_IMPACT: code}).meta))
        fill(world, 0, start=len(world.evicted) + len(world.inventory.pods), pods=pods)
        world.advance(20)
        assert len(world.evicted) == expected, code
    drop(world, name_of(0))
    ceilings = world.worker._core.ceilings
    assert (list(ceilings._groups), list(ceilings._empty)) == (["uid-firmware"], [])


def test_key_that_is_known_late_lets_a_new_code_of_a_patch_count() -> None:
    codes: dict[str, int] = {}
    world = limited(3, codes)
    world.set_patch(patch())
    fill(world, 0)
    world.add(part(0))
    world.advance(20)
    world.set_patch(patch(code="one"))
    codes["one"] = 1
    world.worker.replan_all()
    world.advance(20)
    assert world.condition(name_of(0), COUNTED_PODS)[2] == "0"


def test_code_of_a_rule_that_is_proved_late_allows_nothing_twice_and_costs_its_patch_nothing() -> None:
    codes: dict[str, int] = {}
    world = limited(3, codes)
    fill(world, 0, pods=1)
    world.add(part(0, annotations={CONFIRM_IMPACT: "mine"}, conditions=(counted(4),)), part(1))
    world.advance(20)
    assert stopped(world, name_of(0)).startswith(f"{TOGETHER} 5 pods, the limit is 3")
    codes["mine"] = 4
    world.worker.replan_all()
    world.advance(20)
    assert stopped(world, name_of(0)).startswith("hits 5 pods, at most 4 were confirmed")
    fill(world, 1, pods=3)
    world.advance(20)
    assert len(world.evicted) == 3
    fill(world, 1, start=3, pods=1)
    world.advance(20)
    assert stopped(world, name_of(1)).startswith(f"{TOGETHER} 4 pods, the limit is 3")


def test_code_of_a_rule_with_hardware_counts_at_once() -> None:
    world = limited(3, {"one": 4})
    fill(world, 0, 1)
    world.add(owner_of_siblings(), sibling(0), sibling(1))
    world.advance(20)
    assert world.evicted == []
    known = world.inventory.rules["rule"]
    coded = owner_of_siblings(annotations={CONFIRM_IMPACT: "one"}).meta
    world.change(known, structs.replace(known, meta=coded))
    world.settle()
    assert len(world.evicted) == 4


def test_first_code_of_a_rule_that_is_taken_away_and_set_again_allows_the_rest() -> None:
    world = limited(9, {"mine": 4})
    fill(world, 0)
    coded = part(0, annotations={CONFIRM_IMPACT: "mine"})
    world.add(coded)
    world.advance(20)
    for each in (part(0), coded):
        known = world.inventory.rules[name_of(0)]
        world.change(known, structs.replace(known, meta=each.meta))
    fill(world, 0, start=2)
    world.advance(20)
    assert len(world.evicted) == 4
    fill(world, 0, start=4, pods=1)
    world.advance(20)
    assert stopped(world, name_of(0)).startswith("hits 5 pods, at most 4 were confirmed")


def test_code_of_a_patch_that_is_not_proved_resets_no_count() -> None:
    world = limited(3)
    world.set_patch(patch())
    fill(world, 0)
    world.add(part(0))
    world.advance(20)
    world.set_patch(patch(code="made up"))
    fill(world, 0, start=2)
    world.advance(20)
    assert len(world.evicted) == 2
    assert stopped(world, name_of(0)).startswith(f"{TOGETHER} 4 pods, the limit is 3")
