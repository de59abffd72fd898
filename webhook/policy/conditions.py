"""A rule's match, compiled: what it is asked about, and whether it covers that."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE
from webhook.policy.match import DriverMatcher, NamespaceMatcher, RequesterMatcher, TextSet, TolerationMatcher

if TYPE_CHECKING:
    from webhook.api.rules import DeviceSelector
    from webhook.api.taints import DeviceTaint, DeviceToleration
    from webhook.policy.model import Match
    from webhook.policy.ports import NamespaceFacts, Requester


class Scope(NamedTuple):
    """Who asks, and where. None is a requester, or facts of the namespace, that are not known."""

    requester: Requester | None
    namespace: str
    facts: NamespaceFacts | None


class Target(NamedTuple):
    """What is asked for; `drivers` is None where the class may give any."""

    device_class: str
    drivers: frozenset[str] | None
    admin_access: bool


class Placement(NamedTuple):
    """Whose devices a taint is for; None is a driver or pool that is not named, which may be any."""

    driver: str | None
    pool: str | None
    device: str | None = None
    evict: bool = False

    @classmethod
    def of(cls, selector: DeviceSelector | None, *, evict: bool) -> Placement:
        """Of a selector; a missing one, and one with a field that is not known, select like an empty one here."""
        if selector is None or selector.unknown:
            return cls(None, None, evict=evict)
        return cls(selector.driver, selector.pool, selector.device, evict)


class Matcher:
    """A match, compiled; `allowing` says which of its two readings holds."""

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
        """Whether it is about every request and every toleration of those in its scope."""
        return self.admin_access is None and self.classes.everything and self.drivers.everything and self.taints is None

    def covers_scope(self, scope: Scope) -> bool:
        """Whether it is about this requester and namespace."""
        if self.names is not None and not self.names.matches(scope.namespace, scope.facts, allowing=self.allowing):
            return False
        return self.requesters is None or self.requesters.matches(scope.requester, allowing=self.allowing)

    def covers(self, target: Target, toleration: DeviceToleration | None) -> bool:
        """Whether it is about this request and toleration; None is the request itself."""
        if self.admin_access is not None and self.admin_access is not target.admin_access:
            return False
        if not self.classes.holds(target.device_class):
            return False
        if not self.drivers.matches(target.drivers, allowing=self.allowing):
            return False
        if toleration is None or not isinstance(self.taints, TolerationMatcher):
            return True
        return self.taints.contains(toleration) if self.allowing else self.taints.intersects(toleration)

    def covers_taint(self, place: Placement, taint: DeviceTaint) -> bool:
        """Whether it is about a taint that somebody sets there."""
        if self.evict is not None and self.evict is not place.evict:
            return False
        for patterns, name in ((self.drivers, place.driver), (self.pools, place.pool)):
            if not patterns.matches(None if name is None else (name,), allowing=self.allowing):
                return False
        if not isinstance(self.taints, tuple):
            return True
        keys, values, effects = self.taints
        return keys.holds(taint.key) and values.holds(taint.value) and self._covers_effects(place, taint, effects)

    def _covers_effects(self, place: Placement, taint: DeviceTaint, effects: frozenset[str]) -> bool:
        """A taint has its own effect, and NoExecute beside it where our worker is asked to empty the devices.

        It is asked in vain with other effects than NoSchedule; to change those is to set another taint.
        """
        if not effects:
            return True
        emptied = place.evict and taint.effect == NO_SCHEDULE
        if self.allowing:
            return taint.effect in effects and (not emptied or NO_EXECUTE in effects)
        return taint.effect in effects or (emptied and NO_EXECUTE in effects)
