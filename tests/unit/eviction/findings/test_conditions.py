"""Conditions of rules: when they may be written, what they announce, and what they remember."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import claim, pod, rule, tolerates
from tests.unit.eviction.world import FREE, FakeCluster, World, evicting
from webhook.api.meta import format_time
from webhook.api.rules import EXPIRES_AT, Condition, DeviceSelector, DeviceTaintRule
from webhook.eviction.conditions import EVICTION
from webhook.eviction.expiry import CONTESTED
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Ceiling


def statuses(world: World, kind: str = EVICTION) -> list[str]:
    return [condition.status for condition in world.inventory.rules["rule"].conditions if condition.type == kind]


# --- what is not known ---------------------------------------------------------------------------


def test_no_rule_is_reported_as_done_while_the_inventory_is_out_of_date() -> None:
    """M1: while the watch of claims is broken no rule gets status `False`, or `kubectl wait` returns too soon."""
    world = World(Mode.DELEGATED, FREE)
    world.trusted = False
    world.add(rule(effect="NoSchedule", evict=True))
    world.advance(30)
    assert "False" not in statuses(world)


def test_worker_that_lost_its_lease_writes_no_condition_when_it_stops() -> None:
    """M1: after the lease is lost the conditions of the new leader are not overwritten."""
    world = evicting()
    waits = pod("pod")
    world.add(claim("pod", tolerates(3600)), waits, rule())
    world.advance(20)
    assert statuses(world) == ["True"]
    world.trusted = False
    world.remove(waits)
    world.cluster.writes.clear()
    asyncio.run(world.worker.stop())
    assert world.cluster.writes == []


# --- announcements -------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["ObserveOnly", "Stopped", "NothingToDo"])
def test_condition_that_announces_no_eviction_begins_none(reason: str) -> None:
    """M5: no pod is evicted before a condition of status True was written, whatever an older one says."""
    old = NOW - timedelta(days=30)
    known = Condition(EVICTION, "False", reason, "0 pods evicted", 1, old)
    world = World(Mode.DELEGATED, FREE)
    world.cluster.condition_error = "503: the server is away"
    world.add(claim("pod"), pod("pod"))
    world.add(rule(effect="NoSchedule", evict=True, added=old, conditions=(known,)))
    assert world.after(30) == []


# --- expiry ---------------------------------------------------------------------------------------


class Late(FakeCluster):
    """The API server has a status at once, and the watch brings it when a test says so."""

    status: tuple[Condition, ...] = ()
    taken_back = 0
    announced = False
    """Whether the condition about the expiry was there when the rule was taken back."""

    async def set_conditions(self, rule: DeviceTaintRule, conditions: Sequence[Condition]) -> None:  # noqa: ARG002 -- there is one
        self.status = tuple(conditions)  # an apply replaces all that the same manager applied before

    async def downgrade(self, rule: DeviceTaintRule) -> None:
        self.taken_back += 1
        self.announced = CONTESTED in [condition.type for condition in self.status]
        self.change_effect(rule.meta.name, "None")

    def change_effect(self, name: str, effect: str) -> None:
        known = self.world.inventory.rules[name]
        taint = structs.replace(known.taint, effect=effect)
        self.world.edit(known, taint=taint, generation=known.generation + 1)

    def deliver(self, name: str) -> None:
        self.world.edit(self.world.inventory.rules[name], conditions=self.status)


def expired() -> tuple[World, Late]:
    """A rule that has just expired; the watch has brought its new effect, and not yet its status."""
    world = World(Mode.DELEGATED, FREE, cluster=Late)
    assert isinstance(world.cluster, Late)
    expires = format_time(NOW + timedelta(seconds=60))
    world.add(rule(effect="NoSchedule", evict=True, annotations={EXPIRES_AT: expires}))
    world.advance(30)
    world.cluster.deliver("rule")
    world.advance(35)
    assert world.cluster.taken_back == 1
    return world, world.cluster


def test_condition_about_a_contested_expiry_is_not_lost_when_the_watch_is_late() -> None:
    """M7: the next write of conditions keeps ExpiryContested, though the cached status does not have it yet."""
    _, server = expired()
    assert CONTESTED in [condition.type for condition in server.status]


def test_condition_about_an_expiry_is_written_before_the_rule_is_taken_back() -> None:
    """M7: a worker that ends between the two writes must not take the rule back again after its restart."""
    _, server = expired()
    assert server.announced


def test_expired_rule_that_is_restored_is_taken_back_once() -> None:
    """M7: GitOps and expiry must not evict in a cycle, also while the watch is slow."""
    world, server = expired()
    for _ in range(3):
        server.deliver("rule")
        world.advance(1)
        server.change_effect("rule", "NoSchedule")
        world.advance(15)
    assert server.taken_back == 1


# --- what is remembered ---------------------------------------------------------------------------


def test_new_leader_does_not_count_what_was_evicted_before_the_rule_was_judged_anew() -> None:
    """M8: a rule that moved to another node may evict 45 pods there, also under a new leader."""

    def world_with(*names: str) -> World:
        world = evicting(ceiling_of=lambda _: Ceiling(50, None, confirmed=False))
        for name in names:
            for number in range(45):
                pod_name = f"{name}-{number}"
                world.add(claim(pod_name, devices=(f"gpu-{number}",), pool=name), pod(pod_name))
        return world

    first = world_with("node-1", "node-2")
    first.add(rule(selector=DeviceSelector(driver=DRIVER, pool="node-1")))
    first.advance(60)
    known = first.inventory.rules["rule"]
    later = structs.replace(known.taint, time_added=NOW + timedelta(days=1))
    moved = structs.replace(
        known, selector=DeviceSelector(driver=DRIVER, pool="node-2"), taint=later, generation=known.generation + 1
    )
    first.change(known, moved)
    first.advance(60)
    assert first.condition("rule")[1] == "Waiting"
    second = world_with("node-2")
    second.add(first.inventory.rules["rule"])
    second.advance(60)
    assert second.condition("rule")[1] == "Waiting"


def test_condition_that_another_writer_removes_is_restored() -> None:
    """L10: the condition of a rule that is completed comes back when another writer of the status removes it."""
    world = evicting(claim("pod"), pod("pod"), rule())
    world.advance(30)
    assert statuses(world) == ["False"]
    world.edit(world.rule(), conditions=())
    world.advance(60)
    assert statuses(world) == ["False"]
