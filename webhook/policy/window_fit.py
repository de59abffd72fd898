"""Whether the pods that a taint hits can leave in one window, by the rates of their profile, in words. Pure."""

from __future__ import annotations

import contextlib
import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from webhook.api.counts import counted
from webhook.api.rules import OWN_RATE_BURST
from webhook.inventory.steps import in_steps, unchecked
from webhook.policy.windows import local_text, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from webhook.inventory.steps import Check
    from webhook.policy.model import EvictionProfile

_MINUTE: Final = 60.0
_HOUR_MINUTES: Final = 60
_NAMED_MOST: Final = 3
"""Windows of one profile that are named."""
_BETWEEN_CHECKS: Final = 10
"""Due times that are looked at between two checks: each may be in another window."""


class Leaving(NamedTuple):
    """Pods that a taint evicts: by the position of their profile, and by the seconds until the taint evicts them.

    `rate`: that of the taint's rule, if it has one. `more`: there are others of which the number or the profile is not
    known.
    """

    pods: Mapping[int, Mapping[int, int]]
    now: datetime
    rate: float | None = None
    more: bool = False


def has_windows(profiles: Iterable[EvictionProfile]) -> bool:
    """Whether there is anything to say about any pod."""
    return any(each.windows or each.skips for each in profiles)


def fit_texts(profiles: Sequence[EvictionProfile], leaving: Leaving, check: Check = unchecked) -> Iterator[str]:
    """Which pods wait for which window, and whether it is too short for them: a sentence each.

    `check` is called now and then, and may raise.
    """
    for position, pods in sorted(leaving.pods.items()):
        profile = profiles[position]
        if profile.skips:
            yield f"the worker leaves {counted(sum(pods.values()), 'pod')} alone (action: skip)"
        elif profile.windows:
            found = _Windows(profile)
            for seconds, number in in_steps(sorted(pods.items()), check, _BETWEEN_CHECKS):
                # At the end of the calendar there is no window to name.
                with contextlib.suppress(OverflowError):
                    found.add(leaving.now + timedelta(seconds=seconds + profile.grace_seconds), number)
            yield from found.waits()
            yield from found.faults(leaving)


class _Window(msgspec.Struct):
    """The pods of one window: how many, and the first moment at which any of them may be evicted in it."""

    begins: datetime
    is_opening: bool
    """Whether it opens at that moment; else it is open already when the first pod is due."""
    pods: int = 0


class _Windows:
    """The pods of one profile, by the window in which they are evicted. Pods are added as they become due."""

    def __init__(self, profile: EvictionProfile) -> None:
        self._profile = profile
        self._waiting: dict[tuple[datetime, str], int] = {}
        """By when their window opens, and its zone."""
        self._ends: dict[datetime, datetime | None] = {}
        """When windows end, by when they open."""
        self._windows: dict[datetime, _Window] = {}
        """By their end."""

    def add(self, due: datetime, pods: int) -> None:
        """Pods that are due at this time. Raises OverflowError after the end of the calendar."""
        windows = self._profile.windows
        state = state_of(windows, due)
        begins, ends = due, state.until
        if not state.open:
            if state.until is None:
                return
            begins = state.until
            if begins not in self._ends:
                self._ends[begins] = state_of(windows, begins).until
            ends = self._ends[begins]
            opening = begins, state.zone
            self._waiting[opening] = self._waiting.get(opening, 0) + pods
        if ends is not None:
            window = self._windows.setdefault(ends, _Window(begins, is_opening=not state.open))
            window.pods += pods

    def waits(self) -> Iterator[str]:
        """How many pods wait for which window, the first ones by name."""
        openings = sorted(self._waiting.items())
        for (opens, zone), pods in openings[:_NAMED_MOST]:
            wait = "waits" if pods == 1 else "wait"
            yield f"{counted(pods, 'pod')} {wait} for the window that opens at {local_text(opens, zone)} ({zone})"
        more = sum(pods for _, pods in openings[_NAMED_MOST:])
        if more:
            yield f"{more} more {'pod waits' if more == 1 else 'pods wait'} for a window that opens later"

    def faults(self, leaving: Leaving) -> Iterator[str]:
        """Which windows are too short for their pods, the first ones by name."""
        texts = [text for ends, window in sorted(self._windows.items()) if (text := self._fault(ends, window, leaving))]
        yield from texts[:_NAMED_MOST]
        more = len(texts) - _NAMED_MOST
        if more > 0:
            yield f"{more} later {'windows are' if more > 1 else 'window is'} too short as well"

    def _fault(self, ends: datetime, window: _Window, leaving: Leaving) -> str:
        needed, rate = needed_seconds(self._profile, window.pods, leaving.rate)
        left = (ends - window.begins).total_seconds()
        if needed < left:
            return ""
        least = "at least " if leaving.more else ""
        if window.is_opening:
            room = f"the window is {minutes_text(left)}"
        elif window.begins == leaving.now:
            room = f"the window is open for another {minutes_text(left)}"
        else:
            room = f"the window closes {minutes_text(left)} after they are due"
        time = minutes_text(needed, up=True)
        return f"evicting {counted(window.pods, 'pod')} needs {least}{time} at {rate:g} a minute; {room}"


def needed_seconds(profile: EvictionProfile, pods: int, own_rate: float | None = None) -> tuple[float, float]:
    """How long that number of pods takes if only rates hold them back, and the rate that decides, per minute."""
    rate, burst = (profile.rate, profile.burst) if own_rate is None else (own_rate, OWN_RATE_BURST)
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
