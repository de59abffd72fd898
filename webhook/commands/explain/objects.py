"""Pods, claims and devices explained: taints, who uses what, when pods are evicted, and what the policy says today."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from webhook.commands.explain.taints import judged_values, taint_values, taints_on
from webhook.commands.shared.entries import meta
from webhook.commands.shared.walks import values_of
from webhook.commands.status.report import condition_values, pod_values
from webhook.commands.status.views import views_of
from webhook.files.spots import NOWHERE
from webhook.inventory.hardware import siblings_in
from webhook.inventory.published import DeviceId
from webhook.inventory.state import claim_keys, key_of
from webhook.inventory.usage import is_pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.api.claims import AllocationResult, Consumer, ResourceClaim
    from webhook.api.pods import Pod
    from webhook.commands.explain.facts import ExplainFacts
    from webhook.commands.explain.taints import PlacedTaint
    from webhook.commands.status.waits import PodStatus


def pod_explanation(facts: ExplainFacts, pod: Pod) -> dict[str, Any]:
    """A pod that is known. `evictions` has an entry for each evictor that would evict it; empty if none would."""
    inventory = facts.objects.inventory
    names = claim_keys(pod)
    known = [name for name in names if name in inventory.claims]
    statuses = statuses_of(facts, {pod.meta.uid})
    claims = [claim_values(facts, key) for key in known]
    rules = {taint["rule"] for claim in claims for device in claim["devices"] for taint in device["taints"]}
    own = {key_of(claim.meta) for claim in inventory.claims_of(pod)}
    return {
        "namespace": pod.meta.namespace,
        "name": pod.meta.name,
        "node": pod.node_name,
        "phase": pod.phase,
        "terminating": pod.deleting,
        "hold": facts.objects.hold_of(pod),
        "claims": claims,
        "claimsNotFound": [name for name in names if name not in inventory.claims],
        "claimsNotReserved": [key for key in known if key not in own],
        "evictions": [pod_values(status) for status in statuses],
        "reported": reported_values(facts, {name for name in rules if name}),
    }


def statuses_of(facts: ExplainFacts, uids: set[str] | None = None) -> list[PodStatus]:
    """The states of the pods that a taint evicts, of these or of all; none if pods or claims are not known."""
    found = [status for view in views_of(facts.objects, facts.settings) for status in view.statuses()]
    return [status for status in found if uids is None or status.pod.meta.uid in uids]


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
