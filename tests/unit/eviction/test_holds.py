"""Holds on pods and namespaces."""

from __future__ import annotations

from tests.unit.eviction.objects import claim, crowd, pod, rule
from tests.unit.eviction.world import FREE, World, evicting
from webhook.api.pods import Pod
from webhook.eviction.modes import Mode


def held_pod() -> Pod:
    return pod(hold="being debugged")


def test_hold_on_a_pod_is_honoured_and_told_until_it_goes() -> None:
    world = World(Mode.DELEGATED, FREE)
    asking = rule(effect="NoSchedule", evict=True)
    world.add(claim(), held_pod(), asking)
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


def test_hold_that_comes_while_a_pod_stands_in_line_is_honoured() -> None:
    world = evicting(*crowd(2), rule(), rate=1, burst=1)
    assert world.settled() == ["pod-000"]
    world.holds["ml"] = "stop"
    world.worker.requeue_waiting("ml")
    assert world.after(10) == ["pod-000"]
    del world.holds["ml"]
    world.worker.requeue_waiting("ml")
    assert world.after(2) == ["pod-000", "pod-001"]
