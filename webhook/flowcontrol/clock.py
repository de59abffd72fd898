"""The shell's clocks, for those that take one as an argument."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final

_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


def boottime_seconds() -> float:
    """Seconds that only go forward, from any origin; where CLOCK_BOOTTIME is missing, those of time.monotonic.

    On Linux time.monotonic stands still while a machine is suspended, and the timers of the event loop with it: a lease
    would seem to last, and caches to be current. Waits on the loop end late after that, never early.
    """
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


class Clock:
    """Wall-clock and monotonic time."""

    def now(self) -> datetime:
        """Wall-clock time in UTC, for what the API says."""
        return datetime.now(UTC)  # noqa: TID251 -- the shell's clock

    def seconds(self) -> float:
        """As `boottime_seconds`, for waits and rates."""
        return boottime_seconds()
