"""How two matches relate: whether one covers the other, and whether they are apart.

A rule that an earlier one covers is never reached; an allow that is apart from a deny need not be excepted from it.
Both are claimed only where they are certain: patterns are compared as texts, and nothing is concluded from `when`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE
from webhook.policy.match import EFFECTS, TextSet, takes_all
from webhook.policy.model import (
    DECIDING,
    Action,
    Match,
    NamespaceMatch,
    RequesterMatch,
    Rule,
    TaintMatch,
    TolerationMatch,
)

_EMPTYING: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})
"""The effects of a taint on devices that our worker is asked to empty."""
_CANDIDATES_MAX: Final = 16
"""Earlier rules that a rule is compared with. If more than that share a pattern, the rest are not compared."""


class EarlierRules:
    """The deciding rules so far, indexed to find one that covers a later rule."""

    def __init__(self) -> None:
        self._by_part: dict[Hashable, list[Rule]] = defaultdict(list)

    def add(self, rule: Rule) -> None:
        """Add the next rule."""
        if rule.action in DECIDING and rule.match.when is None:
            # Whatever it covers shares one of these parts; index by the field with the fewest.
            fields = [parts for parts in _parts(rule.match) if parts]
            for part in min(fields, key=len) if fields else (None,):
                self._by_part[part].append(rule)

    def covering(self, rule: Rule) -> Rule | None:
        """An earlier rule that decides all that this one could match."""
        places = [None, *(parts[0] for parts in _parts(rule.match) if parts)]
        for place in places:
            for earlier in self._by_part.get(place, ())[:_CANDIDATES_MAX]:
                if _decides_all(earlier, rule):
                    return earlier
        return None


def _parts(match: Match) -> Iterator[Sequence[Hashable]]:
    """For each list that narrows a match, its entries. What a match covers has only entries of it in that list."""
    if match.namespaces is not None:
        yield [("namespace", name) for name in _narrowing(match.namespaces.names)]
    if match.requesters is not None:
        who = match.requesters
        lists = (("user", who.users), ("group", who.groups), ("account", who.service_accounts))
        yield [(sort, name) for sort, names in lists for name in names]
    yield [("class", name) for name in _narrowing(match.device_classes)]
    yield [("driver", name) for name in _narrowing(match.drivers)]
    yield [("pool", name) for name in _narrowing(match.pools)]
    for taints in (match.tolerations, match.taints):
        if taints is not None:
            yield [("key", key) for key in _narrowing(taints.keys)]


def _decides_all(earlier: Rule, later: Rule) -> bool:
    """Whether the earlier rule decides everything that the later one matches."""
    if earlier.action is Action.ALLOW and later.action is not Action.ALLOW and not _is_plain(earlier.match):
        return False
    return covers(earlier.match, later.match)


def _is_plain(match: Match) -> bool:
    """Whether a match means the same in a rule that allows and in one that refuses: no sets, no unknown facts.

    Otherwise a rule that allows can let through what a rule that refuses, with the same match, still matches.
    """
    where = match.namespaces
    facts = match.requesters is not None or (where is not None and bool(where.labels or where.expressions))
    taints = match.taints if match.evict is not False else None
    effects = taints is not None and len(_EMPTYING.intersection(taints.effects)) == 1
    return not facts and not effects and match.tolerations is None and not match.drivers and not match.pools


def covers(wide: Match, narrow: Match) -> bool:
    """Whether all that the narrow match describes is described by the wide one, `when` apart."""
    return (
        _holds_all(wide.device_classes, narrow.device_classes)
        and _holds_all(wide.drivers, narrow.drivers)
        and _holds_all(wide.pools, narrow.pools)
        and wide.admin_access in {None, narrow.admin_access}
        and wide.evict in {None, narrow.evict}
        and (wide.namespaces is None or _covers_namespaces(wide.namespaces, narrow.namespaces or NamespaceMatch()))
        and (wide.requesters is None or _covers_requesters(wide.requesters, narrow.requesters))
        and (wide.tolerations is None or _covers_tolerations(wide.tolerations, narrow.tolerations))
        and (wide.taints is None or _covers_taints(wide.taints, narrow.taints or TaintMatch()))
    )


def _covers_namespaces(wide: NamespaceMatch, narrow: NamespaceMatch) -> bool:
    return (
        _holds_all(wide.names, narrow.names)
        and set(wide.except_names) <= set(narrow.except_names)
        and set(wide.labels) <= set(narrow.labels)
        and set(wide.expressions) <= set(narrow.expressions)
    )


def _covers_requesters(wide: RequesterMatch, narrow: RequesterMatch | None) -> bool:
    return narrow is not None and (
        set(narrow.users) <= set(wide.users)
        and set(narrow.groups) <= set(wide.groups)
        and set(narrow.service_accounts) <= set(wide.service_accounts)
    )


def _covers_tolerations(wide: TolerationMatch, narrow: TolerationMatch | None) -> bool:
    narrow = narrow or TolerationMatch()
    if wide.above is not None and (narrow.above is None or narrow.above < wide.above):
        return False
    if wide.at_most is not None and (narrow.at_most is None or narrow.at_most > wide.at_most):
        return False
    return _covers_taints(wide, narrow)


def _covers_taints(wide: TaintMatch | TolerationMatch, narrow: TaintMatch | TolerationMatch) -> bool:
    return (
        _holds_all(wide.keys, narrow.keys)
        and _holds_all(wide.values, narrow.values)
        and EFFECTS.intersection(wide.effects or EFFECTS) >= EFFECTS.intersection(narrow.effects or EFFECTS)
    )


def _holds_all(wide: Iterable[str], narrow: Iterable[str]) -> bool:
    """Whether each text of the narrow list is in the wide one; lists that take every text are empty."""
    wide = _narrowing(wide)
    narrow = _narrowing(narrow)
    return not wide or (bool(narrow) and set(narrow) <= set(wide))


def _narrowing(patterns: Iterable[str]) -> tuple[str, ...]:
    """The patterns, unless one of them stands for every text."""
    patterns = tuple(patterns)
    return () if takes_all(patterns) else patterns


# --- matches that are apart ----------------------------------------------------------------------


def apart(allowing: Match, refusing: Match) -> bool:
    """Whether no request can match both."""
    return (
        any(_patterns_apart(one, other) for one, other in _pairs(allowing, refusing))
        or _effects_apart(allowing, refusing)
        or _differ(allowing.admin_access, refusing.admin_access)
        or _differ(allowing.evict, refusing.evict)
    )


def _pairs(allowing: Match, refusing: Match) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Pairs of lists of patterns that must both match one text.

    Something that is left out, such as the key of a toleration, is allowed by no list; so the text is there.
    """
    yield allowing.device_classes, refusing.device_classes
    yield allowing.drivers, refusing.drivers
    yield allowing.pools, refusing.pools
    if allowing.namespaces is not None and refusing.namespaces is not None:
        yield allowing.namespaces.names, refusing.namespaces.names
    one, other = allowing.tolerations or allowing.taints, refusing.tolerations or refusing.taints
    if one is not None and other is not None:
        yield one.keys, other.keys
        yield one.values, other.values


def _patterns_apart(one: Sequence[str], other: Sequence[str]) -> bool:
    if TextSet(one).everything or TextSet(other).everything:
        return False
    return all(_apart(mine, theirs) for mine in one for theirs in other)


def _apart(one: str, other: str) -> bool:
    """Whether no text is described by both; only their fixed beginnings and ends are looked at."""
    mine, theirs = TextSet([one]), TextSet([other])
    if mine.exact:
        return not theirs.holds(one)
    if theirs.exact:
        return not mine.holds(other)
    glob, their = mine.globs[0], theirs.globs[0]
    begin = glob.prefix.startswith(their.prefix) or their.prefix.startswith(glob.prefix)
    end = glob.suffix.endswith(their.suffix) or their.suffix.endswith(glob.suffix)
    return not begin or not end


def _effects_apart(allowing: Match, refusing: Match) -> bool:
    one, other = allowing.tolerations or allowing.taints, refusing.tolerations or refusing.taints
    if one is None or other is None:
        return False
    mine, theirs = EFFECTS.intersection(one.effects or EFFECTS), EFFECTS.intersection(other.effects or EFFECTS)
    return mine.isdisjoint(theirs)


def _differ(one: bool | None, other: bool | None) -> bool:  # noqa: FBT001 -- values of a match
    return one is not None and other is not None and one is not other
