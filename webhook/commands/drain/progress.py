"""How far a drain is, by what `status` finds: what has happened since the last look, and how it has ended. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.counts import counted
from webhook.commands.status.states import PodState
from webhook.eviction.conditions import ConditionReason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.commands.status.report import StatusReport, TaintLine
    from webhook.commands.status.states import PodStatus

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
