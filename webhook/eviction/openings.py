"""When the windows open that pods wait for, in words. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from webhook.api.meta import format_time
from webhook.eviction.exemptions import StepReason
from webhook.policy.windows import local_text, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from webhook.eviction.core import Core
    from webhook.eviction.pod_plan import PodPlan
    from webhook.eviction.step import Wait
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
    unit = core.plans.units.of(plan)
    return opening_text([each.profile.settings for each in (unit.deciding if unit is not None else (plan,))], now)


def when_text(core: Core, plan: PodPlan, step: Wait, now: datetime) -> str:
    """When the pod is to be evicted, in a clause; empty if that is its due time."""
    match step.reason:
        case StepReason.WINDOW:
            opening = opening_of(core, plan, now)
            return f"in the window that opens at {opening}" if opening else "when a window opens"
        case StepReason.COMPLETING:
            return f"unless it completes before {format_time(now + timedelta(seconds=step.seconds))}"
        case _:
            return ""
