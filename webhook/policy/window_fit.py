"""Whether the pods that a taint hits can leave in one window, by the rates of their profile, in words. Pure."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.policy.match import LabelMatcher, NamespaceMatcher
from webhook.policy.patterns import TextSet
from webhook.policy.windows import local_text, state_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from webhook.policy.model import EvictionProfile
    from webhook.policy.ports import NamespaceFacts

_MINUTE: Final = 60.0
_HOUR_MINUTES: Final = 60
_OWN_BURST: Final = 10
"""Burst size of a rule with its own rate (N-13)."""


class PodFacts(NamedTuple):
    """What is known of a pod that profiles look at. `known`: all of it; else its namespace and some of its classes."""

    namespace: str
    facts: NamespaceFacts | None = None
    classes: Collection[str] = ()
    known: bool = False
    priority: int = 0
    labels: Mapping[str, str] = {}


class ProfileGuess:
    """Finds the profile of a pod of which not everything is known."""

    def __init__(self, profiles: Sequence[EvictionProfile]) -> None:
        self._profiles = profiles
        self._names = [None if each.namespaces is None else NamespaceMatcher(each.namespaces) for each in profiles]
        self._labels = [None if each.pod_labels is None else LabelMatcher(each.pod_labels) for each in profiles]
        self._classes = [TextSet(each.device_classes) if each.device_classes else None for each in profiles]

    def of(self, pod: PodFacts) -> int | None:
        """The position of the profile; None if it depends on what is not known."""
        for position in range(len(self._profiles)):
            matches = list(self._matches(position, pod))
            if False in matches:
                continue
            return None if None in matches else position
        return None  # the last one matches every pod

    def _matches(self, position: int, pod: PodFacts) -> Iterator[bool | None]:
        """For each field of the profile whether the pod matches; None: that is not known."""
        names, labels, classes = self._names[position], self._labels[position], self._classes[position]
        if names is not None:
            sure = names.matches(pod.namespace, pod.facts, allowing=True)
            yield sure or (None if names.matches(pod.namespace, pod.facts, allowing=False) else False)
        most = self._profiles[position].priority_at_most
        if most is not None:
            yield pod.priority <= most if pod.known else None
        if labels is not None:
            yield labels.matches(pod.labels) if pod.known else None
        if classes is not None:
            yield classes.holds_any(pod.classes) or (False if pod.known else None)


class Leaving(NamedTuple):
    """Pods that a taint evicts, by the position of their profile, from when on, and the rate of its rule, if any.

    `more`: there are others of which the number or the profile is not known.
    """

    pods: Mapping[int, int]
    start: datetime
    rate: float | None = None
    more: bool = False


def has_windows(profiles: Iterable[EvictionProfile]) -> bool:
    """Whether there is anything to say about any pod."""
    return any(each.windows or each.skips for each in profiles)


def fit_texts(profiles: Sequence[EvictionProfile], leaving: Leaving) -> Iterator[str]:
    """Which pods wait for which window, and whether it is too short for them: a sentence each."""
    for position, pods in sorted(leaving.pods.items()):
        profile = profiles[position]
        if profile.skips:
            yield f"leaves {_pods(pods)} alone (action: skip)"
        elif profile.windows:
            # At the end of the calendar there is no window to name.
            with contextlib.suppress(OverflowError):
                yield from list(_window_texts(profile, pods, leaving))


def _window_texts(profile: EvictionProfile, pods: int, leaving: Leaving) -> Iterator[str]:
    state = state_of(profile.windows, leaving.start)
    begin = leaving.start
    if not state.open:
        if state.until is None:
            return
        wait = "waits" if pods == 1 else "wait"
        yield f"{_pods(pods)} {wait} for the window that opens at {local_text(state.until, state.zone)} ({state.zone})"
        begin = state.until
        state = state_of(profile.windows, begin)
    needed, rate = needed_seconds(profile, pods, leaving.rate)
    if state.until is None or needed < (length := (state.until - begin).total_seconds()):
        return
    least = "at least " if leaving.more else ""
    window = "the window is" if begin != leaving.start else "the window is open for another"
    yield f"needs {least}{minutes_text(needed, up=True)} at {rate:g} a minute; {window} {minutes_text(length)}"


def needed_seconds(profile: EvictionProfile, pods: int, own_rate: float | None = None) -> tuple[float, float]:
    """How long that number of pods takes if only rates hold them back, and the rate that decides, per minute."""
    rate, burst = (profile.rate, profile.burst) if own_rate is None else (own_rate, _OWN_BURST)
    found = max(pods - burst, 0) / rate, rate * _MINUTE
    most = profile.max_per_minute
    return found if most is None else max(found, ((pods - 1) // most * _MINUTE, float(most)))


def minutes_text(seconds: float, *, up: bool = False) -> str:
    """A time in whole minutes, or hours and minutes; `up`: rounded up."""
    minutes = math.ceil(seconds / _MINUTE) if up else int(seconds // _MINUTE)
    if minutes <= 2 * _HOUR_MINUTES:
        return f"{minutes} min"
    hours, rest = divmod(minutes, _HOUR_MINUTES)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def windows_text(profile: EvictionProfile) -> str:
    """The windows of a profile, as the policy has them."""
    texts = [f"{each.schedule} for {minutes_text(each.duration_seconds)} ({each.zone})" for each in profile.windows]
    return "; ".join(texts)


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"
