"""A device explained: its taints, who uses it, and what else is on the same hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from webhook.commands.explain.claims import is_published, user_text
from webhook.commands.explain.device_taints import judged_values, taint_values, taints_on
from webhook.commands.explain.pods import reported_values
from webhook.inventory.hardware import siblings_in
from webhook.inventory.published import DeviceId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.commands.explain.device_taints import PlacedTaint
    from webhook.commands.explain.facts import ExplainFacts


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
