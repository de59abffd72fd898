"""Lookups of disruption budgets: they take requests, and must not hold up pods that need none."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from tests.builders import NOW
from tests.unit.eviction.hurried import LoopClock, at_work, hurry
from tests.unit.eviction.objects import claim, owned, pod, rule, tolerates
from tests.unit.eviction.world import FREE, World
from webhook.eviction.modes import Mode

if TYPE_CHECKING:
    from webhook.api.pods import Pod


class SlowLabels(World):
    """A cluster that answers after a second when it is asked for a pod's labels."""

    def __init__(self) -> None:
        super().__init__(Mode.REPLACEMENT, FREE, clock=LoopClock())
        self.asked: list[str] = []

    async def look_up(self, pod: Pod) -> None:
        self.asked.append(pod.meta.name)
        await asyncio.sleep(1)
        await super().look_up(pod)

    def add_owned(self, name: str, namespace: str = "ml") -> None:
        self.add(claim(name, namespace=namespace), owned(name, by=f"job-{name}", kind="Job", namespace=namespace))


def test_pod_that_needs_no_lookup_does_not_wait_for_those_of_others() -> None:
    """Seen: 1,200 lookups took ten seconds, and so long nothing else was handled."""

    async def test() -> None:
        world = SlowLabels()
        for number in range(100):
            world.add_owned(f"pod-{number}")
        world.add(claim("free", tolerates(1)), pod("free"))
        async with at_work(world):
            world.add(rule(added=NOW - timedelta(seconds=0.5)))
            await asyncio.sleep(0.8)
            assert world.evicted == ["free"]
            assert world.cluster.writes, "conditions do not wait, either"
            await asyncio.sleep(60)
        assert len(world.evicted) == len(set(world.evicted)) == 101

    hurry(test())


def test_namespaces_take_turns_with_their_lookups() -> None:
    async def test() -> None:
        world = SlowLabels()
        for number in range(100):
            world.add_owned(f"pod-{number}")
        world.add_owned("late", "other")
        async with at_work(world):
            world.add(rule())
            await asyncio.sleep(3)
            assert "late" in world.evicted
            await asyncio.sleep(60)
        assert len(world.evicted) == 101

    hurry(test())


def test_labels_are_read_of_few_pods_of_one_owner() -> None:
    async def test() -> None:
        world = SlowLabels()
        for number in range(30):
            world.add(claim(f"pod-{number}"), owned(f"pod-{number}"))
        async with at_work(world):
            world.add(rule())
            await asyncio.sleep(60)
        assert len(world.evicted) == 30
        assert len(world.asked) <= 4, "as many as are looked up at a time"

    hurry(test())


def test_labels_are_not_read_of_pods_that_are_gone() -> None:
    async def test() -> None:
        world = SlowLabels()
        for number in range(30):
            world.add_owned(f"pod-{number}")
        async with at_work(world):
            world.add(rule())
            await asyncio.sleep(0.5)
            asked = set(world.asked)
            for number in range(30):
                if f"pod-{number}" not in asked:
                    world.remove(world.pod(f"pod-{number}"))
            await asyncio.sleep(60)
        assert set(world.asked) == set(world.evicted) == asked

    hurry(test())
