"""Confirmations of more than a ceiling that several rules have: when they count, and for what."""

from __future__ import annotations

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


def test_text_of_its_own_that_a_rule_gets_again_allows_no_more() -> None:
    world = limited(2, {"mine": 4}, pools=(0,))
    world.add(part(0), part(1))
    assert len(world.after(20)) == 2
    for text, pods, expected in (("mine", 2, 4), ("", 0, 4), ("mine", 1, 4)):
        world.edit(world.rule(name_of(0)), meta=part(0, annotations={CONFIRM_IMPACT: text}).meta)
        fill(world, 0, start=len(world.evicted) + len(world.inventory.pods), pods=pods)
        assert len(world.after(20)) == expected, text
    drop(world, name_of(0))
    ceilings = world.worker._core.ceilings
    assert (list(ceilings._groups), list(ceilings._empty)) == (["uid-firmware"], [])


def test_pods_of_a_text_of_its_own_go_on_to_count_for_the_patch() -> None:
    """The text says how many were evicted before, so those are in its ceiling as well."""
    world = limited(3, {"mine": 4})
    fill(world, 0, pods=1)
    world.add(part(0, conditions=(counted(3),)), part(1))
    world.advance(20)
    assert stopped(world, name_of(0)).startswith(f"{TOGETHER} 4 pods, the limit is 3")
    known = world.inventory.rules[name_of(0)]
    mine = part(0, annotations={CONFIRM_IMPACT: "mine"}).meta
    world.edit(known, meta=mine)
    assert len(world.after(20)) == 1
    fill(world, 1, pods=1)
    world.advance(20)
    assert stopped(world, name_of(1)).startswith(f"{TOGETHER} 4 pods, the limit is 3")


def test_text_of_a_rule_with_hardware_counts_at_once() -> None:
    world = limited(3, {"one": 4}, pools=(0, 1))
    world.add(owner_of_siblings(), sibling(0), sibling(1))
    assert world.after(20) == []
    known = world.inventory.rules["rule"]
    confirmed = owner_of_siblings(annotations={CONFIRM_IMPACT: "one"}).meta
    world.edit(known, meta=confirmed)
    assert len(world.settled()) == 4


def test_first_text_of_a_rule_that_is_taken_away_and_set_again_allows_the_rest() -> None:
    world = limited(9, {"mine": 4}, pools=(0,))
    confirmed = part(0, annotations={CONFIRM_IMPACT: "mine"})
    world.add(confirmed)
    world.advance(20)
    for each in (part(0), confirmed):
        world.edit(world.rule(name_of(0)), meta=each.meta)
    fill(world, 0, start=2)
    assert len(world.after(20)) == 4
    fill(world, 0, start=4, pods=1)
    world.advance(20)
    assert stopped(world, name_of(0)).startswith("hits 5 pods, at most 4 were confirmed")


def test_text_of_a_patch_that_does_not_count_resets_no_count() -> None:
    world = limited(3)
    world.set_patch(patch())
    fill(world, 0)
    world.add(part(0))
    world.advance(20)
    world.set_patch(patch(text="made up"))
    fill(world, 0, start=2)
    assert len(world.after(20)) == 2
    assert stopped(world, name_of(0)).startswith(f"{TOGETHER} 4 pods, the limit is 3")


def test_second_hundred_takes_a_new_text() -> None:
    world = limited(0, {"a hundred": 100, "as many again": 200})
    world.set_patch(patch(text="a hundred"))
    world.add(part(0, conditions=(counted(100),)))
    fill(world, 0, pods=1)
    world.advance(20)
    assert stopped(world, name_of(0)).startswith(f"{TOGETHER} 101 pods, at most 100 were confirmed")
    world.set_patch(patch(text="as many again"))
    assert len(world.after(20)) == 1
