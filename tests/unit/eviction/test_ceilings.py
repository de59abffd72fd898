"""A rule that hits more than was confirmed stops, and goes on once somebody has confirmed it."""

from __future__ import annotations

from msgspec import structs

from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.test_manners import crowd
from tests.unit.eviction.world import FREE, World
from webhook.api.rules import DeviceSelector
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Ceiling


def test_rule_that_hits_more_than_was_confirmed_stops_before_anybody_goes() -> None:
    world = World(Mode.REPLACEMENT, FREE, ceiling_of=lambda _: Ceiling(pods=2))
    crowd(world, 3)
    world.add(rule())
    world.advance(60)
    assert world.evicted == []
    stopped = "hits 3 pods, at most 2 were confirmed; 0 pods evicted"
    assert world.condition("rule") == ("False", "Stopped", stopped)
    assert world.told("EvictionStopped") == ["rule"]


def test_rule_stops_when_more_comes_than_was_confirmed_and_goes_on_once_it_is() -> None:
    ceilings = {"": 3, "again": 10}
    world = World(
        Mode.REPLACEMENT,
        FREE,
        ceiling_of=lambda rule: Ceiling(pods=ceilings[rule.meta.annotations.get("confirmed", "")]),
    )
    crowd(world, 3)
    world.add(rule())
    world.settle()
    assert len(world.evicted) == 3
    world.add(claim("more"), pod("more"))
    world.advance(30)
    assert len(world.evicted) == 3
    assert world.condition("rule")[1] == "Stopped"
    known = world.inventory.rules["rule"]
    world.change(known, structs.replace(known, meta=structs.replace(known.meta, annotations={"confirmed": "again"})))
    world.advance(30)
    assert world.evicted[3:] == ["more"]


def test_pod_under_another_rule_goes_although_one_is_stopped() -> None:
    world = World(Mode.REPLACEMENT, FREE, ceiling_of=lambda rule: Ceiling(pods=0) if rule.meta.name == "wide" else None)
    crowd(world, 2)
    world.add(rule("wide"), rule("narrow", selector=DeviceSelector(device="pod-000")))
    world.advance(1)
    assert world.evicted == ["pod-000"]


def test_namespaces_are_limited_as_well() -> None:
    world = World(Mode.REPLACEMENT, FREE, ceiling_of=lambda _: Ceiling(namespaces=1))
    world.add(claim("a"), pod("a"), claim("b", namespace="web"), pod("b", namespace="web"), rule())
    world.advance(1)
    assert world.evicted == []
