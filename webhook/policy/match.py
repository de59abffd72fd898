"""A rule's match, compiled: names, namespaces, requesters, sets of taints, and the whole of a match.

Rules that refuse (deny, warn, audit) match a set that *intersects* theirs, and unknown facts; rules that allow match a
set that they *contain*, and no unknown facts.

With a trace, a match looks at all of its fields, adds those that do not hold to the trace in the order of the
document, and holds if the trace is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from webhook.api.rules import DeviceSelector
from webhook.api.selectors import LabelRequirement
from webhook.api.taints import EXISTS, NO_EXECUTE, NO_SCHEDULE, NONE, DeviceTaint, DeviceToleration
from webhook.inventory.pools import Check, unchecked
from webhook.policy.model import LabelMatch, Match, NamespaceMatch, RequesterMatch, TolerationMatch
from webhook.policy.patterns import FEW_TEXTS, TextSet
from webhook.policy.ports import NamespaceFacts, Requester

EFFECTS: Final = frozenset({NONE, NO_SCHEDULE, NO_EXECUTE})
"""What an effect can be; a toleration without one tolerates all of them (L-5)."""


class Miss(NamedTuple):
    """A field of a match that does not hold. `part` is the label, or the expression, of a field that has several."""

    field: str
    part: tuple[str, str] | LabelRequirement | None = None


class Trace(list[Miss]):
    """The fields of a match that do not hold, in the order of the document."""

    def ends(self, field: str, part: tuple[str, str] | LabelRequirement | None = None) -> bool:
        """Add a field. A match that is traced does not end there: always false."""
        self.append(Miss(field, part))
        return False


class NamespaceMatcher:
    """`namespaces` of a match, compiled."""

    __slots__ = ("_except", "_labels", "names")

    def __init__(self, match: NamespaceMatch) -> None:
        self.names = TextSet(match.names)
        self._except = TextSet(match.except_names) if match.except_names else None
        self._labels = LabelMatcher(match) if match.labels or match.expressions else None

    def matches(self, name: str, facts: NamespaceFacts | None, trace: Trace | None = None, *, allowing: bool) -> bool:
        """Return whether the namespace matches. Unknown labels match a rule that refuses, and none that allows."""
        if not self.names.holds(name) and (trace is None or trace.ends("namespaces.names")):
            return False
        if self._except is not None and self._except.holds(name) and (trace is None or trace.ends("namespaces.except")):
            return False
        if self._labels is None or (facts is None and not allowing):
            return not trace
        return self._labels.matches(None if facts is None else facts.labels, trace)


class LabelMatcher:
    """`labels` and `matchExpressions` of a match, compiled."""

    __slots__ = ("_expressions", "_labels")

    def __init__(self, match: NamespaceMatch | LabelMatch) -> None:
        self._labels = [(label, TextSet([label[1]])) for label in match.labels]
        self._expressions = match.expressions

    def matches(self, labels: Mapping[str, str] | None, trace: Trace | None = None) -> bool:
        """Return whether an object with these labels has all of them; it has none if its labels are not known."""
        for label, values in self._labels:
            value = None if labels is None else labels.get(label[0])
            if (value is None or not values.holds(value)) and (trace is None or trace.ends("namespaces.labels", label)):
                return False
        for each in self._expressions:
            if (labels is None or not each.matches(labels)) and (
                trace is None or trace.ends("namespaces.matchExpressions", each)
            ):
                return False
        return not trace


class RequesterMatcher:
    """`requesters` of a match, compiled: one of the lists must match."""

    __slots__ = ("accounts", "groups", "users")

    def __init__(self, match: RequesterMatch) -> None:
        self.users = TextSet(match.users) if match.users else None
        self.groups = TextSet(match.groups) if match.groups else None
        self.accounts = TextSet(match.service_accounts) if match.service_accounts else None

    def matches(self, requester: Requester | None, *, allowing: bool, check: Check = unchecked) -> bool:
        """Whether the requester matches. An unknown one (None) matches rules that refuse, and none that allow."""
        if self.users is None and self.groups is None and self.accounts is None:
            return True
        if requester is None:
            return not allowing
        account = requester.service_account
        return (
            (self.users is not None and self.users.holds(requester.username))
            or (self.accounts is not None and account is not None and self.accounts.holds(account))
            or (self.groups is not None and self._by_groups(requester, self.groups, check, allowing=allowing))
        )

    @staticmethod
    def _by_groups(requester: Requester, groups: TextSet, check: Check, *, allowing: bool) -> bool:
        if not requester.groups_known:
            return not allowing
        if len(requester.groups) <= FEW_TEXTS:
            return groups.holds_any(requester.groups)
        return groups.holds_any_of(requester.sorted_groups, check)


class DriverMatcher:
    """`drivers` (or `pools`) of a match, compiled; None is a set that may contain any name."""

    __slots__ = ("everything", "texts")

    def __init__(self, patterns: Iterable[str]) -> None:
        self.texts = TextSet(patterns)
        self.everything = self.texts.everything

    def matches(self, drivers: Iterable[str] | None, *, allowing: bool) -> bool:
        """Return whether one of the drivers matches (refusing), or all of them do (allowing)."""
        if self.everything:
            return True
        if drivers is None:
            return not allowing
        found = [self.texts.holds(driver) for driver in drivers]
        # A class that selects no device at all is contained in every set and intersects none.
        return all(found) if allowing else any(found)


class TolerationMatcher:
    """`tolerations` of a match, compiled: a set of taints, and for how long those with NoExecute."""

    __slots__ = ("_above", "_at_most", "_effects", "keys", "values")

    def __init__(self, match: TolerationMatch) -> None:
        self.keys = TextSet(match.keys)
        self.values = TextSet(match.values)
        self._effects = frozenset(match.effects) or EFFECTS
        self._above = match.above
        self._at_most = match.at_most

    def intersects(self, toleration: DeviceToleration, trace: Trace | None = None) -> bool:
        """Return whether it tolerates one of these taints, and one with NoExecute for longer than `above`."""
        if toleration.key and not self.keys.holds(toleration.key) and (trace is None or trace.ends("tolerations.keys")):
            return False
        exists = toleration.operator == EXISTS
        if (
            not exists
            and not self.values.holds(toleration.value)
            and (trace is None or trace.ends("tolerations.values"))
        ):
            return False
        effects = self._effects if not toleration.effect else self._effects & {toleration.effect}
        if not effects and (trace is None or trace.ends("tolerations.effects")):
            return False
        if self._above is None:
            return not trace
        # a trace goes on without a shared effect, to the seconds of the toleration's own
        lasts = NO_EXECUTE in (effects or {toleration.effect}) and _longer(toleration, self._above)
        if not lasts and (trace is None or trace.ends("tolerations.seconds")):
            return False
        return not trace

    def contains(self, toleration: DeviceToleration, trace: Trace | None = None) -> bool:
        """Return whether it tolerates nothing but these taints, and those with NoExecute no longer than `at_most`."""
        keys = self.keys.holds(toleration.key) if toleration.key else self.keys.everything
        if not keys and (trace is None or trace.ends("tolerations.keys")):
            return False
        values = self.values.everything if toleration.operator == EXISTS else self.values.holds(toleration.value)
        if not values and (trace is None or trace.ends("tolerations.values")):
            return False
        effects = {toleration.effect} if toleration.effect else EFFECTS
        if not effects <= self._effects and (trace is None or trace.ends("tolerations.effects")):
            return False
        lasts = self._at_most is not None and NO_EXECUTE in effects and _longer(toleration, self._at_most)
        if lasts and (trace is None or trace.ends("tolerations.seconds")):
            return False
        return not trace


def _longer(toleration: DeviceToleration, seconds: int) -> bool:
    """Whether a toleration lasts longer. Missing seconds mean for ever; zero and less mean no time at all (E-10)."""
    return toleration.toleration_seconds is None or max(0, toleration.toleration_seconds) > seconds


# --- a whole match -------------------------------------------------------------------------------


class Scope(NamedTuple):
    """Who asks, and in which namespace. None: the requester, or the facts of the namespace, are not known."""

    requester: Requester | None
    namespace: str
    facts: NamespaceFacts | None


class Target(NamedTuple):
    """The devices asked for; `drivers` is None if the class may select any driver."""

    device_class: str
    drivers: frozenset[str] | None
    admin_access: bool


class Placement(NamedTuple):
    """Which devices a taint is for; None is a driver, pool or device that is not named, so any."""

    driver: str | None
    pool: str | None
    device: str | None = None
    evict: bool = False

    @classmethod
    def of(cls, selector: DeviceSelector | None, *, evict: bool) -> Placement:
        """The placement of a selector. A missing one, and one with an unknown field, count as empty here."""
        if selector is None or selector.unknown:
            return cls(None, None, evict=evict)
        return cls(selector.driver, selector.pool, selector.device, evict)


_EVERY_TAINT: Final = (TextSet(()), TextSet(()), frozenset[str]())


class Matcher:
    """A compiled match; `allowing` says which of its two readings applies."""

    __slots__ = ("admin_access", "allowing", "classes", "drivers", "evict", "names", "pools", "requesters", "taints")

    def __init__(self, match: Match, *, allowing: bool) -> None:
        self.allowing = allowing
        self.names = NamespaceMatcher(match.namespaces) if match.namespaces else None
        self.requesters = RequesterMatcher(match.requesters) if match.requesters else None
        self.classes = TextSet(match.device_classes)
        self.drivers = DriverMatcher(match.drivers)
        self.pools = DriverMatcher(match.pools)
        self.admin_access = match.admin_access
        self.evict = match.evict
        self.taints = (
            TolerationMatcher(match.tolerations)
            if match.tolerations
            else (TextSet(match.taints.keys), TextSet(match.taints.values), frozenset(match.taints.effects))
            if match.taints
            else None
        )

    @property
    def covers_everything(self) -> bool:
        """Whether it matches every request and every toleration in its scope."""
        return self.admin_access is None and self.classes.everything and self.drivers.everything and self.taints is None

    def covers_scope(self, scope: Scope, check: Check = unchecked, trace: Trace | None = None) -> bool:
        """Return whether requester and namespace match."""
        allowing, names, who = self.allowing, self.names, self.requesters
        if (
            names is not None
            and not names.matches(scope.namespace, scope.facts, trace, allowing=allowing)
            and trace is None
        ):
            return False
        known = who is None or who.matches(scope.requester, allowing=allowing, check=check)
        if not known and (trace is None or trace.ends("requesters")):
            return False
        return not trace

    def covers(self, target: Target, toleration: DeviceToleration | None, trace: Trace | None = None) -> bool:
        """Return whether the request and the toleration match; None is the request itself."""
        if not self.classes.holds(target.device_class) and (trace is None or trace.ends("deviceClasses")):
            return False
        if not self.drivers.matches(target.drivers, allowing=self.allowing) and (
            trace is None or trace.ends("drivers")
        ):
            return False
        admin = self.admin_access
        if admin is not None and admin is not target.admin_access and (trace is None or trace.ends("adminAccess")):
            return False
        if toleration is None or not isinstance(self.taints, TolerationMatcher):
            return not trace
        taints = self.taints
        return taints.contains(toleration, trace) if self.allowing else taints.intersects(toleration, trace)

    def covers_taint(self, place: Placement, taint: DeviceTaint, trace: Trace | None = None) -> bool:
        """Return whether the taint on those devices matches."""
        for field, patterns, name in (("drivers", self.drivers, place.driver), ("pools", self.pools, place.pool)):
            names = None if name is None else (name,)
            if not patterns.matches(names, allowing=self.allowing) and (trace is None or trace.ends(field)):
                return False
        if self.evict is not None and self.evict is not place.evict and (trace is None or trace.ends("evict")):
            return False
        keys, values, effects = self.taints if isinstance(self.taints, tuple) else _EVERY_TAINT
        if not keys.holds(taint.key) and (trace is None or trace.ends("taints.keys")):
            return False
        if not values.holds(taint.value) and (trace is None or trace.ends("taints.values")):
            return False
        if not self._covers_effects(place, taint, effects) and (trace is None or trace.ends("taints.effects")):
            return False
        return not trace

    def _covers_effects(self, place: Placement, taint: DeviceTaint, effects: frozenset[str]) -> bool:
        """Return whether the effects match. A NoSchedule taint that our worker evicts for counts as NoExecute too."""
        if not effects:
            return True
        emptied = place.evict and taint.effect == NO_SCHEDULE
        if self.allowing:
            return taint.effect in effects and (not emptied or NO_EXECUTE in effects)
        return taint.effect in effects or (emptied and NO_EXECUTE in effects)
