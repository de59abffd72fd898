"""A DeviceTaintRule explained: what it selects, whom it hits, how far its eviction is, and if it needs confirmation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.api.meta import format_time
from webhook.api.rules import CONFIRM_IMPACT, DESCRIPTION, EXPIRES_AT, NOT_BEFORE, OWNER, SOFTENED_FROM, TICKET
from webhook.api.taints import NO_EXECUTE
from webhook.commands.explain.device_taints import PlacedTaint, described, taint_values
from webhook.commands.preview.report import selector_values
from webhook.commands.status.report import line_values, lines_of, pod_values
from webhook.config.command_line import program
from webhook.eviction.conditions import ConditionReason
from webhook.eviction.modes import InTree
from webhook.inventory.impact import Taint
from webhook.inventory.preview import PodOutcome, rule_preview

if TYPE_CHECKING:
    from webhook.api.rules import DeviceTaintRule
    from webhook.commands.explain.facts import ExplainFacts
    from webhook.commands.status.report import TaintLine
    from webhook.inventory.preview import PodRow

_NOTES: Final = {
    "description": DESCRIPTION,
    "owner": OWNER,
    "ticket": TICKET,
    "notBefore": NOT_BEFORE,
    "expiresAt": EXPIRES_AT,
    "softenedFrom": SOFTENED_FROM,
}
"""Annotations by the names of their values."""


def rule_explanation(facts: ExplainFacts, rule: DeviceTaintRule) -> dict[str, Any]:
    """A rule that is known. `pods` are those that it evicts, `staying` those on its devices that it does not."""
    in_tree = facts.settings.in_tree is InTree.ACTIVE
    lines, _ = lines_of(facts.objects, facts.settings)
    row = next(each for each in lines if each.rule is rule)
    preview = rule_preview(facts.objects.inventory, rule, in_tree=in_tree, now=facts.settings.now)
    found = line_values(row)
    return {
        "name": rule.meta.name,
        "taint": taint_values(PlacedTaint(Taint.of_rule(rule, in_tree=in_tree), rule)),
        "selector": selector_values(rule.selector),
        **{name: rule.meta.annotations.get(annotation) for name, annotation in _NOTES.items()},
        "writtenFor": rule.origin.name or None,
        "deleting": rule.deleting,
        "computed": found["computed"],
        "incompletePools": [f"{driver}/{pool}" for driver, pool in preview.impact.incomplete_pools],
        "siblings": [f"{each.driver}/{each.pool}/{each.device}" for each in preview.impact.siblings.devices],
        "pods": [pod_values(each) for each in row.pods],
        "staying": [
            _staying_values(each)
            for each in preview.pods
            if each.outcome not in (PodOutcome.EVICTED, PodOutcome.LEAVING) and not preview.simulated
        ],
        "confirmation": _confirmation(rule, row),
        "reported": [{"rule": rule.meta.name, **each} for each in found["reported"]["conditions"]],
        "evicted": found["reported"]["evicted"],
    }


def _staying_values(row: PodRow) -> dict[str, Any]:
    cause = row.cause
    return {
        "namespace": row.namespace,
        "name": row.name,
        "outcome": row.outcome.value,
        "reason": cause.reason.value,
        "toleration": None if cause.toleration is None else described(cause.toleration),
    }


def _confirmation(rule: DeviceTaintRule, row: TaintLine) -> dict[str, Any]:
    """Whether the eviction waits for a confirmation; `needed` is None while the worker has said nothing."""
    given, said = CONFIRM_IMPACT in rule.meta.annotations, row.said
    needed: bool | None = None
    why = "the worker has not written its condition for the rule as it is now"
    if rule.effective_effect != NO_EXECUTE:
        needed, why = False, "the rule evicts no pod"
    elif said is not None:
        needed = said.reason == ConditionReason.STOPPED
        since = "" if said.last_transition_time is None else f" since {format_time(said.last_transition_time)}"
        why = f"{said.reason}{since}: {said.message}"
    command = f"kubectl get devicetaintrule {rule.meta.name} -o yaml | {program('preview')} -"
    return {"given": given, "needed": needed, "why": why, "command": command if needed else None}
