"""A rule that has expired evicts no pod, however long it takes to take it back."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.hurried import LoopClock, at_work, hurried
from tests.unit.eviction.objects import rule, using
from tests.unit.eviction.world import FREE, FakeCluster, World, evicting
from webhook.api.meta import format_time
from webhook.api.rules import EXPIRES_AT, Condition, DeviceSelector, DeviceTaintRule
from webhook.eviction.expiry import CONTESTED
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Ceiling, WriteFailure


class Refusing(FakeCluster):
    """Another webhook refuses to take rules back."""

    async def downgrade(self, rule: DeviceTaintRule) -> WriteFailure | None:  # noqa: ARG002 -- the port's
        return WriteFailure("forbidden")

    async def delete_rule(self, rule: DeviceTaintRule) -> WriteFailure | None:  # noqa: ARG002 -- the port's
        return WriteFailure("forbidden")


def expiring(seconds: float, **fields: Any) -> DeviceTaintRule:
    """A rule that expires after this time."""
    return rule(annotations={EXPIRES_AT: format_time(NOW + timedelta(seconds=seconds))}, **fields)


def pods(**fields: Any) -> list[Any]:
    return using(*[f"pod-{number}" for number in range(8)], **fields)


ASKED = {"effect": "NoSchedule", "evict": True}
WAYS = pytest.mark.parametrize(
    ("mode", "fields"),
    [(Mode.REPLACEMENT, {}), (Mode.REPLACEMENT, ASKED), (Mode.DELEGATED, ASKED)],
    ids=["NoExecute", "asked", "delegated"],
)
WRITES = pytest.mark.parametrize("delete_expired", [False, True], ids=["downgraded", "deleted"])
SERVERS = pytest.mark.parametrize("cluster", [FakeCluster, Refusing], ids=["taken back", "refused"])


@WAYS
@WRITES
@SERVERS
def test_rule_evicts_up_to_its_expiry(
    mode: Mode, fields: dict[str, Any], cluster: type[FakeCluster], *, delete_expired: bool
) -> None:
    world = evicting(*pods(), mode=mode, cluster=cluster, delete_expired=delete_expired, rate=0.1, burst=1)
    world.add(expiring(35, **fields))
    before = len(world.after(34))
    assert before == 4
    assert len(world.after(600)) == before


@WAYS
@WRITES
@SERVERS
def test_rule_that_had_expired_before_evicts_no_pod(
    mode: Mode, fields: dict[str, Any], cluster: type[FakeCluster], *, delete_expired: bool
) -> None:
    """Whether it is found at the start, or written later, as GitOps does again and again."""
    world = evicting(mode=mode, cluster=cluster, delete_expired=delete_expired)
    for each in (*pods(), expiring(-3600, **fields)):
        world.inventory.apply(None, each)
    world.worker.start()
    assert world.after(60) == []
    for number in range(3):
        world.remove(*world.inventory.rules.values())
        world.add(expiring(-3600, uid=f"uid-{number}", **fields))
        assert world.after(60) == []


def test_pods_that_are_due_at_the_expiry_stay() -> None:
    world = evicting(*pods(after=300), expiring(300))
    assert world.after(600) == []


def test_request_that_is_not_written_before_the_expiry_is_withdrawn() -> None:
    world = evicting(*pods(), rate=0.1, burst=1)
    world.cluster.while_connecting.append(lambda: world._move(10))
    world.add(expiring(10))
    assert world.after(60) == []


@hurried
async def test_worker_wakes_at_the_expiry_though_no_condition_can_be_written() -> None:
    """Also if the rule, which is confirmed, began to act while it hit no pod, so that nothing else has changed."""
    world = evicting(cluster=Refusing, clock=LoopClock(), ceiling_of=lambda _: Ceiling(100, 100))
    world.cluster.condition_error = "forbidden"
    async with at_work(world):
        world.add(expiring(60, effect="None"))
        await asyncio.sleep(20)
        world.edit(world.rule(), taint=expiring(60).taint)
        await asyncio.sleep(20)
        world.add(*pods(after=3600))
        await asyncio.sleep(19.9)
        assert len(world.planned) == 8
        await asyncio.sleep(0.2)
        assert world.planned == {}


def test_expiry_at_the_end_of_the_calendar_never_comes() -> None:
    world = evicting(*pods(), rule(annotations={EXPIRES_AT: "9999-12-31T23:59:59.999999Z"}))
    assert len(world.after(60)) == 8


def test_condition_says_that_the_rule_has_expired_and_not_that_no_pod_is_left() -> None:
    world = evicting(*pods(), cluster=Refusing, rate=0.1, burst=1)
    world.add(expiring(35))
    world.advance(60)
    told = "the rule has expired, so no pod is evicted for it; 4 pods evicted"
    assert world.condition("rule") == ("False", "Stopped", told)


@pytest.mark.parametrize(
    "annotations", [{EXPIRES_AT: ""}, {EXPIRES_AT: format_time(NOW + timedelta(hours=1))}], ids=["none", "later"]
)
@WAYS
def test_rule_whose_expiry_is_changed_evicts_again(
    mode: Mode, fields: dict[str, Any], annotations: dict[str, str]
) -> None:
    world = evicting(*pods(), expiring(-60, **fields), mode=mode, cluster=Refusing)
    assert world.after(60) == []
    known = world.rule()
    world.edit(known, meta=structs.replace(known.meta, annotations={**known.meta.annotations, **annotations}))
    assert len(world.after(60)) == 8


def test_rule_that_is_restored_evicts_as_it_did_before() -> None:
    taken_back = Condition(CONTESTED, "False", "TakenBack", "in any words", 1, NOW)
    world = evicting(*pods(), expiring(0, generation=3, conditions=(taken_back,)))
    assert len(world.after(60)) == 8


def test_rule_that_another_writer_changes_while_it_is_taken_back_evicts_no_pod() -> None:
    """Its generation moves, as if it had been restored."""
    world = evicting(*pods(), expiring(-60), cluster=Refusing)
    world.advance(10)
    known = world.rule()
    world.edit(known, taint=structs.replace(known.taint, value="other"), generation=2)
    assert world.after(60) == []


def test_observer_goes_on_counting_pods_of_expired_rules() -> None:
    """It takes no rule back, so another worker or the in-tree controller may act for it."""
    world = World(Mode.OBSERVE)
    world.add(*pods(), expiring(-60))
    world.advance(60)
    assert world.condition("rule")[1:] == ("ObserveOnly", "0 pods evicted; 8 pods would be evicted in 1 namespace")


def test_gang_goes_as_a_whole_though_an_unrelated_rule_expires_meanwhile() -> None:
    world = World(Mode.REPLACEMENT, FREE)
    expiry = {EXPIRES_AT: format_time(NOW + timedelta(seconds=10))}
    other = rule("other", selector=DeviceSelector("other.example.com"), annotations=expiry)
    world.add(*using("gang-0", "gang-1", "gang-2", gang="g"), other, rule())
    for _ in world.worker.planner.steps():
        pass
    world.cluster.while_connecting.extend([lambda: None, lambda: world._move(11)])
    unit = world.worker.take()
    assert unit is not None
    asyncio.run(world.worker.evict(unit))
    assert sorted(world.evicted) == ["gang-0", "gang-1", "gang-2"]
