"""How far the eviction for a rule has come, and what holds up its pods. Reads the plans and the ready queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.eviction.conditions import LimitedPods, Progress
from webhook.eviction.exemptions import StepReason, exemption
from webhook.eviction.limits import LimitKind
from webhook.eviction.step import Wait, facts_of, next_step
from webhook.flowcontrol.timeslice import TimeSlice

if TYPE_CHECKING:
    from datetime import datetime

    from webhook.eviction.core import Core
    from webhook.eviction.pod_plan import PodPlan

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

    async def count(self, rule_uid: str) -> Progress:
        """The progress as far as the plans show it, which may change while this counts in time slices."""
        timeslice = TimeSlice(clock=self._core.deps.clock.seconds)
        for plan in self._core.plans.of_rule(rule_uid):
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
                    for kind, keys in self._limited.items()
                ]
            ),
            stuck=tuple(sorted(self._core.plans.stuck_of(rule_uid))),
            paused=None if pause is None else (pause.until, pause.why),
            skipped=self._skipped,
            next_due=self._next_due,
        )

    def _add(self, plan: PodPlan) -> None:
        facts = facts_of(self._core, plan)
        if plan.pod.deleting or facts.evicted:
            return
        if exemption(plan.pod, facts.profile) is not None:
            self._skipped += 1
            return
        self._pending += 1
        self._namespaces.add(plan.pod.meta.namespace)
        step = next_step(facts, self._now)
        if isinstance(step, Wait) and step.reason is StepReason.EARLY:
            due = plan.eviction.due
            self._next_due = due if self._next_due is None else min(self._next_due, due)
            return
        self._due += 1
        if isinstance(step, Wait):
            self._held += 1
            return
        limit = self._core.ready.limit_of(plan.uid)
        if limit is None or limit.kind is LimitKind.BUDGET:
            self._blocked += plan.blocked or limit is not None
        else:
            self._limited.setdefault(limit.kind, []).append(plan.key)
