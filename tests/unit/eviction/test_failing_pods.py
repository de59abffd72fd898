"""Pods whose requests fail, as behind a webhook of somebody else: other pods do not wait behind them."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from tests.unit.eviction.hurried import LoopClock, at_work, hurried
from tests.unit.eviction.objects import owned, rule, using
from tests.unit.eviction.world import BLOCKED, FREE, FakeCluster, evicting
from webhook.eviction.ports import EvictionOutcome, EvictionResult, PodRef

FAILED = EvictionOutcome(EvictionResult.FAILED, "failed calling webhook: context deadline exceeded")


class TimesOut(FakeCluster):
    """A webhook does not answer for pods named bad-*: the API server waits ten seconds."""

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:
        if pod.name.startswith("bad-"):
            await asyncio.sleep(10)
            return FAILED
        return await super().evict(pod, grace_period_seconds)


@hurried
async def test_pods_whose_requests_fail_keep_no_pods_of_higher_priority_waiting() -> None:
    world = evicting(clock=LoopClock(), cluster=TimesOut)
    world.add(*using(*[f"bad-{number:02}" for number in range(80)], make=owned))
    world.add(*using("good-0", "good-1", make=owned, by="good", priority=1000), rule())
    async with at_work(world):
        await asyncio.sleep(60)
    assert sorted(world.evicted) == ["good-0", "good-1"]


ANSWERS: dict[str, tuple[list[EvictionOutcome], str]] = {
    "an error": ([FAILED], "ab"),
    "two errors": ([FAILED, FAILED], "ba"),
    "a budget": ([BLOCKED], "ab"),
    "a budget, after an error": ([FAILED, BLOCKED], "ab"),
}


@pytest.mark.parametrize(("answers", "order"), ANSWERS.values(), ids=ANSWERS)
def test_pod_is_behind_those_of_higher_priority_only_if_its_last_requests_failed(
    answers: list[EvictionOutcome], order: str
) -> None:
    world = evicting(*using("a"), rule(), answers=answers)
    world.settle()
    for _ in answers[1:]:
        world.advance(0.006)
    world.change_policy(structs.replace(FREE, overall=0))
    world.add(*using("b", priority=1))
    assert world.after(10) == []
    world.change_policy(structs.replace(FREE, overall=1))
    assert "".join(world.evicted) == order
