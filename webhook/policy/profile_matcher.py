"""Which eviction profile a pod has: the first one that matches. Pure; not all facts need be known."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from webhook.policy.match import LabelMatcher, NamespaceMatcher
from webhook.policy.model import EvictionProfile
from webhook.policy.patterns import TextSet
from webhook.policy.ports import NamespaceFacts


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
    """One profile, compiled: whether a pod matches each of its fields; None if that depends on what is not known."""

    __slots__ = ("_fields",)

    def __init__(self, profile: EvictionProfile) -> None:
        self._fields: list[Callable[[PodFacts], bool | None]] = []
        if profile.priority_at_most is not None:
            self._fields.append(partial(_by_priority, profile.priority_at_most))
        if profile.namespaces is not None:
            self._fields.append(partial(_by_namespace, NamespaceMatcher(profile.namespaces)))
        if profile.pod_labels is not None:
            self._fields.append(partial(_by_labels, LabelMatcher(profile.pod_labels)))
        if profile.device_classes:
            self._fields.append(partial(_by_classes, TextSet(profile.device_classes)))

    def matches(self, pod: PodFacts) -> bool | None:
        """Whether the pod matches all of them."""
        unknown = False
        for field in self._fields:
            found = field(pod)
            if found is False:
                return False
            unknown = unknown or found is None
        return None if unknown else True


def _by_priority(at_most: int, pod: PodFacts) -> bool | None:
    return pod.priority <= at_most if pod.known else None


def _by_namespace(namespaces: NamespaceMatcher, pod: PodFacts) -> bool | None:
    if namespaces.matches(pod.namespace, pod.facts, allowing=True):
        return True
    return None if namespaces.matches(pod.namespace, pod.facts, allowing=False) else False


def _by_labels(labels: LabelMatcher, pod: PodFacts) -> bool | None:
    return labels.matches(pod.labels) if pod.known else None


def _by_classes(classes: TextSet, pod: PodFacts) -> bool | None:
    return classes.holds_any(pod.classes) or (False if pod.known else None)
