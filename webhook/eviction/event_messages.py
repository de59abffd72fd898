"""Texts of Events about pods, rules and PodGroups; mode replacement uses the in-tree controller's (E-34). Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from webhook.api.meta import format_time
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Disruption, EvictionEvent

if TYPE_CHECKING:
    from webhook.api.pod_groups import PodGroup
    from webhook.api.rules import DeviceTaintRule
    from webhook.eviction.conditions import ConditionReason
    from webhook.eviction.pod_plan import PodPlan

_REASONS_MOST: Final = 3
_IN_TREE_REASON: Final = "DeviceTaintManagerEviction"


class PodEventKind(StrEnum):
    """Kinds of Events about a pod; the values are the Event reasons."""

    SCHEDULED = "EvictionScheduled"
    CANCELLED = "EvictionCancelled"
    HELD = "EvictionHeld"
    BLOCKED = "EvictionBlocked"
    EVICTED = "Evicted"


_IN_TREE_TEXTS: Final = {PodEventKind.EVICTED: "Marking for deletion", PodEventKind.CANCELLED: "Cancelling deletion"}
_ACTIONS: Final = {
    PodEventKind.SCHEDULED: "Schedule",
    PodEventKind.CANCELLED: "Cancel",
    PodEventKind.HELD: "Hold",
    PodEventKind.BLOCKED: "Evict",
    PodEventKind.EVICTED: "Evict",
}


def pod_event(mode: Mode, kind: PodEventKind, plan: PodPlan, text: str = "") -> EvictionEvent:
    """An Event about a pod; `text` is the API server's refusal, or the text of `/hold`, for the kinds that quote it.

    Of SCHEDULED it says when; empty for the due time.
    """
    if mode is Mode.REPLACEMENT and kind in _IN_TREE_TEXTS:
        return EvictionEvent(plan.ref, _IN_TREE_REASON, _ACTIONS[kind], _IN_TREE_TEXTS[kind])
    why = _why(plan)
    match kind:
        case PodEventKind.SCHEDULED:
            verb = "would be evicted" if mode is Mode.OBSERVE else "to be evicted"
            words = f"{verb} {text or f'at {format_time(plan.eviction.due)}'} because of {why}"
        case PodEventKind.CANCELLED:
            words = "eviction cancelled"
        case PodEventKind.HELD:
            words = f"due for eviction because of {why}, but held: {text}"
        case PodEventKind.BLOCKED:
            words = f"due for eviction because of {why}, but blocked: {text}"
        case PodEventKind.EVICTED:
            words = f"evicted because of {why}"
    return EvictionEvent(plan.ref, kind.value, _ACTIONS[kind], words, warning=kind is PodEventKind.BLOCKED)


def _why(plan: PodPlan) -> str:
    reasons = plan.eviction.reasons
    more = len(reasons) - _REASONS_MOST
    return ", ".join(map(str, reasons[:_REASONS_MOST])) + (f" and {more} more" if more > 0 else "")


_RULE_REASONS: Final = {
    "Evicting": "EvictionStarted",
    "Waiting": "EvictionScheduled",
    "Limited": "EvictionLimited",
    "Blocked": "EvictionBlocked",
    "Paused": "EvictionPaused",
    "Held": "EvictionHeld",
    "Completed": "EvictionCompleted",
    "Stopped": "EvictionStopped",
    "ObserveOnly": "EvictionObserved",
    "NothingToDo": "NothingToEvict",
    "HeldByPodGroup": "EvictionHeldByPodGroup",
    "ReturnsToDevice": "EvictionStopped",
}


_WARNINGS: Final = frozenset({"Blocked", "Limited", "Stopped", "HeldByPodGroup", "ReturnsToDevice"})


def rule_event(rule: DeviceTaintRule, state: ConditionReason, message: str) -> EvictionEvent:
    """An Event about a rule, written when the reason of its condition changes."""
    return EvictionEvent(rule, _RULE_REASONS[state.value], "Evict", message, warning=state.value in _WARNINGS)


def group_event(group: PodGroup, plan: PodPlan) -> EvictionEvent:
    """An Event about a PodGroup that keeps claims of its pods reserved; `plan`: of one of these pods."""
    text = (
        f"pod {plan.key} would be evicted because of {_why(plan)}, but is left alone: its claims stay reserved for "
        "this PodGroup, and are freed only when the PodGroup is deleted"
    )
    return EvictionEvent(group, _RULE_REASONS["HeldByPodGroup"], "Evict", text, warning=True)


def disruption_of(mode: Mode) -> Disruption:
    """Condition DisruptionTarget as set right before a DELETE; in mode replacement the in-tree one (E-30)."""
    if mode is Mode.REPLACEMENT:
        return Disruption("DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint")
    return Disruption("DeletionByDeviceTaintWebhook", "deleting because of a device taint")
