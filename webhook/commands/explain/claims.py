"""A claim explained: its devices, the taints on them, who uses it, and what the policy says of it today."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from webhook.commands.explain.device_taints import judged_values, taints_on
from webhook.commands.shared.entries import meta
from webhook.commands.shared.walks import values_of
from webhook.files.spots import NOWHERE
from webhook.inventory.published import DeviceId
from webhook.inventory.usage import is_pod

if TYPE_CHECKING:
    from webhook.api.claims import AllocationResult, Consumer, ResourceClaim
    from webhook.commands.explain.facts import ExplainFacts


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
