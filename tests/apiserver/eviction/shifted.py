"""`device-taint-webhook` whose wall clock is off by as many seconds as a file says, and whose watches are short.

Run as `python -m tests.apiserver.eviction.shifted <file> evict ...`; the file holds one double. Only this process is
deceived: by `time.time`, which the elector asks, and by the clock that the worker is given. Seconds that only go
forward go on as they do. Watches end after seconds and not minutes, so that tests need not wait for their ends.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from webhook.cli import main
from webhook.cluster.client.rest import Cluster
from webhook.flowcontrol.rates import Clock

OFFSET: Final = struct.Struct("d")
WATCH_SECONDS: Final = 5


class Shift:
    """The offset, as it is at the moment."""

    def __init__(self, file: Path) -> None:
        with file.open("rb") as opened:
            self._map = mmap.mmap(opened.fileno(), OFFSET.size, access=mmap.ACCESS_READ)

    @property
    def seconds(self) -> float:
        (seconds,) = OFFSET.unpack(self._map[: OFFSET.size])
        return float(seconds)


def set_shift(file: Path, seconds: float) -> None:
    """Sets the clock of whoever reads the file, who must find it there when starting."""
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.write(OFFSET.pack(seconds))


def end_watches_soon() -> None:
    """From here on, in order, by the server."""
    watch = Cluster.watch

    def short(self: Cluster, *what: Any, watch_seconds: int, **how: Any) -> AsyncGenerator[bytes, None]:
        return watch(self, *what, watch_seconds=min(watch_seconds, WATCH_SECONDS), **how)

    Cluster.watch = short  # type: ignore[method-assign]


def deceive(shift: Shift) -> None:
    """From here on this process has another time."""
    real = time.time  # noqa: TID251 -- the time that is shifted

    def shifted() -> float:
        return real() + shift.seconds

    def now(self: Clock) -> datetime:  # noqa: ARG001 -- a method's
        return datetime.fromtimestamp(shifted(), UTC)

    time.time = shifted  # noqa: TID251 -- likewise
    Clock.now = now  # type: ignore[method-assign]


if __name__ == "__main__":
    end_watches_soon()
    deceive(Shift(Path(sys.argv.pop(1))))
    sys.exit(main())
