"""Who finds room once more, naive: every gate counts everything again for each unit. See `oracle.py`."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec import structs

from tests.unit.eviction.plan.oracle import Planned, Together, gang_of
from tests.unit.eviction.plan.worlds import World
from webhook.api.pods import Pod, needs_disruption
from webhook.api.rules import OWN_RATE_BURST, own_rate
from webhook.eviction.ledger import BudgetAnswers, Ledger
from webhook.eviction.pod_plan import Going, StepReason, Wait
from webhook.eviction.ports import BudgetLimit, Limit, MinuteLimit, NamespaceLimit, OverallLimit, OwnerLimit, RateLimit
from webhook.eviction.profiles import deletes_at_once, max_unavailable, owner_of
from webhook.flowcontrol.rates import Rate, TokenBucket
from webhook.inventory.evictions import EvictionReason, later

_MINUTE: Final = 60.0
_PROBE_SECONDS: Final = 5.0
_LATELY_SECONDS: Final = 10.0
_IN_FLIGHT_MOST: Final = 4
_IN_FLIGHT_WAIT: Final = 0.1


class Closed(NamedTuple):
    """A limit that lets no pod through; for so many seconds, or None: until something changes."""

    seconds: float | None = None


@dataclass(frozen=True)
class Took:
    """Units that go, in order, and all that has kept the pods of the others, by uid: any of it may be named."""

    units: list[Together] = field(default_factory=list)
    waits: dict[str, dict[Limit, Wait]] = field(default_factory=dict)


@dataclass
class Room:
    """The world while units are taken; the ledger is a copy that is counted on in."""

    world: World
    plan: Planned
    ledger: Ledger
    places: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Taken in this call, by uid: the place in limits, and that of the owner."""


def take_of(world: World, plan: Planned) -> Took:
    """The units that find room: always the first that does."""
    room = Room(world, plan, deepcopy(world.ledger))
    took, left, found = Took(), [*plan.eligible], True
    while found:
        found = False
        for unit in left:
            closed = _closed(room, unit)
            for each in unit.members:
                took.waits.setdefault(each.uid, {}).update(closed)
            if not closed:
                _count(room, unit)
                took.units.append(unit)
                left.remove(unit)
                found = True
                break
    for uid in [each.uid for unit in took.units for each in unit.members]:
        del took.waits[uid]
    return took


def _closed(room: Room, unit: Together) -> dict[Limit, Wait]:
    """The limits that keep a unit at this point."""
    now = room.world.moment.now
    return {
        limit: Wait(StepReason.LIMITED, None if closed.seconds is None else later(now, closed.seconds), limit=limit)
        for limit, closed in _limits(room, unit)
        if closed is not None
    }


def _limits(room: Room, unit: Together) -> Iterator[tuple[Limit, Closed | None]]:
    """Every limit that concerns the unit, in order, with what it says."""
    for budget in _budgets_of(room, unit):
        yield budget, _budget_says(room, budget)
    yield from _owners(room, unit)
    under_way = _under_way(room)
    if unit.key not in {place for place, _ in under_way}:
        profiles = list(dict.fromkeys([(each.pod.meta.namespace, each.profile) for each in unit.members]))
        for namespace, (position, settings) in profiles:
            if settings.per_namespace is not None:
                number = len([place for place, where in under_way if where == namespace])
                says = Closed() if number >= settings.per_namespace else None
                yield NamespaceLimit(namespace, position), says
        for _, (position, settings) in profiles:
            if settings.overall is not None:
                number = len({place for place, _ in under_way})
                yield OverallLimit(position), Closed() if number >= settings.overall else None
    yield from _minutes(room, unit)
    for limit in dict.fromkeys([_rates_of(room, each) for each in unit.members]):
        yield limit, _rate_says(room, limit)


def _count(room: Room, unit: Together) -> None:
    """The unit goes: what it takes counts for the next ones."""
    seconds = room.world.moment.seconds
    for budget in _budgets_of(room, unit):
        single = structs.replace(budget, needed=1)
        asked = room.ledger.budgets.get(single, BudgetAnswers())
        asked = structs.replace(asked, in_flight=asked.in_flight + budget.needed, asked_at=seconds)
        room.ledger.budgets[single] = asked
    for number, each in enumerate(unit.members):
        room.ledger.departures.setdefault(each.profile.settings, {})[each.uid] = math.inf
        limit = _rates_of(room, each)
        highest = max([rate.per_second for _, rate in limit.buckets])
        for name, rate in limit.buckets:
            _bucket(room, name, rate).take(seconds, owing=number > 0 and rate.per_second == highest)
    of_owners = {each.uid: _place_of_owner(room, each, unit) for each in unit.members}
    for each in unit.members:
        room.places[each.uid] = unit.key, of_owners[each.uid]


def _is_stuck(room: Room, pod: Pod) -> bool:
    """Whether it is still terminating long after it should be gone."""
    settings = room.world.view.profile_of(pod).settings
    if not pod.deleting or pod.grace_ends is None:
        return False
    return later(pod.grace_ends, settings.stuck_after_seconds) <= room.world.moment.now


def _pods(room: Room) -> dict[str, Pod]:
    return {pod.meta.uid: pod for _, pod in sorted(room.world.view.inventory.pods.items())}


# --- places ----------------------------------------------------------------------------------------------------------


def _under_way(room: Room) -> set[tuple[str, str]]:
    """The places of evictions under way, with their namespaces."""
    found, pods = set[tuple[str, str]](), _pods(room)
    for uid, taken in room.ledger.taken.items():
        if uid not in pods or not _is_stuck(room, pods[uid]):
            found.add((taken.place, taken.namespace))
    for uid, leaving in room.plan.terminating.items():
        if uid not in room.ledger.taken and not _is_stuck(room, leaving.pod):
            found.add((leaving.gang or uid, leaving.pod.meta.namespace))
    for uid, (place, _) in room.places.items():
        found.add((place, pods[uid].meta.namespace))
    return found


def _owners(room: Room, unit: Together) -> Iterator[tuple[Limit, Closed | None]]:
    if _deleted(room, unit):
        guarded = set[str]()
    else:
        guarded = {each.uid for each in unit.members if room.world.budgets.select(each.pod)}
    for each in unit.members:
        owner = owner_of(each.pod)
        if not owner or each.uid in guarded:
            continue
        places, missing = _places_of(room, owner)
        if _is_missing(room, each.pod) or _place_of_owner(room, each, unit) in missing:
            continue
        most = max_unavailable(each.profile.settings.per_owner_unavailable, len(places))
        if most is not None:
            yield OwnerLimit(owner, each.profile.position), Closed() if len(missing) >= most else None


def _place_of_owner(room: Room, each: Going, unit: Together) -> str:
    """Its gang, or the place that others left it with, or that of its unit."""
    failure = room.ledger.failures.get(each.uid)
    missing = _places_of(room, owner_of(each.pod))[1] if owner_of(each.pod) else set[str]()
    left = failure.place if failure is not None and failure.place in missing else ""
    return each.gang or left or unit.key


def _is_missing(room: Room, pod: Pod) -> bool:
    if _is_stuck(room, pod):
        return False
    uid = pod.meta.uid
    taken = uid in room.ledger.taken or uid in room.places
    return taken or pod.deleting or not pod.ready


def _places_of(room: Room, owner: str) -> tuple[set[str], set[str]]:
    """The places of an owner's pods, and those among them that are not filled."""
    places, missing = set[str](), set[str]()
    for pod in _pods(room).values():
        if owner_of(pod) != owner:
            continue
        uid = pod.meta.uid
        counts = uid in room.ledger.taken or uid in room.places or (pod.deleting and not pod.completes)
        if pod.finished and not counts:
            continue
        place = gang_of(room.world, pod) or uid
        places.add(place)
        if uid in room.places:
            place = room.places[uid][1]
        elif uid in room.ledger.taken:
            place = room.ledger.taken[uid].of_owner or gang_of(room.world, pod) or uid
        if _is_missing(room, pod):
            missing.add(place)
    left_open = set(room.ledger.unreplaced.get(owner, {}).values())
    return places | left_open, missing | left_open


# --- budgets ---------------------------------------------------------------------------------------------------------


def _budget_of(room: Room, member: Going) -> BudgetLimit | None:
    """The budget that the pod needs a disruption of, apart from how many."""
    pod, selecting = member.pod, room.world.budgets.select(member.pod)
    if needs_disruption(pod, selecting):
        return BudgetLimit(pod.meta.namespace, tuple([budget.meta.name for budget in selecting]))
    failure = room.ledger.failures.get(member.uid)
    blocked = failure is not None and failure.blocked
    return BudgetLimit(pod.meta.namespace, (), member.uid) if blocked else None


def _deleted(room: Room, unit: Together) -> set[str]:
    """The members, by uid, that go without being asked for: their budget refuses for too long."""
    limits = {each.uid: _budget_of(room, each) for each in unit.members}
    found = set[str]()
    for each in unit.members:
        limit, settings = limits[each.uid], each.profile.settings
        if deletes_at_once(settings):
            found.add(each.uid)
        if limit is None or not settings.delete_after_deadline:
            continue
        needed = list(limits.values()).count(limit)
        for one in (limit, structs.replace(limit, needed=needed)):
            asked = room.ledger.budgets.get(one, BudgetAnswers())
            lately = room.world.moment.seconds - asked.refused_at <= _LATELY_SECONDS
            if lately and asked.refused_seconds >= settings.deadline_seconds:
                found.add(each.uid)
    return found


def _budgets_of(room: Room, unit: Together) -> list[BudgetLimit]:
    deleted = _deleted(room, unit)
    asking = [_budget_of(room, each) for each in unit.members if each.uid not in deleted]
    limits = [limit for limit in asking if limit is not None]
    return [structs.replace(limit, needed=limits.count(limit)) for limit in dict.fromkeys(limits)]


def _budget_says(room: Room, limit: BudgetLimit) -> Closed | None:
    seconds = room.world.moment.seconds
    single = room.ledger.budgets.get(structs.replace(limit, needed=1), BudgetAnswers())
    closed_until = max(single.closed_until, room.ledger.budgets.get(limit, BudgetAnswers()).closed_until)
    if seconds < closed_until:
        return Closed(closed_until - seconds)
    budget = room.world.budgets.find(limit.namespace, limit.budgets[0]) if len(limit.budgets) == 1 else None
    allowed = None if budget is None else budget.allowed
    if allowed is not None and allowed - single.granted - single.in_flight >= limit.needed:
        return None if limit.needed > 1 or single.in_flight < _IN_FLIGHT_MOST else Closed()
    if single.in_flight:
        return Closed()
    if allowed is None:
        return None
    probe_at = single.asked_at + _PROBE_SECONDS
    return None if seconds >= probe_at else Closed(probe_at - seconds)


# --- rates -----------------------------------------------------------------------------------------------------------


def _minutes(room: Room, unit: Together) -> Iterator[tuple[Limit, Closed | None]]:
    seconds = room.world.moment.seconds
    for position, settings in dict.fromkeys([each.profile for each in unit.members]):
        if settings.max_per_minute is None:
            continue
        times = sorted(room.ledger.departures.get(settings, {}).values())
        times = [time for time in times if time == math.inf or time + _MINUTE - seconds > 0]
        over = len(times) - settings.max_per_minute + 1
        closed = None
        if over > 0:
            time = times[over - 1]
            closed = Closed(_IN_FLIGHT_WAIT if time == math.inf else time + _MINUTE - seconds)
        yield MinuteLimit(position), closed


def _rates_of(room: Room, member: Going) -> RateLimit:
    buckets = {_bucket_of(room, member, reason) for reason in member.eviction.reasons}
    return RateLimit(tuple(sorted(buckets, key=repr)))


def _bucket_of(room: Room, member: Going, reason: EvictionReason) -> tuple[Hashable, Rate]:
    own: float | None
    name: Hashable
    if reason.rule:
        rule = room.world.view.inventory.rules[reason.rule]
        group = room.world.view.group_of(reason.rule_uid)
        of_patch = rule.origin.patch and group != rule.meta.uid
        name = (group, reason.taint.key, reason.taint.effect) if of_patch else group  # the effect as it acts (N-18)
        own = own_rate(rule)
    else:
        name = (reason.driver, reason.taint.key)
        extras = reason.taint.extras
        own = extras.evictions_per_second if extras is not None else None
    if own:
        return (name, -1), Rate(float(own), OWN_RATE_BURST)
    settings = member.profile.settings
    return (name, member.profile.position), Rate(settings.rate, settings.burst)


def _bucket(room: Room, name: Hashable, rate: Rate) -> TokenBucket:
    """The bucket of that name, which has this rate from now on."""
    seconds = room.world.moment.seconds
    if name not in room.ledger.buckets:
        room.ledger.buckets[name] = TokenBucket(rate, seconds)
    room.ledger.buckets[name].change(rate, seconds)
    return room.ledger.buckets[name]


def _rate_says(room: Room, limit: RateLimit) -> Closed | None:
    seconds = room.world.moment.seconds
    shortest = min([_bucket(room, name, rate).wait_seconds(seconds) for name, rate in limit.buckets])
    return Closed(shortest) if shortest > 0 else None
