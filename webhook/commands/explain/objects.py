"""Pods, claims, devices and their taints, and rules explained: who uses what, and when pods are evicted and why."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.admission.impact_text import on_extended_resources
from webhook.admission.rulings import toleration_text
from webhook.api.meta import format_time
from webhook.api.rules import CONFIRM_IMPACT, DATA, DESCRIPTION, EXPIRES_AT, NOT_BEFORE, OWNER, SOFTENED_FROM, TICKET
from webhook.api.taints import NO_EXECUTE
from webhook.commands.preview.report import not_judged, selector_values, toleration_values
from webhook.commands.shared.entries import meta
from webhook.commands.shared.walks import values_of
from webhook.commands.status.report import condition_values, line_values, lines_of, pod_values, time_value
from webhook.commands.status.views import views_of
from webhook.config.command_line import program
from webhook.eviction.conditions import ConditionReason
from webhook.eviction.modes import InTree
from webhook.files.spots import NOWHERE
from webhook.inventory.expansion import annotations_of
from webhook.inventory.fates import DeviceNames
from webhook.inventory.hardware import siblings_in
from webhook.inventory.impact import Taint
from webhook.inventory.matching import acts
from webhook.inventory.preview import OutcomeReason, PodOutcome, outcome_of, rule_preview
from webhook.inventory.published import DeviceId
from webhook.inventory.state import claim_keys, key_of
from webhook.inventory.usage import is_pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from webhook.api.claims import AllocationResult, Consumer, ResourceClaim
    from webhook.api.pods import Pod
    from webhook.api.rules import DeviceTaintRule
    from webhook.api.taints import DeviceToleration
    from webhook.commands.explain.facts import ExplainFacts
    from webhook.commands.status.report import TaintLine
    from webhook.commands.status.views import StatusSettings
    from webhook.inventory.preview import Cause, PodRow
    from webhook.inventory.state import Inventory

_NOTES: Final = {
    "description": DESCRIPTION,
    "owner": OWNER,
    "ticket": TICKET,
    "notBefore": NOT_BEFORE,
    "expiresAt": EXPIRES_AT,
    "softenedFrom": SOFTENED_FROM,
}
"""Annotations by the names of their values."""


def pod_explanation(facts: ExplainFacts, pod: Pod) -> dict[str, Any]:
    """A pod that is known. `evictions` has an entry for each evictor that would evict it; empty if none would."""
    inventory = facts.objects.inventory
    names = claim_keys(pod)
    known = [name for name in names if name in inventory.claims]
    found = [status for view in views_of(facts.objects, facts.settings) for status in view.statuses()]
    claims = [claim_values(facts, key) for key in known]
    rules = {taint["rule"] for claim in claims for device in claim["devices"] for taint in device["taints"]}
    own = {key_of(claim.meta) for claim in inventory.claims_of(pod)}
    return {
        "namespace": pod.meta.namespace,
        "name": pod.meta.name,
        "node": pod.node_name,
        "phase": pod.phase,
        "terminating": pod.deleting,
        "hold": pod.hold if pod.hold is not None else facts.objects.hold_of(pod.meta.namespace),
        "claims": claims,
        "claimsNotFound": [name for name in names if name not in inventory.claims],
        "claimsNotReserved": [key for key in known if key not in own],
        "evictions": [pod_values(status) for status in found if status.pod.meta.uid == pod.meta.uid],
        "reported": reported_values(facts, {name for name in rules if name}),
    }


def reported_values(facts: ExplainFacts, names: Iterable[str]) -> list[dict[str, Any]]:
    """What is in the status of these rules, by the worker or the in-tree controller."""
    rules = facts.objects.inventory.rules
    return [
        {"rule": name, **condition_values(condition, rules[name])}
        for name in sorted(names)
        for condition in rules[name].conditions
    ]


def claim_values(facts: ExplainFacts, key: str) -> dict[str, Any]:
    """A claim that is known, by `namespace/name`. `allocated` false: it holds no device."""
    claim = facts.objects.inventory.claims[key]
    policy = policy_values(facts, key)
    return {
        "namespace": claim.meta.namespace,
        "name": claim.meta.name,
        "deleting": "deletionTimestamp" in meta(facts.claims.get(key)),
        "allocated": claim.allocation is not None,
        "forExtendedResource": claim.extended_resource,
        "reservedFor": [user_text(each) for each in claim.reserved_for],
        "devices": [_device_values(facts, claim, result, policy) for result in claim.allocation or ()],
        "policy": policy,
    }


def _device_values(
    facts: ExplainFacts, claim: ResourceClaim, result: AllocationResult, policy: dict[str, Any] | None
) -> dict[str, Any]:
    inventory, device = facts.objects.inventory, DeviceId(result.driver, result.pool, result.device)
    taints = []
    for placed in taints_on(inventory, device, facts.settings):
        found = judged_values(inventory, placed, claim, result, facts.settings.now)
        decided = None if found["toleration"] is None else _decision(policy, result, found["toleration"]["text"])
        taints.append({**found, "policy": decided})
    return {
        "request": result.request,
        "driver": result.driver,
        "pool": result.pool,
        "device": result.device,
        "published": None if "ResourceSlice" in facts.missing else is_published(facts, device),
        "taints": taints,
    }


def is_published(facts: ExplainFacts, device: DeviceId) -> bool:
    """Whether the newest generation of its pool has the device."""
    pool = facts.objects.inventory.pools.get((device.driver, device.pool))
    return pool is not None and device.device in pool.devices


def user_text(consumer: Consumer) -> str:
    """`pods/name`, or another resource."""
    return f"pods/{consumer.name}" if is_pod(consumer) else f"{consumer.resource}/{consumer.name}"


# --- the policy ---------------------------------------------------------------------------------


def policy_values(facts: ExplainFacts, key: str) -> dict[str, Any] | None:
    """What the policy says today of each toleration, rule by rule; None if the policy or the claim is not known."""
    ruling = facts.ruling(key)
    if ruling is None:
        return None
    author, explanation = ruling
    found = values_of(explanation, NOWHERE)
    for walk in found["walks"]:
        del walk["line"], walk["column"]
        walk["decidedBy"] = decided_by(walk)
    return {"author": author.value, **found}


def decided_by(walk: dict[str, Any]) -> str | None:
    """The rule that allows or refuses, `default`, or None if no rule decides."""
    return next((rule["rule"] for rule in walk["rules"] if rule["result"] in {"allows", "refuses"}), None)


def _decision(policy: dict[str, Any] | None, result: AllocationResult, toleration: str) -> dict[str, Any] | None:
    """The ruling on the toleration that an allocation has copied from its request; a refusal, if several are alike."""
    if policy is None:
        return None
    alike = [walk for walk in policy["walks"] if walk["what"] == toleration]
    if not alike:
        return None
    walk = min(alike, key=lambda each: each["decision"] != "denied")
    return {"decision": walk["decision"], "rule": walk["decidedBy"], "path": walk["path"], "request": result.request}


def device_explanation(facts: ExplainFacts, device: DeviceId) -> dict[str, Any]:
    """A device that is published or allocated. `siblings`: other devices on the same hardware."""
    pool = facts.objects.inventory.pools.get((device.driver, device.pool))
    taints = list(taints_on(facts.objects.inventory, device, facts.settings))
    return {
        **device._asdict(),
        "published": None if "ResourceSlice" in facts.missing else is_published(facts, device),
        "poolComplete": None if pool is None else pool.complete,
        "taints": [taint_values(placed) for placed in taints],
        "claims": list(_claims_on(facts, device, taints)),
        "siblings": list(_siblings(facts, device)),
        "reported": reported_values(facts, {placed.rule.meta.name for placed in taints if placed.rule is not None}),
    }


def _claims_on(facts: ExplainFacts, device: DeviceId, taints: list[PlacedTaint]) -> Iterator[dict[str, Any]]:
    """The claims that hold the device, each with what the taints mean for it."""
    inventory, now = facts.objects.inventory, facts.settings.now
    for key in sorted(inventory.usage.claims_on(*device)):
        claim = inventory.claims[key]
        for result in claim.allocation or ():
            if (result.driver, result.pool, result.device) == device:
                yield {
                    "namespace": claim.meta.namespace,
                    "name": claim.meta.name,
                    "request": result.request,
                    "reservedFor": [user_text(each) for each in claim.reserved_for],
                    "taints": [judged_values(inventory, each, claim, result, now) for each in taints],
                }


def _siblings(facts: ExplainFacts, device: DeviceId) -> Iterator[dict[str, Any]]:
    inventory = facts.objects.inventory
    pool = inventory.pools.get((device.driver, device.pool))
    beside = {} if pool is None else siblings_in(pool.newest, {device.device: 1})
    for name in sorted(beside):
        if name != device.device:
            sibling = device._replace(device=name)
            claims = sorted(inventory.usage.claims_on(*sibling))
            users = [user_text(each) for key in claims for each in inventory.claims[key].reserved_for]
            taints = taints_on(inventory, sibling, facts.settings)
            yield {
                "device": name,
                "taints": [taint_values(placed) for placed in taints],
                "claims": claims,
                "reservedFor": users,
            }


def known_devices(facts: ExplainFacts) -> Iterator[str]:
    """The names of all devices that are published or allocated, as `driver/pool/device`."""
    inventory = facts.objects.inventory
    for (driver, pool), found in inventory.pools.items():
        for device in found.devices:
            yield str(DeviceId(driver, pool, device))
    for claim in inventory.claims.values():
        for result in claim.allocation or ():
            yield str(DeviceId(result.driver, result.pool, result.device))


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
        if DeviceNames.of(rule.selector, inventory.servers).includes(device):
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
        "timeAdded": time_value(taint.time_added),
        "data": {**annotations_of(taint), **({} if rule is None else rule.meta.annotations)}.get(DATA),
        "source": "ResourceSlice" if rule is None else "DeviceTaintRule",
        "rule": None if rule is None else rule.meta.name,
        "evict": rule is not None and rule.taint.effect != rule.effective_effect,
        "evictor": None if placed.taint.evictor is None else placed.taint.evictor.value,
        "notBefore": time_value(placed.taint.not_before),
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
        return time_value(added + timedelta(seconds=max(toleration.toleration_seconds, 0)))
    except OverflowError:
        return None


def described(toleration: DeviceToleration) -> dict[str, Any]:
    """The fields of a toleration, and `text`: the same in words."""
    return {**toleration_values(toleration), "text": toleration_text(toleration)}


def rule_explanation(facts: ExplainFacts, rule: DeviceTaintRule) -> dict[str, Any]:
    """A rule that is known. `pods` are those that it evicts, `staying` those on its devices that it does not."""
    in_tree = facts.settings.in_tree is InTree.ACTIVE
    lines, _ = lines_of(facts.objects, facts.settings)
    row = next(each for each in lines if each.rule is rule)
    preview = rule_preview(facts.objects.inventory, rule, in_tree=in_tree, now=facts.settings.now)
    found = line_values(row, facts.missing)
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
