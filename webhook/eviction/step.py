"""The next step for one pod at one moment. Pure: the same facts and the same time give the same step.

The worker calls `recheck` wherever it decides about a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
from msgspec import structs

from webhook.api.meta import format_time
from webhook.api.pods import Pod
from webhook.eviction.pod_plan import PodPlan, StepReason, exemption, in_vain, later
from webhook.eviction.profiles import deletes_at_once
from webhook.eviction.units import FormedUnit, due_of
from webhook.inventory.evictions import Eviction
from webhook.policy.model import EvictionProfile
from webhook.policy.windows import local_text, state_of

if TYPE_CHECKING:
    from webhook.eviction.core import Core


_LOOK_AGAIN_SECONDS: Final = 24 * 3600.0
"""After what time to look again for the next window if none is known, or for the newer version of a pod."""
_WORDS: Final = {
    StepReason.EARLY: "not due yet",
    StepReason.HELD: "on hold",
    StepReason.COMPLETING: "left to complete",
    StepReason.FAILED: "retried after an error",
}


class NoAction(msgspec.Struct, frozen=True):
    """Do nothing until something changes."""

    reason: StepReason


class StepWait(msgspec.Struct, frozen=True):
    """Do nothing for this time."""

    seconds: float
    reason: StepReason
    other: PodPlan | None = None
    """The pod of its unit that it waits for, if it could go by itself."""
    cause: StepReason | None = None
    """What that one waits for."""


class Evict(msgspec.Struct, frozen=True):
    """Evict now: with a DELETE of our own or through the Eviction API; None keeps the pod's own grace period."""

    delete: bool = False
    grace_period_seconds: int | None = None


Step: TypeAlias = NoAction | StepWait | Evict


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What a step depends on, besides the time. `hold`: the text of `/hold` on the pod or its namespace, if there.

    `held_by`: the PodGroup that keeps its claims reserved; `returns`: the claim through which its pods come back.
    `overdue`: its disruption budgets have refused for the whole deadline; `evicted`: we evicted the pod, although the
    watch may still show it; `outdated`: the API server has a newer version of the pod.
    """

    pod: Pod | None
    eviction: Eviction | None
    profile: EvictionProfile
    hold: str | None = None
    held_by: str = ""
    returns: str = ""
    overdue: bool = False
    evicted: bool = False
    acts: bool = True
    outdated: bool = False


def recheck(core: Core, plan: PodPlan, now: datetime) -> Step:
    """The next step for a pod by what is known now, whichever queue it comes from (ADR 9).

    It is called when the pod is planned, when it is popped, before its request, and as that is written.
    """
    if core.plans.scheduled.get(plan.uid) is not plan:
        return NoAction(StepReason.SAFE)  # the plan was dropped or replaced meanwhile
    step = next_step(facts_of(core, plan), now)
    if not isinstance(step, Evict):
        return step
    return NoAction(StepReason.ALONE) if core.plans.left_alone(plan) else wait_for_unit(core, plan, now) or step


def wait_for_unit(core: Core, plan: PodPlan, now: datetime) -> StepWait | None:
    """How long a pod that could go by itself waits for those that it goes together with; None if it does not."""
    unit = core.plans.units.of(plan)
    if unit is None:  # as for most
        return None
    wait = unit_wait(unit, plan, now, lambda other: next_step(facts_of(core, other), now))
    if wait is not None or unit.failed is None:
        return wait
    left = unit.retry_at - core.deps.clock.seconds()
    if left <= 0:
        return None
    if unit.failed is plan:
        return StepWait(left, StepReason.FAILED)
    return StepWait(left, StepReason.GANG, unit.failed, StepReason.FAILED)


def unit_wait(unit: FormedUnit, plan: PodPlan, now: datetime, step_of: Callable[[PodPlan], Step]) -> StepWait | None:
    """The same, apart from errors; `step_of`: what other pods of the unit would do by themselves."""
    if now < unit.due:
        last = max(unit.deciding, key=due_of)
        return StepWait((unit.due - now).total_seconds(), StepReason.GANG, last, StepReason.EARLY)
    steps = [(step_of(other), other) for other in unit.deciding if other is not plan]
    waits = [(step.seconds, step.reason, other) for step, other in steps if isinstance(step, StepWait)]
    if not waits:
        return None
    closed = [wait for wait in waits if wait[1] is StepReason.WINDOW]
    _, cause, other = max(closed or waits, key=itemgetter(0))
    seconds = max(wait[0] for wait in waits)
    return StepWait(seconds, StepReason.WINDOW if closed else StepReason.GANG, other, cause)


def request_to_send(core: Core, plan: PodPlan, sent: Evict | None = None) -> Evict | None:
    """`recheck` right before a request; None also while evictions are paused, or plans may be behind the cluster.

    `sent`: what is about to be written. Once a pod of its unit was evicted by it, each of the others goes by itself.
    """
    if core.backlog.behind or core.deps.paused() or not core.deps.trusted():
        return None
    now = core.deps.clock.now()
    if sent is None or not core.plans.under_way.begun(plan.place):
        step = recheck(core, plan, now)
    else:
        # a pod that goes along has no plan any more once the pods that a taint hits are gone
        planned = core.plans.scheduled.get(plan.uid) is plan or (plan.along and core.evictions.act(plan.eviction))
        pod = core.deps.inventory.pods.get(plan.key)
        if not planned or pod is None or pod.meta.uid != plan.uid:
            return None
        if plan.along and not core.plans.companions.goes_with_all(pod):
            return None
        # past the deadline all go by DELETE, although the budget may allow more now
        step = next_step(structs.replace(facts_of(core, structs.replace(plan, pod=pod)), overdue=sent.delete), now)
    return step if isinstance(step, Evict) else None


def facts_of(core: Core, plan: PodPlan) -> Facts:
    """The current facts that the next step of a pod depends on."""
    pod, profile, evicted = plan.pod, plan.profile.settings, plan.uid in core.plans.evicted
    hold = hold_of(core, plan)
    overdue = profile.delete_after_deadline and core.gate.overdue(
        plan, profile.deadline_seconds, core.deps.clock.seconds()
    )
    returns = core.returns.claim_of(pod)
    return Facts(pod, plan.eviction, profile, hold, plan.held_by, returns, overdue, evicted, core.acts, plan.stale)


def hold_of(core: Core, plan: PodPlan) -> str | None:
    """The text of `/hold` on the pod, or else on its namespace."""
    pod = plan.pod
    return pod.hold if pod.hold is not None else core.deps.namespaces.hold_of(pod.meta.namespace)


def next_step(facts: Facts, now: datetime) -> Step:
    """The next step for the pod."""
    reason, profile = _why_not(facts), facts.profile
    if reason is not None or facts.eviction is None:
        return NoAction(reason or StepReason.SAFE)
    due = later(facts.eviction.due, profile.grace_seconds)
    if now < due:
        return StepWait((due - now).total_seconds(), StepReason.EARLY)
    if facts.outdated:
        return StepWait(_LOOK_AGAIN_SECONDS, StepReason.FAILED)  # until the watch brings it
    if facts.hold is not None or profile.windows or profile.wait_for_completion_seconds:
        wait = _put_off(facts, facts.pod, due, now)
        if wait is not None:
            return wait
    delete = profile.delete_after_deadline and (facts.overdue or deletes_at_once(profile))
    return Evict(delete, profile.grace_period_seconds)


def _put_off(facts: Facts, pod: Pod | None, due: datetime, now: datetime) -> StepWait | None:
    """How long a pod that is due is kept: by a hold, until it completes, or until a window opens."""
    profile = facts.profile
    if facts.hold is not None:
        end = later(due, profile.max_hold_seconds)
        if now < end:
            return StepWait((end - now).total_seconds(), StepReason.HELD)
    if profile.wait_for_completion_seconds and pod is not None and pod.completes:
        end = later(due, profile.wait_for_completion_seconds)
        if now < end:
            return StepWait((end - now).total_seconds(), StepReason.COMPLETING)
    state = state_of(profile.windows, now)
    if state.open:
        return None
    seconds = _LOOK_AGAIN_SECONDS if state.until is None else (state.until - now).total_seconds()
    return StepWait(seconds, StepReason.WINDOW)


def _why_not(facts: Facts) -> StepReason | None:
    """Why the pod is not evicted at any time, or None."""
    pod = facts.pod
    if pod is None or pod.deleting or pod.finished:
        return StepReason.GONE
    if facts.eviction is None:
        return StepReason.SAFE
    if facts.evicted:
        return StepReason.DONE
    if facts.eviction.waits:
        return StepReason.REPUBLISHED
    return (
        exemption(pod, facts.profile)
        or in_vain(facts.held_by, facts.returns)
        or (None if facts.acts else StepReason.OBSERVED)
    )


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


def settings_of(unit: FormedUnit | None, plan: PodPlan) -> list[EvictionProfile]:
    """The profiles that decide when a pod of a unit goes, or one that goes alone."""
    return [each.profile.settings for each in (unit.deciding if unit is not None else (plan,))]


def when_text(core: Core, plan: PodPlan, step: NoAction | StepWait, now: datetime) -> str:
    """When the pod is to be evicted, in a clause."""
    unit = core.plans.units.of(plan)
    if isinstance(step, StepWait):
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


def state_text(cause: StepReason) -> str:
    """The state of a pod that another one waits for, as in `ml/train-0, which is on hold`."""
    return _WORDS[cause]


def together_with(pod: str) -> str:
    """The other pod, by `namespace/name`, as the subject of a sentence about it."""
    return f"{pod}, which it goes together with"
