"""Events about pods, rules and PodGroups, recorded in the background, so that writing them never delays an eviction.

Mode replacement uses the texts of the in-tree controller (E-34).
"""

from __future__ import annotations

import logging
import math
from enum import StrEnum
from typing import Final, NoReturn

from webhook.api.meta import format_time
from webhook.api.pod_groups import PodGroup
from webhook.api.rules import DeviceTaintRule
from webhook.eviction.conditions import ConditionReason
from webhook.eviction.dependencies import Dependencies
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Disruption, EvictionEvent, PodRef
from webhook.flowcontrol.loop import WriteBehind
from webhook.inventory.evictions import Eviction

_REASONS_MOST: Final = 3
_IN_TREE_REASON: Final = "DeviceTaintManagerEviction"
log = logging.getLogger(__name__)
RENEW_SECONDS: Final = 3600.0
"""API servers keep an Event for an hour, so one about a state that lasts is written again this often."""


class PodEventKind(StrEnum):
    """Kinds of Events about a pod; the values are the Event reasons."""

    SCHEDULED = "EvictionScheduled"
    CANCELLED = "EvictionCancelled"
    HELD = "EvictionHeld"
    BLOCKED = "EvictionBlocked"
    EVICTED = "Evicted"


_IN_TREE_TEXTS: Final = {PodEventKind.EVICTED: "Marking for deletion", PodEventKind.CANCELLED: "Cancelling deletion"}


_ACTIONS: Final = {
    PodEventKind.SCHEDULED: "Schedule",
    PodEventKind.CANCELLED: "Cancel",
    PodEventKind.HELD: "Hold",
    PodEventKind.BLOCKED: "Evict",
    PodEventKind.EVICTED: "Evict",
}


def pod_event(mode: Mode, kind: PodEventKind, pod: PodRef, eviction: Eviction, text: str = "") -> EvictionEvent:
    """An Event about a pod; `text` is the API server's refusal, or the text of `/hold`, for the kinds that quote it.

    Of SCHEDULED it says when; empty for the due time.
    """
    if mode is Mode.REPLACEMENT and kind in _IN_TREE_TEXTS:
        return EvictionEvent(pod, _IN_TREE_REASON, _ACTIONS[kind], _IN_TREE_TEXTS[kind])
    why = _why(eviction)
    match kind:
        case PodEventKind.SCHEDULED:
            verb = "would be evicted" if mode is Mode.OBSERVE else "to be evicted"
            words = f"{verb} {text or f'at {format_time(eviction.due)}'} because of {why}"
        case PodEventKind.CANCELLED:
            words = "eviction cancelled"
        case PodEventKind.HELD:
            words = f"due for eviction because of {why}, but held: {text}"
        case PodEventKind.BLOCKED:
            words = f"due for eviction because of {why}, but blocked: {text}"
        case PodEventKind.EVICTED:
            words = f"evicted because of {why}"
    return EvictionEvent(pod, kind.value, _ACTIONS[kind], words, warning=kind is PodEventKind.BLOCKED)


def _why(eviction: Eviction) -> str:
    reasons = eviction.reasons
    more = len(reasons) - _REASONS_MOST
    return ", ".join(map(str, reasons[:_REASONS_MOST])) + (f" and {more} more" if more > 0 else "")


_RULE_REASONS: Final = {
    "Evicting": "EvictionStarted",
    "Waiting": "EvictionScheduled",
    "Limited": "EvictionLimited",
    "Blocked": "EvictionBlocked",
    "Paused": "EvictionPaused",
    "Held": "EvictionHeld",
    "Completed": "EvictionCompleted",
    "Stopped": "EvictionStopped",
    "ObserveOnly": "EvictionObserved",
    "NothingToDo": "NothingToEvict",
    "HeldByPodGroup": "EvictionHeldByPodGroup",
    "ReturnsToDevice": "EvictionStopped",
}


_WARNINGS: Final = frozenset({"Blocked", "Limited", "Stopped", "HeldByPodGroup", "ReturnsToDevice"})


def rule_event(rule: DeviceTaintRule, state: ConditionReason, message: str) -> EvictionEvent:
    """An Event about a rule, written when the reason of its condition changes."""
    return EvictionEvent(rule, _RULE_REASONS[state.value], "Evict", message, warning=state.value in _WARNINGS)


def group_event(group: PodGroup, pod: str, eviction: Eviction) -> EvictionEvent:
    """An Event about a PodGroup that keeps claims of its pods reserved; `pod`: one of these, by `namespace/name`."""
    text = (
        f"pod {pod} would be evicted because of {_why(eviction)}, but is left alone: its claims stay reserved for "
        "this PodGroup, and are freed only when the PodGroup is deleted"
    )
    return EvictionEvent(group, _RULE_REASONS["HeldByPodGroup"], "Evict", text, warning=True)


def disruption_of(mode: Mode) -> Disruption:
    """Condition DisruptionTarget as set right before a DELETE; in mode replacement the in-tree one (E-30)."""
    if mode is Mode.REPLACEMENT:
        return Disruption("DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint")
    return Disruption("DeletionByDeviceTaintWebhook", "deleting because of a device taint")


_ONCE: Final = frozenset({PodEventKind.SCHEDULED, PodEventKind.CANCELLED, PodEventKind.EVICTED})
"""What happens once; the other kinds of Events are about a state that lasts."""


class EvictionRecorder:
    """Queues Events without waiting, and writes them one after the other."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._buffer: WriteBehind[EvictionEvent] = WriteBehind(
            self._write, most=deps.settings.events_most, on_dropped=deps.metrics.eviction_events_dropped.inc
        )
        self._groups: dict[str, float] = {}
        """When the last Event about a PodGroup was queued, in monotonic seconds, by uid."""
        self._last: dict[str, tuple[PodEventKind, float]] = {}
        """The last Event about a pod, and when it was queued, by uid."""

    def record_pod_event(self, kind: PodEventKind, pod: PodRef, eviction: Eviction, text: str = "") -> None:
        """Queues an Event about a pod, unless the last one about it had the same reason.

        An Event about a state that lasts is queued again each hour.
        """
        now = self._deps.clock.seconds()
        last, at = self._last.get(pod.uid, (None, 0.0))
        if last is not kind or (kind not in _ONCE and now - at >= RENEW_SECONDS):
            self._last[pod.uid] = kind, now
            self.record(pod_event(self._deps.mode, kind, pod, eviction, text))

    def renewed_at(self, uid: str) -> float:
        """Returns when the last Event about a pod is to be queued again, if its state lasts, in monotonic seconds."""
        return self._last[uid][1] + RENEW_SECONDS if uid in self._last else math.inf

    def forget(self, uid: str) -> None:
        """A pod is gone, or no taint evicts it any longer."""
        self._last.pop(uid, None)

    def record_group_event(self, group: PodGroup, pod: str, eviction: Eviction) -> None:
        """Queues an Event about a PodGroup that keeps the claims of its pods reserved, once an hour."""
        now, last = self._deps.clock.seconds(), self._groups.get(group.meta.uid, -math.inf)
        if now - last < RENEW_SECONDS:
            return
        self._groups = {uid: at for uid, at in self._groups.items() if now - at < RENEW_SECONDS}
        self._groups[group.meta.uid] = now
        self.record(group_event(group, pod, eviction))

    def record(self, event: EvictionEvent) -> None:
        """Queues an Event; it is dropped if too many are queued."""
        self._buffer.add(event)

    async def run(self) -> NoReturn:
        """Writes queued Events until it is cancelled."""
        await self._buffer.run()

    async def finish(self) -> None:
        """Writes the queued Events after `run` was cancelled; those left after `flush_seconds` are dropped."""
        dropped = await self._buffer.finish(self._deps.settings.flush_seconds)
        if dropped:
            log.warning("events not written", extra={"count": dropped})

    async def _write(self, event: EvictionEvent) -> None:
        if self._deps.leads():
            await self._deps.writer.write_event(event)
        else:
            # Another process leads, and a process without the lease writes nothing.
            self._deps.metrics.eviction_events_dropped.inc()
