"""How many pods of one owner may be missing at once."""

from __future__ import annotations

from msgspec import structs

from tests.unit.eviction.objects import claim, owned, rule
from tests.unit.eviction.test_manners import GENTLE
from tests.unit.eviction.world import World
from webhook.eviction.modes import Mode
from webhook.policy.model import Share


def test_owner_misses_at_most_one_and_the_next_goes_when_its_replacement_is_ready() -> None:
    world = World(Mode.REPLACEMENT, GENTLE)
    for name in ("a", "b", "c"):
        world.add(claim(name), owned(name))
    world.add(rule(), claim("other"), owned("other", by="else"))
    world.settle()
    assert sorted(world.evicted) == ["a", "other"]
    fresh = owned("fresh", claims=(), extended_claim="fresh-claim", phase="Pending")
    world.add(fresh)
    world.advance(30)
    assert len(world.evicted) == 2
    started = structs.replace(fresh, phase="Running")
    world.change(fresh, started)
    world.advance(30)
    assert len(world.evicted) == 2
    world.change(started, structs.replace(started, ready=True))
    world.advance(1)
    assert len(world.evicted) == 3


def test_owner_that_is_scaled_down_does_not_hold_up_the_rest() -> None:
    world = World(Mode.REPLACEMENT, GENTLE)
    for name in ("a", "b"):
        world.add(claim(name), owned(name))
    world.add(rule())
    world.advance(4)
    assert world.evicted == ["a"]
    world.advance(2)
    assert world.evicted == ["a", "b"]


def test_owner_with_a_budget_is_left_to_it() -> None:
    world = World(Mode.REPLACEMENT, GENTLE, budgeted=frozenset({"uid-rs"}))
    for name in ("a", "b", "c"):
        world.add(claim(name), owned(name))
    world.add(rule())
    world.settle()
    assert world.evicted == ["a", "b", "c"]


def test_pod_that_is_missing_anyway_may_go_beside_the_limit() -> None:
    world = World(Mode.REPLACEMENT, GENTLE)
    world.add(claim("broken"), owned("broken", phase="Pending"), claim("fine"), owned("fine"), rule())
    world.advance(1)
    assert world.evicted == ["broken"]


def test_share_of_an_owner_is_rounded_up() -> None:
    world = World(Mode.REPLACEMENT, structs.replace(GENTLE, per_owner_unavailable=Share(25)))
    for number in range(5):
        world.add(claim(f"p{number}"), owned(f"p{number}"))
    world.add(rule())
    world.settle()
    assert len(world.evicted) == 2
