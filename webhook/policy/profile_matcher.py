"""Which eviction profile a pod has: the first one that matches. Pure; not all facts need be known."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from webhook.policy.match import LabelMatcher, NamespaceMatcher
from webhook.policy.patterns import TextSet

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from webhook.policy.model import EvictionProfile
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
        self._profiles: Sequence[_Matcher] = [_Matcher(each) for each in profiles]

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
        """The first profile that may match, and whether it does; `pass_over`: those that only may do not count."""
        last = len(self._profiles) - 1
        for position, profile in enumerate(self._profiles):
            matches = profile.matches(pod)
            if matches or position == last:
                return position, matches is not None
            if matches is None and not pass_over:
                return position, False
        raise AssertionError("a policy has at least one profile")


class _Matcher:
    """One profile, compiled."""

    __slots__ = ("_classes", "_labels", "_namespaces", "_priority_at_most")

    def __init__(self, profile: EvictionProfile) -> None:
        self._priority_at_most = profile.priority_at_most
        self._namespaces = None if profile.namespaces is None else NamespaceMatcher(profile.namespaces)
        self._labels = None if profile.pod_labels is None else LabelMatcher(profile.pod_labels)
        self._classes = TextSet(profile.device_classes) if profile.device_classes else None

    def matches(self, pod: PodFacts) -> bool | None:
        """Whether the pod matches every field; None if that depends on what is not known."""
        fields = (self._by_priority(pod), self._by_namespace(pod), self._by_labels(pod), self._by_classes(pod))
        return False if False in fields else None if None in fields else True

    def _by_priority(self, pod: PodFacts) -> bool | None:
        if self._priority_at_most is None:
            return True
        return pod.priority <= self._priority_at_most if pod.known else None

    def _by_namespace(self, pod: PodFacts) -> bool | None:
        if self._namespaces is None or self._namespaces.matches(pod.namespace, pod.facts, allowing=True):
            return True
        return None if self._namespaces.matches(pod.namespace, pod.facts, allowing=False) else False

    def _by_labels(self, pod: PodFacts) -> bool | None:
        if self._labels is None:
            return True
        return self._labels.matches(pod.labels) if pod.known else None

    def _by_classes(self, pod: PodFacts) -> bool | None:
        if self._classes is None or self._classes.holds_any(pod.classes):
            return True
        return False if pod.known else None
