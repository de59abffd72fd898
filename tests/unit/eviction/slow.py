"""Answers to evictions that come late, after the watch has shown more, or do not come at all."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.eviction.world import FakeCluster, World
from webhook.eviction.ports import EvictionOutcome, EvictionResult, PodRef

UNSURE = EvictionOutcome(EvictionResult.FAILED, "POST /api/v1/...: no complete answer within 10 s", unsure=True)


class SlowAnswers(FakeCluster):
    """Before the answer to an eviction comes, the watch shows its effect and what else happens; see `before_answer`."""

    before_answer: Callable[[], None] | None = None
    lost: int = 0
    """How many of the answers do not come."""

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:
        outcome = await super().evict(pod, grace_period_seconds)
        if self.before_answer is not None:
            then, self.before_answer = self.before_answer, None
            then()
        if self.lost:
            self.lost -= 1
            return UNSURE
        return outcome


def slow(world: World) -> SlowAnswers:
    assert isinstance(world.cluster, SlowAnswers)
    return world.cluster
