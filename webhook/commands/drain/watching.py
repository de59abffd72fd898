"""How far a drain is, by what `status` finds: it is looked at until it has ended or its time is over."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.counts import counted
from webhook.commands.shared.main import ClusterUnreachable
from webhook.commands.shared.output import write_more
from webhook.commands.shared.server_errors import ServerRefusal
from webhook.commands.status.waits import PodState
from webhook.eviction.conditions import ConditionReason
from webhook.files.render import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from webhook.commands.status.report import StatusReport, TaintLine
    from webhook.commands.status.waits import PodStatus

_WAITING: Final = frozenset(
    {
        PodState.NOT_DUE,
        PodState.HELD,
        PodState.PUT_OFF,
        PodState.BLOCKED,
        PodState.LIMITED,
        PodState.PAUSED,
        PodState.SKIPPED,
        PodState.STUCK,
    }
)
"""States that are worth a line; a pod that is due goes soon."""
_WORDS: Final = {PodState.NOT_DUE: "is not due", PodState.PUT_OFF: "is put off"}
_GIVES_UP: Final = frozenset(
    {ConditionReason.STOPPED, ConditionReason.HELD_BY_POD_GROUP, ConditionReason.RETURNS_TO_DEVICE}
)
"""Reasons of the worker to evict no further pod."""
_DONE: Final = frozenset({ConditionReason.COMPLETED, ConditionReason.NOTHING_TO_DO})


class DrainEnd(NamedTuple):
    """How a drain has ended: whether no allocation holds a device any more, and a sentence."""

    emptied: bool
    text: str


class DrainSight(NamedTuple):
    """What one look shows. `end` is None while the worker has something to do.

    `settled`: it has evicted all pods that it may, but allocations still hold devices, which ends soon or never;
    the text says who holds them. `answered`: it has said something of each rule.
    """

    end: DrainEnd | None = None
    settled: str = ""
    answered: bool = True


def sight_of(report: StatusReport, rules: Sequence[str]) -> DrainSight:
    """How the drain by these rules stands."""
    lines = {line.name: line for line in report.lines if line.rule is not None}
    gone = [name for name in rules if name not in lines]
    if gone:
        return DrainSight(DrainEnd(emptied=False, text=f"rule {gone[0]} is gone: the devices are open again"))
    ours = [lines[name] for name in rules]
    stopped = next((text for line in ours if (text := _stopped(line))), "")
    if stopped:
        return DrainSight(DrainEnd(emptied=False, text=stopped))
    left = [line for line in ours if not _is_released(line)]
    if not left:
        return DrainSight(DrainEnd(emptied=True, text="no allocation holds a device"))
    done = all(line.said is not None and line.said.reason in _DONE for line in left)
    settled = "; ".join(_held(line) for line in left) if done else ""
    return DrainSight(None, settled, all(line.said is not None for line in ours))


def _stopped(line: TaintLine) -> str:
    said = line.said
    if said is None:
        return ""
    if said.reason == ConditionReason.OBSERVE_ONLY:
        return "the eviction worker is in mode observe, in which it evicts no pod"
    return f"{said.reason}: {said.message}" if said.reason in _GIVES_UP else ""


def _is_released(line: TaintLine) -> bool:
    return line.released is not None and line.released.status == "True"


def _held(line: TaintLine) -> str:
    return f"{line.name}: {'it is not known who holds its devices' if line.released is None else line.released.message}"


class DrainProgress:
    """What has happened to the pods since the last look."""

    def __init__(self, rules: Sequence[str]) -> None:
        self._rules = rules
        self._known: dict[str, PodStatus] = {}
        self._summary = _summary(0, 0)

    def lines(self, report: StatusReport) -> Iterator[str]:
        """A line for each pod of which something is new, and one for all of them if their number has changed."""
        ours = [line for line in report.lines if line.name in self._rules]
        now = {each.pod.meta.uid: each for line in ours for each in line.pods}
        for uid, before in self._known.items():
            if uid not in now:
                yield f"pod {_name(before)} evicted"
        for uid, each in now.items():
            was = self._known.get(uid)
            if was is None or (was.state, was.waits_for.kind) != (each.state, each.waits_for.kind):
                yield from _news(each)
        self._known = now
        pending = sum(line.pending for line in ours)
        ending = len({uid for uid, each in now.items() if each.state is PodState.TERMINATING})
        summary = _summary(pending, ending)
        if summary != self._summary:
            self._summary = summary
            yield summary


def _summary(pending: int, ending: int) -> str:
    return f"{counted(pending, 'pod')} to evict" + (f", {ending} terminating" if ending else "")


def _news(status: PodStatus) -> Iterator[str]:
    if status.state is PodState.TERMINATING:
        yield f"evicting pod {_name(status)}"
    elif status.state in _WAITING:
        word = _WORDS.get(status.state, f"is {status.state.value}")
        yield f"pod {_name(status)} {word}: {status.waits_for.message}"


def _name(status: PodStatus) -> str:
    meta = status.pod.meta
    return f"{meta.namespace}/{meta.name}"


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
