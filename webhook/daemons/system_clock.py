"""The clocks of the shell, for workers that take theirs as a port."""

from __future__ import annotations

from datetime import UTC, datetime

from webhook.flowcontrol.clock import boottime_seconds


class SystemClock:
    """The shell's clocks."""

    def now(self) -> datetime:
        """Wall-clock time in UTC."""
        return datetime.now(UTC)  # noqa: TID251 -- the shell's clock

    def seconds(self) -> float:
        """Seconds that only go forward, also while the machine is suspended."""
        return boottime_seconds()
