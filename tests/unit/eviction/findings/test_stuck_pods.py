"""Pods that do not go away, or do not come up, and the limits that count them."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from tests.unit.eviction.objects import claim, owned, pod, rule, taint, using
from tests.unit.eviction.world import FREE, World, evicting
from webhook.api.rules import DeviceSelector
from webhook.eviction.conditions import Progress
from webhook.policy.model import EvictionProfile

LIMITS = {
    "overall": structs.replace(FREE, overall=2),
    "perNamespace": structs.replace(FREE, per_namespace=2),
    "perOwnerUnavailable": structs.replace(FREE, per_owner_unavailable=2),
}


def stuck(profile: EvictionProfile, count: int = 10) -> World:
    """A Deployment on tainted devices, whose pods stay Terminating."""
    world = evicting(base=profile, lingering=True)
    world.add(*using(*[f"web-{number}" for number in range(count)], on="gpu-{}", make=owned), rule())
    return world


@pytest.mark.parametrize("limit", LIMITS)
def test_pod_stuck_in_terminating_stops_counting_against_limits(limit: str) -> None:
    world = stuck(LIMITS[limit])
    assert len(world.after(3600)) == 10


@pytest.mark.parametrize(
    ("limit", "why"), [("overall", "overall"), ("perNamespace", "namespace"), ("perOwnerUnavailable", "owner")]
)
def test_limit_that_holds_pods_back_is_told_and_counted(limit: str, why: str) -> None:
    """H4: in reason `Limited`, with the limit and the first of the pods, in an Event, and in `pods_waiting{why}`."""
    world = stuck(LIMITS[limit])
    world.advance(25)
    assert world.condition("rule")[:2] == ("True", "Evicting")
    world.advance(35)
    status, reason, message = world.condition("rule")
    assert (status, reason) == ("True", "Limited")
    assert limit in message
    assert "web-2" in message
    assert world.told("EvictionLimited") == ["rule"]
    assert world.sample("pods_waiting", why=why) == 8


def test_rule_that_finds_a_limit_used_up_is_limited_only_after_the_same_time() -> None:
    """H4: that pods of another rule take all places is no news either until it has lasted."""
    world = stuck(LIMITS["overall"])
    world.advance(25)
    only = DeviceSelector(device="other-0")
    world.add(claim("other", devices=("other-0",)), pod("other"), rule("other", selector=only))
    world.advance(25)
    assert world.condition("other")[1] == "Evicting"
    world.advance(15)
    assert world.condition("other")[1] == "Limited"


def test_rule_that_is_limited_when_it_is_first_looked_at_has_not_been_for_long() -> None:
    """H4: a new leader knows pods that wait before it first looks at their rule."""
    world = stuck(LIMITS["overall"])
    status = world.worker.rules
    limited = Progress(pending=8, due=8, limited={"overall": [f"ml/web-{number}" for number in range(8)]})
    state = status._state_of(rule("new"))
    assert not status._stalled(state, limited, 0)
    world.advance(29)
    assert not status._stalled(state, limited, 0)
    world.advance(1)
    assert status._stalled(state, limited, 0)


def test_rule_that_was_idle_for_long_is_limited_only_after_the_same_time() -> None:
    """H4: what it waited for before it was to evict does not count."""
    world = stuck(LIMITS["overall"])
    idle = rule("other", effect="None", selector=DeviceSelector(device="other-0"))
    status = world.worker.rules
    limited = Progress(pending=1, due=1, limited={"overall": ["ml/other"]})
    world.advance(25)
    world.add(claim("other", devices=("other-0",)), pod("other"), idle)
    world.advance(120)
    known = world.inventory.rules["other"]
    world.edit(known, taint=taint(), generation=known.generation + 1)
    asyncio.run(status.sync("other"))
    assert not status._stalled(status._state_of(idle), limited, 0)
    world.advance(25)
    assert world.condition("other")[1] == "Evicting"
    world.advance(15)
    assert world.condition("other")[1] == "Limited"


def test_condition_names_the_owner_whose_replacement_does_not_come_up() -> None:
    world = stuck(EvictionProfile(), count=4)
    world.add(claim("new", devices=()), owned("new", node_name="", phase="Pending", ready=False))
    world.advance(3600)
    _, reason, message = world.condition("rule")
    assert reason == "Limited"
    assert "perOwnerUnavailable" in message
