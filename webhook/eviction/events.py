"""Events about pods, rules and PodGroups, recorded in the background, so that writing them never delays an eviction.

Those of plans say when a pod is to go, what holds it, and, as two plans differ, that its eviction was cancelled. One
about a state that lasts is written again each hour. Mode replacement uses the texts of the in-tree controller (E-34).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Container, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Final, NoReturn

from webhook.api.meta import format_time
from webhook.api.pods import Pod, PodGroup
from webhook.api.rules import DeviceTaintRule
from webhook.eviction.conditions import ConditionReason, first_of
from webhook.eviction.modes import Mode
from webhook.eviction.pod_plan import EvictionPlan, Going, StepReason, Wait, opening_text, together_with
from webhook.eviction.ports import Dependencies, Disruption, EvictionEvent, PodRef
from webhook.flowcontrol.loop import WriteBehind
from webhook.inventory.evictions import Eviction
from webhook.inventory.gangs import is_leaving

_STEP: Final = 256
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
    """Make an Event about a pod; `text` is the API server's refusal, or that of `/hold`, for kinds that quote it.

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
    return first_of([str(reason) for reason in eviction.reasons])


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
    """Make an Event about a rule, written when the reason of its condition changes."""
    return EvictionEvent(rule, _RULE_REASONS[state.value], "Evict", message, warning=state.value in _WARNINGS)


def disruption_of(mode: Mode) -> Disruption:
    """Make condition DisruptionTarget as set right before a DELETE; in mode replacement the in-tree one (E-30)."""
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
        """Queue an Event about a pod, unless the last one about it had the same reason.

        An Event about a state that lasts is queued again each hour.
        """
        now = self._deps.clock.seconds()
        last, at = self._last.get(pod.uid, (None, 0.0))
        if last is not kind or (kind not in _ONCE and now - at >= RENEW_SECONDS):
            self._last[pod.uid] = kind, now
            self.record(pod_event(self._deps.mode, kind, pod, eviction, text))

    def renewed_at(self, uid: str) -> float:
        """Return when the last Event about a pod is to be queued again, if its state lasts, in monotonic seconds."""
        return self._last[uid][1] + RENEW_SECONDS if uid in self._last else math.inf

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone, or that no taint evicts any longer."""
        self._last.pop(uid, None)

    def record_group_event(self, group: PodGroup, pod: str, eviction: Eviction) -> None:
        """Queue an Event about a PodGroup that keeps claims of its pods reserved, once an hour; `pod`: one of them."""
        now, last = self._deps.clock.seconds(), self._groups.get(group.meta.uid, -math.inf)
        if now - last < RENEW_SECONDS:
            return
        self._groups = {uid: at for uid, at in self._groups.items() if now - at < RENEW_SECONDS}
        self._groups[group.meta.uid] = now
        text = (
            f"pod {pod} would be evicted because of {_why(eviction)}, but is left alone: its claims stay reserved for "
            "this PodGroup, and are freed only when the PodGroup is deleted"
        )
        self.record(EvictionEvent(group, _RULE_REASONS["HeldByPodGroup"], "Evict", text, warning=True))

    def record(self, event: EvictionEvent) -> None:
        """Queue an Event; it is dropped if too many are queued."""
        self._buffer.add(event)

    async def run(self) -> NoReturn:
        """Write queued Events until it is cancelled."""
        await self._buffer.run()

    async def finish(self) -> None:
        """Write the queued Events after `run` was cancelled; those left after `flush_seconds` are dropped."""
        dropped = await self._buffer.finish(self._deps.settings.flush_seconds)
        if dropped:
            log.warning("events not written", extra={"count": dropped})

    async def _write(self, event: EvictionEvent) -> None:
        if self._deps.leads():
            await self._deps.writer.write_event(event)
        else:
            # Another process leads, and a process without the lease writes nothing.
            self._deps.metrics.eviction_events_dropped.inc()


# --- from plans ----------------------------------------------------------------------------------


class Telling:
    """Compares each plan with the one before it."""

    def __init__(
        self,
        deps: Dependencies,
        recorder: EvictionRecorder,
        granted: Container[str],
        on_cancelled: Callable[[Pod], None],
    ) -> None:
        """`granted`: the pods, by uid, that were evicted.

        `on_cancelled` is called with each pod that no taint evicts any longer.
        """
        self._deps = deps
        self._recorder = recorder
        self._granted = granted
        self._on_cancelled = on_cancelled
        self._renew_at = math.inf

    @property
    def wait_seconds(self) -> float:
        """The time until an Event is to be written again; infinite if there is none."""
        return self._renew_at - self._deps.clock.seconds()

    def differences(self, before: EvictionPlan, made: EvictionPlan, *, whole: bool) -> Iterator[None]:
        """Queue the Events that follow from a plan, in steps. `whole`: of all pods."""
        if whole:
            self._renew_at = math.inf
        yield from self._tell_cancelled(before, made)
        yield from self._tell_waiting(made) if self._deps.mode.acts else self._tell_observed(made)

    def _tell_cancelled(self, before: EvictionPlan, made: EvictionPlan) -> Iterator[None]:
        for number, key in enumerate(before.hit):
            if not number % _STEP:
                yield
            pod = self._deps.inventory.pods.get(key)
            if pod is not None and _is_planned(before, pod) and not _is_planned(made, pod):
                self._cancel(before, key, pod, stays=key not in made.hit)

    def _tell_waiting(self, made: EvictionPlan) -> Iterator[None]:
        held, now = dict[str, str](), self._deps.clock.now()
        for number, (uid, wait) in enumerate(made.waits.items()):
            if not number % _STEP:
                yield
            each = made.going.get(uid)
            if each is not None:
                self._tell_going(made, each, wait, now)
                if StepReason.HELD in (wait.reason, wait.cause):
                    self._renew_at = min(self._renew_at, self._recorder.renewed_at(uid))
            elif wait.reason is StepReason.GROUP:
                held[uid] = wait.because
        if held:
            self._tell_groups(made, held)

    def _tell_observed(self, made: EvictionPlan) -> Iterator[None]:
        for number, each in enumerate(made.going.values()):
            if not number % _STEP:
                yield
            if self._is_there(each):
                self._recorder.record_pod_event(PodEventKind.SCHEDULED, each.ref, each.eviction, _at(made, each))

    def _cancel(self, before: EvictionPlan, key: str, pod: Pod, *, stays: bool) -> None:
        """Report that a pod is planned no longer. `stays`: no taint hits it; else its rules are stopped for now."""
        ref = PodRef(pod.meta.namespace, pod.meta.name, pod.meta.uid)
        if is_leaving(pod) or pod.meta.uid in self._granted:
            return
        self._deps.metrics.evictions_cancelled.inc()
        self._recorder.record_pod_event(PodEventKind.CANCELLED, ref, before.hit[key])
        self._recorder.forget(pod.meta.uid)
        if stays:
            self._on_cancelled(pod)

    def _tell_going(self, made: EvictionPlan, each: Going, wait: Wait, now: datetime) -> None:
        if not self._is_there(each):
            return
        if StepReason.HELD in (wait.reason, wait.cause):
            text = f"{together_with(wait.other)}, is on hold: {wait.because}" if wait.other else wait.because
            self._recorder.record_pod_event(PodEventKind.HELD, each.ref, each.eviction, text)
            return
        seconds = math.inf if wait.until is None else (wait.until - now).total_seconds()
        soon = seconds <= self._deps.settings.announce_after_seconds
        if wait.reason not in (StepReason.FAILED, StepReason.PAUSED) and not soon:
            text = _when(made, each, wait, now)
            self._recorder.record_pod_event(PodEventKind.SCHEDULED, each.ref, each.eviction, text)

    def _is_there(self, each: Going) -> bool:
        pod = self._deps.inventory.pods.get(each.key)
        return pod is not None and pod.meta.uid == each.uid

    def _tell_groups(self, made: EvictionPlan, held: dict[str, str]) -> None:
        """Report the PodGroups that keep claims of these pods reserved: the first pod by name stands for all."""
        pods, groups = self._deps.inventory.pods, self._deps.inventory.pod_groups
        found = [pods[key] for key in made.hit if key in pods and pods[key].meta.uid in held]
        for pod in sorted(found, key=lambda pod: pod.meta.name):
            group = groups.get(f"{pod.meta.namespace}/{held[pod.meta.uid]}")
            if group is not None:
                key = f"{pod.meta.namespace}/{pod.meta.name}"
                self._recorder.record_group_event(group, key, made.hit[key])


def _is_planned(made: EvictionPlan, pod: Pod) -> bool:
    wait = made.waits.get(pod.meta.uid)
    return pod.meta.uid in made.going or (wait is not None and wait.reason is not StepReason.STOPPED)


def _when(made: EvictionPlan, each: Going, wait: Wait, now: datetime) -> str:
    """Return when the pod is to be evicted, in a clause."""
    if wait.reason is StepReason.WINDOW:
        opening = opening_text(made.members_of(each), now)
        return f"in the window that opens at {opening}" if opening else "when a window opens"
    if StepReason.COMPLETING in (wait.reason, wait.cause) and wait.until is not None:
        end = format_time(wait.until)
        if not wait.other:
            return f"unless it completes before {end}"
        return f"together with {wait.other}, once that has completed, at {end} at the latest,"
    if wait.cause is StepReason.FAILED:
        return f"together with {wait.other}, once that can be evicted,"
    return _at(made, each)


def _at(made: EvictionPlan, each: Going) -> str:
    return f"at {format_time(made.due_of(each))}"
