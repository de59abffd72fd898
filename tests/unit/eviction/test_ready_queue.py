"""The ready queue by itself: which pod goes first, who is tried again, and how long nothing can go."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from webhook.eviction.ports import NamespaceLimit, OverallLimit
from webhook.eviction.ready_queue import Idle, ReadyPod, ReadyQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from webhook.eviction.ports import Limit
    from webhook.eviction.ready_queue import Order

LIMIT = OverallLimit(0)
OTHER = NamespaceLimit("ml", 0)


@dataclass
class Limits:
    """Lets every pod go, unless a test says otherwise."""

    waits: dict[Hashable, float] = field(default_factory=dict)
    blocks: dict[str, Limit] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)

    def begin_pass(self) -> None:
        pass

    def wait_seconds(self, group: Hashable, now: float) -> float:
        return max(self.waits.get(group, 0.0) - now, 0.0)

    def blocked_by(self, item: ReadyPod, now: float) -> Limit | None:  # noqa: ARG002 -- the protocol's
        return self.blocks.get(item.uid)

    def reserve(self, item: ReadyPod, now: float) -> None:  # noqa: ARG002 -- the protocol's
        self.taken.append(item.uid)


def item(uid: str, order: Order | None = None, group: str = "group") -> ReadyPod:
    return ReadyPod(uid, order or (0, 0, 0.0, uid), group)


def drain(queue: ReadyQueue, now: float = 0.0) -> list[str]:
    """All that can go now, in order."""
    gone = []
    while isinstance(taken := queue.pop(now), str):
        gone.append(taken)
    return gone


ORDERS: dict[str, tuple[Order, Order]] = {
    "priority": ((0, 9, 9.0, "z"), (1, 0, 0.0, "a")),
    "a negative priority": ((-1, 9, 9.0, "z"), (0, 0, 0.0, "a")),
    "refusals": ((0, 0, 9.0, "z"), (0, 1, 0.0, "a")),
    "due": ((0, 0, 0.0, "z"), (0, 0, 9.0, "a")),
    "due by a hair": ((0, 0, 1.0, "z"), (0, 0, 1.000001, "a")),
    "key": ((0, 0, 0.0, "a"), (0, 0, 0.0, "z")),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("groups", [("one", "one"), ("one", "two"), ("two", "one")], ids="-".join)
@pytest.mark.parametrize("last_first", [False, True])
def test_each_part_of_the_order_outweighs_those_behind_it(
    order: tuple[Order, Order],
    groups: tuple[str, str],
    last_first: bool,  # noqa: FBT001 -- a case
) -> None:
    """Within a group and between groups, however the pods came."""
    first, second = item("first", order[0], groups[0]), item("second", order[1], groups[1])
    queue = ReadyQueue(Limits())
    for each in (second, first) if last_first else (first, second):
        queue.push(each)
    assert drain(queue) == ["first", "second"]


def test_order_holds_for_pods_that_were_parked() -> None:
    limits = Limits(blocks=dict.fromkeys("abc", LIMIT))
    queue = ReadyQueue(limits)
    for uid, due in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
        queue.push(item(uid, (0, 0, due, uid)))
    assert drain(queue) == []
    limits.blocks.clear()
    queue.unpark(LIMIT)
    assert drain(queue) == ["b", "c", "a"]  # each that goes makes room for a look at the next


def test_pod_that_is_parked_later_may_be_the_first_of_its_limit() -> None:
    limits = Limits(blocks=dict.fromkeys("abc", LIMIT))
    queue = ReadyQueue(limits)
    for uid in "cba":
        queue.push(item(uid))
        assert drain(queue) == []
    limits.blocks.clear()
    queue.unpark(LIMIT)
    assert drain(queue) == ["a", "b", "c"]


def test_pod_that_is_pushed_again_has_its_new_place() -> None:
    queue = ReadyQueue(Limits())
    queue.push(item("a", (0, 0, 0.0, "a")))
    queue.push(item("b", (0, 0, 1.0, "b")))
    queue.push(item("a", (0, 1, 0.0, "a")))
    assert len(queue) == 2
    assert drain(queue) == ["b", "a"]


def test_only_the_named_limit_is_unparked() -> None:
    limits = Limits(blocks={"a": LIMIT, "b": OTHER})
    queue = ReadyQueue(limits)
    queue.push(item("a"))
    queue.push(item("b"))
    assert drain(queue) == []
    assert (queue.limit_of("a"), queue.limit_of("b")) == (LIMIT, OTHER)
    limits.blocks.clear()
    queue.unpark(OTHER)
    assert drain(queue) == ["b"]
    queue.unpark(LIMIT)
    assert drain(queue) == ["a"]


def test_pod_that_waits_for_another_limit_by_now_is_passed_over() -> None:
    limits = Limits(blocks={"a": LIMIT, "b": LIMIT})
    queue = ReadyQueue(limits)
    queue.push(item("a"))
    queue.push(item("b"))
    assert drain(queue) == []
    limits.blocks["a"] = OTHER
    queue.retry("a")
    assert drain(queue) == []
    limits.blocks.clear()
    queue.unpark(LIMIT)
    assert drain(queue) == ["b"]


@pytest.mark.parametrize("how", ["retry", "retry_all", "sweep", "push"])
def test_parked_pod_is_tried_again(how: str) -> None:
    limits = Limits(blocks={"a": LIMIT})
    queue = ReadyQueue(limits)
    queue.push(item("a"))
    assert drain(queue) == []
    limits.blocks.clear()
    assert drain(queue) == []
    if how == "retry":
        queue.retry("a")
    elif how == "push":
        queue.push(item("a", (0, 1, 0.0, "a")))
    else:
        getattr(queue, how)()
    assert queue.limit_of("a") is None
    assert drain(queue) == ["a"]


@pytest.mark.parametrize("how", ["evicted", "discarded", "moved", "blocked by another"])
def test_room_that_a_pod_does_not_need_goes_to_the_next(how: str) -> None:
    """One notice of room is one pod: what it leaves is looked at by the next that waits for it."""
    limits = Limits(blocks={"a": LIMIT, "b": LIMIT})
    queue = ReadyQueue(limits)
    queue.push(item("a"))
    queue.push(item("b"))
    assert drain(queue) == []
    limits.blocks.clear()
    queue.unpark(LIMIT)
    if how == "discarded":
        queue.discard("a")
    elif how == "moved":
        queue.push(item("a", (0, 1, 0.0, "a")))
    elif how == "blocked by another":
        limits.blocks["a"] = OTHER
    assert drain(queue) == {"evicted": ["a", "b"], "moved": ["b", "a"]}.get(how, ["b"])


@pytest.mark.parametrize(
    ("waits", "seconds"),
    [
        ({"one": 5.0, "two": 3.0, "three": 9.0}, 3.0),
        ({"one": 3.0, "two": 5.0, "three": 9.0}, 3.0),
        ({"one": 9.0, "two": 5.0, "three": 3.0}, 3.0),
        ({"one": 0.5}, 0.5),
        ({}, math.inf),
    ],
)
def test_idle_time_is_the_shortest_wait_of_all_groups(waits: dict[Hashable, float], seconds: float) -> None:
    queue = ReadyQueue(Limits(waits=waits))
    for group in waits:
        queue.push(item(f"pod-{group}", group=str(group)))
    assert queue.pop(0.0) == Idle(seconds)


def test_groups_that_wait_go_each_at_its_time() -> None:
    queue = ReadyQueue(Limits(waits={"one": 5.0, "two": 3.0}))
    queue.push(item("a", group="one"))
    queue.push(item("b", group="two"))
    gone = [(now, drain(queue, now)) for now in (0.0, 2.9, 3.0, 4.9, 5.0)]
    assert gone == [(0.0, []), (2.9, []), (3.0, ["b"]), (4.9, []), (5.0, ["a"])]


def test_group_that_is_woken_does_not_wait_for_its_time() -> None:
    limits = Limits(waits={"one": 50.0, "two": 60.0})
    queue = ReadyQueue(limits)
    queue.push(item("a", group="one"))
    queue.push(item("b", group="two"))
    assert queue.pop(0.0) == Idle(50.0)
    limits.waits.clear()
    queue.wake("one")
    assert drain(queue) == ["a"]
    assert queue.pop(0.0) == Idle(60.0)  # the other was not asked


def test_groups_that_wait_are_tried_again_when_rates_may_have_changed() -> None:
    limits = Limits(waits={"one": 50.0, "two": 60.0})
    queue = ReadyQueue(limits)
    queue.push(item("a", group="one"))
    queue.push(item("b", group="two"))
    assert queue.pop(0.0) == Idle(50.0)
    limits.waits.clear()
    queue.retry_all()
    assert drain(queue) == ["a", "b"]


def test_pod_that_goes_is_reserved_for_and_gone_from_the_queue() -> None:
    limits = Limits(blocks={"b": LIMIT})
    queue = ReadyQueue(limits)
    queue.push(item("a"))
    queue.push(item("b"))
    assert drain(queue) == ["a"]
    assert limits.taken == ["a"]
    assert "a" not in queue
    assert "b" in queue
