"""Events from plans: when a pod is to go, what holds it, and, as two plans differ, that its eviction was cancelled.

An Event about a state that lasts is written again each hour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import datetime

from webhook.api.meta import format_time
from webhook.api.pods import Pod
from webhook.eviction.core import Core
from webhook.eviction.events import PodEventKind
from webhook.eviction.pod_plan import EvictionPlan, Going, StepReason, Wait, opening_text, together_with
from webhook.eviction.ports import PodRef
from webhook.inventory.pod_groups import is_leaving

_STEP = 256


class Telling:
    """Compares each plan with the one before it."""

    def __init__(self, core: Core, on_cancelled: Callable[[Pod], None]) -> None:
        """`on_cancelled` is called with each pod that no taint evicts any longer."""
        self._core = core
        self._on_cancelled = on_cancelled
        self._renew_at = math.inf

    @property
    def wait_seconds(self) -> float:
        """The time until an Event is to be written again; infinite if there is none."""
        return self._renew_at - self._core.deps.clock.seconds()

    def planned_count(self) -> int:
        """Returns the number of pods that a taint evicts, those that stay among them, without those that have gone."""
        made, granted = self._core.plan, self._core.ledger.granted
        stay = [uid for uid, wait in made.waits.items() if wait.reason is not StepReason.STOPPED]
        return len(made.going) + len([uid for uid in stay if uid not in made.going and uid not in granted])

    def differences(self, before: EvictionPlan, made: EvictionPlan) -> Iterator[None]:
        """Queues the Events that follow from a plan, in steps."""
        if made is self._core.plan:
            self._renew_at = math.inf
        yield from self._tell_cancelled(before, made)
        yield from self._tell_waiting(made)
        if not self._core.acts:
            yield from self._tell_observed(made)

    def _tell_cancelled(self, before: EvictionPlan, made: EvictionPlan) -> Iterator[None]:
        for number, key in enumerate(before.hit):
            if not number % _STEP:
                yield
            pod = self._core.deps.inventory.pods.get(key)
            if pod is not None and _is_planned(before, pod) and not _is_planned(made, pod):
                self._cancel(before, key, pod, stays=key not in made.hit)

    def _tell_waiting(self, made: EvictionPlan) -> Iterator[None]:
        core, held, now = self._core, dict[str, str](), self._core.deps.clock.now()
        for number, (uid, wait) in enumerate(made.waits.items()):
            if not number % _STEP:
                yield
            each = made.going.get(uid)
            if each is not None:
                self._tell_going(made, each, wait, now)
                if core.acts and StepReason.HELD in (wait.reason, wait.cause):
                    self._renew_at = min(self._renew_at, core.recorder.renewed_at(uid))
            elif wait.reason is StepReason.GROUP and core.acts:
                held[uid] = wait.because
        if held:
            self._tell_groups(made, held)

    def _tell_observed(self, made: EvictionPlan) -> Iterator[None]:
        for number, each in enumerate(made.going.values()):
            if not number % _STEP:
                yield
            if not self._is_there(each):
                continue
            self._core.recorder.record_pod_event(PodEventKind.SCHEDULED, each.ref, each.eviction, _at(made, each))

    def _cancel(self, before: EvictionPlan, key: str, pod: Pod, *, stays: bool) -> None:
        """A pod is planned no longer. `stays`: no taint hits it; else its rules are stopped, maybe for a while."""
        core, ref = self._core, PodRef(pod.meta.namespace, pod.meta.name, pod.meta.uid)
        if is_leaving(pod) or pod.meta.uid in core.ledger.granted:
            return
        core.deps.metrics.evictions_cancelled.inc()
        core.recorder.record_pod_event(PodEventKind.CANCELLED, ref, before.hit[key])
        core.recorder.forget(pod.meta.uid)
        if stays:
            self._on_cancelled(pod)

    def _tell_going(self, made: EvictionPlan, each: Going, wait: Wait, now: datetime) -> None:
        core = self._core
        if not core.acts or not self._is_there(each):
            return
        if StepReason.HELD in (wait.reason, wait.cause):
            core.recorder.record_pod_event(PodEventKind.HELD, each.ref, each.eviction, self._hold_text(wait))
            return
        seconds = math.inf if wait.until is None else (wait.until - now).total_seconds()
        soon = seconds <= core.deps.settings.announce_after_seconds
        if wait.reason not in (StepReason.FAILED, StepReason.PAUSED) and not soon:
            text = _when(made, each, wait, now)
            core.recorder.record_pod_event(PodEventKind.SCHEDULED, each.ref, each.eviction, text)

    def _is_there(self, each: Going) -> bool:
        pod = self._core.deps.inventory.pods.get(each.key)
        return pod is not None and pod.meta.uid == each.uid

    def _hold_text(self, wait: Wait) -> str:
        """The text of the hold on the pod, or on the other one that it waits for."""
        if not wait.other:
            return wait.because
        pod, hold = self._core.deps.inventory.pods.get(wait.other), None
        if pod is not None:
            hold = pod.hold if pod.hold is not None else self._core.deps.namespaces.hold_of(pod.meta.namespace)
        return f"{together_with(wait.other)}, is on hold: {hold or ''}"

    def _tell_groups(self, made: EvictionPlan, held: dict[str, str]) -> None:
        """About the PodGroups that keep claims of these pods reserved: the first pod by name stands for all."""
        pods, groups = self._core.deps.inventory.pods, self._core.deps.inventory.pod_groups
        found = [pods[key] for key in made.hit if key in pods and pods[key].meta.uid in held]
        for pod in sorted(found, key=lambda pod: pod.meta.name):
            group = groups.get(f"{pod.meta.namespace}/{held[pod.meta.uid]}")
            if group is not None:
                key = f"{pod.meta.namespace}/{pod.meta.name}"
                self._core.recorder.record_group_event(group, key, made.hit[key])


def _is_planned(made: EvictionPlan, pod: Pod) -> bool:
    wait = made.waits.get(pod.meta.uid)
    return pod.meta.uid in made.going or (wait is not None and wait.reason is not StepReason.STOPPED)


def _when(made: EvictionPlan, each: Going, wait: Wait, now: datetime) -> str:
    """When the pod is to be evicted, in a clause."""
    if wait.reason is StepReason.WINDOW:
        unit = made.units.get(each.uid)
        members = (each,) if unit is None else unit.members
        profiles = {other.profile.position: other.profile.settings for other in members}
        opening = opening_text(profiles.values(), now)
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
    unit = made.units.get(each.uid)
    return f"at {format_time(each.due if unit is None else unit.due)}"
