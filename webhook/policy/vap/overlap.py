"""Whether two matches can be about the same thing: what an earlier allow never meets need not be excused.

Told only where it is certain that they are apart. Patterns are compared as texts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from webhook.policy.match import EFFECTS, TextSet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.policy.model import Match

_WILD = re.compile(r"[*?]")


def apart(allowing: Match, refusing: Match) -> bool:
    """Whether nothing that one allows is anything that the other one refuses."""
    return (
        any(_patterns_apart(one, other) for one, other in _pairs(allowing, refusing))
        or _effects_apart(allowing, refusing)
        or _differ(allowing.admin_access, refusing.admin_access)
        or _differ(allowing.evict, refusing.evict)
    )


def _pairs(allowing: Match, refusing: Match) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Lists of patterns of which both must hold of one text.

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
    if not _WILD.search(one):
        return not TextSet([other]).holds(one)
    if not _WILD.search(other):
        return not TextSet([one]).holds(other)
    first, last = _WILD.split(one)[0], _WILD.split(one)[-1]
    their_first, their_last = _WILD.split(other)[0], _WILD.split(other)[-1]
    begin = first.startswith(their_first) or their_first.startswith(first)
    end = last.endswith(their_last) or their_last.endswith(last)
    return not begin or not end


def _effects_apart(allowing: Match, refusing: Match) -> bool:
    one, other = allowing.tolerations or allowing.taints, refusing.tolerations or refusing.taints
    if one is None or other is None:
        return False
    mine, theirs = EFFECTS.intersection(one.effects or EFFECTS), EFFECTS.intersection(other.effects or EFFECTS)
    return mine.isdisjoint(theirs)


def _differ(one: bool | None, other: bool | None) -> bool:  # noqa: FBT001 -- values of a match
    return one is not None and other is not None and one is not other
