"""Which impact limits apply to a taint: the first entry that matches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from webhook.api.taints import DeviceTaint
from webhook.inventory.pools import Check, in_steps, unchecked
from webhook.policy.match import NamespaceMatcher, RequesterMatcher
from webhook.policy.model import ImpactLimits, ImpactSettings, NamespaceMatch, RequesterMatch, Share
from webhook.policy.patterns import TextSet
from webhook.policy.ports import NamespaceFacts, Requester

NO_LIMITS: Final = ImpactLimits()
_NAMESPACES_BETWEEN_CHECKS: Final = 100
"""Each is compared with every pattern."""


def limits_for(
    impact: ImpactSettings, requester: Requester, taint: DeviceTaint, effect: str, check: Check = unchecked
) -> ImpactLimits:
    """The limits for a taint with this key and value that has this effect; none if no entry matches."""
    for entry in impact.limits:
        if not _is_for(entry, taint, effect):
            continue
        who = entry.requesters
        if who is None or _compiled(who).matches(requester, allowing=True, check=check):
            return entry
    return NO_LIMITS


def may_confirm(impact: ImpactSettings, requester: Requester) -> bool:
    """Return whether the policy lets the requester confirm an impact."""
    return impact.confirmers is None or _compiled(impact.confirmers).matches(requester, allowing=True)


@lru_cache(maxsize=512)
def _compiled(match: RequesterMatch) -> RequesterMatcher:
    """The match, compiled once: a document has up to 256 entries, and each may have hundreds of patterns."""
    return RequesterMatcher(match)


def limits_of_anybody(impact: ImpactSettings, taint: DeviceTaint, effect: str) -> tuple[ImpactLimits, ...]:
    """All limits that may apply to a taint whose author is no longer known; the last one applies to all requesters."""
    found = []
    for entry in impact.limits:
        if _is_for(entry, taint, effect):
            found.append(entry)
            if entry.requesters is None:
                return tuple(found)
    return (*found, NO_LIMITS)


def _is_for(entry: ImpactLimits, taint: DeviceTaint, effect: str) -> bool:
    match = entry.taints
    return match is None or (
        TextSet(match.keys).holds(taint.key)
        and TextSet(match.values).holds(taint.value)
        and (not match.effects or effect in match.effects)
    )


def resolve_limit(limit: int | Share | None, total: int) -> int | None:
    """The limit as a number, where a share is taken of `total`; None is no limit."""
    if isinstance(limit, Share):
        return int(total * limit.percent / 100)
    return limit


def limit_on_devices(limit: int | Share | None, counted: int) -> int | None:
    """The same for devices; where none counts, as where no pool is of one node, a share is one device."""
    return 1 if isinstance(limit, Share) and limit.percent and not counted else resolve_limit(limit, counted)


def protected_among(
    match: NamespaceMatch,
    namespaces: Iterable[str],
    facts_of: Callable[[str], NamespaceFacts | None],
    check: Check = unchecked,
) -> frozenset[str]:
    """The protected ones among the namespaces. One whose labels `facts_of` does not know counts as protected."""
    compiled = NamespaceMatcher(match)
    checked = in_steps(namespaces, check, _NAMESPACES_BETWEEN_CHECKS)
    return frozenset(name for name in checked if compiled.matches(name, facts_of(name), allowing=False))
