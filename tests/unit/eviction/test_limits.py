"""Buckets of taints as values; the worker with them: test_manners.py."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import POOL, claim, owned, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.test_manners import crowd
from tests.unit.eviction.world import FREE, NO_BREAKER, World
from webhook.api.rules import EVICTIONS_PER_SECOND, DeviceSelector
from webhook.eviction.modes import Mode
from webhook.eviction.rate_limiter import Buckets, SlidingMinute
from webhook.eviction.ready_queue import Idle
from webhook.flowcontrol.token_bucket import Rate
from webhook.policy.model import Pause

if TYPE_CHECKING:
    from webhook.api.rules import DeviceTaintRule

SLOW = Rate(1.0, 10)
FAST = Rate(100.0, 10)


def test_of_several_buckets_the_one_that_lets_go_first_holds_and_all_pay() -> None:
    """N-14."""
    buckets = Buckets()
    both = [("slow", SLOW), ("fast", FAST)]
    for _ in range(10):
        assert buckets.wait_seconds(both, 0.0) == 0.0
        buckets.take(both, 0.0)
    assert buckets.wait_seconds(both, 0.0) == pytest.approx(0.01)
    assert buckets.wait_seconds([("slow", SLOW)], 0.0) == pytest.approx(1.0)


def test_pods_without_a_rate_do_not_wait() -> None:
    assert Buckets().wait_seconds([], 0.0) == 0.0


def test_pods_under_the_same_taints_share_what_is_known_of_their_rates() -> None:
    """It is found out once for all of them, and other pods between them change nothing."""
    world = World(Mode.REPLACEMENT, FREE)
    world.pause = Pause(NOW + timedelta(hours=1))
    for name, seconds in (("a", 0), ("other", 5), ("b", 0)):
        world.add(claim(name, tolerates(seconds)), pod(name))
    world.add(rule())
    ready_pod, plans = world.worker._core.limiter.ready_pod, world.worker.plans.scheduled
    first, _, same, again = (ready_pod(plans[f"uid-{name}"]).group for name in ("a", "other", "b", "a"))
    assert first is same
    assert first is again


def test_bucket_is_forgotten_once_it_is_full_again_and_not_before() -> None:
    """N-16: until then forgetting it would be a fresh burst."""
    buckets = Buckets()
    for _ in range(3):
        buckets.take([("slow", SLOW)], 0.0)
    buckets.forget_idle(2.9)
    assert len(buckets._buckets) == 1
    buckets.forget_idle(3.0)
    assert len(buckets._buckets) == 0
    assert buckets.wait_seconds([("slow", SLOW)], 3.0) == 0.0


def test_worker_forgets_buckets_of_taints_that_are_gone() -> None:
    """N-16."""
    world = World(Mode.REPLACEMENT, structs.replace(FREE, rate=10, burst=10))
    crowd(world, 2)
    world.add(rule())
    world.settle()
    limiter = world.worker._core.limiter
    assert len(limiter._buckets._buckets) == 1
    limiter.forget_idle(world.clock.seconds())
    assert len(limiter._buckets._buckets) == 1
    limiter.forget_idle(world.clock.seconds() + 1)
    assert len(limiter._buckets._buckets) == 0


def test_rule_whose_taint_is_changed_starts_no_fresh_burst() -> None:
    """N-17, N-18: it is the same taint, changed."""
    world = World(Mode.REPLACEMENT, structs.replace(FREE, rate=0.1, burst=2))
    crowd(world, 6)
    world.add(rule())
    world.settle()
    assert len(world.evicted) == 2
    known = world.inventory.rules["rule"]
    world.change(known, structs.replace(known, taint=taint(key="example.com/other", value="more")))
    world.settle()
    assert len(world.evicted) == 2


def test_slice_whose_taint_is_changed_starts_no_fresh_burst() -> None:
    """A driver has one rate for each key, whatever else it writes into its taints."""
    world = World(Mode.REPLACEMENT, structs.replace(FREE, rate=0.1, burst=2), breaker=NO_BREAKER)
    crowd(world, 6)
    devices = [f"pod-{number:03}" for number in range(6)]
    before = slice_of(dict.fromkeys(devices, (taint(),)))
    world.add(before)
    world.settle()
    assert len(world.evicted) == 2
    world.change(before, slice_of(dict.fromkeys(devices, (structs.replace(taint(added=NOW), value="more"),))))
    world.settle()
    assert len(world.evicted) == 2


def test_pods_that_were_terminating_at_the_start_count_if_a_taint_evicts_them() -> None:
    world = World(Mode.REPLACEMENT, structs.replace(FREE, overall=1))
    world.add(rule(selector=DeviceSelector(driver=DRIVER, pool=POOL)))
    world.add(claim("other", pool="clean"), pod("other", deleting=True))
    world.add(claim("going"), pod("going", deleting=True))
    world.add(claim("waits", devices=("gpu-1",)), pod("waits"))
    world.advance(10)
    assert (world.evicted, len(world.worker.plans.under_way)) == ([], 1)
    world.remove(world.pod("going"))
    world.advance(1)
    assert world.evicted == ["waits"]


@pytest.mark.parametrize(("gang", "evicted"), [("", []), ("train", ["waits"])], ids=["each its own", "one as a gang"])
def test_pods_that_were_terminating_at_the_start_take_places(gang: str, evicted: list[str]) -> None:
    world = World(Mode.REPLACEMENT, structs.replace(FREE, overall=2))
    world.add(rule())
    for name in "ab":
        world.add(claim(name), pod(name, deleting=True, gang=gang))
    world.add(claim("waits", devices=("gpu-1",)), pod("waits"))
    world.settle()
    assert world.evicted == evicted


def test_minute_with_a_request_in_flight_is_not_forgotten() -> None:
    minute = SlidingMinute()
    minute.begin()
    assert minute.forget_old(1000.0)
    minute.end(1000.0, evicted=False)
    assert not minute.forget_old(1000.0)


def test_minute_counts_an_eviction_for_sixty_seconds() -> None:
    minute = SlidingMinute()
    minute.count(100.0)
    assert [minute.forget_old(seconds) for seconds in (159.9, 160.0)] == [True, False]


def test_minute_waits_until_enough_of_its_evictions_are_over() -> None:
    minute = SlidingMinute()
    for seconds in (0.0, 10.0, 20.0):
        minute.count(seconds)
    assert [minute.wait_seconds(limit, 30.0) for limit in (4, 3, 2, 1)] == [0.0, 30.0, 40.0, 50.0]
    minute.begin()
    assert [minute.wait_seconds(limit, 30.0) for limit in (4, 3, 2, 1)] == [30.0, 40.0, 50.0, math.inf]


def test_pods_ask_again_soon_while_requests_in_flight_use_up_the_minute() -> None:
    world = World(Mode.REPLACEMENT, structs.replace(FREE, max_per_minute=1))
    crowd(world, 2)
    world.add(rule())
    assert world.worker.ready.pop(world.clock.seconds()) == "uid-pod-000"
    idle = world.worker.ready.pop(world.clock.seconds())
    assert isinstance(idle, Idle)
    assert idle.seconds == pytest.approx(0.1)


def test_only_an_eviction_that_goes_with_another_one_leaves_a_debt() -> None:
    buckets = Buckets()
    fast, slow = ("fast", Rate(100.0, 1)), ("slow", Rate(1.0, 1))
    assert buckets.take([fast], 0.0) == [("fast", 1.0)]
    assert buckets.take([fast, slow], 0.0) == [("fast", 0.0), ("slow", 1.0)]
    assert buckets.take([fast, slow], 0.0, owing=True) == [("fast", 1.0), ("slow", 0.0)]


def test_grace_of_its_profile_makes_a_pod_due_later_than_others() -> None:
    patient = structs.replace(FREE, priority_at_most=0, grace_seconds=60.0)
    world = World(Mode.REPLACEMENT, patient, FREE)
    world.pause = Pause(NOW + timedelta(hours=1))
    world.add(claim("patient"), pod("patient"), claim("other"), pod("other", priority=1), rule())
    ready_pod, plans = world.worker._core.limiter.ready_pod, world.worker.plans.scheduled
    due = {name: ready_pod(plans[f"uid-{name}"]).order[1:3] for name in ("patient", "other")}
    assert due == {"patient": (0, NOW.timestamp() + 60.0), "other": (0, NOW.timestamp())}


def own_rate(name: str, rate: str) -> DeviceTaintRule:
    return rule(name, annotations={EVICTIONS_PER_SECOND: rate} if rate else {})


def test_rate_of_a_rule_is_one_for_the_pods_of_all_profiles() -> None:
    world = World(Mode.REPLACEMENT, structs.replace(FREE, priority_at_most=0), FREE)
    for number in range(16):
        name = f"pod-{number:03}"
        world.add(claim(name, devices=(name,)), pod(name, priority=number % 2))
    world.add(own_rate("rule", "1"))
    world.settle()
    assert len(world.evicted) == 10


@pytest.mark.parametrize("position", [0, 1])
def test_rate_that_a_rule_no_longer_has_used_up_no_token_of_the_profile(position: int) -> None:
    others = structs.replace(FREE, priority_at_most=-1)
    world = World(Mode.REPLACEMENT, *[others] * position, structs.replace(FREE, rate=0.01, burst=5))
    crowd(world, 20)
    world.add(own_rate("rule", "1"))
    world.settle()
    assert len(world.evicted) == 10
    known = world.inventory.rules["rule"]
    world.change(known, structs.replace(known, meta=own_rate("rule", "").meta))
    world.settle()
    assert len(world.evicted) == 15


def test_gang_waits_for_the_owner_of_any_of_its_pods() -> None:
    """The first of them has no owner."""
    world = World(Mode.REPLACEMENT, structs.replace(FREE, per_owner_unavailable=1))
    broken = owned("broken", ready=False)
    world.add(claim("a"), pod("a", gang="train"), claim("b"), owned("b", gang="train"), broken, rule())
    world.settle()
    assert world.evicted == []
    world.change(broken, structs.replace(broken, ready=True))
    world.settle()
    assert sorted(world.evicted) == ["a", "b"]


@pytest.mark.parametrize("grace", [None, 30])
def test_terminating_pod_takes_its_place_until_its_grace_and_the_time_for_stuck_pods_are_over(
    grace: int | None,
) -> None:
    world = World(Mode.REPLACEMENT, structs.replace(FREE, overall=1))
    gone_by = None if grace is None else NOW + timedelta(seconds=grace)
    world.add(claim("going"), pod("going", deleting=True, gone_by=gone_by))
    world.add(claim("waits", devices=("gpu-1",)), pod("waits"), rule())
    world.advance(FREE.stuck_after_seconds + (grace or 0) - 0.5)
    assert world.evicted == []
    world.advance(1)
    assert world.evicted == ["waits"]


@pytest.mark.parametrize(("seconds", "evicted"), [(59, []), (60, ["waits"])])
def test_eviction_of_the_last_leader_counts_for_the_minute_unless_it_is_older(seconds: int, evicted: list[str]) -> None:
    world = World(Mode.REPLACEMENT, structs.replace(FREE, max_per_minute=1))
    world.add(rule(), claim("going"), pod("going", deleting=True, gone_by=NOW - timedelta(seconds=seconds)))
    world.add(claim("waits", devices=("gpu-1",)), pod("waits"))
    world.settle()
    assert world.evicted == evicted
