"""Whether a pod that is due may be evicted now: rates of its taints, `maxPerMinute`, and concurrency limits.

It answers the ready queue from the plans. No I/O; the time is an argument, in seconds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec

from webhook.api.rules import OWN_RATE_BURST, DeviceTaintRule, own_rate
from webhook.eviction.breaker import Breaker
from webhook.eviction.budget_gate import BudgetGate
from webhook.eviction.ledger import MINUTE_SECONDS
from webhook.eviction.plans import Plans
from webhook.eviction.pod_plan import PodPlan
from webhook.eviction.ports import BudgetLimit, EvictionOutcome, Limit, NamespaceLimit, OverallLimit, OwnerLimit
from webhook.eviction.profiles import Profile, deletes_at_once, max_unavailable
from webhook.eviction.ready_queue import ReadyPod
from webhook.flowcontrol.token_bucket import Rate, TokenBucket
from webhook.inventory.evictions import Eviction, EvictionReason
from webhook.policy.model import EvictionProfile

_REMEMBERED_MOST: Final = 1024
_ASK_AGAIN_SECONDS: Final = 0.1
"""How often to retry while the requests in flight use up `maxPerMinute`."""


Tokens: TypeAlias = list[tuple[object, float]]
"""What one eviction took from its buckets: a bucket without tokens gives none, and is given none back."""


class Buckets:
    """A token bucket per taint; if several hit a pod, the highest rate applies (N-14). The caller chooses the keys."""

    def __init__(self) -> None:
        self._buckets: dict[object, TokenBucket] = {}

    def wait_seconds(self, rates: Iterable[tuple[object, Rate]], now: float) -> float:
        """The shortest wait of these buckets, in seconds; 0 without buckets."""
        waits = [self._bucket(key, rate, now).wait_seconds(now) for key, rate in rates]
        return min(waits, default=0.0)

    def take(self, rates: Iterable[tuple[object, Rate]], now: float, *, owing: bool = False) -> Tokens:
        """Takes a token for one eviction from each of these buckets; returns what they had.

        `owing`: it goes together with another one, so the bucket of the highest rate may owe the token.
        """
        every = list(rates)
        highest = max([rate.per_second for _, rate in every], default=0.0)
        return [
            (key, self._bucket(key, rate, now).take(now, owing=owing and rate.per_second == highest))
            for key, rate in every
        ]

    def give_back(self, tokens: Tokens) -> None:
        """Returns the tokens of an eviction that did not happen."""
        for key, taken in tokens:
            bucket = self._buckets.get(key)
            if bucket is not None:
                bucket.give_back(taken)

    def forget_idle(self, now: float) -> None:
        """Drops full buckets; a new one would be the same."""
        for key in [key for key, bucket in self._buckets.items() if bucket.full(now)]:
            del self._buckets[key]

    def _bucket(self, key: object, rate: Rate, now: float) -> TokenBucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(rate, now)
        else:
            bucket.change(rate, now)
        return bucket


class SlidingMinute:
    """Limits evictions in any minute (`maxPerMinute`).

    A request in flight counts, and a completed one counts for a minute from its response. So whenever the API server
    carried them out, no minute of its clock has more evictions than the limit. A request without an answer does not
    count unless its effect is seen, so each of those that have one may be one too many.
    """

    def __init__(self) -> None:
        self._done: deque[float] = deque()
        self._under_way = 0

    def forget_old(self, now: float) -> bool:
        """Drops what counts no longer; returns whether anything is left."""
        while self._done and now - self._done[0] >= MINUTE_SECONDS:
            self._done.popleft()
        return bool(self._done or self._under_way)

    def wait_seconds(self, limit: int, now: float) -> float:
        """Seconds until one more may begin; infinite if that depends on requests in flight."""
        self.forget_old(now)
        over = len(self._done) + self._under_way - limit + 1
        if over <= 0:
            return 0.0
        if over > len(self._done):
            return math.inf
        return self._done[over - 1] + MINUTE_SECONDS - now

    def count(self, now: float) -> None:
        """Counts an eviction of another process, or by a request without an answer, as if it had been answered now."""
        self._done.append(now)

    def begin(self) -> None:
        """One request is in flight."""
        self._under_way += 1

    def end(self, now: float, *, evicted: bool) -> None:
        """A request was answered; it counts for another minute if a pod was `evicted`."""
        self._under_way -= 1
        if evicted:
            self._done.append(now)


class BucketKey(NamedTuple):
    """Identifies a token bucket: the taint, whatever changes on its rule (N-17), and the source of the rate."""

    taint: Hashable
    own_rate: float | None
    profile: int


class RateGroup(msgspec.Struct, frozen=True, cache_hash=True):
    """Identifies pods that share all rates."""

    profile: int
    buckets: tuple[BucketKey, ...]
    parts: tuple[Hashable, ...] = ()
    """The groups of the pods that go together, if they are several; each of them counts."""


class Reservation(NamedTuple):
    """What a pod has taken that is evicted now."""

    group: RateGroup
    tokens: Tokens
    budget: BudgetLimit | None
    """The budgets that it asks; None for a pod without one, and for a DELETE."""


class _SharedRates(NamedTuple):
    """The rates and the due time of all pods with the same Eviction and profile."""

    eviction: Eviction
    group: RateGroup
    due_seconds: float


class RateLimiter:
    """Applies the rates and limits of profiles and rules to planned pods."""

    def __init__(
        self,
        plans: Plans,
        rules: Mapping[str, DeviceTaintRule],
        profile_at: Callable[[int], Profile],
        gate: BudgetGate,
        breaker: Breaker,
        group_of: Callable[[str], str],
    ) -> None:
        """`group_of` names what a rule, by uid, was judged with: a patch has a rule for each of its devices."""
        self._plans = plans
        self._gate = gate
        self._breaker = breaker
        self._rules = rules
        self._profile_at = profile_at
        self._group_of = group_of
        self._buckets = Buckets()
        self._minutes: dict[int, SlidingMinute] = {}
        self._reserved: dict[str, Reservation] = {}
        self._blocked_units: dict[int, Limit] = {}
        """What blocks units in this pass, by id() of the unit."""
        self._batches: dict[str, tuple[PodPlan, ...]] = {}
        """Pods that go together, by the uid of the one that the ready queue has popped."""
        self._shared: dict[tuple[int, int], _SharedRates] = {}
        """By the id() of the Eviction and the position of the profile."""
        self._rules_known = 0
        """How often rules have changed."""

    @property
    def any_in_flight(self) -> bool:
        """Whether any request has not been answered yet."""
        return bool(self._reserved)

    def in_flight(self, uid: str) -> bool:
        """Whether the request for this pod has not been answered yet."""
        return uid in self._reserved

    def ready_pod(self, plan: PodPlan) -> ReadyPod:
        """The item of the ready queue for a pod that is due."""
        shared = self._shared_of(plan)
        unit = self._plans.units.of(plan)
        if unit is None:
            order = plan.pod.priority, plan.refusals, shared.due_seconds, plan.key
        else:  # as its most valuable pod, and the one that was refused most often
            refusals = max([each.refusals for each in unit.plans])
            order = unit.priority, refusals, unit.due.timestamp(), plan.key
            known, parts = unit.rates
            if known != self._rules_known:
                parts = tuple(sorted({self._shared_of(each).group for each in unit.plans}, key=repr))
                unit.rates = self._rules_known, parts
            if len(parts) > 1:
                return ReadyPod(plan.uid, order, RateGroup(plan.profile.position, (), parts))
        return ReadyPod(plan.uid, order, shared.group)

    def _shared_of(self, plan: PodPlan) -> _SharedRates:
        """Pods with equal taints and tolerations share one Eviction, so this is computed once for all of them."""
        eviction, profile = plan.eviction, plan.profile
        key = (id(eviction), profile.position)
        known = self._shared.get(key)
        if known is not None and known.eviction is eviction:
            return known
        keys = {self._key(reason, profile) for reason in eviction.reasons}
        group = RateGroup(profile.position, tuple(sorted(keys, key=repr)))
        if len(self._shared) >= _REMEMBERED_MOST:
            self._shared.clear()
        due_seconds = eviction.due.timestamp() + profile.settings.grace_seconds
        shared = self._shared[key] = _SharedRates(eviction, group, due_seconds)
        return shared

    def forget_groups(self) -> None:
        """Drops cached groups, because a rule and its rate may have changed."""
        self._shared.clear()
        self._rules_known += 1

    def _key(self, reason: EvictionReason, profile: Profile) -> BucketKey:
        taint = reason.taint
        if reason.rule:
            rule = self._rules.get(reason.rule)
            own = own_rate(rule) if rule is not None else None
            group = self._group_of(reason.rule_uid)
            of_patch = (
                rule is not None and rule.origin.patch and group != reason.rule_uid
            )  # the mark alone proves nothing
            bucket = (group, taint.key, taint.effect) if of_patch else group
            # a rule with its own rate has one bucket, whatever the profiles of its pods
            return BucketKey(bucket, own, -1 if own is not None else profile.position)
        extras = taint.extras
        own = float(extras.evictions_per_second) if extras is not None and extras.evictions_per_second else None
        # One rate for what a driver says of all its devices, whenever it tainted each of them.
        return BucketKey((reason.driver, taint.key), own, -1 if own is not None else profile.position)

    def _rates(self, group: RateGroup) -> list[tuple[Hashable, Rate]]:
        settings = self._profile_at(group.profile).settings
        of_profile = Rate(settings.rate, settings.burst)
        return [
            (
                (key.taint, key.profile),
                of_profile if key.own_rate is None else Rate(key.own_rate, OWN_RATE_BURST),
            )
            for key in group.buckets
        ]

    # --- for the ready queue ---------------------------------------------------------------------

    def wait_seconds(self, group: Hashable, now: float) -> float:
        """How long rates and `maxPerMinute` make the whole group wait, in seconds."""
        assert isinstance(group, RateGroup)
        if group.parts:
            return max([self.wait_seconds(part, now) for part in group.parts])
        wait = self._buckets.wait_seconds(self._rates(group), now)
        most = self._profile_at(group.profile).settings.max_per_minute
        if most is not None:
            minute = self._minute(group.profile).wait_seconds(most, now)
            wait = max(wait, _ASK_AGAIN_SECONDS if math.isinf(minute) else minute)
        return wait

    def deletes(self, plan: PodPlan, now: float) -> bool:
        """Whether the pod is deleted, past its disruption budget."""
        settings = plan.profile.settings
        if not settings.delete_after_deadline:
            return False
        return deletes_at_once(settings) or self._gate.overdue(plan, settings.deadline_seconds, now)

    def blocked_by(self, item: ReadyPod, now: float) -> Limit | None:
        """The limit that blocks this pod, or None."""
        plan = self._plans.scheduled[item.uid]
        unit = self._plans.units.of(plan)
        if unit is None:
            return self._blocked(plan, now)
        blocked = self._blocked_units.get(id(unit)) or self._blocked(plan, now)  # a gang may have thousands of pods
        if blocked is not None:
            self._blocked_units[id(unit)] = blocked
        return blocked

    def begin_pass(self) -> None:
        """As `ReadyLimits.begin_pass`."""
        self._blocked_units.clear()

    def _blocked(self, plan: PodPlan, now: float) -> Limit | None:
        batch = self._batch_of(plan)
        for each in batch:
            tripped = self._breaker.blocked_by(each)
            if tripped is not None:
                return tripped
        evicted = [each for each in batch if not self.deletes(each, now)]
        deletes = len(evicted) < len(batch)
        blocked = self._blocked_by_profile(plan, batch, deletes=deletes)
        return blocked if blocked is not None or not evicted else self._gate.blocks(evicted, now)

    def _batch_of(self, plan: PodPlan) -> tuple[PodPlan, ...]:
        """The pods that are evicted together with this one, itself among them, but for those whose turn has come."""
        unit = self._plans.units.of(plan)
        return (plan,) if unit is None else tuple([each for each in unit.plans if each.uid not in self._reserved])

    def _place_of(self, plan: PodPlan) -> str:
        """The place that the pod takes in limits, together with those that go with it.

        A pod that was refused after others of its unit have gone still belongs to the place that those take.
        """
        unit, has = self._plans.units.of(plan), self._plans.under_way.has
        for each in (plan,) if unit is None else unit.plans:
            if each.place and has(each.place):
                return each.place
        return (plan.gang or plan.uid) if unit is None else unit.place

    def _place_of_owner(self, plan: PodPlan, place: str) -> str:
        """The place of its owner that it takes: its gang, else `place`, or the one that others of it still take."""
        if plan.gang or not self._plans.owners.is_unavailable(plan.owner, plan.place):
            return plan.gang or place
        return plan.place

    def _blocked_by_profile(self, plan: PodPlan, batch: tuple[PodPlan, ...], *, deletes: bool) -> Limit | None:
        """The limit of a profile: places taken overall or in its namespace, or unavailable ones of an owner."""
        under_way, place, namespace = self._plans.under_way, self._place_of(plan), plan.pod.meta.namespace
        for position, settings in {each.profile.position: each.profile for each in batch}.values():
            if under_way.has(place):
                break
            if settings.overall is not None and under_way.places >= settings.overall:
                return OverallLimit(position)
            if settings.per_namespace is not None and under_way.count(namespace) >= settings.per_namespace:
                return NamespaceLimit(namespace, position)
        for each in batch:
            # A budget takes the place of the owner's limit, but a DELETE bypasses the budget.
            if not each.owner or (not deletes and self._gate.budgeted(each)):
                continue
            if self._owner_is_full(each, each.profile.settings, place):
                return OwnerLimit(each.owner, each.profile.position)
        return None

    def _owner_is_full(self, plan: PodPlan, settings: EvictionProfile, place: str) -> bool:
        """Whether the owner of a pod may miss no further place."""
        owners = self._plans.owners
        if owners.is_missing(plan.owner, plan.uid):
            return False
        if owners.is_unavailable(plan.owner, self._place_of_owner(plan, place)):
            return False
        most = max_unavailable(settings.per_owner_unavailable, owners.place_count(plan.owner))
        return most is not None and owners.unavailable(plan.owner) >= most

    def reserve(self, item: ReadyPod, now: float) -> None:
        """Takes the tokens and the places for a pod that is evicted now, and for those that go with it."""
        plan = self._plans.scheduled[item.uid]
        batch = self._batches[item.uid] = self._batch_of(plan)
        place = self._place_of(plan)
        of_owners = [self._place_of_owner(each, place) for each in batch]
        for each, of_owner in zip(batch, of_owners, strict=True):
            group = self._shared_of(each).group
            tokens = self._buckets.take(self._rates(group), now, owing=each is not plan)
            self._minute(group.profile).begin()
            budget = None if self.deletes(each, now) else self._gate.begin(each, now)
            self._reserved[each.uid] = Reservation(group, tokens, budget)
            self._plans.begin(each, place, of_owner)

    def take_batch(self, uid: str) -> tuple[PodPlan, ...]:
        """The pods for which `reserve` took places when this one was popped; once."""
        return self._batches.pop(uid)

    def release(self, plan: PodPlan, now: float, outcome: EvictionOutcome | None) -> Reservation:
        """Ends a pod's reservation and returns it; its group and its budgets may have room now.

        `outcome`: None if no request was made. Tokens are used up only if the pod was evicted.
        """
        reservation = self._reserved.pop(plan.uid)
        evicted = outcome is not None and outcome.evicted
        if not evicted:
            self._buckets.give_back(reservation.tokens)
        self._minute(reservation.group.profile).end(now, evicted=evicted)
        self._gate.end(plan, reservation.budget, outcome, now)
        (self._plans.succeed if outcome is not None and outcome.gone else self._plans.fail)(plan)
        return reservation

    def count_foreign(self, profile: Profile, now: float) -> None:
        """Counts an eviction of another process, or by a request without an answer, toward `maxPerMinute`."""
        self._minute(profile.position).count(now)

    def forget_idle(self, now: float) -> None:
        """Drops full buckets, and what gates, breakers and `maxPerMinute` no longer need, to save memory.

        Evictions are counted for `maxPerMinute` also while it is not set, as a policy may set it at any time.
        """
        self._buckets.forget_idle(now)
        self._gate.forget_idle(now)
        self._breaker.forget_idle()
        self._minutes = {profile: minute for profile, minute in self._minutes.items() if minute.forget_old(now)}

    def _minute(self, profile: int) -> SlidingMinute:
        return self._minutes.setdefault(profile, SlidingMinute())
