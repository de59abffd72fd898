"""A wall clock that is set, and a machine that was suspended."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import uvloop
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.hurried import LoopClock, at_work, hurried, hurry
from tests.unit.eviction.objects import claim, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.world import FREE, Budget, World, evicting
from webhook.api.meta import format_time
from webhook.api.rules import EXPIRES_AT
from webhook.eviction.controller import Controller
from webhook.eviction.modes import Mode


@hurried
async def test_wall_clock_that_is_set_forward_brings_no_deadline_closer() -> None:
    """M2: `deadline` is measured by a monotonic clock, as the first refusal of a budget is no time of the API."""
    profile = structs.replace(FREE, deadline_seconds=600, delete_after_deadline=True)
    world = evicting(base=profile, clock=LoopClock(), budgets=[Budget()])
    async with at_work(world):
        world.add(claim("pod"), pod("pod"), rule())
        await asyncio.sleep(2)
        world.clock.wall += timedelta(hours=1)
        await asyncio.sleep(60)
    assert world.cluster.calls == []


@pytest.mark.parametrize(("waits", "set_by", "suspended"), [("rule", 7, 0), ("rule", 0, 7), ("pod", 0, 7)])
@hurried
async def test_waits_are_counted_anew_after_a_clock_was_set_or_the_machine_suspended(
    waits: str, set_by: int, suspended: int
) -> None:
    """M2: timers of the event loop stand still meanwhile, so what came due then would wait on for as long again."""
    clock = SuspendedClock()
    world = evicting(clock=clock)
    async with at_work(world):
        if waits == "pod":
            world.add(slice_of({"gpu-0": (taint(),)}), claim("pod", tolerates(6 * 3600)), pod("pod"))
        else:
            expires = format_time(NOW + timedelta(hours=6))
            world.add(rule(effect="NoSchedule", annotations={EXPIRES_AT: expires}))
        await asyncio.sleep(60)
        clock.wall += timedelta(hours=set_by)
        clock.suspended_seconds = suspended * 3600.0
        await asyncio.sleep(60)
    if waits == "pod":
        assert world.evicted == ["pod"]
    else:
        assert world.rule().taint.effect == "None"


class SuspendedClock(LoopClock):
    """Both clocks go on while the machine is suspended, and the event loop does not."""

    suspended_seconds = 0.0

    def passed(self) -> float:
        return super().passed() + self.suspended_seconds


class WholeSeconds(SuspendedClock):
    """Shows full seconds, so that two looks are a second apart to the last digit."""

    def passed(self) -> float:
        return float(round(super().passed()))


@pytest.mark.parametrize(
    ("set_by", "suspended", "reported", "recomputed"),
    [
        pytest.param(0.75, 0.0, [], 0, id="set by less than a second"),
        pytest.param(1.0, 0.0, [1.0], 1, id="set by a second"),
        pytest.param(1.5006, 0.0, [1.501], 1, id="set by more, which is said to the millisecond"),
        pytest.param(0.0, 1.0, [], 1, id="suspended for a second"),
    ],
)
def test_second_by_which_a_clock_is_off_is_noticed_within_a_second(
    set_by: float,
    suspended: float,
    reported: list[float],
    recomputed: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again: list[str] = []
    monkeypatch.setattr(Controller, "requeue_waiting", lambda _: again.append("again"))

    async def test() -> None:
        clock = WholeSeconds()
        world = World(Mode.DELEGATED, FREE, clock=clock)
        async with at_work(world):
            await asyncio.sleep(3.25)
            clock.wall += timedelta(seconds=set_by)
            clock.suspended_seconds = suspended
            await asyncio.sleep(1.0)

    hurry(test())
    assert [record.__dict__["delaySeconds"] for record in caplog.records] == reported
    assert len(again) == recomputed


def test_event_loop_accepts_a_timer_for_a_toleration_of_centuries() -> None:
    """A plan that is due in centuries is a timer like any other, as `tolerationSeconds` is an int64."""

    async def test() -> None:
        due = asyncio.Event()
        asyncio.get_running_loop().call_soon(due.set)
        async with asyncio.timeout(2.5e11):
            await due.wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())
