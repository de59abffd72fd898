"""Evicts pods in the order in which the ready queue pops them: one request per pod, rechecked before it is sent."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from webhook.eviction.core import Core, ItemKind, WorkItem
from webhook.eviction.events import PodEventKind, disruption_of
from webhook.eviction.pod_plan import Doubt, PodPlan
from webhook.eviction.ports import EvictionOutcome, EvictionResult, PodRef
from webhook.eviction.ready_queue import Idle
from webhook.eviction.step import Evict, request_to_send, together_with
from webhook.inventory.evictions import RuleRef

log = logging.getLogger(__name__)
_UNTIL_WOKEN: Final = Idle(math.inf)
_UNTRUSTED_POLL_SECONDS: Final = 0.2
"""How often to check whether the inventory can be trusted again."""
_DOUBT_SECONDS: Final = 60.0
"""How long a request without an answer may take effect: the default --request-timeout of an API server."""
_CONFLICTS_MOST: Final = 5
"""After this many in a row the pod is read, and goes in whatever version: something may write to it for ever."""


def record_evicted(core: Core, plan: PodPlan, rules: Iterable[RuleRef]) -> None:
    """The pod was evicted for these rules: that is logged, and queued for an Event and for their conditions."""
    for _, name in rules:
        core.queue.add_after(WorkItem(ItemKind.RULE, name), core.deps.settings.condition_seconds)
    delay = (core.deps.clock.now() - plan.eviction.due).total_seconds()
    core.deps.metrics.count_evicted(delay)
    log.info("pod evicted", extra={**log_fields(plan), "delaySeconds": round(delay, 3)})
    core.recorder.record_pod_event(PodEventKind.EVICTED, plan)


def log_fields(plan: PodPlan) -> dict[str, object]:
    """The fields of a log line about a pod."""
    return {"pod": plan.key, "podUID": plan.uid, "reasons": [str(reason) for reason in plan.eviction.reasons]}


class Attempt(NamedTuple):
    """Result of one attempt to evict a pod."""

    plan: PodPlan
    outcome: EvictionOutcome | None = None
    """None if no request was made: the pod must not be evicted now, or the inventory cannot be trusted."""
    because: str = ""
    """Why, if a budget refused another pod that it goes together with."""
    evicted_for: tuple[RuleRef, ...] = ()
    """The rules that hit the pod when the request was sent that evicted it."""


class PodEvictor:
    """Any number of tasks may call `next_turn` and then `evict` with what it returns."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._woken = asyncio.Event()
        self._turn_lock = asyncio.Lock()
        """Only its holder waits for the next pod, so that one wake-up wakes one task, however many there are."""
        self._stopping = False
        self._in_flight = asyncio.Semaphore(core.deps.settings.workers)
        """A unit has more requests than the task that evicts it."""
        self._preparing: set[asyncio.Timeout] = set()
        """Of the pods whose request waits for the client's rate limit; moved to now when the worker stops."""

    def wake(self) -> None:
        """Polls the ready queue again, because a pod may have become evictable."""
        self._woken.set()

    def stop(self) -> None:
        """No request is sent from here on; pods that wait for their turn are dropped, however long it would take."""
        self._stopping = True
        while self._preparing:
            self._preparing.pop().reschedule(asyncio.get_running_loop().time())

    async def next_turn(self) -> str:
        """Pops the next pod and returns its uid. Its rate tokens and its place in the limits are reserved."""
        core = self._core
        async with self._turn_lock:
            while True:
                if self._stopping or not core.deps.trusted() or core.deps.paused():
                    await asyncio.sleep(_UNTRUSTED_POLL_SECONDS)
                    continue
                popped = _UNTIL_WOKEN if core.backlog.behind else core.ready.pop(core.deps.clock.seconds())
                if isinstance(popped, str):
                    return popped
                self._woken.clear()
                try:
                    async with asyncio.timeout(None if math.isinf(popped.seconds) else popped.seconds):
                        await self._woken.wait()
                except TimeoutError:
                    continue

    async def evict(self, uid: str) -> list[Attempt]:
        """Evicts a pod that `next_turn` returned and those that go with it, unless one of them must not be evicted.

        All of them are asked for, or none is. One that is refused all the same is retried by itself.
        """
        core = self._core
        batch = core.limiter.take_batch(uid)
        for plan in batch:
            core.ready.discard(plan.uid)
        return [self._settled(each) for each in await self._attempt(batch)]

    def _settled(self, attempt: Attempt) -> Attempt:
        """If the last request got no answer, the watch may have shown meanwhile that it has evicted the pod."""
        plan = attempt.plan
        if plan.doubt is None:
            return attempt
        pod = self._core.deps.inventory.pods.get(plan.key)
        there = pod is not None and pod.meta.uid == plan.uid and not pod.deleting
        return attempt if there else _evicted_before(attempt)

    async def _attempt(self, batch: Sequence[PodPlan]) -> list[Attempt]:
        if self._steps(batch) is None:
            return [Attempt(plan) for plan in batch]
        refused = await self._refused(batch) if len(batch) > 1 else None
        if refused is not None:
            because = _because(refused)
            return [refused if plan is refused.plan else Attempt(plan, because=because) for plan in batch]
        steps = self._steps(batch)
        if steps is None:
            return [Attempt(plan) for plan in batch]
        try:
            prepared = await asyncio.gather(*map(self._prepare, batch, steps))
        except TimeoutError:
            return [Attempt(plan) for plan in batch]
        ended = [attempt for attempt in prepared if attempt is not None]
        left = [plan for plan, attempt in zip(batch, prepared, strict=True) if attempt is None]
        whole = all(attempt.outcome is not None and attempt.outcome.gone for attempt in ended)
        steps = self._steps(left) if whole else None  # all of this took time
        asked = [plan for plan, step in zip(left, steps or (), strict=False) if not step.delete]
        self._core.gate.needed_by(asked)  # a pod may need a disruption by now that did not
        if steps is None or (len(batch) > 1 and any(map(self._core.gate.shortage, asked))):
            return [*ended, *[Attempt(plan) for plan in left]]
        for plan in left:
            self._core.returns.begin(plan.pod)
        return [*ended, *await asyncio.gather(*map(self._request, left, steps))]

    async def _refused(self, batch: Sequence[PodPlan]) -> Attempt | None:
        """Asks whether all pods of a unit may be evicted; the first refusal, or None if there is none."""
        asked = [plan for plan in batch if (step := self._step(plan)) is not None and not step.delete]
        for plan in asked:
            outcome = await self._core.deps.writer.may_evict(plan.ref)
            self._core.deps.metrics.count_request("dry-run", outcome.result.value)
            if not outcome.gone:
                return Attempt(plan, outcome)
            shortage = self._core.gate.shortage(plan)
            if shortage:  # the server may know better than the watch, but one dry run does not tell of all of them
                return Attempt(plan, EvictionOutcome(EvictionResult.BLOCKED, shortage, short=True))
        return None

    async def _request(self, plan: PodPlan, step: Evict) -> Attempt:
        core = self._core
        async with self._in_flight:
            pod, rules = self._seen(plan, step), plan.eviction.rules
            outcome = await self._send(plan, pod, step) if pod.wanted() else None
        if outcome is None or outcome.withdrawn:
            return Attempt(plan)
        plan.outdated = pod.version if outcome.changed else ""
        plan.conflicts = plan.conflicts + 1 if outcome.changed else 0
        if outcome.changed:
            core.plans.units.dissolve(plan)  # those that were not sent yet wait as well
        if outcome.evicted:
            core.plans.under_way.grant(plan.uid)
        core.deps.metrics.count_request("delete" if step.delete else "evict", outcome.result.value)
        attempt = Attempt(plan, outcome, evicted_for=rules if outcome.evicted else ())
        if outcome.result is EvictionResult.GONE:
            attempt = _evicted_before(attempt)
        plan.doubt = Doubt(rules, core.deps.clock.seconds() + _DOUBT_SECONDS) if outcome.unsure else None
        return attempt

    async def _send(self, plan: PodPlan, pod: PodRef, step: Evict) -> EvictionOutcome:
        writer = self._core.deps.writer
        self._core.ceilings.begin_request(plan)
        if plan.was_read:
            pod.version, pod.live = "", True  # a conflict would come after the budget has granted the disruption
        if step.delete:
            return await writer.delete(pod, step.grace_period_seconds, disruption_of(self._core.deps.mode))
        return await writer.evict(pod, step.grace_period_seconds)

    def _seen(self, plan: PodPlan, step: Evict) -> PodRef:
        """The pod as it is known now, for requests that are written only while it is to go."""
        pod = plan.ref
        pod.version, pod.held = plan.pod.meta.resource_version, plan.pod.hold is not None
        pod.wanted = lambda: self._core.breaker.blocked_by(plan) is None and self._step(plan, step) == step
        return pod

    async def _prepare(self, plan: PodPlan, step: Evict) -> Attempt | None:
        """Waits for the client's rate limit; None if the pod may be evicted. Raises TimeoutError on a stop."""
        writer, pod = self._core.deps.writer, self._seen(plan, step)
        async with asyncio.timeout(None) as turn:
            self._preparing.add(turn)
            try:
                if not await writer.prepare(pod, delete=step.delete, unsure=plan.doubt is not None):
                    return _evicted_before(Attempt(plan))
                budgeted = not step.delete and (plan.blocked or self._core.gate.budgeted(plan))
                plan.was_read = budgeted or plan.conflicts >= _CONFLICTS_MOST
                outcome = await writer.read(pod) if plan.was_read else None
            finally:
                self._preparing.discard(turn)
        if outcome is None:
            return None
        plan.outdated = pod.version if outcome.changed else ""
        return _evicted_before(Attempt(plan, outcome)) if outcome.gone else Attempt(plan, outcome)

    def _steps(self, batch: Sequence[PodPlan]) -> list[Evict] | None:
        """How to evict each of these pods now; None if one of them must not be evicted."""
        steps = [self._step(plan) for plan in batch]
        return None if None in steps else [step for step in steps if step is not None]

    def _step(self, plan: PodPlan, sent: Evict | None = None) -> Evict | None:
        """How to evict the pod now; None if it must not be evicted. `sent` as for `request_to_send`."""
        return None if self._stopping else request_to_send(self._core, plan, sent)


def _evicted_before(attempt: Attempt) -> Attempt:
    """The pod is gone: the request before this attempt has evicted it, if that got no answer."""
    doubt = attempt.plan.doubt
    if doubt is None:
        return attempt
    return attempt._replace(outcome=EvictionOutcome(EvictionResult.EVICTED), evicted_for=doubt.rules)


def _because(refused: Attempt) -> str:
    """Why the others of a unit are not evicted; empty unless it is for a budget of the refused pod."""
    outcome = refused.outcome
    return f"{together_with(refused.plan.key)}: {outcome.text}" if outcome is not None and outcome.blocked else ""
