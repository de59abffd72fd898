"""client-go's verbs, by a clock that the test moves."""

from __future__ import annotations

import asyncio

import pytest

from webhook.flowcontrol.workqueue import TimeSlice, WorkQueue


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make(random: float = 0.0) -> tuple[WorkQueue[str], Seconds]:
    clock = Seconds()
    return WorkQueue(clock=clock, random=lambda: random, first_seconds=1.0, most_seconds=8.0), clock


def ready(queue: WorkQueue[str]) -> list[str]:
    """Takes everything that is ready, and is done with it."""
    queue._promote()

    async def drain() -> list[str]:
        found = []
        while len(queue):
            item = await queue.get()
            queue.done(item)
            found.append(item)
        return found

    return asyncio.run(drain())


def test_items_come_in_order_and_once() -> None:
    queue, _ = make()
    for item in "abab":
        queue.add(item)
    assert ready(queue) == ["a", "b"]
    assert ready(queue) == []


def test_delayed_item_comes_at_its_time_and_not_before() -> None:
    queue, clock = make()
    queue.add_after("late", 5)
    queue.add_after("soon", 2)
    clock.now += 1.9
    assert ready(queue) == []
    clock.now += 0.2
    assert ready(queue) == ["soon"]
    clock.now += 3
    assert ready(queue) == ["late"]
    clock.now += 10
    assert ready(queue) == []


def test_the_sooner_of_two_delays_holds() -> None:
    queue, clock = make()
    queue.add_after("item", 5)
    queue.add_after("item", 2)
    queue.add_after("item", 9)
    clock.now += 2
    assert ready(queue) == ["item"]
    clock.now += 20
    assert ready(queue) == []


def test_item_added_at_once_does_not_come_again_when_its_delay_is_over() -> None:
    queue, clock = make()
    queue.add_after("item", 5)
    queue.add("item")
    assert ready(queue) == ["item"]
    clock.now += 10
    assert ready(queue) == []


def test_item_added_while_it_is_worked_on_comes_once_more_afterwards() -> None:
    async def test() -> None:
        queue, _ = make()
        queue.add("item")
        assert await queue.get() == "item"
        assert not queue.comes_again("item")
        queue.add("item")
        queue.add("item")
        assert len(queue) == 0
        assert queue.comes_again("item")
        queue.done("item")
        assert len(queue) == 1
        assert not queue.comes_again("item")
        assert await queue.get() == "item"
        queue.done("item")
        assert len(queue) == 0

    asyncio.run(test())


def test_waits_double_up_to_the_most_until_it_went_well() -> None:
    queue, _ = make()
    assert [queue.add_rate_limited("item") for _ in range(5)] == [1, 2, 4, 8, 8]
    assert queue._failures.get("item", 0) == 5
    queue.forget("item")
    assert queue.add_rate_limited("item") == 1


def test_waits_are_cut_by_up_to_half_and_never_below_what_the_server_asked_for() -> None:
    queue, _ = make(random=0.999)
    assert queue.add_rate_limited("item") < 0.51
    assert queue.add_rate_limited("item", 5.0) == 5.0


def test_whoever_waits_gets_what_comes() -> None:
    async def test() -> None:
        queue: WorkQueue[str] = WorkQueue(clock=asyncio.get_running_loop().time, random=lambda: 0.0)
        waiting = [asyncio.ensure_future(queue.get()) for _ in range(3)]
        await asyncio.sleep(0)
        queue.add("now")
        queue.add_after("later", 0.01)
        queue.add_after("much later", 0.02)
        async with asyncio.timeout(60):
            assert sorted(await asyncio.gather(*waiting)) == ["later", "much later", "now"]

    asyncio.run(test())


def test_delays_that_do_not_hold_any_more_are_not_kept_until_their_end() -> None:
    """An item that waits for months, and is handled now and then, leaves no trace of each time."""
    queue, clock = make()
    queue.add_after("other", 5000)
    for _ in range(500):
        queue.add_after("item", 1_000_000)
        queue.add_after("item", 1)
        clock.now += 1
        assert ready(queue) == ["item"]
    assert len(queue._later) <= 2 * 1 + 64
    clock.now += 5000
    assert ready(queue) == ["other"]


def test_order_is_kept_when_outdated_delays_are_dropped() -> None:
    queue, clock = make()
    items = [f"item-{number}" for number in range(50)]
    for seconds, item in enumerate(items, 1):
        queue.add_after(item, 100 - seconds)
    for number in range(200):
        queue.add_after(f"gone-{number}", 1000)
        queue.discard(f"gone-{number}")
    assert len(queue._later) <= 2 * 50 + 64
    found = []
    for _ in range(100):
        clock.now += 1
        found += ready(queue)
    assert found == items[::-1]


def test_discarded_item_neither_waits_nor_counts_as_failed() -> None:
    queue, clock = make()
    queue.add_rate_limited("item")
    queue.discard("item")
    clock.now += 100
    assert ready(queue) == []
    assert queue._failures.get("item", 0) == 0


def test_item_that_is_ready_comes_also_if_it_is_discarded() -> None:
    queue, _ = make()
    queue.add("item")
    queue.discard("item")
    assert ready(queue) == ["item"]


@pytest.mark.parametrize(("taken_seconds", "pauses"), [(0.0004, 0), (0.0011, 1)])
def test_long_work_lets_others_have_the_loop(taken_seconds: float, pauses: int) -> None:
    async def test() -> None:
        now, others = [50.0], 0

        async def other() -> None:
            nonlocal others
            others += 1

        timeslice = TimeSlice(0.001, clock=lambda: now[0])
        task = asyncio.ensure_future(other())
        now[0] += taken_seconds
        assert await timeslice.pause() is bool(pauses)
        assert others == pauses
        await task

    asyncio.run(test())


def test_tasks_that_share_a_time_slice_take_turns_with_others() -> None:
    now = [0.0]
    timeslice = TimeSlice(1.0, lambda: now[0])
    order: list[str] = []

    async def work(name: str) -> None:
        for _ in range(4):
            now[0] += 0.5
            order.append(name)
            await timeslice.pause()

    async def test() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(work("a"))
            group.create_task(work("b"))
            group.create_task(other())

    async def other() -> None:
        assert timeslice.paused
        order.append("other")

    asyncio.run(test())
    assert order[:4] == ["a", "a", "b", "other"]
    assert sorted(order) == ["a"] * 4 + ["b"] * 4 + ["other"]
    assert not timeslice.paused
