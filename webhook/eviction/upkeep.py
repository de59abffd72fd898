"""Keeps the ledger and the room true: as requests are answered, as the watch shows more, and as time passes."""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import structs

from webhook.api.claims import ResourceClaim
from webhook.api.pods import Pod
from webhook.eviction.core import RETRY_MOST_SECONDS
from webhook.eviction.ledger import (
    MINUTE_SECONDS,
    BudgetAnswers,
    Doubt,
    Failure,
    Round,
    Taken,
    lasting_claims,
)
from webhook.eviction.pod_plan import Going, stuck_at
from webhook.eviction.ports import BudgetLimit, Dependencies, EvictionOutcome
from webhook.eviction.profiles import Profile, owner_of
from webhook.eviction.room import PROBE_SECONDS, Room, allowed_by
from webhook.flowcontrol.rates import exponential_seconds
from webhook.inventory.evictions import RuleRef

log = logging.getLogger(__name__)
_RETRY_FIRST_SECONDS: Final = 0.005
_DOUBT_SECONDS: Final = 60.0
"""How long a request without an answer may take effect: the default --request-timeout of an API server."""
_GAP_SECONDS: Final = 3 * PROBE_SECONDS
"""Two refusals further apart than this do not show that the budget was asked all the time between them."""
_BUDGET_SECONDS: Final = 600.0
_STEP: Final = 128


class Attempt(NamedTuple):
    """What became of a pod that was taken."""

    each: Going
    outcome: EvictionOutcome | None = None
    """None if no request was sent."""
    because: str = ""
    """Why, if a budget refused another pod that it goes together with."""
    rules: tuple[RuleRef, ...] = ()
    """Those that hit the pod when the request was sent that evicted it."""
    short: int = 0
    """How many disruptions its unit needs, if the budget allows fewer; the server did not refuse then."""
    version: str = ""
    """The resourceVersion that the request named."""
    sent: bool = False
    """Whether a request to evict the pod was sent."""


class _Timer(StrEnum):
    REPLACEMENT = "replacement"
    UNDELETED = "undeleted"
    STUCK = "stuck"


class Upkeep:
    """Pods go by uid, claims by `namespace/name`."""

    def __init__(self, deps: Dependencies, room: Room, touch: Callable[[str, str], None]) -> None:
        """`touch` is called with a pod, by `namespace/name` and uid, of which the ledger says something else now."""
        self._deps = deps
        self._room, self._view, self._ledger = room, room.view, room.ledger
        self._touch = touch
        self._timers: list[tuple[float, int, _Timer, str, str]] = []
        """When, and which pod by `namespace/name` and uid."""
        self._count = 0
        self._awaited: dict[str, tuple[str, str]] = {}
        """The owner and the gang of each evicted pod that is to be replaced."""
        self._rounds: dict[str, tuple[str, ...]] = {}
        """The claims whose rounds count a request without an answer."""
        self.evicted: list[tuple[str, Doubt]] = []
        """Pods, by uid, whose eviction was found out about later; the loop empties it."""

    @property
    def _now(self) -> float:
        return self._deps.clock.seconds()

    # --- requests --------------------------------------------------------------------------------

    def ask(self, each: Going) -> None:
        """Note that a request for the pod, which is there, is sent. Pods that are there belong to a new round."""
        pod, uid = self._view.inventory.pods[each.key], each.uid
        counted = [key for key in lasting_claims(pod) if self._view.evictions.evicts_users_of(key)]
        self._rounds[uid] = tuple(counted)
        for key in counted:
            claim_uid = self._view.inventory.claims[key].meta.uid
            known = self._ledger.rounds.get(key)
            if known is None or known.claim_uid != claim_uid:
                known = self._ledger.rounds[key] = Round(claim_uid)
            if uid not in known.pods:
                users = [self._view.inventory.pods[name].meta.uid for name in self._view.inventory.pods_of(key)]
                known.earlier, known.pods = known.pods, frozenset([uid, *users])
                known.count += 1
                known.in_flight, known.evicted = 0, False
            known.in_flight += 1

    def answered(self, attempt: Attempt) -> bool:
        """Use up, or give back, what a request took that was answered or not sent.

        Returns whether it counts: the pod was evicted, for the first time.
        """
        uid, outcome = attempt.each.uid, attempt.outcome
        gone, evicted = outcome is not None and outcome.gone, outcome is not None and outcome.evicted
        taken = self._ledger.taken[uid]
        for key, tokens in () if evicted else taken.tokens:
            bucket = self._ledger.buckets.get(key)
            if bucket is not None:
                bucket.give_back(tokens)
        self._count_departure(uid, evicted=evicted)
        self._end_round(uid, evicted=evicted)
        if outcome is not None and attempt.sent:
            self._doubt(attempt, outcome, taken)
        begun = taken.unit in self._ledger.begun
        shown = self._view.pod(taken.key, uid) is not None
        planned = taken.key in self._view.hit or attempt.each.along
        failure = self._ledger.failures.get(uid)
        counts = evicted and not (failure is not None and failure.undeleted)
        if counts:
            self._ledger.depart(uid, taken.key, attempt.rules)
        if gone and shown:
            self._ledger.grant(uid)
            self._ledger.failures.pop(uid, None)
            self._set(_Timer.UNDELETED, self._deps.settings.undeleted_seconds, taken.key, uid)
        else:
            self._give_back(uid)
            if shown and planned and (outcome is not None or begun):
                self._fail(attempt, taken)
        if gone or not shown:
            self._ledger.doubts.pop(uid, None)
        self._answer_budget(attempt, taken.budget)
        self._room.touch(taken.owner)
        self._touch(taken.key, uid)
        return counts

    def _count_departure(self, uid: str, *, evicted: bool) -> None:
        for departures in self._ledger.departures.values():
            if departures.pop(uid, None) is not None and evicted:
                departures[uid] = self._now

    def follow_profiles(self, before: Sequence[Profile], after: Sequence[Profile]) -> None:
        """Follow a new policy: what went under a profile that is gone counts for the one in its position."""
        left, departures = {each.settings for each in after}, self._ledger.departures
        for each in before:
            if each.settings not in left and each.settings in departures:
                other = after[min(each.position, len(after) - 1)].settings
                departures.setdefault(other, {}).update(departures.pop(each.settings))
        self.expect_ends()

    def expect_ends(self, prefix: str = "") -> None:
        """Expect the ends of pods again, whose `namespace/name` begins so: other profiles or clocks may move them."""
        known = dict[tuple[str, str], Pod]()
        for _, _, timer, key, uid in self._timers:
            pod = self._view.pod(key, uid) if timer is _Timer.STUCK and key.startswith(prefix) else None
            if pod is not None and pod.grace_ends is not None:
                known[key, uid] = pod
        self._timers = [each for each in self._timers if each[2] is not _Timer.STUCK or each[3:] not in known]
        heapq.heapify(self._timers)
        for (key, _), pod in known.items():
            self._expect_end(key, pod)

    def _doubt(self, attempt: Attempt, outcome: EvictionOutcome, taken: Taken) -> None:
        each, until = attempt.each, self._now + _DOUBT_SECONDS
        self._ledger.doubts.pop(each.uid, None)
        if outcome.unsure:
            self._ledger.doubts[each.uid] = Doubt(taken, each.eviction, each.profile.settings, until)

    def _give_back(self, uid: str) -> None:
        """Give back what a pod took; one that is terminating keeps its place."""
        taken = self._ledger.drop(uid)
        pod = self._view.pod(taken.key, uid)
        if pod is None or not pod.deleting:
            self._room.vacate(uid, taken.namespace)

    def _fail(self, attempt: Attempt, taken: Taken) -> None:
        """Note that the pod was not evicted, others of its unit may have been."""
        uid, outcome = attempt.each.uid, attempt.outcome
        known = self._ledger.failures.get(uid, Failure())
        if known.unit not in self._ledger.begun:
            known = structs.replace(known, place=taken.place, unit=taken.unit)
        if outcome is None:
            self._ledger.failures[uid] = known
            return
        known = structs.replace(
            known,
            refusals=known.refusals + 1,
            blocked=outcome.blocked,
            errors=0 if outcome.blocked else known.errors,
            outdated="",
            retry_at=0.0,
            conflicts=known.conflicts + 1 if outcome.changed else 0,
        )
        if outcome.changed and attempt.version:
            known = structs.replace(known, outdated=attempt.version)
        elif not outcome.blocked:
            seconds = exponential_seconds(known.errors, _RETRY_FIRST_SECONDS, RETRY_MOST_SECONDS, self._deps.random)
            seconds = max(seconds, min(outcome.retry_after_seconds, RETRY_MOST_SECONDS))
            known = structs.replace(known, errors=known.errors + 1, retry_at=self._now + seconds)
        self._ledger.failures[uid] = known

    def retry_seconds(self, uid: str) -> float:
        """Return how long a pod waits until it is tried again."""
        known = self._ledger.failures.get(uid)
        return 0.0 if known is None else max(known.retry_at - self._now, 0.0)

    # --- budgets ---------------------------------------------------------------------------------

    def _answer_budget(self, attempt: Attempt, limit: BudgetLimit | None) -> None:
        budgets, outcome, now = self._ledger.budgets, attempt.outcome, self._now
        if limit is not None:
            known = budgets[limit]
            known = structs.replace(known, in_flight=known.in_flight - 1)
            if outcome is None:
                known = structs.replace(known, asked_at=-math.inf)  # it was not asked
            elif outcome.evicted:
                known = _progressed(structs.replace(known, granted=known.granted + 1))
                for each in [each for each in budgets if each.needing(1) == limit]:  # a unit may wait for it, too
                    budgets[each] = structs.replace(budgets[each], refused_at=-math.inf, refused_seconds=0.0)
            budgets[limit] = known
        if outcome is None or not outcome.blocked:
            return
        if limit is None or not limit.budgets:
            limit = self._room.needs(attempt.each)
        if limit is None:
            return
        if attempt.short:
            limit = limit.needing(attempt.short)
        known = budgets.get(limit, BudgetAnswers())
        known = structs.replace(
            known,
            asked_at=max(known.asked_at, now),
            closed_until=now + max(outcome.retry_after_seconds, PROBE_SECONDS),
        )
        if not outcome.budget_pending:  # else it neither allows nor refuses
            seconds = now - known.refused_at if now - known.refused_at <= _GAP_SECONDS else 0.0
            known = structs.replace(known, refused_seconds=known.refused_seconds + seconds, refused_at=now)
        budgets[limit] = known

    def observe_budget(self, namespace: str, name: str) -> None:
        """Note that the status of a disruption budget has changed."""
        single = BudgetLimit(namespace, (name,))
        allowed = allowed_by(single, self._room) or 0
        for limit, known in list(self._ledger.budgets.items()):
            if limit.namespace != namespace or limit.budgets != (name,):
                continue
            seen = structs.replace(known, granted=0) if limit == single else known
            self._ledger.budgets[limit] = _progressed(seen) if allowed >= limit.needed else seen

    # --- pods ------------------------------------------------------------------------------------

    def starting(self) -> Iterator[None]:
        """Look at all pods that are there at the start, in steps."""
        for number, key in enumerate(list(self._view.inventory.pods)):
            if not number % _STEP:
                yield
            pod = self._view.inventory.pods.get(key)
            if pod is not None:
                self.observe(None, pod)

    def observe(self, old: Pod | None, new: Pod | None) -> None:
        """Note that a pod is there, has changed, or is gone."""
        if new is None:
            if old is not None:
                self._end(old)
            return
        key, owner = f"{new.meta.namespace}/{new.meta.name}", owner_of(new)
        before = "" if old is None else owner_of(old)
        if before and before != owner:
            self._room.own(before, key, there=False)
        if owner:
            if before != owner:
                self._replace(owner, new)
            self._room.own(owner, key, there=True)
        if new.deleting and (old is None or not old.deleting):
            self._begin_end(key, new)
        if new.deleting and (
            old is None or (old.deleting, old.grace_ends, old.labels) != (True, new.grace_ends, new.labels)
        ):
            self._expect_end(key, new)
        elif new.finished:
            self._ledger.doubts.pop(new.meta.uid, None)
        if new.finished and new.meta.uid not in self._ledger.taken and new.meta.uid in self._room.everywhere:
            self._room.vacate(new.meta.uid, new.meta.namespace)

    def _begin_end(self, key: str, pod: Pod) -> None:
        uid = pod.meta.uid
        taken = self._ledger.taken.get(uid)
        if taken is not None:
            self._begin_unit(taken)
        elif (doubt := self._end_doubt(uid)) is not None:
            place = doubt.taken.place
            of_owner = "" if self._view.gang_of(pod, self._deps.profile_of(pod)) else place
            self._ledger.take(uid, structs.replace(doubt.taken, owner=owner_of(pod), of_owner=of_owner))
            self._ledger.grant(uid)
            self._room.place(uid, pod.meta.namespace, place)
        elif key in self._view.hit and not pod.finished:
            self._room.place(uid, pod.meta.namespace, self._view.gang_of(pod, self._deps.profile_of(pod)) or uid)

    def _begin_unit(self, taken: Taken) -> None:
        """Note that a pod that was taken terminates, or is gone: because of its request, if that was written."""
        if taken.asked:  # the watch may be faster than the answer
            self._ledger.begun.add(taken.unit)

    def _expect_end(self, key: str, pod: Pod) -> None:
        """Expect a pod to be gone once its grace period is over."""
        grace = 0.0 if pod.grace_ends is None else (pod.grace_ends - self._deps.clock.now()).total_seconds()
        seconds = grace + self._deps.profile_of(pod).settings.stuck_after_seconds
        self._set(_Timer.STUCK, seconds, key, pod.meta.uid)

    def _end_doubt(self, uid: str) -> Doubt | None:
        """Settle a pod that ends: by the last request, if that got no answer and none is in flight.

        Returns None if it was not.
        """
        doubt = None if uid in self._ledger.taken else self._ledger.doubts.pop(uid, None)
        if doubt is None or self._now >= doubt.until:
            return None
        self._ledger.departures.setdefault(doubt.settings, {})[uid] = self._now
        known = self._ledger.failures.get(uid)
        rules = () if known is not None and known.undeleted else doubt.taken.rules
        self.evicted.append((uid, doubt._replace(taken=structs.replace(doubt.taken, rules=rules))))
        self._ledger.depart(uid, doubt.taken.key, rules)
        return doubt

    def _end(self, pod: Pod) -> None:
        uid, owner, key = pod.meta.uid, owner_of(pod), f"{pod.meta.namespace}/{pod.meta.name}"
        taken = self._ledger.taken.get(uid)
        ours = taken is not None or self._end_doubt(uid) is not None
        gang = self._view.gang_of(pod, self._deps.profile_of(pod))
        place = gang or uid
        if taken is not None:
            place = taken.of_owner or place
            self._begin_unit(taken)
            if uid in self._ledger.granted:
                self._ledger.drop(uid)
        self._ledger.failures.pop(uid, None)
        self._room.vacate(uid, pod.meta.namespace)
        was_stuck = self._room.given_up.pop(uid, None) is not None
        if not owner:
            return
        self._room.own(owner, key, there=False)
        if ours and not was_stuck:
            self._ledger.unreplaced.setdefault(owner, {})[uid] = place
            self._awaited[uid] = owner, gang
            settings = self._deps.settings
            seconds = settings.gang_replacement_seconds if gang else settings.replacement_seconds
            self._set(_Timer.REPLACEMENT, seconds, key, uid)

    def _replace(self, owner: str, pod: Pod) -> None:
        """Note an owner's new pod: it replaces the first evicted one of the same gang, if it is of one."""
        missing = self._ledger.unreplaced.get(owner)
        if missing:
            gang = self._view.gang_of(pod, self._deps.profile_of(pod))
            first = next((uid for uid in missing if self._awaited[uid][1] == gang), None)
            if first is not None:
                self._end_wait(first)

    def _end_wait(self, uid: str) -> None:
        known = self._awaited.pop(uid, None)
        if known is None:
            return
        missing = self._ledger.unreplaced[known[0]]
        del missing[uid]
        if not missing:
            del self._ledger.unreplaced[known[0]]
        self._room.touch(known[0])

    # --- claims ----------------------------------------------------------------------------------

    def _end_round(self, uid: str, *, evicted: bool) -> None:
        for key in self._rounds.pop(uid, ()):
            known = self._ledger.rounds.get(key)
            if known is None or uid not in known.pods:
                continue
            known.in_flight -= 1
            known.evicted |= evicted
            if known.in_flight <= 0 and not known.evicted:
                known.count -= 1
                known.pods = known.earlier
                if not known.count:
                    del self._ledger.rounds[key]
                self._touch_users(key)

    def observe_claim(self, key: str, claim: ResourceClaim | None) -> None:
        """Note that a claim has changed or is gone: once it is free, its next pods have not come back."""
        known = self._ledger.rounds.get(key)
        if known is not None and not (claim is not None and claim.meta.uid == known.claim_uid and claim.allocation):
            del self._ledger.rounds[key]
            self._touch_users(key)

    def _touch_users(self, claim: str) -> None:
        for key in self._view.inventory.pods_of(claim):
            self._touch(key, self._view.inventory.pods[key].meta.uid)

    def spare(self, pod: Pod) -> None:
        """Note that no taint evicts a pod any longer, so what comes later starts over."""
        self._ledger.failures.pop(pod.meta.uid, None)
        for key in lasting_claims(pod):
            self._ledger.rounds.pop(key, None)

    # --- time ------------------------------------------------------------------------------------

    def _set(self, timer: _Timer, seconds: float, key: str, uid: str) -> None:
        self._count += 1
        heapq.heappush(self._timers, (self._now + seconds, self._count, timer, key, uid))

    @property
    def wait_seconds(self) -> float:
        """The time until `expire` has something to do; infinite if there is nothing."""
        return max(self._timers[0][0] - self._now, 0.0) if self._timers else math.inf

    def expire(self) -> None:
        """Do what time has brought."""
        while self._timers and self._timers[0][0] <= self._now:
            _, _, timer, key, uid = heapq.heappop(self._timers)
            pod = self._view.pod(key, uid)
            if timer is _Timer.REPLACEMENT:
                self._end_wait(uid)
            elif pod is not None and pod.deleting == (timer is _Timer.STUCK):
                (self._give_up if timer is _Timer.STUCK else self._reopen)(key, pod)

    def _give_up(self, key: str, pod: Pod) -> None:
        """Give up on a pod that is terminating for longer than it should: limits count it no longer."""
        end = stuck_at(pod, self._deps.profile_of(pod).settings)
        if pod.meta.uid in self._room.given_up:
            return
        if end is not None and end > self._deps.clock.now():
            self._expect_end(key, pod)  # it has got more time
            return
        log.warning("pod stuck in terminating", extra={"pod": key, "podUID": pod.meta.uid})
        self._room.given_up[pod.meta.uid] = key
        self._room.vacate(pod.meta.uid, pod.meta.namespace)
        self._room.touch(owner_of(pod))
        self._touch(key, pod.meta.uid)

    def _reopen(self, key: str, pod: Pod) -> None:
        """Reopen a pod that was evicted a while ago, and still stands undeleted."""
        uid = pod.meta.uid
        if uid not in self._ledger.granted:
            return
        if not self._deps.trusted():  # its deletion may be what was not seen
            self._set(_Timer.UNDELETED, self._deps.settings.undeleted_seconds, key, uid)
            return
        log.warning("pod not deleted after its eviction, planned again", extra={"pod": key, "podUID": uid})
        self._give_back(uid)
        self._ledger.failures[uid] = Failure(undeleted=True)
        self._room.touch(owner_of(pod))
        self._touch(key, uid)

    def forget_idle(self) -> None:
        """Drop full buckets, departures that are a minute old, and budgets that no pod has asked for a while."""
        ledger, now = self._ledger, self._now
        for key in [key for key, bucket in ledger.buckets.items() if bucket.full(now)]:
            del ledger.buckets[key]
        for settings, departures in list(ledger.departures.items()):
            for uid in [uid for uid, at in departures.items() if now - at >= MINUTE_SECONDS]:
                del departures[uid]
            if not departures:
                del ledger.departures[settings]
        for limit, known in list(ledger.budgets.items()):
            if known.in_flight <= 0 and now - max(known.asked_at, known.refused_at) > _BUDGET_SECONDS:
                del ledger.budgets[limit]


def _progressed(known: BudgetAnswers) -> BudgetAnswers:
    """Return the answers of a budget that allows evictions."""
    return structs.replace(known, closed_until=-math.inf, refused_at=-math.inf, refused_seconds=0.0)
