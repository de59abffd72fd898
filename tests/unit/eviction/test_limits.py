"""Buckets of taints as values; the worker with them: test_manners.py."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import POOL, claim, pod, rule, slice_of, taint
from tests.unit.eviction.test_manners import crowd
from tests.unit.eviction.world import FREE, NO_BREAKER, World
from webhook.api.rules import DeviceSelector
from webhook.eviction.modes import Mode
from webhook.eviction.rate_limiter import Buckets, SlidingMinute
from webhook.flowcontrol.token_bucket import Rate

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


def test_bucket_is_forgotten_once_it_is_full_again_and_not_before() -> None:
    """N-16: until then forgetting it would be a fresh burst."""
    buckets = Buckets()
    for _ in range(3):
        buckets.take([("slow", SLOW)], 0.0)
    buckets.forget_idle(2.9)
    assert len(buckets) == 1
    buckets.forget_idle(3.0)
    assert len(buckets) == 0
    assert buckets.wait_seconds([("slow", SLOW)], 3.0) == 0.0


def test_worker_forgets_buckets_of_taints_that_are_gone() -> None:
    """N-16."""
    world = World(Mode.REPLACEMENT, structs.replace(FREE, rate=10, burst=10))
    crowd(world, 2)
    world.add(rule())
    world.settle()
    limiter = world.worker._core.limiter
    assert len(limiter._buckets) == 1
    limiter.forget_idle(world.clock.seconds())
    assert len(limiter._buckets) == 1
    limiter.forget_idle(world.clock.seconds() + 1)
    assert len(limiter._buckets) == 0


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


def test_minute_with_a_request_in_flight_is_not_forgotten() -> None:
    minute = SlidingMinute()
    minute.begin()
    assert minute.forget_old(1000.0)
    minute.end(1000.0, evicted=False)
    assert not minute.forget_old(1000.0)
