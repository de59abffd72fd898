"""How far the eviction for a rule has come, and what holds up its pods. Reads the plans and the ready queue.

The forecast is what a rule of effect None would evict with effect NoExecute, as the in-tree controller counts it.
`impact_of` counts the consumers of claims, for processes that may not read pods. The worker knows the pods, so it
leaves out those that are terminating, have no node, or are gone while their claim is still reserved for them.
Source: `semantics.md` E-40, E-43; countPendingPods and countTaintedDevices of the in-tree controller.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from webhook.api.pods import Pod
from webhook.api.rules import DeviceTaintRule
from webhook.eviction.conditions import (
    ClosedWindow,
    HeldByPodGroup,
    ImpactForecast,
    LimitedPods,
    Progress,
    ReturningPods,
    WaitingForPod,
)
from webhook.eviction.core import Core
from webhook.eviction.pod_plan import PodPlan, StepReason, exemption, in_vain
from webhook.eviction.ports import LimitKind
from webhook.eviction.step import Evict, StepWait, facts_of, next_step, opening_of, state_text, wait_for_unit
from webhook.eviction.units import due_of
from webhook.flowcontrol.timeslice import TimeSlice
from webhook.inventory.fates import DeviceNames
from webhook.inventory.gangs import root_owner
from webhook.inventory.impact import Taint, impact_of

_NAMED_MOST: Final = 3


class ProgressCount:
    """Counts the pods of one rule at one moment."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._now = core.deps.clock.now()
        self._namespaces: set[str] = set()
        self._pending = self._due = self._blocked = self._held = self._skipped = 0
        self._next_due: datetime | None = None
        self._limited: dict[LimitKind, list[str]] = {}
        self._closed: dict[str, int] = {}
        self._completing = self._held_back = 0
        self._waiting_for: dict[tuple[str, str], int] = {}
        self._held_by: dict[str, int] = {}
        self._returning: dict[tuple[str, str], int] = {}

    async def count(self, rule_uid: str) -> Progress:
        """The progress that the plans show, which may change while this counts in time slices."""
        timeslice = TimeSlice(clock=self._core.deps.clock.seconds)
        for plan in self._core.plans.hits.plans_of(rule_uid):
            await timeslice.pause()
            if self._core.plans.scheduled.get(plan.uid) is plan:
                self._add(plan)
        pause = self._core.deps.paused()
        return Progress(
            pending=self._pending,
            namespaces=len(self._namespaces),
            due=self._due,
            blocked=self._blocked,
            held=self._held,
            limited=tuple(
                [
                    LimitedPods(kind.value, len(keys), tuple(sorted(keys)[:_NAMED_MOST]))
                    for kind, keys in sorted(self._limited.items())
                ]
            ),
            closed=tuple([ClosedWindow(*each) for each in sorted(self._closed.items())]),
            completing=self._completing,
            waiting_for=tuple([WaitingForPod(*names, pods) for names, pods in sorted(self._waiting_for.items())]),
            held_back=self._held_back,
            stuck=tuple(sorted(self._core.plans.stuck_of(rule_uid))),
            paused=None if pause is None else (pause.until, pause.why),
            skipped=self._skipped,
            held_by=tuple([HeldByPodGroup(*each) for each in sorted(self._held_by.items())]),
            returning=tuple([ReturningPods(*names, pods) for names, pods in sorted(self._returning.items())]),
            next_due=self._next_due,
        )

    def _leave_alone(self, plan: PodPlan, claim: str) -> None:
        """A pod whose eviction would free no device."""
        if plan.held_by:
            group = f"{plan.pod.meta.namespace}/{plan.held_by}"
            self._held_by[group] = self._held_by.get(group, 0) + 1
        else:
            names = claim, str(root_owner(plan.pod) or "")
            self._returning[names] = self._returning.get(names, 0) + 1

    def _add(self, plan: PodPlan) -> None:
        facts = facts_of(self._core, plan)
        if exemption(plan.pod, facts.profile) is not None:
            self._skipped += 1
            return
        if in_vain(facts.held_by, facts.returns):
            self._leave_alone(plan, facts.returns)
            return
        self._pending += 1
        self._namespaces.add(plan.pod.meta.namespace)
        step = next_step(facts, self._now)
        if isinstance(step, Evict):
            step = wait_for_unit(self._core, plan, self._now) or step
        if isinstance(step, StepWait) and self._put_off(plan, step):
            return
        self._due += 1
        if isinstance(step, StepWait) and step.reason is StepReason.HELD:
            self._held += 1
            return
        limit = self._core.ready.limit_of(plan.uid)
        if limit is None or limit.kind is LimitKind.BUDGET:
            self._blocked += plan.blocked or limit is not None
        else:
            self._limited.setdefault(limit.kind, []).append(plan.key)

    def _put_off(self, plan: PodPlan, step: StepWait) -> bool:
        """Whether the pod waits for its time, for a window or its end, or for another pod; counts it by that."""
        match step.reason:
            case StepReason.WINDOW:
                opening = opening_of(self._core, plan, self._now)
                self._closed[opening] = self._closed.get(opening, 0) + 1
            case StepReason.COMPLETING:
                self._completing += 1
            case StepReason.EARLY:
                self._count_early(plan)
            case StepReason.GANG:
                self._count_waiting(plan, step)
            case _:
                return False
        return True

    def _count_early(self, plan: PodPlan) -> None:
        unit = self._core.plans.units.of(plan)
        due = due_of(plan) if unit is None else unit.due
        self._next_due = due if self._next_due is None else min(self._next_due, due)

    def _count_waiting(self, plan: PodPlan, step: StepWait) -> None:
        """It waits for another pod of its unit, and is due unless that one is to go later."""
        assert step.other is not None
        assert step.cause is not None
        names = step.other.key, state_text(step.cause)
        self._waiting_for[names] = self._waiting_for.get(names, 0) + 1
        if step.cause is StepReason.EARLY:
            self._count_early(plan)
        self._due += step.cause in (StepReason.HELD, StepReason.FAILED)
        self._held_back += step.cause is StepReason.HELD


async def forecast_of(core: Core, rule: DeviceTaintRule) -> ImpactForecast:
    """Devices, allocated devices, pods and namespaces, in time slices: the inventory may change meanwhile.

    A rule without a selector selects nothing (E-6).
    """
    if rule.selector is None:
        return ImpactForecast(0, 0, 0, 0)
    inventory = core.deps.inventory
    taint = Taint.of_rule(rule, in_tree=False).as_if_evicting(in_tree=False)
    impact = impact_of(inventory, rule.selector, taint, core.deps.clock.now())
    names = DeviceNames.of(rule.selector)
    pods, namespaces = 0, set()
    timeslice = TimeSlice(clock=core.deps.clock.seconds)
    for key in inventory.pods_using(inventory.usage.claims_on(*names)):
        await timeslice.pause()
        pod = inventory.pods.get(key)
        if pod is not None and _may_go(core, pod) and core.evictions.would_evict(pod, taint, names):
            pods += 1
            namespaces.add(pod.meta.namespace)
    return ImpactForecast(impact.devices, impact.allocated, pods, len(namespaces))


def _may_go(core: Core, pod: Pod) -> bool:
    """Whether a plan for the pod would count as pending."""
    if pod.deleting or pod.finished or pod.meta.uid in core.plans.evicted:
        return False
    return exemption(pod, core.deps.profile_of(pod).settings) is None
