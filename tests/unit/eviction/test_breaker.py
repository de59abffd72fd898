"""When taints in slices of a driver are not acted on any more, and when they are again."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.hurried import LoopClock, at_work, hurried
from tests.unit.eviction.objects import claim, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.world import FREE, Clock, World, evicting
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, PodGroup
from webhook.api.rules import DeviceSelector
from webhook.api.taints import DeviceTaint
from webhook.eviction.pod_plan import StepReason, Wait
from webhook.policy.model import BreakerSettings, Share

FIFTH = BreakerSettings()
DEVICES = 10


def cluster(breaker: BreakerSettings = FIFTH, *, tainted: int = 0, clock: Clock | None = None) -> World:
    """Ten devices, each used by one pod."""
    world = evicting(breaker=breaker, clock=clock)
    for number in range(DEVICES):
        world.add(claim(f"pod-{number}", devices=(f"gpu-{number}",)), pod(f"pod-{number}"))
    world.add(slice_of({f"gpu-{number}": () for number in range(DEVICES)}))
    taint_devices(world, tainted)
    return world


def taint_devices(world: World, count: int, key: str = "example.com/bad") -> None:
    """So many of the ten are tainted from now on."""
    broken = (taint(added=world.clock.wall, key=key),)
    devices = {f"gpu-{number}": broken if number < count else () for number in range(DEVICES)}
    world.change(world.inventory.slices["slice"], slice_of(devices))


def add_nics(world: World, tainted: int = DEVICES) -> None:
    """Ten devices of another driver, of which so many are tainted."""
    devices = {f"nic-{number}": (taint(),) if number < tainted else () for number in range(DEVICES)}
    world.add(structs.replace(slice_of(devices, name="nics", pool="nics"), driver="nic.example.com"))


def started_after(seconds: float, *more: DeviceTaint, acknowledged: datetime | None = None) -> World:
    """A worker that starts some time after all devices were tainted."""
    known = () if acknowledged is None else ((DRIVER, acknowledged),)
    world = cluster(structs.replace(FIFTH, acknowledged=known))
    broken = (taint(added=NOW - timedelta(seconds=seconds)), *more)
    devices = slice_of({f"gpu-{number}": broken for number in range(DEVICES)})
    world.inventory.apply(world.inventory.slices["slice"], devices)
    world.worker.start()
    return world


@pytest.mark.parametrize(
    ("devices", "tainted", "evicted"),
    [(Share(20), 2, 2), (Share(20), 3, 0), (Share(1), 1, 1), (Share(11), 2, 2), (5, 5, 5), (5, 6, 0), (None, 10, 10)],
    ids=["at the share", "above it", "one is never too many", "rounded up", "number", "above the number", "off"],
)
def test_breaker_trips_above_its_limit(devices: int | Share | None, tainted: int, evicted: int) -> None:
    world = cluster(structs.replace(FIFTH, devices=devices), tainted=tainted)
    assert len(world.after(60)) == evicted
    assert world.sample("breakers_tripped") == (0 if evicted else 1)


def test_only_devices_tainted_within_the_window_count() -> None:
    world = cluster(tainted=2)
    world.advance(300)
    taint_devices(world, 4)
    assert len(world.after(60)) == 4
    world.advance(200)
    taint_devices(world, 5)
    assert len(world.after(60)) == 4


def test_driver_that_was_calm_for_long_enough_is_acted_on_again() -> None:
    world = cluster(tainted=3)
    world.advance(300)
    taint_devices(world, 4)  # not calm yet
    assert world.after(599) == []
    assert len(world.after(2)) == 4
    assert world.sample("breakers_tripped") == 0
    taint_devices(world, 6)
    assert len(world.after(1)) == 6


def test_acknowledged_driver_is_acted_on_at_once() -> None:
    world = cluster(tainted=3)
    world.advance(30)
    until = world.clock.wall
    world.breaker = structs.replace(FIFTH, acknowledged=(("other.example.com", until),))
    world.change_policy(FREE)
    assert world.evicted == []
    world.breaker = structs.replace(FIFTH, acknowledged=((DRIVER, until),))
    world.change_policy(FREE)
    assert len(world.evicted) == 3
    world.advance(10)
    taint_devices(world, 7)  # after the acknowledgement
    assert len(world.after(60)) == 3


def test_rule_evicts_whatever_the_breaker_says() -> None:
    world = cluster(tainted=10)
    world.add(rule(selector=DeviceSelector(driver=DRIVER, device="gpu-4")))
    assert world.after(60) == ["pod-4"]


@pytest.mark.parametrize(("age", "evicted"), [(598.0, 0), (600.0, 10), (601.0, 10)])
def test_what_was_before_a_calm_time_at_the_start_counts_for_no_longer_window(age: float, evicted: int) -> None:
    world = started_after(age, taint(added=NOW - timedelta(days=1), key="example.com/old"))
    world.breaker = structs.replace(FIFTH, window_seconds=1000.0)
    assert len(world.after(1)) == evicted


def test_driver_blocks_only_its_own_devices() -> None:
    world = cluster(tainted=10)
    world.add(claim("nic", devices=("nic-0",), pool="nics"), pod("nic"))
    add_nics(world, tainted=1)
    nic = world.inventory.claims["ml/nic-claim"]
    assert nic.allocation is not None
    by_other = structs.replace(nic.allocation[0], driver="nic.example.com")
    world.edit(nic, allocation=(by_other,))
    assert world.settled() == ["nic"]
    core = world.worker._core
    assert core.breaker.tripped == {DRIVER}
    assert set(core.plan.waits.values()) == {Wait(StepReason.BREAKER, because=DRIVER)}
    assert world.sample("pods_waiting", why="breaker") == 10


# --- when it is calm again ------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "left"), [(599.0, 1.0), (600.0, 0.0), (605.0, 0.0)])
def test_breaker_resets_once_the_driver_was_calm_for_the_whole_time(seconds: float, left: float) -> None:
    world = cluster(tainted=3)
    world.settle()
    world.clock.elapsed += seconds
    for _ in range(2):  # a look at when changes nothing
        assert world.worker.planner.wait_seconds == left
        assert world.worker._core.breaker.tripped == {DRIVER}
    world.settle()
    assert world.worker._core.breaker.tripped == ({DRIVER} if left else frozenset())
    assert len(world.evicted) == (0 if left else 3)


@hurried
async def test_worker_wakes_when_the_driver_was_calm_for_the_whole_time() -> None:
    """It counts from the last taint, though the breaker has tripped later."""
    world = cluster(tainted=2, clock=LoopClock())
    async with at_work(world):
        await asyncio.sleep(10)
        taint_devices(world, 5)
        await asyncio.sleep(599)
        assert len(world.evicted) == 2
        await asyncio.sleep(1.1)
        assert len(world.evicted) == 5


@pytest.mark.parametrize("milliseconds", range(0, 60, 20))
@hurried
async def test_calm_that_is_over_just_after_a_plan_is_noticed(milliseconds: int) -> None:
    """The worker does not make another one at once."""
    world = cluster(tainted=3, clock=LoopClock())
    async with at_work(world):
        await asyncio.sleep(600 - milliseconds / 1000)
        world.worker.requeue_waiting()
        await asyncio.sleep(1)
        assert len(world.evicted) == 3


@pytest.mark.parametrize(("age", "calm_after"), [(200.0, 400.0), (-100.0, 600.0)], ids=["past", "future"])
def test_calm_at_the_start_counts_from_the_time_of_the_taints_or_from_now(age: float, calm_after: float) -> None:
    world = started_after(age)
    assert world.after(calm_after - 0.5) == []
    assert len(world.after(1)) == 10


def test_driver_that_has_not_tripped_needs_no_calm() -> None:
    """Nor does one that was acknowledged, when the time for its calm is over."""
    world = cluster(tainted=3)
    world.advance(30)
    acknowledge(world, world.clock.wall)
    assert len(world.settled()) == 3
    world.advance(700)
    taint_devices(world, 4)
    world.settle()
    assert world.worker._core.breaker.tripped == frozenset()
    assert len(world.evicted) == 4


def test_driver_is_forgotten_once_no_taint_is_within_the_window_unless_it_tripped() -> None:
    quiet, tripped = cluster(tainted=2), cluster(tainted=3)
    sizes = []
    for world in (quiet, tripped):
        world.settle()
        breaker = world.worker._core.breaker
        for seconds in (1299.0, 1300.0):
            world.clock.elapsed = seconds
            breaker.forget_idle()
            sizes.append(len(breaker._drivers))
    assert sizes == [1, 0, 1, 1]


# --- acknowledgements -----------------------------------------------------------------------------


def acknowledge(world: World, until: datetime, driver: str = DRIVER) -> None:
    world.breaker = structs.replace(FIFTH, acknowledged=((driver, until),))
    world.worker.replan_all()


@pytest.mark.parametrize(("seconds", "evicted"), [(0, 3), (-1, 0)])
def test_trip_is_acknowledged_up_to_its_very_time(seconds: int, evicted: int) -> None:
    world = cluster(tainted=3)
    world.settle()
    acknowledge(world, NOW + timedelta(seconds=seconds))
    assert len(world.after(60)) == evicted


@pytest.mark.parametrize(("seconds", "evicted"), [(0, 10), (-1, 0)])
def test_new_leader_does_not_count_what_was_acknowledged(seconds: int, evicted: int) -> None:
    world = started_after(200.0, acknowledged=NOW + timedelta(seconds=seconds - 200))
    assert len(world.after(60)) == evicted


def test_devices_tainted_after_an_acknowledgement_count_though_others_were_tainted_before() -> None:
    world = cluster(tainted=1)
    acknowledge(world, NOW + timedelta(seconds=10))
    assert world.after(20) == ["pod-0"]
    taint_devices(world, 3)
    assert len(world.after(60)) == 3
    taint_devices(world, 4)
    assert len(world.after(60)) == 3


def test_acknowledged_driver_is_reset_though_another_one_has_not_tripped() -> None:
    world = cluster(tainted=1)
    add_nics(world)
    breaker = world.worker._core.breaker
    assert breaker.tripped == {"nic.example.com"}
    acknowledge(world, NOW, "nic.example.com")
    assert breaker.tripped == frozenset()


# --- when it is judged ----------------------------------------------------------------------------


@pytest.mark.parametrize(("tainted", "devices", "tripped"), [(2, 1, True), (3, None, False)], ids=["lower", "none"])
def test_limit_that_the_policy_changes_holds_for_devices_that_are_tainted_already(
    tainted: int, devices: int | None, *, tripped: bool
) -> None:
    world = cluster(tainted=tainted)
    world.settle()
    assert world.worker._core.breaker.tripped == (frozenset() if tripped else {DRIVER})
    world.breaker = structs.replace(FIFTH, devices=devices)
    world.worker.replan_all()
    assert world.worker._core.breaker.tripped == ({DRIVER} if tripped else frozenset())
    assert len(world.settled()) == tainted


def test_driver_is_judged_once_for_each_change() -> None:
    """Each eviction asks, and a driver may have tainted many devices."""
    world, asked = cluster(tainted=1), list[int]()
    breaker = world.worker._core.breaker

    def settings() -> BreakerSettings:
        asked.append(1)
        return FIFTH

    breaker._settings = settings
    for count in (1, 2):
        assert [breaker.tripped for _ in range(5)] == [frozenset()] * 5
        assert len(asked) == count
        taint_devices(world, count + 1)


def test_trip_is_logged_once_however_many_devices_are_tainted_then(caplog: pytest.LogCaptureFixture) -> None:
    world = cluster(tainted=3)
    for count in (3, 5, 10):
        taint_devices(world, count)
        world.advance(10)
    assert len([record for record in caplog.records if record.message.startswith("breaker tripped")]) == 1


# --- what else evicts a pod -----------------------------------------------------------------------


def test_grace_of_the_profile_counts_for_the_rule_that_evicts_later() -> None:
    world = cluster()
    world.add(claim("late", tolerates(30, key="example.com/rule"), devices=("gpu-9",)), pod("late"))
    world.change_policy(structs.replace(FREE, grace_seconds=20.0))
    taint_devices(world, 10)
    world.add(rule(selector=DeviceSelector(driver=DRIVER, device="gpu-9"), key="example.com/rule"))
    assert world.after(49) == ["pod-9"]
    assert world.after(2) == ["pod-9", "late"]


GROUP = PodGroup(ObjectMeta(name="ring", namespace="ml", uid="uid-ring"), ALL, None)


@pytest.mark.parametrize(("tainted", "by_rule", "evicted"), [(10, True, True), (10, False, False), (1, False, True)])
def test_pod_goes_along_with_one_that_the_breaker_does_not_keep(tainted: int, *, by_rule: bool, evicted: bool) -> None:
    """No taint evicts it itself. Another driver has tripped in any case."""
    world = cluster()
    add_nics(world)
    member = world.pod("pod-0")
    world.add(GROUP, pod("along", pod_group="ring", claims=()))
    world.edit(member, pod_group="ring")
    if by_rule:
        world.add(rule(selector=DeviceSelector(driver=DRIVER, device="gpu-0")))
    taint_devices(world, tainted)
    assert sorted(world.after(60)) == (["along", "pod-0"] if evicted else [])
