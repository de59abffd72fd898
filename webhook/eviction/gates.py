"""Who finds room: one function takes places and tokens, for whole units, in the order of the plan.

A limit is one class in `GATES`. It names what concerns a unit (`limits`), says whether one of these is closed, and
counts what a unit takes. A limit that was found closed stays so until the function returns, so the next units behind it
cost no second look. All profiles of a unit's pods are asked.

| gate | what it counts |
|---|---|
| budget | disruptions: of a unit, one for each member that the Eviction API would not let go otherwise |
| owner | unavailable places of the owner at the top, for pods without a budget and for those that are deleted |
| namespace, overall | places of evictions under way; a unit takes one |
| minute | departures of the last minute, those in flight included |
| rate | tokens: a pod waits for the first of its buckets, a unit for the last of its pods |

Source: policy profiles; `semantics.md` N-13 to N-18; ADR 16.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple, Protocol

from msgspec import structs

from webhook.api.budgets import needs_disruption
from webhook.api.pods import Pod
from webhook.api.rules import OWN_RATE_BURST, own_rate
from webhook.eviction.ledger import MINUTE_SECONDS, BudgetAnswers, Ledger, Moment, Taken, View
from webhook.eviction.plan import EvictionPlan
from webhook.eviction.plans import Places
from webhook.eviction.pod_plan import Going, StepReason, Unit, Wait, is_stuck
from webhook.eviction.ports import (
    BudgetLimit,
    Limit,
    MinuteLimit,
    NamespaceLimit,
    OverallLimit,
    OwnerLimit,
    PodBudgets,
    RateLimit,
)
from webhook.eviction.profiles import Profile, deletes_at_once, max_unavailable
from webhook.eviction.units import owner_of
from webhook.flowcontrol.token_bucket import Rate, TokenBucket
from webhook.inventory.evictions import EvictionReason
from webhook.policy.model import EvictionProfile

PROBE_SECONDS: Final = 5.0
"""Time between two requests that a budget may refuse, as `kubectl drain` waits."""
AT_ONCE_MOST: Final = 4
"""Requests in flight for one budget: the API server serializes them, by conflicts on the budget's status."""
FRESH_SECONDS: Final = 2 * PROBE_SECONDS
"""A pod is deleted past its budget only if the budget has refused within this time."""
_ASK_AGAIN_SECONDS: Final = 0.1
"""How often to look while the requests in flight use up a minute."""


class Gate(Protocol):
    """One kind of limit."""

    def limits(self, unit: Unit, room: Room) -> Iterable[Limit]:
        """Names what could keep the unit; nothing for a place that it has already."""

    def closed(self, limit: Limit, room: Room) -> Wait | None:
        """Tells what a unit waits for that this limit concerns; None if it may go."""

    def take(self, unit: Unit, room: Room) -> None:
        """Counts a unit that goes."""


class Taking(NamedTuple):
    """The units that go, in order, and what the pods wait for that found no room, by uid."""

    units: list[Unit]
    waits: dict[str, Wait]


def take(eligible: Iterable[Unit], room: Room, gates: Collection[Gate] | None = None) -> Taking:
    """Takes places and tokens for each unit that finds room, in order. Never awaits."""
    units, waits, asked = list[Unit](), dict[str, Wait](), GATES if gates is None else gates
    for unit in eligible:
        wait = room.closed(unit, asked)
        if wait is None:
            room.admit(unit, asked)
            units.append(unit)
        else:
            waits.update([(each.uid, wait) for each in unit.members])
    return Taking(units, waits)


class OwnerPlaces(NamedTuple):
    """The places of an owner, and those of them with a pod that is unavailable."""

    all: Places
    missing: Places


class Room:
    """Running counts of one moment. `take` changes them and the ledger; nothing else does."""

    def __init__(  # noqa: PLR0913 -- all of them are values of one moment
        self,
        view: View,
        ledger: Ledger,
        plan: EvictionPlan,
        moment: Moment,
        *,
        budgets: PodBudgets,
        profiles: Sequence[Profile],
        owned: Callable[[str], Iterable[str]],
    ) -> None:
        """`owned`: the pods, by `namespace/name`, of an owner as `units.owner_of` names it."""
        self.view, self.ledger, self.moment, self.budgets = view, ledger, moment, budgets
        self._profiles, self.owned = profiles, owned
        self.everywhere = Places()
        self.namespaces = defaultdict[str, Places](Places)
        self._owners: dict[str, OwnerPlaces] = {}
        self._closed: dict[Limit, Wait] = {}
        self._rates: dict[tuple[int, int], RateLimit] = {}
        self._asking: tuple[Unit, tuple[Counter[BudgetLimit], bool]] | None = None
        for uid, taken in ledger.taken.items():
            pod = view.inventory.pods.get(taken.key)
            if pod is None or not self.stuck(pod):
                self._place(uid, taken.namespace, taken.place)
        for each in plan.terminating:
            if not self.stuck(each.pod):
                self._place(each.uid, each.pod.meta.namespace, each.gang or each.uid)

    def _place(self, uid: str, namespace: str, place: str) -> None:
        self.everywhere.add(uid, place)
        self.namespaces[namespace].add(uid, place)

    def closed(self, unit: Unit, gates: Iterable[Gate]) -> Wait | None:
        """Tells which limit keeps a unit, the first of them in the order of the gates; None if it may go."""
        for gate in gates:
            for limit in gate.limits(unit, self):
                wait = self._closed.get(limit) or gate.closed(limit, self)
                if wait is not None:
                    self._closed[limit] = wait
                    return wait
        return None

    def admit(self, unit: Unit, gates: Iterable[Gate]) -> None:
        """Counts a unit that goes."""
        for gate in gates:
            gate.take(unit, self)
        for each in unit.members:
            owner = owner_of(each.pod)
            self._place(each.uid, each.pod.meta.namespace, unit.key)
            self.ledger.taken[each.uid] = Taken(
                each.key, each.pod.meta.namespace, unit.key, owner, each.gang or unit.key, each.eviction.rules
            )

    # --- questions -------------------------------------------------------------------------------

    def settings(self, position: int) -> EvictionProfile:
        """Returns the profile at this position in the policy."""
        return self._profiles[position].settings

    def until(self, seconds: float, limit: Limit) -> Wait:
        """Returns the wait of a pod that a limit keeps for this time; infinite if it takes a change."""
        end = None if math.isinf(seconds) else self.moment.now + timedelta(seconds=seconds)
        return Wait(StepReason.LIMITED, end, limit=limit)

    def stuck(self, pod: Pod) -> bool:
        """Tells whether no limit counts a pod any more, because it is terminating for too long."""
        return is_stuck(pod, self.view.profile_of(pod).settings, self.moment.now)

    def owner(self, name: str) -> OwnerPlaces:
        """Counts the places of an owner, when they are asked for first."""
        known = self._owners.get(name)
        if known is not None:
            return known
        known = self._owners[name] = OwnerPlaces(Places(), Places())
        for key in self.owned(name):
            pod = self.view.inventory.pods[key]
            uid, taken = pod.meta.uid, self.ledger.taken.get(pod.meta.uid)
            place = self.view.gang_of(pod, self.view.profile_of(pod)) or uid
            known.all.add(uid, place)
            missing = pod.deleting or not (pod.ready or pod.finished) or taken is not None
            if missing and not self.stuck(pod):
                known.missing.add(uid, place if taken is None else taken.of_owner)
        for uid, place in self.ledger.unreplaced.get(name, {}).items():
            known.all.add(uid, place)
            known.missing.add(uid, place)
        return known

    def needs(self, each: Going) -> BudgetLimit | None:
        """Returns the budgets that a pod needs a disruption of; None if it needs none and was never refused."""
        namespace, budgets = each.pod.meta.namespace, self.budgets.select(each.pod)
        if needs_disruption(each.pod, budgets):
            return BudgetLimit(namespace, tuple([budget.meta.name for budget in budgets]))
        failure = self.ledger.failures.get(each.uid)
        return BudgetLimit(namespace, (), each.uid) if failure is not None and failure.blocked else None

    def asking(self, unit: Unit) -> tuple[Counter[BudgetLimit], bool]:
        """Counts the disruptions that a unit asks its budgets for, and tells whether any pod is deleted past them."""
        if self._asking is not None and self._asking[0] is unit:
            return self._asking[1]  # two gates ask, one after the other
        limits = [self.needs(each) for each in unit.members]
        needed, asked, deletes = Counter(limits), Counter[BudgetLimit](), False
        for each, limit in zip(unit.members, limits, strict=True):
            if self._deletes(each, limit, needed[limit]):
                deletes = True
            elif limit is not None:
                asked[limit] += 1
        self._asking = unit, (asked, deletes)
        return asked, deletes

    def short(self, unit: Unit) -> BudgetLimit | None:
        """Returns the first budget whose status does not let all of a unit go, whether it may be asked now or not."""
        for limit, needed in self.asking(unit)[0].items():
            allowed = allowed_by(limit, self)
            if allowed is None or allowed < needed:
                return limit.needing(needed)
        return None

    def _deletes(self, each: Going, limit: BudgetLimit | None, needed: int) -> bool:
        settings = each.profile.settings
        if not settings.delete_after_deadline or deletes_at_once(settings) or limit is None:
            return deletes_at_once(settings)
        asked = [self.ledger.budgets.get(known) for known in {limit, limit.needing(needed)}]
        return any(
            self.moment.seconds - known.refused_at <= FRESH_SECONDS
            and known.refused_seconds >= settings.deadline_seconds
            for known in asked
            if known is not None
        )

    def rate_of(self, each: Going) -> RateLimit:
        """Returns the buckets of a pod; those with equal taints and tolerations share one Eviction, and this answer."""
        key = id(each.eviction), each.profile.position
        known = self._rates.get(key)
        if known is None:
            buckets = {self._bucket_of(reason, each.profile) for reason in each.eviction.reasons}
            known = self._rates[key] = RateLimit(tuple(sorted(buckets, key=repr)))
        return known

    def _bucket_of(self, reason: EvictionReason, profile: Profile) -> tuple[Hashable, Rate]:
        """A bucket for each rule, one for the rules of a patch that are alike, and one for each driver and key."""
        taint, of_profile = reason.taint, Rate(profile.settings.rate, profile.settings.burst)
        name: Hashable = (reason.driver, taint.key)
        own = float(taint.extras.evictions_per_second or 0) if taint.extras is not None else 0.0
        if reason.rule:
            rule, group = self.view.inventory.rules.get(reason.rule), self.view.group_of(reason.rule_uid)
            own = (own_rate(rule) if rule is not None else None) or 0.0
            of_patch = rule is not None and rule.origin.patch and group != reason.rule_uid
            name = (group, taint.key, taint.effect) if of_patch else group
        if own:  # one bucket, whatever the profiles of its pods
            return (name, -1), Rate(own, OWN_RATE_BURST)
        return (name, profile.position), of_profile


class _Budgets:
    def limits(self, unit: Unit, room: Room) -> Iterable[BudgetLimit]:
        return [limit.needing(needed) for limit, needed in room.asking(unit)[0].items()]

    def closed(self, limit: Limit, room: Room) -> Wait | None:
        assert isinstance(limit, BudgetLimit)
        single, now = room.ledger.budgets.get(limit.needing(1), BudgetAnswers()), room.moment.seconds
        asked = [single, room.ledger.budgets.get(limit, BudgetAnswers())]
        closed_until = max([each.closed_until for each in asked])
        if now < closed_until:
            return room.until(closed_until - now, limit)
        allowed = allowed_by(limit, room)
        if allowed is not None and allowed - single.granted - single.in_flight >= limit.needed:
            at_once = limit.needed > 1 or single.in_flight < AT_ONCE_MOST
            return None if at_once else room.until(math.inf, limit)
        if single.in_flight:
            return room.until(math.inf, limit)
        probe_at = single.asked_at + PROBE_SECONDS
        return None if allowed is None or now >= probe_at else room.until(probe_at - now, limit)

    def take(self, unit: Unit, room: Room) -> None:
        for limit, needed in room.asking(unit)[0].items():
            known = room.ledger.budgets.get(limit, BudgetAnswers())
            room.ledger.budgets[limit] = structs.replace(
                known, in_flight=known.in_flight + needed, asked_at=room.moment.seconds
            )


def allowed_by(limit: BudgetLimit, room: Room) -> int | None:
    """Returns how many disruptions the status allows; None if it does not say."""
    budget = room.budgets.find(limit.namespace, limit.budgets[0]) if len(limit.budgets) == 1 else None
    return None if budget is None else budget.allowed


class _Owners:
    def limits(self, unit: Unit, room: Room) -> Iterator[OwnerLimit]:
        deletes = room.asking(unit)[1]
        for each in unit.members:
            owner = owner_of(each.pod)
            if not owner or (not deletes and room.budgets.select(each.pod)):
                continue  # a budget takes the place of this limit, but a DELETE passes the budget by
            missing = room.owner(owner).missing
            if each.uid not in missing and not missing.has(each.gang or unit.key):
                yield OwnerLimit(owner, each.profile.position)

    def closed(self, limit: Limit, room: Room) -> Wait | None:
        assert isinstance(limit, OwnerLimit)
        places, missing = room.owner(limit.owner)
        most = max_unavailable(room.settings(limit.profile).per_owner_unavailable, len(places))
        return room.until(math.inf, limit) if most is not None and len(missing) >= most else None

    def take(self, unit: Unit, room: Room) -> None:
        for each in unit.members:
            owner = owner_of(each.pod)
            if owner:
                missing = room.owner(owner).missing
                missing.discard(each.uid)  # that of a pod that is not ready is its own
                missing.add(each.uid, each.gang or unit.key)


class _Namespaces:
    def limits(self, unit: Unit, room: Room) -> Iterable[NamespaceLimit]:
        if room.everywhere.has(unit.key):
            return ()
        return {NamespaceLimit(each.pod.meta.namespace, each.profile.position): None for each in unit.members}

    def closed(self, limit: Limit, room: Room) -> Wait | None:
        assert isinstance(limit, NamespaceLimit)
        most = room.settings(limit.profile).per_namespace
        full = most is not None and len(room.namespaces[limit.namespace]) >= most
        return room.until(math.inf, limit) if full else None

    def take(self, unit: Unit, room: Room) -> None:
        """Nothing: places are taken once, for all gates."""


class _Overall:
    def limits(self, unit: Unit, room: Room) -> Iterable[OverallLimit]:
        if room.everywhere.has(unit.key):
            return ()
        return {OverallLimit(each.profile.position): None for each in unit.members}

    def closed(self, limit: Limit, room: Room) -> Wait | None:
        assert isinstance(limit, OverallLimit)
        most = room.settings(limit.profile).overall
        return room.until(math.inf, limit) if most is not None and len(room.everywhere) >= most else None

    def take(self, unit: Unit, room: Room) -> None:
        """Nothing, as for namespaces."""


class _Minutes:
    def limits(self, unit: Unit, room: Room) -> Iterable[MinuteLimit]:
        positions = dict.fromkeys([each.profile.position for each in unit.members])
        return [MinuteLimit(each) for each in positions if room.settings(each).max_per_minute is not None]

    def closed(self, limit: Limit, room: Room) -> Wait | None:
        assert isinstance(limit, MinuteLimit)
        settings, now = room.settings(limit.profile), room.moment.seconds
        assert settings.max_per_minute is not None
        left = sorted([at + MINUTE_SECONDS - now for at in room.ledger.departures.get(settings, {}).values()])
        left = [seconds for seconds in left if seconds > 0]
        over = len(left) - settings.max_per_minute + 1
        if over <= 0:
            return None
        return room.until(_ASK_AGAIN_SECONDS if math.isinf(left[over - 1]) else left[over - 1], limit)

    def take(self, unit: Unit, room: Room) -> None:
        for each in unit.members:  # also without a limit, as a policy may set one at any time
            room.ledger.departures.setdefault(each.profile.settings, {})[each.uid] = math.inf


class _Rates:
    def limits(self, unit: Unit, room: Room) -> Iterable[RateLimit]:
        return {room.rate_of(each): None for each in unit.members}

    def closed(self, limit: Limit, room: Room) -> Wait | None:
        assert isinstance(limit, RateLimit)
        waits = [_bucket(key, rate, room).wait_seconds(room.moment.seconds) for key, rate in limit.buckets]
        seconds = min(waits, default=0.0)
        return room.until(seconds, limit) if seconds > 0 else None

    def take(self, unit: Unit, room: Room) -> None:
        for each in unit.members:
            buckets = room.rate_of(each).buckets
            highest = max([rate.per_second for _, rate in buckets], default=0.0)
            for key, rate in buckets:
                owing = each is not unit.members[0] and rate.per_second == highest
                _bucket(key, rate, room).take(room.moment.seconds, owing=owing)


def _bucket(key: Hashable, rate: Rate, room: Room) -> TokenBucket:
    buckets, now = room.ledger.buckets, room.moment.seconds
    bucket = buckets.get(key)
    if bucket is None:
        bucket = buckets[key] = TokenBucket(rate, now)
    else:
        bucket.change(rate, now)
    return bucket


GATES: Final[tuple[Gate, ...]] = (_Budgets(), _Owners(), _Namespaces(), _Overall(), _Minutes(), _Rates())
"""In the order in which they are asked."""
