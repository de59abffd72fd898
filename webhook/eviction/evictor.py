"""Evicts whoever has its turn, and settles what became of it."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Final, NoReturn

from webhook.eviction.event_messages import Kind, disruption_of
from webhook.eviction.ports import EvictionOutcome, EvictionResult
from webhook.eviction.ready_queue import Idle
from webhook.eviction.step import Evict, next_step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.eviction.dependencies import Dependencies
    from webhook.eviction.plans import Plans, PodPlan
    from webhook.eviction.rate_limiter import RateLimiter
    from webhook.eviction.ready_queue import ReadyQueue
    from webhook.eviction.recorder import Teller
    from webhook.eviction.step import Facts, Step

log = logging.getLogger(__name__)

RETRY_MOST_SECONDS: Final = 10.0
_NOBODY: Final = Idle(math.inf)
_DOUBT_SECONDS: Final = 0.2
"""How often it is looked whether the inventory can be trusted again."""


class Office:
    """What the actor has of the controller: the plans, and what to do when one is settled."""

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        *,
        plans: Plans,
        limiter: RateLimiter,
        ready: ReadyQueue,
        facts_of: Callable[[PodPlan], Facts],
        behind: Callable[[], bool],
        again: Callable[[PodPlan], None],
        retry: Callable[[PodPlan, float], float],
        settled: Callable[[PodPlan, bool], None],
    ) -> None:
        """What the actor asks, and what it tells.

        `behind`: not everything is decided yet, so it is nobody's turn. `again` looks at a pod anew; `retry` does so
        after a wait of at least so many seconds, and gives the wait. `settled` hears of each end: whether the pod was
        evicted.
        """
        self.plans = plans
        self.limiter = limiter
        self.ready = ready
        self.facts_of = facts_of
        self.behind = behind
        self.again = again
        self.retry = retry
        self.settled = settled


class PodEvictor:
    """As many evictions at the same time as tasks run `work`."""

    def __init__(self, deps: Dependencies, office: Office, recorder: Teller) -> None:
        self._deps = deps
        self._office = office
        self._recorder = recorder
        self.news = asyncio.Event()
        """Set when the line may let somebody go that it did not let go before."""
        self._door = asyncio.Lock()
        """One waits for a turn, the others for that one: news wake a single task, however many work."""
        self.stopping = False
        """Nobody has a turn any more."""
        self._unsure: set[str] = set()
        """Pods, by uid, that may have been evicted when we were last told that they were not."""

    async def work(self) -> NoReturn:
        """One after the other, until it is cancelled."""
        while True:
            async with self._door:
                uid = await self._turn()
            await self.act(uid)

    async def _turn(self) -> str:
        """The uid of the pod whose turn it is."""
        while True:
            if self.stopping or not self._deps.trusted():
                await asyncio.sleep(_DOUBT_SECONDS)
                continue
            ready = self._office.ready
            taken = _NOBODY if self._office.behind() else ready.pop(self._deps.clock.seconds())
            if isinstance(taken, str):
                return taken
            self.news.clear()
            try:
                async with asyncio.timeout(None if math.isinf(taken.seconds) else taken.seconds):
                    await self.news.wait()
            except TimeoutError:
                continue

    async def act(self, uid: str) -> None:
        """Evicts a pod that has just left the line, if it is still to be."""
        office = self._office
        plan = office.plans.scheduled[uid]
        step = self._step_of(plan)
        if isinstance(step, Evict):
            unsure = uid in self._unsure
            needed = await self._deps.writer.prepare(plan.ref, delete=step.delete, unsure=unsure)
            if not needed:
                self._end(plan, EvictionOutcome(EvictionResult.GONE))
                return
            step = self._step_of(plan)  # that took its time
        if not isinstance(step, Evict):
            self._settle(plan, evicted=False)
            office.again(plan)
            return
        if step.delete:
            disruption = disruption_of(self._deps.mode)
            outcome = await self._deps.writer.delete(plan.ref, step.grace_period_seconds, disruption)
        else:
            outcome = await self._deps.writer.evict(plan.ref, step.grace_period_seconds)
        self._deps.metrics.count_request("delete" if step.delete else "evict", outcome.result.value)
        self._end(plan, outcome)

    def _step_of(self, plan: PodPlan) -> Step | None:
        """What to do about the pod now; None if that cannot be told."""
        if self.stopping or self._office.behind() or not self._deps.trusted():
            return None
        if self._office.plans.scheduled.get(plan.uid) is not plan:
            return None
        return next_step(self._office.facts_of(plan), self._deps.clock.now())

    def _end(self, plan: PodPlan, outcome: EvictionOutcome) -> None:
        """What became of it."""
        if outcome.unsure:
            self._unsure.add(plan.uid)
        else:
            self._unsure.discard(plan.uid)
        fields = {
            "pod": plan.key,
            "podUID": plan.uid,
            "reasons": [str(reason) for reason in plan.eviction.reasons],
        }
        match outcome.result:
            case EvictionResult.EVICTED:
                self._settle(plan, evicted=True, done=True)
                self._tell_evicted(plan, fields)
            case EvictionResult.GONE:
                self._settle(plan, evicted=False, done=True)
            case EvictionResult.BLOCKED:
                if plan.blocked_since is None:
                    plan.blocked_since = self._deps.clock.now()
                self._settle(plan, evicted=False)
                self._recorder.tell_of_pod(Kind.BLOCKED, plan, outcome.text)
                self._office.retry(plan, max(outcome.retry_after_seconds, self._deps.settings.blocked_seconds))
            case EvictionResult.FAILED:
                self._settle(plan, evicted=False)
                seconds = self._office.retry(plan, outcome.retry_after_seconds)
                told = {**fields, "error": outcome.text, "delaySeconds": round(seconds, 3)}
                log.warning("pod not evicted", extra=told)

    def _settle(self, plan: PodPlan, *, evicted: bool, done: bool = False) -> None:
        """Gives back what a turn took, as far as nothing came of it."""
        uid = plan.uid
        group = self._office.limiter.release(uid, self._deps.clock.seconds(), evicted=evicted)
        if done:
            self._office.plans.succeed(uid, plan.ref)
        else:
            self._office.plans.fail(uid, plan.ref)
        self._office.ready.wake(group)
        self._office.settled(plan, evicted)

    def _tell_evicted(self, plan: PodPlan, fields: Mapping[str, object]) -> None:
        delay = (self._deps.clock.now() - plan.eviction.due).total_seconds()
        self._deps.metrics.count_evicted(delay)
        log.info("pod evicted", extra={**fields, "delaySeconds": round(delay, 3)})
        self._recorder.tell_of_pod(Kind.EVICTED, plan)
