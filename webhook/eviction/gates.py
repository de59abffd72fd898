"""Who finds room: one function takes places and tokens, for whole units, in the order of the plan.

A limit is one class in `GATE_OF`. It names what concerns a unit (`limits`), says whether one of these is closed, and
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
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final

from msgspec import structs

from webhook.eviction.ledger import MINUTE_SECONDS, BudgetAnswers
from webhook.eviction.pod_plan import Unit, Wait
from webhook.eviction.ports import (
    BudgetLimit,
    Limit,
    MinuteLimit,
    NamespaceLimit,
    OverallLimit,
    OwnerLimit,
    RateLimit,
)
from webhook.eviction.profiles import max_unavailable, owner_of
from webhook.eviction.room import PROBE_SECONDS, Gate, Room, allowed_by
from webhook.flowcontrol.rates import Rate, TokenBucket

AT_ONCE_MOST: Final = 4
"""Requests in flight for one budget: the API server serializes them, by conflicts on the budget's status."""
_ASK_AGAIN_SECONDS: Final = 0.1
"""How often to look while the requests in flight use up a minute."""


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
GATES: Final = tuple(GATE_OF.values())
