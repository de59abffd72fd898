"""When pods are to be evicted, and when the windows open that they wait for, in words. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.api.meta import format_time
from webhook.eviction.pod_plan import StepReason, later
from webhook.eviction.step import Wait
from webhook.eviction.units import due_of
from webhook.policy.windows import local_text, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from webhook.eviction.core import Core
    from webhook.eviction.pod_plan import PodPlan
    from webhook.eviction.step import NoAction
    from webhook.eviction.units import Unit
    from webhook.policy.model import EvictionProfile


def opening_text(profiles: Iterable[EvictionProfile], now: datetime) -> str:
    """When the windows are open next of those among these profiles that are closed; of several, the last to open.

    As local time, with the zone; empty if all are open.
    """
    states = [state_of(profile.windows, now) for profile in profiles]
    last = max([(state.until, state.zone) for state in states if not state.open and state.until], default=None)
    return "" if last is None else f"{local_text(*last)} ({last[1]})"


def opening_of(core: Core, plan: PodPlan, now: datetime) -> str:
    """When the pod's window opens, or that of the pods that it goes together with, as above."""
    return opening_text(settings_of(core.plans.units.of(plan), plan), now)


def settings_of(unit: Unit | None, plan: PodPlan) -> list[EvictionProfile]:
    """The profiles that decide when a pod of a unit goes, or one that goes alone."""
    return [each.profile.settings for each in (unit.deciding if unit is not None else (plan,))]


def when_text(core: Core, plan: PodPlan, step: NoAction | Wait, now: datetime) -> str:
    """When the pod is to be evicted, in a clause."""
    unit = core.plans.units.of(plan)
    if isinstance(step, Wait):
        if step.reason is StepReason.WINDOW:
            opening = opening_text(settings_of(unit, plan), now)
            return f"in the window that opens at {opening}" if opening else "when a window opens"
        if StepReason.COMPLETING in (step.reason, step.cause):
            end = format_time(later(now, step.seconds))
            if step.other is None:
                return f"unless it completes before {end}"
            return f"together with {step.other.key}, once that has completed, at {end} at the latest,"
        if step.cause is StepReason.FAILED and step.other is not None:
            return f"together with {step.other.key}, once that can be evicted,"
    return f"at {format_time(due_of(plan) if unit is None else unit.due)}"
