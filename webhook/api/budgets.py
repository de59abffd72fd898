"""PodDisruptionBudgets, as far as they say which pods may be evicted. Source: policy/v1 PodDisruptionBudget."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.api.meta import ObjectMeta
from webhook.api.selectors import LabelRequirement, LabelSelector

if TYPE_CHECKING:
    from webhook.api.decode import Reader

_DISRUPTION_ALLOWED: Final = "DisruptionAllowed"
"""Type of the condition (policy/v1.DisruptionAllowedCondition)."""


class DisruptionBudget(msgspec.Struct, frozen=True, gc=False):
    """A budget with its status. A missing selector selects nothing, an empty one every pod of the namespace.

    `allowed`: how many pods may be evicted now; None while the status is not of the newest generation, as the Eviction
    API has it. `since`: when it last began or ceased to allow any. `healthy` and `desired` are numbers of pods.
    """

    meta: ObjectMeta
    selector: LabelSelector | None = None
    allowed: int | None = None
    healthy: int = 0
    desired: int = 0
    since: datetime | None = None


def decode_budget(reader: Reader) -> DisruptionBudget:
    """A policy/v1 PodDisruptionBudget."""
    metadata, status = reader.child_or_empty("metadata"), reader.child_or_empty("status")
    selector = reader.child_or_empty("spec").child("selector")
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
    )


def _decode_selector(reader: Reader) -> LabelSelector:
    exact = [LabelRequirement(key, "In", (value,)) for key, value in reader.text_map("matchLabels").items()]
    others = [
        LabelRequirement(each.text("key"), each.text("operator"), each.texts("values"))
        for each in reader.each("matchExpressions")
    ]
    return LabelSelector((*exact, *others))
