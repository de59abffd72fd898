"""The taints on a device, from slices and from rules, and what each of them means for a claim that holds it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from webhook.admission.impact_text import on_extended_resources
from webhook.admission.rulings import toleration_text
from webhook.api.meta import format_time
from webhook.commands.preview.report import not_judged, toleration_values
from webhook.eviction.modes import InTree
from webhook.inventory.fates import DeviceNames
from webhook.inventory.impact import Taint
from webhook.inventory.preview import OutcomeReason, PodOutcome, acts, outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from webhook.api.claims import AllocationResult, ResourceClaim
    from webhook.api.rules import DeviceTaintRule
    from webhook.api.taints import DeviceToleration
    from webhook.commands.status.views import StatusSettings
    from webhook.inventory.preview import Cause
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
