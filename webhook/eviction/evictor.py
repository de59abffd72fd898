"""Evicts pods in the order in which the ready queue lets them go: one request for each, rechecked before it is sent."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.eviction.event_messages import Kind, disruption_of
from webhook.eviction.ports import EvictionOutcome, EvictionResult
from webhook.eviction.ready_queue import Idle
from webhook.eviction.step import Evict

if TYPE_CHECKING:
    from webhook.eviction.core import Core
    from webhook.eviction.planner import Planner
    from webhook.eviction.plans import PodPlan

log = logging.getLogger(__name__)

_UNTIL_NEWS: Final = Idle(math.inf)
_DOUBT_SECONDS: Final = 0.2
"""How often to look whether the inventory can be trusted again."""


class Attempt(NamedTuple):
    """What came of the turn of a pod."""

    plan: PodPlan
    outcome: EvictionOutcome | None
    """None: no request was made, as the pod is not to be evicted now, or that cannot be told."""

    @property
    def evicted(self) -> bool:
        """Whether the API server has evicted the pod at this request."""
        return self.outcome is not None and self.outcome.result is EvictionResult.EVICTED


class PodEvictor:
    """Any number of tasks may take turns: `next_turn`, then `evict`."""

    def __init__(self, core: Core, planner: Planner) -> None:
        self._core = core
        self._planner = planner
        self._news = asyncio.Event()
        self._one_waits = asyncio.Lock()
        """One task waits for a turn, the others for that one: news wake one task, however many there are."""
        self._stopping = False
        self._unsure: set[str] = set()
        """Pods, by uid, whose last request may have been carried out although it failed."""

    def wake(self) -> None:
        """The ready queue may let a pod go that it did not let go before."""
        self._news.set()

    def stop(self) -> None:
        """No further turn, and no further request."""
        self._stopping = True

    async def next_turn(self) -> str:
        """The uid of the next pod, taken from the ready queue; its tokens and places are reserved from here on."""
        core = self._core
        async with self._one_waits:
            while True:
                if self._stopping or not core.deps.trusted():
                    await asyncio.sleep(_DOUBT_SECONDS)
                    continue
                popped = _UNTIL_NEWS if self._planner.behind else core.ready.pop(core.deps.clock.seconds())
                if isinstance(popped, str):
                    return popped
                self._news.clear()
                try:
                    async with asyncio.timeout(None if math.isinf(popped.seconds) else popped.seconds):
                        await self._news.wait()
                except TimeoutError:
                    continue

    async def evict(self, uid: str) -> Attempt:
        """Evicts the pod of a turn, unless it is not to be evicted any more."""
        plan = self._core.plans.scheduled[uid]
        attempt = Attempt(plan, await self._request(plan))
        self._settle(attempt)
        return attempt

    async def _request(self, plan: PodPlan) -> EvictionOutcome | None:
        writer = self._core.deps.writer
        step = self._step_now(plan)
        if step is None:
            return None
        if not await writer.prepare(plan.ref, delete=step.delete, unsure=plan.uid in self._unsure):
            return EvictionOutcome(EvictionResult.GONE)
        step = self._step_now(plan)  # to prepare took time
        if step is None:
            return None
        if step.delete:
            outcome = await writer.delete(plan.ref, step.grace_period_seconds, disruption_of(self._core.deps.mode))
        else:
            outcome = await writer.evict(plan.ref, step.grace_period_seconds)
        self._core.deps.metrics.count_request("delete" if step.delete else "evict", outcome.result.value)
        return outcome

    def _step_now(self, plan: PodPlan) -> Evict | None:
        """How to evict the pod now; None if it is not to be evicted, or if that cannot be told."""
        deps = self._core.deps
        if self._stopping or self._planner.behind or not deps.trusted():
            return None
        step = self._core.recheck(plan, deps.clock.now())
        return step if isinstance(step, Evict) else None

    def _settle(self, attempt: Attempt) -> None:
        """Gives back what the turn reserved and was not used, and records what happened to the pod."""
        plan, outcome = attempt
        core, uid = self._core, plan.uid
        if outcome is not None:
            (self._unsure.add if outcome.unsure else self._unsure.discard)(uid)
        if outcome is not None and outcome.result is EvictionResult.BLOCKED and plan.blocked_since is None:
            plan.blocked_since = core.deps.clock.now()
        group = core.limiter.release(uid, core.deps.clock.seconds(), evicted=attempt.evicted)
        if outcome is not None and outcome.result in (EvictionResult.EVICTED, EvictionResult.GONE):
            core.plans.succeed(uid, plan.ref)
        else:
            core.plans.fail(uid, plan.ref)
        core.ready.wake(group)
        if attempt.evicted:
            self._record_evicted(plan)
        elif outcome is not None and outcome.result is EvictionResult.BLOCKED:
            core.recorder.tell_of_pod(Kind.BLOCKED, plan, outcome.text)

    def _record_evicted(self, plan: PodPlan) -> None:
        deps = self._core.deps
        delay = (deps.clock.now() - plan.eviction.due).total_seconds()
        deps.metrics.count_evicted(delay)
        log.info("pod evicted", extra={**log_fields(plan), "delaySeconds": round(delay, 3)})
        self._core.recorder.tell_of_pod(Kind.EVICTED, plan)


def log_fields(plan: PodPlan) -> dict[str, object]:
    """The fields by which a log line names a pod and why it is evicted."""
    return {"pod": plan.key, "podUID": plan.uid, "reasons": [str(reason) for reason in plan.eviction.reasons]}
