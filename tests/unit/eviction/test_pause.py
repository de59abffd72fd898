"""A pause in the policy, and holds: no pod is evicted meanwhile, and none is forgotten."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.builders import NOW
from tests.unit.eviction.hurried import LoopClock, at_work, hurried
from tests.unit.eviction.objects import claim, crowd, pod, rule
from tests.unit.eviction.world import FREE, World, evicting
from webhook.api.meta import format_time
from webhook.api.rules import EXPIRES_AT
from webhook.eviction.modes import Mode
from webhook.policy.model import Pause


@hurried
async def test_pause_stops_evictions_within_a_second_and_they_go_on_after_it() -> None:
    world = evicting(*crowd(50), rate=10, burst=1, clock=LoopClock())
    async with at_work(world):
        world.add(rule())
        await asyncio.sleep(2)
        world.pause = Pause(world.clock.now() + timedelta(seconds=60), "change freeze")
        world.worker.replan_all()
        before = len(world.evicted)
        await asyncio.sleep(59)
        assert 15 <= before <= 25
        assert len(world.evicted) == before
        assert world.sample("paused") == 1
        assert world.sample("pods_waiting", why="pause") == 50 - before
        await asyncio.sleep(6)
    assert sorted(set(world.evicted)) == sorted(world.evicted)
    assert len(world.evicted) == 50
    assert world.sample("paused") == 0


@pytest.mark.parametrize("ends", ["removed", "over"])
@hurried
async def test_pause_ends(ends: str) -> None:
    world = evicting(*crowd(3), clock=LoopClock())
    world.pause = Pause(NOW + timedelta(seconds=10 if ends == "over" else 3600))
    async with at_work(world):
        world.add(rule())
        await asyncio.sleep(9.75)
        assert world.evicted == []
        if ends == "removed":
            world.pause = None
            world.worker.replan_all()
        await asyncio.sleep(0.5)
    assert len(world.evicted) == 3


def test_pause_is_over_at_its_end() -> None:
    world = evicting()
    world.pause = Pause(NOW + timedelta(seconds=10))
    world.clock.wall = NOW + timedelta(seconds=9.9)
    assert world.deps.paused() is world.pause
    world.clock.wall = NOW + timedelta(seconds=10)
    assert world.deps.paused() is None


def test_expired_rule_is_taken_back_during_a_pause() -> None:
    """That only ever spares pods."""
    world = World(Mode.DELEGATED, FREE)
    world.pause = Pause(NOW + timedelta(hours=1))
    expires = format_time(NOW + timedelta(seconds=10))
    world.add(rule(effect="NoSchedule", annotations={EXPIRES_AT: expires}))
    world.advance(20)
    assert world.inventory.rules["rule"].taint.effect == "None"


# --- holds on pods and namespaces -----------------------------------------------------------------


def test_hold_on_a_pod_is_honoured_and_told_until_it_goes() -> None:
    world = World(Mode.DELEGATED, FREE)
    asking = rule(effect="NoSchedule", evict=True)
    world.add(claim(), pod(hold="being debugged"), asking)
    assert world.after(60) == []
    assert world.condition("rule")[1] == "Held"
    assert world.told("EvictionHeld") == ["pod", "rule"]
    [text] = [event.text for event in world.cluster.events if event.text.endswith("but held: being debugged")]
    assert text.startswith("due for eviction because of DeviceTaintRule rule")
    world.change(world.pod("pod"), pod())
    assert world.settled() == ["pod"]


def test_hold_on_a_namespace_lasts_at_most_its_time() -> None:
    world = evicting(max_hold_seconds=3600)
    world.holds["ml"] = "release week"
    world.add(claim(), pod(), rule())
    assert world.after(3599) == []
    assert world.after(2) == ["pod"]
