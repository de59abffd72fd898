"""The monotonic clock that also counts the time in which the machine is suspended."""

from __future__ import annotations

import time
from typing import Final

_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


def boottime_seconds() -> float:
    """Seconds that only go forward, from any origin; where CLOCK_BOOTTIME is missing, those of time.monotonic.

    On Linux time.monotonic stands still while a machine is suspended, and the timers of the event loop with it: a lease
    would seem to last, and caches to be current. Waits on the loop end late after that, never early.
    """
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)
