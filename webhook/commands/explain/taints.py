"""Taints on a device explained, what each means for a claim that holds it, and DeviceTaintRules by themselves."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.admission.impact_text import on_extended_resources
from webhook.admission.rulings import toleration_text
from webhook.api.meta import format_time
from webhook.api.rules import CONFIRM_IMPACT, DESCRIPTION, EXPIRES_AT, NOT_BEFORE, OWNER, SOFTENED_FROM, TICKET
from webhook.api.taints import NO_EXECUTE
from webhook.commands.preview.report import not_judged, selector_values, toleration_values
from webhook.commands.status.report import line_values, lines_of, pod_values
from webhook.config.command_line import program
from webhook.eviction.conditions import ConditionReason
from webhook.eviction.modes import InTree
from webhook.inventory.fates import DeviceNames
from webhook.inventory.impact import Taint
from webhook.inventory.preview import OutcomeReason, PodOutcome, acts, outcome_of, rule_preview

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from webhook.api.claims import AllocationResult, ResourceClaim
    from webhook.api.rules import DeviceTaintRule
    from webhook.api.taints import DeviceToleration
    from webhook.commands.explain.facts import ExplainFacts
    from webhook.commands.status.report import TaintLine
    from webhook.commands.status.views import StatusSettings
    from webhook.inventory.preview import Cause, PodRow
    from webhook.inventory.published import DeviceId
    from webhook.inventory.state import Inventory


class PlacedTaint(NamedTuple):
    """A taint on a device, and the rule that puts it there; None for one in a slice."""

    taint: Taint
    rule: DeviceTaintRule | None


def taints_on(inventory: Inventory, device: DeviceId, settings: StatusSettings) -> Iterator[PlacedTaint]:
    """Those of slices first, then those of rules by name."""
    in_tree = settings.in_tree is InTree.ACTIVE
    pool = inventory.pools.get((device.driver, device.pool))
    for each in pool.taints_of(device.device) if pool is not None else ():
        yield PlacedTaint(Taint.of_slice(each, in_tree=in_tree), None)
    for _, rule in sorted(inventory.rules.items()):
        names = DeviceNames.of(rule.selector, inventory.servers)
        if all(wanted in (None, given) for wanted, given in zip(names, device, strict=True)):
            taint = Taint.of_rule(rule, in_tree=in_tree)
            # A missing selector evicts from no device (E-6); `/evict` wants an effect that acts.
            evicts = rule.selector is not None and acts(rule.taint.effect)
            yield PlacedTaint(taint if evicts else taint._replace(evictor=None), rule)


def taint_values(placed: PlacedTaint) -> dict[str, Any]:
    """A taint by itself. `evictor`: None if it evicts no pod; `notJudged`: fields of its selector that do not count."""
    rule = placed.rule
    taint = placed.taint.taint if rule is None else rule.taint
    return {
        "key": taint.key,
        "value": taint.value,
        "effect": taint.effect,
        "timeAdded": as_time(taint.time_added),
        "source": "ResourceSlice" if rule is None else "DeviceTaintRule",
        "rule": None if rule is None else rule.meta.name,
        "evict": rule is not None and rule.taint.effect != rule.effective_effect,
        "evictor": None if placed.taint.evictor is None else placed.taint.evictor.value,
        "notBefore": as_time(placed.taint.not_before),
        "notJudged": [] if rule is None or rule.selector is None else sorted(not_judged(rule.selector)),
    }


def judged_values(
    inventory: Inventory, placed: PlacedTaint, claim: ResourceClaim, result: AllocationResult, now: datetime
) -> dict[str, Any]:
    """A taint, and what it means for the users of an allocated device: `outcome`, `reason`, `toleration`, `until`."""
    outcome, _, cause = outcome_of(
        placed.taint, result.tolerations, now, inventory.servers, extended=claim.extended_resource
    )
    return {
        **taint_values(placed),
        "outcome": outcome.value,
        "reason": cause.reason.value,
        "byRelease": on_extended_resources(inventory.servers) if claim.extended_resource else None,
        "toleration": None if cause.toleration is None else described(cause.toleration),
        "until": _until(placed, outcome, cause),
    }


def _until(placed: PlacedTaint, outcome: PodOutcome, cause: Cause) -> str | None:
    """Until when a toleration holds; None if it has no end, or if there is none."""
    added, toleration = placed.taint.taint.time_added, cause.toleration
    timed = outcome is PodOutcome.EVICTED and cause.reason is OutcomeReason.TOLERATED_FOR_SECONDS
    if not timed or added is None or toleration is None or toleration.toleration_seconds is None:
        return None
    try:
        return as_time(added + timedelta(seconds=max(toleration.toleration_seconds, 0)))
    except OverflowError:
        return None


def described(toleration: DeviceToleration) -> dict[str, Any]:
    """The fields of a toleration, and `text`: the same in words."""
    return {**toleration_values(toleration), "text": toleration_text(toleration)}


def as_time(time: datetime | None) -> str | None:
    """RFC 3339, or None."""
    return None if time is None else format_time(time)


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
