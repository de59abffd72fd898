"""Since when changes may have been missed, by what a watch shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class WatchGap:
    """The time from the end of one watch until the next one has brought what happened in between.

    The server accepts a watch first and sends the changes that were missed afterwards. It says with a bookmark that it
    has sent them; where none comes, they have arrived once the watch has been open for a while.
    """

    def __init__(self, clock: Callable[[], float], catch_up_seconds: float) -> None:
        """`clock` returns seconds that only go forward."""
        self._clock = clock
        self._catch_up_seconds = catch_up_seconds
        self._since: float | None = None
        self._open_since: float | None = None

    @property
    def seconds(self) -> float:
        """For how long changes may have been missed: 0 if none were, infinite if some were for certain."""
        return 0.0 if self._since is None or self._caught_up else self._clock() - self._since

    @property
    def watching(self) -> bool:
        """Whether a watch is open."""
        return self._open_since is not None

    def begin(self, at: float) -> None:
        """Changes may have been missed since `at`; an earlier time is kept."""
        if self._since is None or at < self._since:
            self._since = at

    def end(self) -> None:
        """Nothing is missing: a list or a bookmark says so."""
        self._since = None

    def opened(self) -> None:
        """The server has accepted a watch."""
        self._open_since = self._clock()

    def closed(self) -> None:
        """The watch has ended, whatever the reason, or there never was one."""
        if self._caught_up:
            self._since = None
        self._open_since = None
        self.begin(self._clock())

    @property
    def _caught_up(self) -> bool:
        return self._open_since is not None and self._clock() - self._open_since >= self._catch_up_seconds
