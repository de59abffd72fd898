"""What rules look at, and a rule's match, compiled: patterns, names, requesters, sets of taints, the whole of a match.

Rules that refuse (deny, warn, audit) match a set that *intersects* theirs, and unknown facts; rules that allow match a
set that they *contain*, and no unknown facts.

With a trace, a match looks at all of its fields, adds those that do not hold to the trace in the order of the
document, and holds if the trace is empty. Matching a pattern takes time linear in the length of the text times its own,
however many stars it has.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final, NamedTuple, Protocol

import msgspec

from webhook.api.meta import LabelRequirement
from webhook.api.rules import DeviceSelector
from webhook.api.taints import EXISTS, NO_EXECUTE, NO_SCHEDULE, NONE, DeviceTaint, DeviceToleration
from webhook.inventory.pools import Check, in_steps, unchecked
from webhook.policy.model import LabelMatch, Match, NamespaceMatch, Policy, RequesterMatch, TolerationMatch

EFFECTS: Final = frozenset({NONE, NO_SCHEDULE, NO_EXECUTE})
"""What an effect can be; a toleration without one tolerates all of them (L-5)."""
FEW_TEXTS: Final = 64
"""Up to that many texts are compared with each pattern one by one, which is quicker than sorting them."""
ANONYMOUS: Final = "system:anonymous"
_VARIABLE: Final = re.compile(r"\brequester\b")
SERVICE_ACCOUNT: Final = "system:serviceaccount:"
"""What the name of every service account begins with, followed by its namespace, a colon and its own name."""
SERVICE_ACCOUNTS: Final = "system:serviceaccounts"
"""The group of all of them."""


# --- patterns ------------------------------------------------------------------------------------


class Glob:
    """A pattern with `*` (any text, also none) and `?` (one character)."""

    __slots__ = ("_first", "_last", "_last_length", "_middle", "longest", "prefix", "suffix")

    def __init__(self, pattern: str) -> None:
        pieces = re.split(r"[*?]", pattern)
        self.prefix = pieces[0]
        """The letters before the first wildcard: every text that matches begins with them."""
        self.suffix = pieces[-1]
        """The letters after the last one: every text that matches ends with them."""
        self.longest = max(pieces, key=len)
        """The longest of all letters between wildcards: every text that matches has them."""
        first, *rest = re.sub(r"\*+", "*", pattern).split("*")
        self._first = _piece(first)
        self._last = _piece(rest[-1]) if rest else None
        self._last_length = len(rest[-1]) if rest else 0
        self._middle = [_piece(piece) for piece in rest[:-1]]

    def matches(self, text: str) -> bool:
        """Whether the whole text fits the pattern. Pieces go as far left as they can: if any places fit, these do."""
        first = self._first.match(text)
        if first is None:
            return False
        at, last = first.end(), self._last
        if last is None:
            return at == len(text)
        for piece in self._middle:
            found = piece.search(text, at)
            if found is None:
                return False
            at = found.end()
        # a piece has a fixed length, so there is only one place where the last one can end the text
        start = len(text) - self._last_length
        return start >= at and last.match(text, start) is not None


def _piece(text: str) -> re.Pattern[str]:
    return re.compile("".join("." if character == "?" else re.escape(character) for character in text), re.DOTALL)


def takes_all(patterns: Iterable[str]) -> bool:
    """Return whether one of the patterns stands for every text."""
    return any(pattern and not pattern.strip("*") for pattern in patterns)


class TextSet:
    """The texts that match one of some patterns. An empty list of patterns stands for every text."""

    __slots__ = ("everything", "exact", "globs")

    def __init__(self, patterns: Iterable[str]) -> None:
        patterns = list(patterns)
        self.everything = not patterns or takes_all(patterns)
        self.exact = frozenset(pattern for pattern in patterns if "*" not in pattern and "?" not in pattern)
        self.globs = [Glob(pattern) for pattern in patterns if pattern not in self.exact]

    def holds(self, text: str) -> bool:
        """Return whether the text is in the set."""
        return self.everything or text in self.exact or any(glob.matches(text) for glob in self.globs)

    def holds_any(self, texts: Iterable[str]) -> bool:
        """Return whether any of the texts is in the set."""
        return any(self.holds(text) for text in texts)

    def holds_any_of(self, texts: Texts, check: Check) -> bool:
        """Return whether any of many texts is in the set."""
        check()
        if self.everything:
            return bool(texts)
        if not self.exact.isdisjoint(texts.all):
            return True
        return any(glob.matches(text) for glob in self.globs for text in in_steps(texts.like(glob, check), check))


class Texts:
    """Many texts, sorted so that few of them need be compared with a pattern."""

    __slots__ = ("_backwards", "_forwards", "_whole", "all")

    def __init__(self, texts: Iterable[str]) -> None:
        self.all = frozenset(texts)
        self._forwards = sorted(self.all)
        self._backwards = sorted(text[::-1] for text in self.all)
        self._whole = "\n".join(self._forwards)

    def __bool__(self) -> bool:
        return bool(self.all)

    def like(self, glob: Glob, check: Check) -> Iterable[str]:
        """Those that may match a pattern, and always those that do. `check` is called before each look at all texts."""
        if glob.longest not in self._whole:
            return ()
        texts = _beginning(self._forwards, glob.prefix)
        ending = _beginning(self._backwards, glob.suffix[::-1])
        if len(ending) < len(texts):
            texts = [text[::-1] for text in ending]
        if len(texts) > FEW_TEXTS and glob.longest:
            check()
            return [text for text in texts if glob.longest in text]
        return texts


def _beginning(texts: list[str], prefix: str) -> list[str]:
    """Those of some sorted texts that begin with a prefix."""
    if not prefix:
        return texts
    first = bisect_left(texts, prefix)
    # Texts with the prefix stand together.
    last = bisect_left(texts, True, first, key=lambda text: not text.startswith(prefix))  # noqa: FBT003 -- the key's
    return texts[first:last]


# --- facts ---------------------------------------------------------------------------------------


class Requester(msgspec.Struct, frozen=True, dict=True):
    """The sender of a request, as authenticated by the API server.

    `groups_known` is false where the list had to be cut (the author of a template with very many groups): rules on
    groups then treat the requester as unknown.
    """

    username: str
    groups: tuple[str, ...] = ()
    groups_known: bool = True

    @cached_property
    def sorted_groups(self) -> Texts:
        """The groups, for rules that compare many of them with patterns."""
        return Texts(self.groups)

    @property
    def service_account(self) -> str | None:
        """`namespace/name` of a service account; None for other users."""
        if not self.username.startswith(SERVICE_ACCOUNT):
            return None
        namespace, colon, name = self.username.removeprefix(SERVICE_ACCOUNT).partition(":")
        return f"{namespace}/{name}" if colon else None


class NamespaceFacts:
    """A namespace as rules see it.

    Compared by identity on purpose: caches make a new one when labels change, so that evaluations kept for the old
    one are not found again.
    """

    __slots__ = ("labels", "name")

    def __init__(self, name: str, labels: Mapping[str, str]) -> None:
        self.name = name
        self.labels = labels


class ClusterNames(Protocol):
    """What the cluster knows about namespaces and device classes; None for what is not, or not yet, known."""

    def namespace(self, name: str) -> NamespaceFacts | None:
        """The namespace, or None if it is not known."""
        ...

    def drivers(self, device_class: str) -> frozenset[str] | None:
        """The drivers whose devices the class can select; None if the class is not known or may select any."""
        ...


class KnownNames:
    """Names from a table: for files, test suites and dumps. What is not in it is not known."""

    def __init__(
        self,
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
        device_classes: Mapping[str, frozenset[str] | None] | None = None,
    ) -> None:
        self._namespaces = {name: NamespaceFacts(name, labels) for name, labels in (namespaces or {}).items()}
        self._device_classes = device_classes or {}

    def namespace(self, name: str) -> NamespaceFacts | None:
        """The namespace, if it is in the table."""
        return self._namespaces.get(name)

    def drivers(self, device_class: str) -> frozenset[str] | None:
        """The drivers behind the class, if it is in the table."""
        return self._device_classes.get(device_class)


NO_NAMES: Final = KnownNames()
"""Nothing is known of the cluster."""


def authenticated(username: str, groups: Iterable[str] = ()) -> Requester:
    """A requester with the groups that an API server adds by itself (apiserver/pkg/endpoints/filters/impersonation)."""
    found = list(groups)
    account = Requester(username).service_account
    if account is not None:
        found += [SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{account.partition('/')[0]}"]
    found.append("system:unauthenticated" if username == ANONYMOUS else "system:authenticated")
    return Requester(username, tuple(dict.fromkeys(found)))


def asks_who(policy: Policy) -> bool:
    """Whether a rule, an exception or a default looks at the requester."""
    matches = [rule.match for rule in (*policy.rules, *policy.taint_rules)]
    matches += [exception.match for exception in policy.exceptions]
    matches += [entry.match for entry in policy.default_tolerations]
    return any(
        match.requesters is not None or (match.when is not None and bool(_VARIABLE.search(match.when.source)))
        for match in matches
    )


# --- parts of a match ----------------------------------------------------------------------------


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

    def holds(self, name: str | None, *, allowing: bool) -> bool:
        """Return whether the one driver (or pool) matches; None may be any."""
        if self.everything:
            return True
        return not allowing if name is None else self.texts.holds(name)


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
        keys = not toleration.key or self.keys.holds(toleration.key)
        if not keys and (trace is None or trace.ends("tolerations.keys")):
            return False
        values = toleration.operator == EXISTS or self.values.holds(toleration.value)
        if not values and (trace is None or trace.ends("tolerations.values")):
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
        names, who = self.names, self.requesters
        if names is not None:
            known = names.matches(scope.namespace, scope.facts, trace, allowing=self.allowing)
            if not known and trace is None:
                return False
        if who is not None:
            known = who.matches(scope.requester, allowing=self.allowing, check=check)
            if not known and (trace is None or trace.ends("requesters")):
                return False
        return not trace

    def covers(self, target: Target, toleration: DeviceToleration | None, trace: Trace | None = None) -> bool:
        """Return whether the request and the toleration match; None is the request itself."""
        if not self.classes.holds(target.device_class) and (trace is None or trace.ends("deviceClasses")):
            return False
        drivers = self.drivers.everything or self.drivers.matches(target.drivers, allowing=self.allowing)
        if not drivers and (trace is None or trace.ends("drivers")):
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
            if not patterns.holds(name, allowing=self.allowing) and (trace is None or trace.ends(field)):
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
