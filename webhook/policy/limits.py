"""What a policy sets beside its rules: limits of an impact, the eviction profile of a pod, reactions to a taint.

Of limits and of profiles the first entry that matches applies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from webhook.api.rules import EVICT, DeviceSelector, DeviceTaintRule
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, DeviceTaint
from webhook.inventory.pools import Check, in_steps, unchecked
from webhook.inventory.rule_delta import EFFECT_RANK
from webhook.inventory.targets import DeviceId, number_of
from webhook.policy.match import LabelMatcher, NamespaceFacts, NamespaceMatcher, Requester, RequesterMatcher, TextSet
from webhook.policy.model import (
    EvictionProfile,
    ImpactLimits,
    ImpactSettings,
    NamespaceMatch,
    Reaction,
    RequesterMatch,
    Share,
)

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
        return int(round(total * limit.percent / 100, 6))  # a product may come out a hair below a whole number
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


# --- profiles -----------------------------------------------------------------------------------


class PodFacts(NamedTuple):
    """What is known of a pod that profiles look at. `known`: all of it; else its namespace and some of its classes.

    `facts`: the labels of its namespace; None if those are not known, whatever `known` says.
    """

    namespace: str
    facts: NamespaceFacts | None = None
    classes: Collection[str] = ()
    known: bool = False
    priority: int = 0
    labels: Mapping[str, str] = {}


class ProfileMatcher:
    """All profiles, compiled."""

    def __init__(self, profiles: Iterable[EvictionProfile]) -> None:
        self._profiles = [_Matcher(each) for each in profiles]

    def profile_of(self, pod: PodFacts) -> int | None:
        """The position of the profile; None if it depends on what is not known."""
        position, sure = self._find(pod, pass_over=False)
        return position if sure else None

    def profile_to_apply(self, pod: PodFacts) -> int:
        """The position of the profile that counts: one that needs an unknown fact does not match.

        The last profile matches every pod.
        """
        return self._find(pod, pass_over=True)[0]

    def _find(self, pod: PodFacts, *, pass_over: bool) -> tuple[int, bool]:
        """The first profile that may match, and whether it does; `pass_over`: one that only may does not count."""
        for position, profile in enumerate(self._profiles):
            matches = profile.matches(pod)
            if matches or (matches is None and not pass_over):
                return position, bool(matches)
        return len(self._profiles) - 1, True


class _Matcher:
    """One profile, compiled."""

    __slots__ = ("_classes", "_labels", "_namespaces", "_priority")

    def __init__(self, profile: EvictionProfile) -> None:
        self._priority = profile.priority_at_most
        self._namespaces = NamespaceMatcher(profile.namespaces) if profile.namespaces is not None else None
        self._labels = LabelMatcher(profile.pod_labels) if profile.pod_labels is not None else None
        self._classes = TextSet(profile.device_classes) if profile.device_classes else None

    def matches(self, pod: PodFacts) -> bool | None:
        """Whether the pod matches all of its fields; None if that depends on what is not known."""
        if pod.known:
            if self._priority is not None and pod.priority > self._priority:
                return False
            if self._labels is not None and not self._labels.matches(pod.labels):
                return False
        unknown = not pod.known and not (self._priority is None and self._labels is None)
        where = self._namespaces
        if where is not None and not where.matches(pod.namespace, pod.facts, allowing=True):
            if not where.matches(pod.namespace, pod.facts, allowing=False):
                return False
            unknown = True
        if self._classes is not None and not self._classes.holds_any(pod.classes):
            if pod.known:
                return False
            unknown = True
        return None if unknown else True


# --- reactions ----------------------------------------------------------------------------------

REACTION_KEY: Final = "devicetaint.io/degraded"
"""The key of the taint of every reaction. It has no value: the reasons change, and tolerations should not."""


class ReactionLevel(IntEnum):
    """What a reaction does to a device, from mild to hard."""

    CLOSE = 1
    """NoSchedule: no new pods."""
    EMPTY = 2
    """NoSchedule, and our worker evicts the pods."""
    EXECUTE = 3
    """NoExecute."""

    @classmethod
    def of(cls, effect: str, *, evict: bool) -> ReactionLevel:
        """The level of a rule with this effect, and with `/evict` or not."""
        if effect == NO_EXECUTE:
            return cls.EXECUTE
        return cls.EMPTY if evict else cls.CLOSE

    @property
    def effect(self) -> str:
        """The effect of the taint."""
        return NO_EXECUTE if self is ReactionLevel.EXECUTE else NO_SCHEDULE


def level_of(reaction: Reaction) -> ReactionLevel:
    """What the policy says that a reaction does."""
    return ReactionLevel.of(reaction.effect, evict=reaction.evict)


def level_of_rule(rule: DeviceTaintRule) -> ReactionLevel:
    """What a rule does, taken for one of a reaction."""
    return ReactionLevel.of(rule.taint.effect, evict=rule.meta.annotations.get(EVICT) == "true")


def may_come_of_reactions(rule: DeviceTaintRule, reactions: Iterable[Reaction]) -> bool:
    """Whether the rule is one that these reactions may ask for: the taint of reactions on one device, by all its names.

    One of the reactions is for the driver of that device, and does at least as much. Whether the device has a signal is
    not asked.
    """
    address, level = _degraded_device(rule), level_of_rule(rule)
    return address is not None and any(each.driver == address.driver and level_of(each) >= level for each in reactions)


def reaction_rule_name(address: DeviceId) -> str:
    """The name of the rule that a device has from reactions, or the first one: see `numbered`."""
    digest = hashlib.blake2b("\n".join(address).encode(), digest_size=8).hexdigest()
    return f"reaction-{address.device}-{digest}"


def written_by_reaction(rule: DeviceTaintRule) -> tuple[DeviceId, int] | None:
    """The device of a rule that a reaction would write, and the number of its name; None for any other rule.

    Name, taint and selector decide: what else a rule says of itself, its author may have made up.
    """
    address = _degraded_device(rule)
    if address is None or rule.taint.effect not in EFFECT_RANK:
        return None
    number = number_of(rule.meta.name, reaction_rule_name(address))
    return (address, number) if number else None


def _degraded_device(rule: DeviceTaintRule) -> DeviceId | None:
    """The one device that a rule selects, by all its names, if its taint has the key of reactions."""
    selector = rule.selector or DeviceSelector()
    if not (selector.driver and selector.pool and selector.device):
        return None
    address = DeviceId(selector.driver, selector.pool, selector.device)
    is_one = selector == DeviceSelector(*address) and (rule.taint.key, rule.taint.value) == (REACTION_KEY, "")
    return address if is_one else None
