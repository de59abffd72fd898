"""Spaces requests to evict pods under a disruption budget. Pure: seconds that only go forward are arguments.

While a budget allows evictions, a few requests are in flight at a time; else one prober asks every five seconds. The
budget's status, as watched, says how many evictions it allows; the Eviction API's answers say more, sooner. Neither
is trusted alone: a status may be late, so a budget that allows none is still asked from time to time.
Source: kubectl drain, which waits 5 s between two attempts; ADR 16.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from webhook.api.budgets import needs_disruption
from webhook.eviction.gates import AT_ONCE_MOST, FRESH_SECONDS, PROBE_SECONDS
from webhook.eviction.pod_plan import PodPlan
from webhook.eviction.ports import BudgetLimit, EvictionOutcome, PodBudgets

_GAP_SECONDS: Final = 3 * PROBE_SECONDS
"""Two refusals further apart than this do not show that the budget was asked all the time between them."""
_KEPT_SECONDS: Final = 600.0


class _Gate:
    """What is known about the budgets of some pods, by answers to requests."""

    __slots__ = ("asked_at", "closed_until", "granted", "in_flight", "refused_at", "refused_seconds")

    def __init__(self) -> None:
        self.in_flight = 0
        self.granted = 0
        """Evictions since the watch last showed the budget's status."""
        self.asked_at = -math.inf
        self.closed_until = -math.inf
        self.refused_at = -math.inf
        self.refused_seconds = 0.0
        """For how long it was asked and refused, without any progress."""

    def progress(self) -> None:
        """The budget allows evictions."""
        self.closed_until = self.refused_at = -math.inf
        self.refused_seconds = 0.0

    def refuse(self, now: float, *, counts: bool) -> None:
        """It has refused; `counts`: toward the deadline."""
        if not counts:
            return
        if now - self.refused_at <= _GAP_SECONDS:
            self.refused_seconds += now - self.refused_at
        self.refused_at = now


class BudgetGate:
    """Decides which pod may ask its budgets now, and for how long they have refused."""

    def __init__(self, budgets: PodBudgets) -> None:
        self._budgets = budgets
        self._gates: dict[BudgetLimit, _Gate] = {}
        self._units: dict[BudgetLimit, set[int]] = {}
        """How many evictions units need that were blocked, by the limit of single pods. Kept as long as a gate is."""

    def limit_of(self, plan: PodPlan) -> BudgetLimit | None:
        """The budgets of a pod that it needs a disruption of; None if it needs none and was never refused."""
        namespace, budgets = plan.pod.meta.namespace, self._budgets.select(plan.pod)
        if needs_disruption(plan.pod, budgets):
            return BudgetLimit(namespace, tuple([each.meta.name for each in budgets]))
        return BudgetLimit(namespace, (), plan.uid) if plan.blocked else None

    def budgeted(self, plan: PodPlan) -> bool:
        """Whether a budget selects the pod."""
        return bool(self._budgets.select(plan.pod))

    def blocks(self, plans: Sequence[PodPlan], now: float) -> BudgetLimit | None:
        """The budgets that keep these pods, which go together, from asking now, or None."""
        for limit, needed in self.needed_by(plans).items():
            if not self._open(limit, needed, now):
                return self._limit_of_unit(limit, needed)
        return None

    def _limit_of_unit(self, limit: BudgetLimit, needed: int) -> BudgetLimit:
        """The limit that a unit of this size waits for, so that `limits_like` has it."""
        if needed > 1:
            self._units.setdefault(limit.needing(1), set()).add(needed)
        return limit.needing(needed)

    def needed_by(self, plans: Sequence[PodPlan]) -> Mapping[BudgetLimit, int]:
        """How many disruptions pods that go together need of each of their budgets."""
        limits = [self.limit_of(plan) for plan in plans]
        needed = Counter([limit for limit in limits if limit is not None])
        for plan, limit in zip(plans, limits, strict=True):
            plan.needed = 1 if limit is None else needed[limit]
        return needed

    def shortage(self, plan: PodPlan) -> str:
        """Why the status of a budget does not allow all pods of a unit to go, in words; empty if it does."""
        limit = self.limit_of(plan)
        allowed = None if limit is None else self._allowed(limit)
        if limit is None or allowed is None or allowed >= plan.needed:
            return ""
        return f"budget {limit.budgets[0]} allows {allowed} of {plan.needed} evictions that belong together"

    def limits_like(self, limit: BudgetLimit) -> list[BudgetLimit]:
        """All limits of the same budgets: that of single pods, and those of units by their size."""
        single = limit.needing(1)
        return [single, *[limit.needing(needed) for needed in sorted(self._units.get(single, ()))]]

    def _open(self, limit: BudgetLimit, needed: int, now: float) -> bool:
        gate = self._gates.get(limit) or _Gate()
        short = self._gates.get(limit.needing(needed))
        if now < gate.closed_until or (short is not None and now < short.closed_until):
            return False
        allowed = self._allowed(limit)
        if allowed is None:
            return not gate.in_flight
        left = allowed - gate.granted - gate.in_flight
        if left >= needed:
            return needed > 1 or gate.in_flight < AT_ONCE_MOST
        return not gate.in_flight and now - gate.asked_at >= PROBE_SECONDS

    def _allowed(self, limit: BudgetLimit) -> int | None:
        """How many evictions the status allows; None if it does not say."""
        if len(limit.budgets) != 1:
            return None
        budget = self._budgets.find(limit.namespace, limit.budgets[0])
        return None if budget is None else budget.allowed

    def wait_seconds(self, limit: BudgetLimit, now: float) -> float:
        """Time until a pod may ask again, unless the budget's status changes before; 0 if one may ask now."""
        single = limit.needing(1)
        gates = [gate for each in {single, limit} if (gate := self._gates.get(each)) is not None]
        if not gates or self._open(single, limit.needed, now):
            return 0.0
        return max(0.0, *[max(gate.closed_until, gate.asked_at + PROBE_SECONDS) - now for gate in gates])

    # --- requests --------------------------------------------------------------------------------

    def begin(self, plan: PodPlan, now: float) -> BudgetLimit | None:
        """A pod is about to ask its budgets; returns them for `end`."""
        limit = self.limit_of(plan)
        if limit is not None:
            gate = self._gates.setdefault(limit, _Gate())
            gate.in_flight += 1
            gate.asked_at = now
        return limit

    def end(self, plan: PodPlan, limit: BudgetLimit | None, outcome: EvictionOutcome | None, now: float) -> None:
        """The request was answered; None: it was not made. `outcome` may be of a DELETE, which asks no budget."""
        if limit is not None:
            gate = self._gates[limit]
            gate.in_flight -= 1
            if outcome is None:
                gate.asked_at = -math.inf  # it was not asked
            elif outcome.evicted:
                gate.granted += 1
                gate.progress()
        if outcome is None:
            return
        plan.blocked = outcome.blocked
        if not outcome.blocked:
            return
        limit = limit if limit is not None and limit.budgets else self.limit_of(plan)
        assert limit is not None
        if outcome.short:
            limit = self._limit_of_unit(limit, plan.needed)
        gate = self._gates.setdefault(limit, _Gate())
        gate.asked_at = max(gate.asked_at, now)
        gate.refuse(now, counts=not outcome.budget_pending)
        gate.closed_until = now + max(outcome.retry_after_seconds, PROBE_SECONDS)

    def observe(self, namespace: str, budget: str) -> list[BudgetLimit]:
        """The status of a budget has changed; returns what it limits, where pods may now be let through."""
        limit = BudgetLimit(namespace, (budget,))
        gate = self._gates.get(limit)
        if gate is not None:
            gate.granted = 0
            if self._allowed(limit):
                gate.progress()
        every = self.limits_like(limit)
        for each in every[1:]:
            short = self._gates.get(each)
            if short is not None and (self._allowed(limit) or 0) >= each.needed:
                short.progress()
        return every

    def overdue(self, plan: PodPlan, deadline_seconds: float, now: float) -> bool:
        """Whether the pod's budgets have been asked and have refused for the whole deadline, and just now."""
        limit = self.limit_of(plan)
        gates = [] if limit is None else [self._gates.get(each) for each in {limit, limit.needing(plan.needed)}]
        return any(
            now - gate.refused_at <= FRESH_SECONDS and gate.refused_seconds >= deadline_seconds
            for gate in gates
            if gate is not None
        )

    def forget_idle(self, now: float) -> None:
        """Drops what is known of budgets that no pod has asked for a while."""
        for limit, gate in list(self._gates.items()):
            if not gate.in_flight and now - max(gate.asked_at, gate.refused_at) > _KEPT_SECONDS:
                del self._gates[limit]
        for single in list(self._units):
            if not any(each in self._gates for each in self.limits_like(single)):
                del self._units[single]
