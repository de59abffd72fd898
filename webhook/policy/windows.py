"""The windows of a profile: when they are open, and in words which ones pods wait for. Cron expressions are cronsim's.

A window begins at each start of its schedule, and is open until before `duration` has passed, in real seconds. A start
is a local time of the zone. Where clocks go forward, a start that they skip moves to the first moment after the gap.
Where they go back, a start that comes twice is the first of the two, unless the schedule names every hour (`*`).

cronsim is asked for local times only; the zone is applied here, because cronsim misses starts where clocks change by
half an hour. All times are in UTC: those of one zone that changes its offset are compared and added up as local times.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from webhook.api.messages import counted
from webhook.inventory.pools import Check, in_steps, unchecked
from webhook.policy.model import EvictionProfile, EvictionWindow

_FIELDS: Final = 5
_MERGED_MOST: Final = 64
"""How many windows that follow each other without a gap are taken for one: after those the answer is found again."""
_NEAR: Final = timedelta(days=2)
"""A change of clocks is looked for this far away; the largest moves them by a day."""
_SECOND: Final = timedelta(seconds=1)
_MINUTE_SECONDS: Final = 60.0
_HALF_HOUR: Final = 30
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_REFERENCE: Final = datetime(2001, 1, 1)  # noqa: DTZ001 -- a local time
"""From here on a schedule must fire within the 50 years that cronsim looks ahead; weekdays recur after 28."""


class WindowState(NamedTuple):
    """Whether any window is open, since when, and until when the state holds; None: for as long as can be seen.

    Times are in UTC. Windows that follow each other without end are open since 2001. `zone` is that of the window that
    opens next; empty while one is open.
    """

    open: bool
    since: datetime | None = None
    until: datetime | None = None
    zone: str = ""


def local_text(time: datetime, zone: str) -> str:
    """A time as the clocks of the zone show it, with their offset; empty is UTC."""
    return time.astimezone(ZoneInfo(zone) if zone else UTC).isoformat(timespec="seconds")


ALWAYS: Final = WindowState(open=True)
"""The state of a profile without windows."""


def schedule_fault(schedule: str) -> str | None:
    """What is wrong with a cron expression, or None."""
    if len(schedule.split()) != _FIELDS:
        return "must have five fields: minute, hour, day of month, month, day of week"
    try:
        next(CronSim(schedule, _REFERENCE))
    except CronSimError as error:
        # cronsim sees by itself that no month is that long, and calls it a bad day.
        text = str(error)
        return _day_fault(schedule) if text == "Bad day-of-month" else f"{text[:1].lower()}{text[1:]}"
    except StopIteration:
        return "never fires"
    return None


def _day_fault(schedule: str) -> str:
    minute, hour, day, _, weekday = schedule.split()
    try:
        CronSim(f"{minute} {hour} {day} * {weekday}", _REFERENCE)
    except CronSimError:
        return "bad day-of-month"
    return "never fires"


def is_zone(name: str) -> bool:
    """Whether the time zone database has a zone of this name."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


def state_of(windows: tuple[EvictionWindow, ...], now: datetime) -> WindowState:
    """Whether pods may be evicted now (UTC), and until when that holds. Pods share what is computed."""
    return _opening_hours(windows).at(now) if windows else ALWAYS


@lru_cache(maxsize=256)
def _opening_hours(windows: tuple[EvictionWindow, ...]) -> OpeningHours:
    return OpeningHours(windows)


class OpeningHours:
    """Several windows as one. It remembers its last answer, which holds for every pod until the next change."""

    def __init__(self, windows: Sequence[EvictionWindow]) -> None:
        longest: dict[tuple[str, str], float] = {}
        for each in windows:
            same = each.schedule, each.zone
            longest[same] = max(longest.get(same, 0.0), each.duration_seconds)
        self._windows = [(_Starts(*same), timedelta(seconds=seconds)) for same, seconds in longest.items()]
        self._gapless = any(map(_is_gapless, windows))
        self._last: tuple[datetime, datetime, WindowState] | None = None
        """From when until before when the state holds."""

    def at(self, now: datetime) -> WindowState:
        """The state at this time, in UTC."""
        last = self._last
        if last is not None and last[0] <= now < last[1]:
            return last[2]
        if self._gapless:
            return WindowState(open=True, since=_REFERENCE.replace(tzinfo=UTC))
        ends = self._merged_end(now)
        if ends is not None:
            state = WindowState(open=True, since=self._merged_begin(now), until=ends)
        else:
            state = self._closed(now)
        self._last = (now, _LAST if state.until is None else state.until, state)
        return state

    def _merged_end(self, now: datetime) -> datetime | None:
        """When the last of the windows ends that follow each other without a gap; None if none is open."""
        end = now
        for _ in range(_MERGED_MOST):
            ends = [begin + length for begins, length in self._windows if (begin := begins.latest(end)) is not None]
            after = max(ends, default=end)
            if after <= end:
                break
            end = after
        return end if end > now else None

    def _merged_begin(self, now: datetime) -> datetime:
        """When the first of them has begun."""
        begin = now + _SECOND
        for _ in range(_MERGED_MOST):
            before = [
                start
                for begins, length in self._windows
                if (start := begins.latest(begin - _SECOND)) is not None and start + length >= min(begin, now)
            ]
            if not before:
                break
            begin = min(before)
        return begin

    def _closed(self, now: datetime) -> WindowState:
        found = [(begin, begins.zone) for begins, _ in self._windows if (begin := begins.first_after(now)) is not None]
        until, zone = min(found, default=(None, ""))
        return WindowState(open=False, until=until, zone=zone)


def _is_gapless(window: EvictionWindow) -> bool:
    """Whether a window begins, every few minutes of every day, no later than the one before ends.

    Clocks change by half hours, so in half an hour there has to be the same number of starts each time.
    """
    minute, *others = window.schedule.split()
    step = minute.removeprefix("*/") if minute != "*" else "1"
    if any(each != "*" for each in others) or not step.isdecimal() or minute == step:
        return False
    return _HALF_HOUR % int(step) == 0 and window.duration_seconds >= int(step) * _MINUTE_SECONDS


def _local(at: datetime, offset: timedelta) -> datetime:
    """The local time in full seconds where clocks differ from UTC by the offset."""
    return (at + offset).replace(tzinfo=None, microsecond=0)


class _Starts:
    """The starts of windows with one schedule."""

    def __init__(self, schedule: str, zone: str) -> None:
        self._schedule = schedule
        self.zone = zone
        self._zone = ZoneInfo(zone)
        self._every_hour = schedule.split()[1] == "*"

    def latest(self, at: datetime) -> datetime | None:
        """The last start up to this time; None if there is none in 50 years."""
        offset = self._offset(at)
        # What clocks showed before they went back lies ahead of what they show now.
        ahead = max(offset, self._offset(at - self._change_near(at)))
        best: datetime | None = None
        for wall in self._walls(_local(at, ahead) + _SECOND, reverse=True):
            found = [each for each in self._moments(wall) if each <= at]
            best = max([*found, *([best] if best is not None else [])], default=None)
            if best is not None and _local(best, min(offset, self._offset(best))) >= wall:
                break  # what clocks showed earlier was no later than this
        return best

    def first_after(self, at: datetime) -> datetime | None:
        """The first start after this time; None if there is none in 50 years."""
        offset = self._offset(at)
        # What clocks show after they go back lies behind what they show now.
        behind = min(offset, self._offset(at + self._change_near(at)))
        best: datetime | None = None
        for wall in self._walls(_local(at, behind) - _SECOND, reverse=False):
            found = [each for each in self._moments(wall) if each > at]
            best = min([*found, *([best] if best is not None else [])], default=None)
            if best is not None and _local(best, max(offset, self._offset(best))) <= wall:
                break
        return best

    def _offset(self, at: datetime) -> timedelta:
        return at.astimezone(self._zone).utcoffset() or timedelta()

    def _change_near(self, at: datetime) -> timedelta:
        """By how much clocks change around this time."""
        offsets = [self._offset(at + distance) for distance in (-_NEAR, timedelta(), _NEAR)]
        return max(offsets) - min(offsets)

    def _walls(self, local: datetime, *, reverse: bool) -> Iterator[datetime]:
        """The local times that the schedule names, after or before this one."""
        return iter(CronSim(self._schedule, local, reverse=reverse))

    def _moments(self, wall: datetime) -> tuple[datetime, ...]:
        """The starts at this local time: one or two."""
        first = wall.replace(tzinfo=self._zone, fold=0).astimezone(UTC)
        second = wall.replace(tzinfo=self._zone, fold=1).astimezone(UTC)
        if first == second:
            return (first,)
        if first < second:  # it comes twice
            return (first, second) if self._every_hour else (first,)
        return (self._end_of_gap(second, first),)

    def _end_of_gap(self, low: datetime, high: datetime) -> datetime:
        """The moment at which clocks go forward: after `low`, and at `high` at the latest."""
        before = low.astimezone(self._zone).utcoffset()
        while high - low > _SECOND:
            middle = (low + (high - low) / 2).replace(microsecond=0)
            if middle.astimezone(self._zone).utcoffset() == before:
                low = middle
            else:
                high = middle
        return high


# --- what pods wait for, in words ----------------------------------------------------------------

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
    minutes = int(seconds // _MINUTE_SECONDS)
    if minutes <= 2 * _HOUR_MINUTES:
        return f"{minutes} min"
    hours, rest = divmod(minutes, _HOUR_MINUTES)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def windows_text(profile: EvictionProfile) -> str:
    """The windows of a profile, as the policy has them."""
    texts = [f"{each.schedule} for {minutes_text(each.duration_seconds)} ({each.zone})" for each in profile.windows]
    return "; ".join(texts)
