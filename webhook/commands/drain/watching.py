"""Looks at a drain again and again, until it has ended or its time is over."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.commands.drain.progress import DrainEnd, DrainProgress, sight_of
from webhook.commands.shared.main import ClusterUnreachable
from webhook.commands.shared.output import write_more
from webhook.commands.shared.server_errors import ServerRefusal
from webhook.files.render import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.commands.drain.progress import DrainSight
    from webhook.commands.status.report import StatusReport

_SETTLE_SECONDS: Final = 30.0
"""How long claims may stay allocated after their pods; who holds a device longer than that holds it for good."""
_SILENCE_SECONDS: Final = 30.0
"""A worker writes its first condition within seconds."""


class DrainWatch(NamedTuple):
    """What is watched. `timeout_seconds` None: for ever. `program` is what errors begin with."""

    rules: Sequence[str]
    interval_seconds: float
    timeout_seconds: float | None
    program: str


def watch_drain(
    drain: DrainWatch, look: Callable[[], StatusReport], check: Callable[[DrainSight], DrainSight]
) -> DrainEnd:
    """How it ended; lines about pods go to standard output meanwhile.

    `check` sees whether what the worker says is all that counts, once it has done what it can.
    """
    progress, begun = DrainProgress(drain.rules), time.monotonic()
    hints = _Hints(drain.program)
    settled_since: float | None = None
    while True:
        now = time.monotonic()
        try:
            report = look()
            sight = sight_of(report, drain.rules)
            sight = check(sight) if sight.settled or (sight.end and sight.end.emptied) else sight
        except ClusterUnreachable as error:
            hints.say(f"the cluster cannot be read now: {error}")
        except ServerRefusal as refusal:
            return DrainEnd(emptied=False, text=str(refusal))
        else:
            hints.say(*report.notes)
            if write_more("".join(f"{visible(line)}\n" for line in progress.lines(report))) is not None:
                return DrainEnd(emptied=False, text="standard output is closed")
            if sight.end is not None:
                return sight.end
            if not sight.answered and now - begun >= _SILENCE_SECONDS:
                hints.say("no eviction worker has said anything of the rule yet: does `evict` run, and act?")
            settled_since = (settled_since or now) if sight.settled else None
            if settled_since is not None and now - settled_since >= _SETTLE_SECONDS:
                return DrainEnd(emptied=False, text=f"no further pod may be evicted, but {sight.settled}")
        if drain.timeout_seconds is not None and now - begun >= drain.timeout_seconds:
            return DrainEnd(emptied=False, text=f"not empty within {drain.timeout_seconds:g} s")
        time.sleep(drain.interval_seconds)


class _Hints:
    """Lines on standard error, each once."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._said: set[str] = set()

    def say(self, *texts: str) -> None:
        """Those that are new."""
        for text in texts:
            if text not in self._said:
                self._said.add(text)
                sys.stderr.write(f"{self._program}: {visible(text)}\n")
