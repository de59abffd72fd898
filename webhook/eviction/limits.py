"""What can block a pod that is due and whose rates allow it: limits of its profile, a budget, the breaker.

Source: policy profiles, `breaker`; policy/v1 PodDisruptionBudget.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec


class LimitKind(StrEnum):
    """The kinds of limits, by the name of their field in the policy."""

    OVERALL = "overall"
    NAMESPACE = "perNamespace"
    OWNER = "perOwnerUnavailable"
    BUDGET = "disruption budget"
    BREAKER = "breaker"


class OverallLimit(msgspec.Struct, frozen=True):
    """A profile's `overall`: evictions under way at the same time. `profile` is its position in the policy."""

    profile: int
    kind = LimitKind.OVERALL


class NamespaceLimit(msgspec.Struct, frozen=True):
    """A profile's `perNamespace`: evictions under way in one namespace."""

    namespace: str
    profile: int
    kind = LimitKind.NAMESPACE


class OwnerLimit(msgspec.Struct, frozen=True):
    """A profile's `perOwnerUnavailable`: unavailable pods of one owner, by uid."""

    owner: str
    profile: int
    kind = LimitKind.OWNER


class BudgetLimit(msgspec.Struct, frozen=True):
    """The disruption budgets that select a pod.

    Usually one; the Eviction API refuses pods with two. Without names, a refusal that no known budget explains: then
    `pod` is the uid of the only pod that it blocks. `needed`: how many evictions a unit needs that it blocks.
    """

    namespace: str
    budgets: tuple[str, ...]
    pod: str = ""
    needed: int = 1
    kind = LimitKind.BUDGET

    @property
    def key(self) -> str:
        """Identifies it in the work queue."""
        return f"{self.namespace}/{','.join(self.budgets)}/{self.pod}/{self.needed}"


class BreakerLimit(msgspec.Struct, frozen=True):
    """The breaker of a driver has tripped, so taints in its slices evict no pod."""

    driver: str
    kind = LimitKind.BREAKER


Limit: TypeAlias = OverallLimit | NamespaceLimit | OwnerLimit | BudgetLimit | BreakerLimit
"""What blocks a pod that is due."""
