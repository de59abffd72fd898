"""PodDisruptionBudgets: which pods may be evicted, and which of them need one of the disruptions that are allowed.

Source: policy/v1 PodDisruptionBudget; pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta
from webhook.api.pods import Pod
from webhook.api.selectors import LabelRequirement, LabelSelector

_DISRUPTION_ALLOWED: Final = "DisruptionAllowed"
"""Type of the condition (policy/v1.DisruptionAllowedCondition)."""
_ALWAYS_ALLOW: Final = "AlwaysAllow"
_UNGUARDED: Final = frozenset({"Pending", "Succeeded", "Failed"})
"""Phases in which no budget counts (canIgnorePDB)."""


class DisruptionBudget(msgspec.Struct, frozen=True, gc=False):
    """A budget with its status. A missing selector selects nothing, an empty one every pod of the namespace.

    `allowed`: how many pods may be evicted now; None while the status is not of the newest generation, as the Eviction
    API has it. `since`: when it last began or ceased to allow any. `healthy` and `desired` are numbers of pods, of any
    generation. `always`: its unhealthyPodEvictionPolicy lets pods go that are not ready.
    """

    meta: ObjectMeta
    selector: LabelSelector | None = None
    allowed: int | None = None
    healthy: int = 0
    desired: int = 0
    since: datetime | None = None
    always: bool = False

    @property
    def frees_unready(self) -> bool:
        """Whether pods that are not ready may go, whatever `allowed` says."""
        return self.always or self.healthy >= self.desired > 0


def needs_disruption(pod: Pod, budgets: Sequence[DisruptionBudget]) -> bool:
    """Tell whether the Eviction API evicts a pod only if a budget among these, which select it, allows a disruption.

    A pod that several budgets select needs what no status allows: the API refuses it while it runs, ready or not.
    """
    if not budgets or pod.deleting or pod.phase in _UNGUARDED:
        return False
    return pod.ready or len(budgets) > 1 or not budgets[0].frees_unready


def decode_budget(reader: Reader) -> DisruptionBudget:
    """A policy/v1 PodDisruptionBudget."""
    metadata, status = reader.child_or_empty("metadata"), reader.child_or_empty("status")
    spec = reader.child_or_empty("spec")
    selector = spec.child("selector")
    current = (status.integer("observedGeneration") or 0) >= (metadata.integer("generation") or 0)
    times = [
        each.time("lastTransitionTime")
        for each in status.each("conditions")
        if each.text("type") == _DISRUPTION_ALLOWED
    ]
    return DisruptionBudget(
        reader.meta(),
        None if selector is None else _decode_selector(selector),
        status.integer("disruptionsAllowed") if current else None,
        status.integer("currentHealthy") or 0,
        status.integer("desiredHealthy") or 0,
        times[0] if times else None,
        spec.text("unhealthyPodEvictionPolicy") == _ALWAYS_ALLOW,
    )


def _decode_selector(reader: Reader) -> LabelSelector:
    exact = [LabelRequirement(key, "In", (value,)) for key, value in reader.text_map("matchLabels").items()]
    others = [
        LabelRequirement(each.text("key"), each.text("operator"), each.texts("values"))
        for each in reader.each("matchExpressions")
    ]
    return LabelSelector((*exact, *others))
