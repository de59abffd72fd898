"""Who finds room: places, tokens, and what budgets have answered, as one place counts them for whole units.

A limit is one class in `GATE_OF`. It names what concerns a unit (`limits`), says whether one of these is closed, and
counts what a unit takes. A limit that was found closed stays so until `Line.take` returns, so the next units behind it
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
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from msgspec import structs

from webhook.api.pods import Pod, needs_disruption
from webhook.api.rules import OWN_RATE_BURST, own_rate
from webhook.eviction.ledger import MINUTE_SECONDS, BudgetAnswers, Ledger, Moment, Taken, View
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
from webhook.eviction.profiles import Profile, deletes_at_once, max_unavailable, owner_of
from webhook.flowcontrol.rates import Rate, TokenBucket
from webhook.inventory.evictions import Eviction, EvictionReason, later
from webhook.policy.model import EvictionProfile

PROBE_SECONDS: Final = 5.0
"""Time between two requests that a budget may refuse, as `kubectl drain` waits."""
FRESH_SECONDS: Final = 2 * PROBE_SECONDS
"""A pod is deleted past its budget only if the budget has refused within this time."""
_REMEMBERED_MOST: Final = 1024
AT_ONCE_MOST: Final = 4
"""Requests in flight for one budget: the API server serializes them, by conflicts on the budget's status."""
_ASK_AGAIN_SECONDS: Final = 0.1
"""How often to look while the requests in flight use up a minute."""


class Gate(Protocol):
    """One kind of limit."""

    def limits(self, unit: Unit, room: Room) -> Iterable[Limit]:
        """Name what could keep the unit; nothing for a place that it has already."""

    def closed(self, limit: Limit, room: Room) -> Wait | None:
        """Tell what a unit waits for that this limit concerns; None if it may go."""

    def take(self, unit: Unit, room: Room) -> None:
        """Count a unit that goes."""


class Places:
    """Pods, by uid, and the place that each takes; several pods may share one."""

    __slots__ = ("_place_of", "_shared")

    def __init__(self) -> None:
        self._place_of: dict[str, str] = {}
        self._shared: dict[str, int] = {}
        """How many pods share each place."""

    def __len__(self) -> int:
        """Return the number of places taken."""
        return len(self._shared)

    @property
    def pods(self) -> int:
        """Number of pods that take them."""
        return len(self._place_of)

    def __contains__(self, uid: object) -> bool:
        return uid in self._place_of

    def has(self, place: str) -> bool:
        """Tell whether any pod takes this place."""
        return place in self._shared

    def add(self, uid: str, place: str) -> None:
        """Add a pod that takes a place, unless it has one already."""
        if uid not in self._place_of:
            self._place_of[uid] = place
            self._shared[place] = self._shared.get(place, 0) + 1

    def discard(self, uid: str) -> bool:
        """Free the place of a pod; tell whether it had one."""
        place = self._place_of.pop(uid, None)
        if place is None:
            return False
        self._shared[place] -= 1
        if not self._shared[place]:
            del self._shared[place]
        return True


class OwnerPlaces(NamedTuple):
    """The places of an owner, and those of them with a pod that is unavailable."""

    all: Places
    missing: Places


class Room:
    """Running counts: places, and through the ledger tokens and what budgets have answered."""

    def __init__(
        self,
        view: View,
        ledger: Ledger,
        moment: Moment,
        *,
        budgets: PodBudgets,
        profiles: Sequence[Profile],
    ) -> None:
        """`profiles`: by their position in the policy."""
        self.view, self.ledger, self.moment, self.budgets, self.profiles = view, ledger, moment, budgets, profiles
        self.everywhere = Places()
        self.namespaces: dict[str, Places] = {}
        self.owned: dict[str, dict[str, None]] = {}
        """The pods, by `namespace/name`, of each owner as `owner_of` names it."""
        self.freed: set[tuple[str, str]] = set()
        """Owners and namespaces that may have room again, and ("", "") for all; the line empties it."""
        self.given_up: dict[str, str] = {}
        """Pods, by uid, that were found to be stuck; their `namespace/name`."""
        self._owners: dict[str, OwnerPlaces] = {}
        self._closed: dict[Limit, Wait] = {}
        self.gate_of = dict(GATE_OF)
        self._rates: dict[tuple[int, int], tuple[Eviction, RateLimit]] = {}
        self._timed: dict[tuple[int, int], tuple[Eviction, tuple[Limit, ...]]] = {}
        self._asking: tuple[Unit, tuple[Counter[BudgetLimit], bool]] | None = None

    # --- what changes ----------------------------------------------------------------------------

    def begin(self, moment: Moment) -> None:
        """Set the moment that all that follows is about, until the next one."""
        self.moment, self._asking = moment, None
        self._closed.clear()

    def forget_rates(self) -> None:
        """Forget the rates: rules, or profiles, may have others."""
        self._rates.clear()
        self._timed.clear()

    def forget_owners(self) -> None:
        """Count all owners again, before any unit is looked at: their gangs may be others."""
        self._owners.clear()

    def own(self, owner: str, key: str, *, there: bool) -> None:
        """Note that an owner has this pod, or has it no longer; or it has changed."""
        self.touch(owner)
        pods = self.owned.setdefault(owner, {})
        if there:
            pods[key] = None
        else:
            pods.pop(key, None)
        if not pods:
            del self.owned[owner]

    def touch(self, owner: str) -> None:
        """Count the places of an owner again."""
        self._owners.pop(owner, None)
        self.freed.add(("owner", owner))

    def occupy(self, terminating: Iterable[Going]) -> None:
        """Give places to pods that are terminating, until they are stuck; none to those that have gone meanwhile."""
        for each in terminating:
            pod = self.view.pod(each.key, each.uid)
            if pod is not None and not self.stuck(pod):
                self.place(each.uid, each.pod.meta.namespace, each.gang or each.uid)

    def vacate(self, uid: str, namespace: str) -> None:
        """Free the place of a pod."""
        self.everywhere.discard(uid)
        places = self.namespaces.get(namespace)
        if places is not None and places.discard(uid) and not places:
            del self.namespaces[namespace]
        self.freed.update([("namespace", namespace), ("", "")])

    def place(self, uid: str, namespace: str, place: str) -> None:
        """Give this place to a pod."""
        self.everywhere.add(uid, place)
        self.namespaces.setdefault(namespace, Places()).add(uid, place)

    def admit(self, unit: Unit) -> None:
        """Count a unit that goes."""
        self.ledger.units += 1  # waves of a gang share its place, and are units of their own
        for each in unit.members:
            place = self.place_of_owner(each, unit)
            self.ledger.take(
                each.uid,
                Taken(
                    each.key,
                    each.pod.meta.namespace,
                    unit.key,
                    self.ledger.units,
                    owner_of(each.pod),
                    "" if each.gang else place,
                    each.eviction.rules,
                ),
            )
        for gate in self.gate_of.values():
            gate.take(unit, self)
        for each in unit.members:
            self.place(each.uid, each.pod.meta.namespace, unit.key)

    # --- which limit keeps a unit ----------------------------------------------------------------

    def closed(self, unit: Unit) -> Wait | None:
        """Tell which limit keeps a unit, the first of them in the order of the gates; None if it may go."""
        for gate in self.gate_of.values():
            for limit in gate.limits(unit, self):
                wait = self.closed_by(limit)
                if wait is not None:
                    return wait
        return None

    def closed_by(self, limit: Limit) -> Wait | None:
        """Tell what pods wait for that a limit concerns which a unit has; None if they may go."""
        wait = self._closed.get(limit) or self.gate_of[type(limit)].closed(limit, self)
        if wait is not None:
            self._closed[limit] = wait
        return wait

    @property
    def opens_at(self) -> datetime | None:
        """The first moment at which time opens a limit that was found closed."""
        return min([wait.until for wait in self._closed.values() if wait.until is not None], default=None)

    def timed(self, unit: Unit) -> tuple[Limit, ...]:
        """Return the limits of a unit that time alone opens."""
        first = unit.members[0]
        key = id(first.eviction), first.profile.position
        known = self._timed.get(key) if len(unit.members) == 1 else None
        if known is not None and known[0] is first.eviction:
            return known[1]
        by_time = self.gate_of[MinuteLimit], self.gate_of[RateLimit]
        limits = tuple([limit for gate in by_time for limit in gate.limits(unit, self)])
        if len(unit.members) == 1:
            self._timed[key] = first.eviction, limits
        return limits

    # --- questions -------------------------------------------------------------------------------

    def settings(self, position: int) -> EvictionProfile:
        """Return the profile at this position in the policy."""
        return self.profiles[min(position, len(self.profiles) - 1)].settings  # a policy may have lost one just now

    def until(self, seconds: float, limit: Limit) -> Wait:
        """Return the wait of a pod that a limit keeps for this time; infinite if it takes a change."""
        end = None if math.isinf(seconds) else later(self.moment.now, seconds)
        return Wait(StepReason.LIMITED, end, limit=limit)

    def stuck(self, pod: Pod) -> bool:
        """Tell whether no limit counts a pod any more, because it is terminating for too long."""
        return pod.meta.uid in self.given_up or is_stuck(pod, self.view.profile_of(pod).settings, self.moment.now)

    def owner(self, name: str) -> OwnerPlaces:
        """Count the places of an owner, when they are asked for first."""
        known = self._owners.get(name)
        if known is not None:
            return known
        known = self._owners[name] = OwnerPlaces(Places(), Places())
        for key in self.owned.get(name, ()):
            pod = self.view.inventory.pods.get(key)
            taken = None if pod is None else self.ledger.taken.get(pod.meta.uid)
            if pod is None or (pod.finished and taken is None and (pod.completes or not pod.deleting)):
                continue  # one that does not complete, and has failed, is replaced once it is gone
            uid = pod.meta.uid
            place = self.view.gang_of(pod, self.view.profile_of(pod)) or uid
            known.all.add(uid, place)
            missing = pod.deleting or not pod.ready or taken is not None
            if missing and not self.stuck(pod):
                known.missing.add(uid, place if taken is None else taken.of_owner or place)
        for uid, place in self.ledger.unreplaced.get(name, {}).items():
            known.all.add(uid, place)
            known.missing.add(uid, place)
        return known

    def place_of_owner(self, each: Going, unit: Unit) -> str:
        """Return the place of its owner that a pod takes: of its gang, one that its unit has left, or its unit's."""
        failure, owner = self.ledger.failures.get(each.uid), owner_of(each.pod)
        left = "" if failure is None or not owner or not self.owner(owner).missing.has(failure.place) else failure.place
        return each.gang or left or unit.key

    def needs(self, each: Going) -> BudgetLimit | None:
        """Return the budgets that a pod needs a disruption of; None if it needs none and was never refused."""
        pod = self.view.inventory.pods.get(each.key, each.pod)  # whether it is ready may have changed
        namespace, budgets = pod.meta.namespace, self.budgets.select(pod)
        if needs_disruption(pod, budgets):
            return BudgetLimit(namespace, tuple([budget.meta.name for budget in budgets]))
        failure = self.ledger.failures.get(each.uid)
        return BudgetLimit(namespace, (), each.uid) if failure is not None and failure.blocked else None

    def asking(self, unit: Unit) -> tuple[Counter[BudgetLimit], bool]:
        """Count the disruptions that a unit asks its budgets for, and tell whether any pod is deleted past them."""
        if self._asking is not None and self._asking[0] is unit:
            return self._asking[1]  # two gates ask, one after the other
        asked = self.asked_by(unit)
        counts = Counter([limit for limit in asked.values() if limit is not None])
        self._asking = unit, (counts, len(asked) < len(unit.members))
        return self._asking[1]

    def asked_by(self, unit: Unit) -> dict[str, BudgetLimit | None]:
        """Return the budgets that each pod of a unit asks, by uid; without those that are deleted past them."""
        limits = [self.needs(each) for each in unit.members]
        needed = Counter(limits)
        every = zip(unit.members, limits, strict=True)
        return {each.uid: limit for each, limit in every if not self.deletes(each, limit, needed[limit])}

    def short(self, unit: Unit) -> BudgetLimit | None:
        """Return the first budget whose status does not let all of a unit go, whether it may be asked now or not."""
        for limit, needed in self.asking(unit)[0].items():
            allowed = allowed_by(limit, self)
            if allowed is None or allowed < needed:
                return limit.needing(needed)
        return None

    def deletes(self, each: Going, limit: BudgetLimit | None, needed: int) -> bool:
        """Tell whether a pod is deleted past these budgets. `needed`: how many disruptions its unit needs."""
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
        """Return the buckets of a pod; those with equal taints and tolerations share one Eviction, and this answer."""
        key = id(each.eviction), each.profile.position
        known = self._rates.get(key)
        if known is None or known[0] is not each.eviction:
            buckets = {self._bucket_of(reason, each.profile) for reason in each.eviction.reasons}
            if len(self._rates) >= _REMEMBERED_MOST:
                self.forget_rates()
            known = self._rates[key] = each.eviction, RateLimit(tuple(sorted(buckets, key=repr)))
        return known[1]

    def _bucket_of(self, reason: EvictionReason, profile: Profile) -> tuple[Hashable, Rate]:
        """Make a bucket for each rule, one for a patch's rules that are alike, one for each driver and key."""
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


def allowed_by(limit: BudgetLimit, room: Room) -> int | None:
    """Return how many disruptions the status allows; None if it does not say."""
    budget = room.budgets.find(limit.namespace, limit.budgets[0]) if len(limit.budgets) == 1 else None
    return None if budget is None else budget.allowed


# --- the gates -----------------------------------------------------------------------------------


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
        for uid, budget in room.asked_by(unit).items() if room.asking(unit)[0] else ():
            room.ledger.taken[uid] = structs.replace(room.ledger.taken[uid], budget=budget)


class _Owners:
    def limits(self, unit: Unit, room: Room) -> Iterator[OwnerLimit]:
        deletes = room.asking(unit)[1]
        for each in unit.members:
            owner = owner_of(each.pod)
            if not owner or (not deletes and room.budgets.select(each.pod)):
                continue  # a budget takes the place of this limit, but a DELETE passes the budget by
            missing = room.owner(owner).missing
            if each.uid not in missing and not missing.has(room.place_of_owner(each, unit)):
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
                missing, place = room.owner(owner).missing, room.place_of_owner(each, unit)
                missing.discard(each.uid)  # that of a pod that is not ready is its own
                missing.add(each.uid, place)
                room.freed.add(("owner", owner))  # a pod that was left behind may share the place


class _Namespaces:
    def limits(self, unit: Unit, room: Room) -> Iterable[NamespaceLimit]:
        if room.everywhere.has(unit.key):
            return ()
        return {NamespaceLimit(each.pod.meta.namespace, each.profile.position): None for each in unit.members}

    def closed(self, limit: Limit, room: Room) -> Wait | None:
        assert isinstance(limit, NamespaceLimit)
        most = room.settings(limit.profile).per_namespace
        full = most is not None and len(room.namespaces.get(limit.namespace, ())) >= most
        return room.until(math.inf, limit) if full else None

    def take(self, unit: Unit, room: Room) -> None:
        """Do nothing: places are taken once, for all gates."""


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
        """Do nothing, as for namespaces."""


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
            tokens = []
            for key, rate in buckets:
                owing = each is not unit.members[0] and rate.per_second == highest
                tokens.append((key, _bucket(key, rate, room).take(room.moment.seconds, owing=owing)))
            room.ledger.taken[each.uid] = structs.replace(room.ledger.taken[each.uid], tokens=tuple(tokens))


def _bucket(key: Hashable, rate: Rate, room: Room) -> TokenBucket:
    buckets, now = room.ledger.buckets, room.moment.seconds
    bucket = buckets.get(key)
    if bucket is None:
        bucket = buckets[key] = TokenBucket(rate, now)
    else:
        bucket.change(rate, now)
    return bucket


GATE_OF: Final[Mapping[type[Limit], Gate]] = {
    BudgetLimit: _Budgets(),
    OwnerLimit: _Owners(),
    NamespaceLimit: _Namespaces(),
    OverallLimit: _Overall(),
    MinuteLimit: _Minutes(),
    RateLimit: _Rates(),
}
"""By what each of them names, in the order in which they are asked."""
