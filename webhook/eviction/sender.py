"""Sends the requests for units that were taken. Each is checked again as it is written to its connection.

A unit goes as a whole: first its budgets are asked without evicting anyone, then each pod is prepared, and only if all
of them may go, requests are sent. Once one of its pods was evicted, each of the others goes by itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from webhook.eviction.events import disruption_of
from webhook.eviction.ledger import Failure, Moment
from webhook.eviction.planner import Planner
from webhook.eviction.pod_plan import Going, Unit, together_with
from webhook.eviction.ports import BudgetLimit, Dependencies, EvictionOutcome, EvictionResult, PodRef
from webhook.eviction.room import Room, allowed_by
from webhook.eviction.upkeep import Attempt, Upkeep

_CONFLICTS_MOST: Final = 5
"""After this many in a row the pod is read, and goes in whatever version: something may write to it for ever."""


class _Sending(NamedTuple):
    """A unit that is being sent, and how each of its pods goes, by uid. That is fixed until all are answered."""

    unit: Unit
    number: int
    """As in the ledger."""
    deleted: frozenset[str]
    """By a DELETE; the others through the Eviction API."""
    needed: Counter[BudgetLimit | None]
    """How many disruptions of which budgets; fewer are needed once its first pods terminate."""
    read: set[str]
    """Those whose metadata were read just now: they are under a budget, or change all the time."""


class Sender:
    """Any number of units may be sent at the same time."""

    def __init__(self, deps: Dependencies, room: Room, planner: Planner, upkeep: Upkeep) -> None:
        self._deps = deps
        self._room = room
        self._ledger = room.ledger
        self._planner = planner
        self._upkeep = upkeep
        self._in_flight = asyncio.Semaphore(deps.settings.workers)
        """A unit has more requests than the task that evicts it."""
        self._preparing: set[asyncio.Timeout] = set()
        """Of the pods whose request waits for the client's rate limit; moved to now when the worker stops."""
        self.stopping = False

    def stop(self) -> None:
        """Send no request from here on; drop pods that wait for their turn, however long it would take."""
        self.stopping = True
        while self._preparing:
            self._preparing.pop().reschedule(asyncio.get_running_loop().time())

    async def send(self, unit: Unit) -> list[Attempt]:
        """Evict all of a unit, unless one of them must not be evicted."""
        return [self._settled(each) for each in await self._send(unit)]

    def _settled(self, attempt: Attempt) -> Attempt:
        """Settle it if the last request got no answer: the watch may have shown meanwhile that it evicted the pod."""
        each, outcome = attempt.each, attempt.outcome
        pod = self._room.view.pod(each.key, each.uid)
        if pod is not None and not pod.deleting:
            return attempt
        if outcome is not None and outcome.unsure:
            return attempt._replace(outcome=EvictionOutcome(EvictionResult.EVICTED))
        return attempt if attempt.sent else self._evicted_before(attempt)

    def _evicted_before(self, attempt: Attempt) -> Attempt:
        """Report a pod that is gone: the request before this one has evicted it, if that got no answer."""
        doubt = self._ledger.doubts.get(attempt.each.uid)
        if doubt is None:
            return attempt
        return attempt._replace(outcome=EvictionOutcome(EvictionResult.EVICTED), rules=doubt.taken.rules)

    async def _send(self, unit: Unit) -> list[Attempt]:
        nothing = [Attempt(each) for each in unit.members]
        if self.stopping or not self._planner.goes(unit):
            return nothing
        self._room.begin(Moment(self._deps.clock.now(), self._deps.clock.seconds()))
        asked, taken = self._room.asked_by(unit), self._ledger.taken[unit.members[0].uid]
        deleted = frozenset([each.uid for each in unit.members if each.uid not in asked])
        sending = _Sending(unit, taken.unit, deleted, Counter(map(self._room.needs, unit.members)), set())
        if len(unit.members) > 1:
            refused = await self._refused(sending)
            if refused is not None:
                because = _because(refused)
                return [refused if each is refused.each else Attempt(each, because=because) for each in unit.members]
            if not self._goes(sending):
                return nothing
        try:
            prepared = await asyncio.gather(*[self._prepare(sending, each) for each in unit.members])
        except TimeoutError:
            return nothing
        ended = [attempt for attempt in prepared if attempt is not None]
        left = [each for each, attempt in zip(unit.members, prepared, strict=True) if attempt is None]
        whole = all(attempt.outcome is not None and attempt.outcome.gone for attempt in ended)
        if not whole or not self._may_begin(sending, left):  # all of this took time
            return [*ended, *[Attempt(each) for each in left]]
        for each in left:
            self._upkeep.ask(each)
        return [*ended, *await asyncio.gather(*[self._request(sending, each) for each in left])]

    # --- may it go -------------------------------------------------------------------------------

    def _goes(self, sending: _Sending) -> bool:
        """Return whether all of it goes, in the way that was decided."""
        return self._goes_its_way(sending, sending.unit.members) and self._planner.goes(sending.unit)

    def _goes_its_way(self, sending: _Sending, pods: Iterable[Going]) -> bool:
        """Return whether pods of a unit are still to be asked for, or to be deleted, as was decided."""
        room = self._room
        room.begin(Moment(self._deps.clock.now(), self._deps.clock.seconds()))
        return not self.stopping and all(
            room.deletes(each, limit, sending.needed[limit]) is (each.uid in sending.deleted)
            for each, limit in [(each, room.needs(each)) for each in pods]
        )

    def _may_begin(self, sending: _Sending, left: Sequence[Going]) -> bool:
        members = sending.unit.members
        if len(left) == len(members):
            goes = self._goes(sending)
        else:
            goes = self._goes_its_way(sending, left) and all(map(self._planner.goes_alone, left))
        if not goes or len(members) == 1:
            return goes
        needed = Counter([self._room.needs(each) for each in left if each.uid not in sending.deleted])
        return not any(self._shortage(limit, number) for limit, number in needed.items())

    def _wanted(self, sending: _Sending, each: Going) -> bool:
        """Return whether the pod is to go, asked as its request is written: for the rules that hit it then."""
        if sending.number in self._ledger.begun:
            goes = self._goes_its_way(sending, [each]) and self._planner.goes_alone(each)
        else:
            goes = self._goes(sending)
        if goes:
            taken, rules = self._ledger.taken[each.uid], self._planner.eviction_of(each).rules
            self._ledger.taken[each.uid] = structs.replace(taken, rules=rules, asked=True)
        return goes

    def _shortage(self, limit: BudgetLimit | None, needed: int) -> str:
        """Say why the status of a budget does not allow all pods of a unit to go, in words; empty if it does."""
        allowed = None if limit is None else allowed_by(limit, self._room)
        if limit is None or allowed is None or allowed >= needed:
            return ""
        return f"budget {limit.budgets[0]} allows {allowed} of {needed} evictions that belong together"

    # --- requests --------------------------------------------------------------------------------

    async def _refused(self, sending: _Sending) -> Attempt | None:
        """Ask whether all pods of a unit may be evicted; return the first refusal, or None if there is none."""
        asked = [each for each in sending.unit.members if each.uid not in sending.deleted]
        needed = Counter([self._room.needs(each) for each in asked])
        for each in asked:
            outcome = await self._deps.writer.may_evict(each.ref)
            self._deps.metrics.eviction_requests.labels("dry-run", outcome.result.value).inc()
            limit = self._room.needs(each)
            if not outcome.gone:
                return Attempt(each, outcome)
            shortage = self._shortage(limit, needed[limit])
            if shortage:  # the server may know better than the watch, but one dry run does not tell of all of them
                return Attempt(each, EvictionOutcome(EvictionResult.BLOCKED, shortage), short=needed[limit])
        return None

    async def _prepare(self, sending: _Sending, each: Going) -> Attempt | None:
        """Wait for the client's rate limit; return None if the pod may be evicted. Raises TimeoutError on a stop."""
        writer, pod, delete = self._deps.writer, self._seen(sending, each), each.uid in sending.deleted
        async with asyncio.timeout(None) as turn:
            self._preparing.add(turn)
            try:
                if not await writer.prepare(pod, delete=delete, unsure=each.uid in self._ledger.doubts):
                    return self._evicted_before(Attempt(each))
                failure = self._ledger.failures.get(each.uid, Failure())
                budgeted = not delete and (failure.blocked or self._room.budgets.select(each.pod))
                if not budgeted and failure.conflicts < _CONFLICTS_MOST:
                    return None
                sending.read.add(each.uid)
                outcome = await writer.read(pod)
            finally:
                self._preparing.discard(turn)
        if outcome is None:
            return None
        attempt = Attempt(each, outcome, version=pod.version)
        return self._evicted_before(attempt) if outcome.gone else attempt

    async def _request(self, sending: _Sending, each: Going) -> Attempt:
        delete = each.uid in sending.deleted
        async with self._in_flight:
            pod = self._seen(sending, each)
            if each.uid in sending.read:
                pod.version, pod.live = "", True  # a conflict would come after the budget has granted the disruption
            version = pod.version
            outcome = await self._write(pod, each, delete=delete)
        if outcome.withdrawn:
            return Attempt(each)
        if outcome.evicted and each.uid in self._ledger.taken:
            self._ledger.begun.add(sending.number)
        if outcome.changed and self._room.view.pod(each.key, each.uid) is not None:  # others wait as well
            known = self._ledger.failures.get(each.uid, Failure())
            self._ledger.failures[each.uid] = structs.replace(known, outdated=version)
        self._deps.metrics.eviction_requests.labels("delete" if delete else "evict", outcome.result.value).inc()
        rules = self._ledger.taken[each.uid].rules
        attempt = Attempt(each, outcome, rules=rules, version=version, sent=True)
        return self._evicted_before(attempt) if outcome.result is EvictionResult.GONE else attempt

    async def _write(self, pod: PodRef, each: Going, *, delete: bool) -> EvictionOutcome:
        seconds = each.profile.settings.grace_period_seconds
        if delete:
            return await self._deps.writer.delete(pod, seconds, disruption_of(self._deps.mode))
        return await self._deps.writer.evict(pod, seconds)

    def _seen(self, sending: _Sending, each: Going) -> PodRef:
        """Return the pod as it is known now, for requests that are written only while it is to go."""
        ref, pod = each.ref, self._deps.inventory.pods.get(each.key, each.pod)
        ref.version, ref.held = pod.meta.resource_version, pod.hold is not None
        ref.wanted = lambda: self._wanted(sending, each)
        return ref


def _because(refused: Attempt) -> str:
    """Say why the others of a unit are not evicted; empty unless it is for a budget of the refused pod."""
    outcome = refused.outcome
    return f"{together_with(refused.each.key)}: {outcome.text}" if outcome is not None and outcome.blocked else ""
