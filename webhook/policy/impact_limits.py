"""Which impact limits apply to a taint: the first entry that matches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.policy.match import NamespaceMatcher, RequesterMatcher, TextSet
from webhook.policy.model import ImpactLimits, NamespaceMatch, Share

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.api.taints import DeviceTaint
    from webhook.policy.model import ImpactSettings
    from webhook.policy.ports import ClusterNames, Requester

NO_LIMITS: Final = ImpactLimits()


def limits_for(impact: ImpactSettings, requester: Requester, taint: DeviceTaint, effect: str) -> ImpactLimits:
    """The limits for a taint with this key and value that has this effect; none if no entry matches."""
    for entry in impact.limits:
        if entry.requesters is not None and not RequesterMatcher(entry.requesters).matches(requester, allowing=True):
            continue
        if _is_for(entry, taint, effect):
            return entry
    return NO_LIMITS


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


def protected_among(match: NamespaceMatch, namespaces: Iterable[str], names: ClusterNames) -> frozenset[str]:
    """The protected ones among the namespaces. One whose labels are not known counts as protected."""
    compiled = NamespaceMatcher(match)
    return frozenset(name for name in namespaces if compiled.matches(name, names.namespace(name), allowing=False))
