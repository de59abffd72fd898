"""Which windows the pods that a taint hits wait for, in words. Pure."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from webhook.api.messages import counted
from webhook.inventory.pools import Check, in_steps, unchecked
from webhook.policy.model import EvictionProfile
from webhook.policy.windows import local_text, state_of

_MINUTE: Final = 60.0
_HOUR_MINUTES: Final = 60
_NAMED_MOST: Final = 3
"""Windows of one profile that are named."""
_BETWEEN_CHECKS: Final = 10
"""Due times that are looked at between two checks: each may be in another window."""


class Leaving(NamedTuple):
    """Pods that a taint evicts: by the position of their profile, and by the seconds until the taint evicts them."""

    pods: Mapping[int, Mapping[int, int]]
    now: datetime


def has_windows(profiles: Iterable[EvictionProfile]) -> bool:
    """Return whether there is anything to say about any pod."""
    return any(each.windows or each.skips for each in profiles)


def fit_texts(profiles: Sequence[EvictionProfile], leaving: Leaving, check: Check = unchecked) -> Iterator[str]:
    """Say in a sentence each which pods wait for which window, and which are left alone."""
    for position, pods in sorted(leaving.pods.items()):
        profile = profiles[position]
        if profile.skips:
            yield f"the worker leaves {counted(sum(pods.values()), 'pod')} alone (action: skip)"
        elif profile.windows:
            waiting = Counter[tuple[datetime, str]]()
            for seconds, number in in_steps(sorted(pods.items()), check, _BETWEEN_CHECKS):
                # At the end of the calendar there is no window to name.
                with contextlib.suppress(OverflowError):
                    due = leaving.now + timedelta(seconds=seconds + profile.grace_seconds)
                    state = state_of(profile.windows, due)
                    if not state.open and state.until is not None:
                        waiting[state.until, state.zone] += number
            yield from _waits(waiting)


def _waits(waiting: Mapping[tuple[datetime, str], int]) -> Iterator[str]:
    """How many pods wait for which window, the first ones by name."""
    openings = sorted(waiting.items())
    for (opens, zone), pods in openings[:_NAMED_MOST]:
        wait = "waits" if pods == 1 else "wait"
        yield f"{counted(pods, 'pod')} {wait} for the window that opens at {local_text(opens, zone)} ({zone})"
    more = sum(pods for _, pods in openings[_NAMED_MOST:])
    if more:
        yield f"{more} more {'pod waits' if more == 1 else 'pods wait'} for a window that opens later"


def minutes_text(seconds: float) -> str:
    """A time in whole minutes, or hours and minutes."""
    minutes = int(seconds // _MINUTE)
    if minutes <= 2 * _HOUR_MINUTES:
        return f"{minutes} min"
    hours, rest = divmod(minutes, _HOUR_MINUTES)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def windows_text(profile: EvictionProfile) -> str:
    """The windows of a profile, as the policy has them."""
    texts = [f"{each.schedule} for {minutes_text(each.duration_seconds)} ({each.zone})" for each in profile.windows]
    return "; ".join(texts)
