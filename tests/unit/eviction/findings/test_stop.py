"""How long the end of the process takes, and what is still written then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest

from tests.builders import NOW
from tests.unit.cluster.peer import Peer, Silence, cluster_of, run
from tests.unit.eviction.hurried import LoopClock, at_work, hurried
from tests.unit.eviction.objects import claim, pod, rule, tolerates
from tests.unit.eviction.world import FakeCluster, World, evicting
from webhook.api.meta import format_time
from webhook.api.rules import EXPIRES_AT, Condition, DeviceTaintRule
from webhook.cluster import leader
from webhook.cluster.client.errors import NotFound, Unavailable
from webhook.cluster.client.rest import Cluster
from webhook.cluster.leader import RELEASE_SECONDS
from webhook.eviction.ports import EvictionOutcome, PodRef, WorkerSettings, WriteFailure
from webhook.flowcontrol.loop import Throttle
from webhook.runtime import Stage, Stages, causes

STOP_SECONDS = 10.0
"""How long evictions may still take after SIGTERM: the lease has to be given back within 30 s."""
CONDITION_SECONDS = 5.0
"""How long conditions may be written after that."""


class Busy(FakeCluster):
    """An API server that asks for a pause of 30 s, and answers late."""

    throttle: Throttle
    answer_seconds = 0.0
    eviction_seconds = 0.0
    evictions_begun = 0

    async def prepare(self, pod: PodRef, *, delete: bool, unsure: bool) -> bool:
        await asyncio.sleep(self.throttle.delay_seconds())
        return await super().prepare(pod, delete=delete, unsure=unsure)

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:
        self.evictions_begun += 1
        if pod.wanted():
            pod.wanted = lambda: True  # it is written
        await asyncio.sleep(self.eviction_seconds)
        return await super().evict(pod, grace_period_seconds)

    async def set_conditions(self, rule: DeviceTaintRule, conditions: Sequence[Condition]) -> WriteFailure | None:
        await asyncio.sleep(self.answer_seconds)
        return await super().set_conditions(rule, conditions)


def busy() -> tuple[World, Busy]:
    world = evicting(clock=LoopClock(), cluster=Busy)
    assert isinstance(world.cluster, Busy)
    world.cluster.throttle = Throttle(100, 200, world.clock.seconds)
    return world, world.cluster


async def seconds_to_stop(world: World) -> float:
    before = world.clock.seconds()
    await world.worker.stop()
    return world.clock.seconds() - before


@hurried
async def test_eviction_that_waits_for_its_turn_does_not_delay_the_end() -> None:
    world, server = busy()
    server.throttle.pause(30)
    async with at_work(world):
        world.add(claim("pod"), pod("pod"), rule())
        await asyncio.sleep(0.5)
        assert await seconds_to_stop(world) <= STOP_SECONDS


@pytest.mark.parametrize(("answer_seconds", "reason"), [(4.0, "NothingToDo"), (10.0, "Waiting")])
@hurried
async def test_last_conditions_are_written_side_by_side_in_bounded_time(answer_seconds: float, reason: str) -> None:
    """M11: those that are answered in time are all written, however many there are."""
    world, server = busy()
    pods = [pod(f"pod-{number}") for number in range(6)]
    async with at_work(world):
        for number, each in enumerate(pods):
            world.add(claim(each.meta.name, tolerates(3600)), each, rule(f"rule-{number}"))
        await asyncio.sleep(30)
        world.remove(*pods)
        server.answer_seconds = answer_seconds
        assert await seconds_to_stop(world) <= min(answer_seconds, CONDITION_SECONDS) + 0.1
    assert {world.condition(f"rule-{number}")[1] for number in range(6)} == {reason}


@pytest.mark.parametrize(("eviction_seconds", "stop_seconds"), [(3.0, 2.5), (60.0, STOP_SECONDS)])
@hurried
async def test_eviction_in_flight_is_waited_for_but_not_for_ever(eviction_seconds: float, stop_seconds: float) -> None:
    """M11: a request that was sent may finish, so that its pod is counted, within the time of one request."""
    world, server = busy()
    server.eviction_seconds = eviction_seconds
    async with at_work(world):
        world.add(claim("pod"), pod("pod"), rule())
        await asyncio.sleep(0.5)
        assert await seconds_to_stop(world) == pytest.approx(stop_seconds, abs=0.1)
        done = eviction_seconds < STOP_SECONDS
        assert world.evicted == (["pod"] if done else [])
        assert world.condition("rule")[1] == ("Waiting" if done else "Evicting")


def test_whole_end_fits_into_the_time_that_a_pod_has() -> None:
    """M11: evictions, conditions, lease and Events together leave 5 s of 30 s for everything else."""
    settings = WorkerSettings()
    assert (settings.stop_seconds, settings.last_conditions_seconds) == (STOP_SECONDS, CONDITION_SECONDS)
    assert STOP_SECONDS + CONDITION_SECONDS + RELEASE_SECONDS + settings.flush_seconds <= 25


def test_lease_is_given_back_in_bounded_time(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """M11: an API server that does not answer does not delay the end, as the lease ends by itself."""
    monkeypatch.setattr(leader, "RELEASE_SECONDS", 0.5)

    async def test() -> None:
        async with Peer() as peer, cluster_of(peer) as cluster:
            peer.otherwise = lambda _: Silence()
            settings = leader.LeaderSettings(namespace="ns", name="evict")
            lease = leader.Leadership(
                cluster, settings, identity="a", now=lambda: NOW, random=lambda: 0.0, clock=lambda: 0.0
            )
            lease.acquired.set()
            await lease.release()
            assert len(peer.requests) == 1

    run(test(), 4.0)  # a request may take 5 s
    assert [(each.message, vars(each)["error"]) for each in caplog.records] == [
        ("lease not released", "not within 0.5 s")
    ]


# --- without the lease ----------------------------------------------------------------------------


@hurried
async def test_worker_that_lost_its_lease_does_not_wait_and_writes_nothing() -> None:
    """M1: what it has sent is sent; another worker writes conditions and takes rules back now."""
    world, server = busy()
    server.eviction_seconds = 60.0
    expires = format_time(NOW + timedelta(seconds=20))
    async with at_work(world):
        world.add(claim("pod"), pod("pod"), rule())
        world.add(rule("old", effect="NoSchedule", annotations={EXPIRES_AT: expires}))
        await asyncio.sleep(10)
        server.writes.clear()
        world.leads = False
        world.add(rule("new"))
        await asyncio.sleep(60)
        assert await seconds_to_stop(world) < 0.001
    assert server.writes == []
    assert world.inventory.rules["old"].taint.effect == "NoSchedule"


class OneLease:
    """The lease of a server that answers until it is cut off, as `Leadership` asks for it."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.renewed_at = 0.0
        self.cut_off = False

    async def get(self, path: str, **_: Any) -> bytes:
        if self.cut_off:
            raise Unavailable("no route")
        if self.lease is None:
            raise NotFound(path)
        return msgspec.json.encode(self.lease)

    async def create(self, _: str, lease: dict[str, Any], **__: Any) -> bytes:
        if self.cut_off:
            raise Unavailable("no route")
        self.lease, self.renewed_at = lease, asyncio.get_running_loop().time()
        return b""

    update = create


@hurried
async def test_eviction_in_flight_is_cut_off_before_another_worker_can_lead() -> None:
    """L11: or the limits would be exceeded by what two workers send. `spare`: for what the next one sees late."""
    spare_seconds = 2.0
    world, server = busy()
    server.eviction_seconds = 60.0
    lease = OneLease()
    settings = leader.LeaderSettings(namespace="ns", name="evict")
    clock = asyncio.get_running_loop().time
    leadership = leader.Leadership(
        cast("Cluster", lease), settings, identity="a", now=lambda: NOW, random=lambda: 0.0, clock=clock
    )
    ended: list[float] = []

    async def evict() -> None:
        try:
            await world.worker.run()
        finally:
            ended.append(clock())

    async def stop() -> None:
        world.leads = leadership.holds
        await world.worker.stop()

    async def acquired() -> None:
        await leadership.acquired.wait()

    async def cut() -> None:
        world.add(claim("pod"), pod("pod"), rule())
        await asyncio.sleep(7)
        lease.cut_off = True

    stages = [
        Stage(name="leader", work=leadership.run, start=acquired, stop=leadership.release),
        Stage(name="worker", work=evict, start=cut, stop=stop),
    ]
    with pytest.raises(BaseExceptionGroup) as lost:
        await Stages(stages).run()
    assert [type(each) for each in causes(lost.value)] == [leader.LeadershipLost]
    assert lease.lease is not None
    assert len(ended) == 1
    assert ended[0] <= lease.renewed_at + settings.lease_seconds - spare_seconds
    assert (server.evictions_begun, world.evicted) == (1, [])
