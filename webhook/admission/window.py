"""All that became evicting of late, taken together: many small rules must not do what one large one may not."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from webhook.admission.confirmation import Numbers
from webhook.admission.lint import CLOCK_SKEW
from webhook.api.taints import NO_EXECUTE
from webhook.inventory.impact import Impact, Taint, impact_of, impact_on_devices
from webhook.inventory.matching import selects

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from webhook.admission.context import AdmissionContext
    from webhook.api.rules import DeviceTaintRule
    from webhook.inventory.state import Inventory


_PHASE: Final = "impact of the last taints"


def totals(inventory: Inventory) -> Numbers:
    """All that could be hit: published devices, used claims, their pods and namespaces. Shares are of these."""
    pods: set[str] = set()
    claims: set[str] = set()
    namespaces: set[str] = set()
    for group in inventory.usage.groups.values():
        pods |= group.pods.keys()
        claims |= group.claims.keys()
        namespaces |= group.namespaces.keys()
    return Numbers(inventory.pools.device_count(), len(claims), len(pods), len(namespaces))


def with_recent(
    new: DeviceTaintRule,
    impact: Impact,
    inventory: Inventory,
    context: AdmissionContext,
    *,
    in_tree: bool,
    devices: bool,
) -> Numbers:
    """What the rule and all taints of the window hit together; devices only if asked for. Raises OutOfTime.

    What the rule itself was before counts too: a rule that moves from device to device empties one after the other.
    """
    # A timeAdded that lies back by no more than clocks may differ is never refused, so it must not leave the window.
    since = context.now - timedelta(seconds=context.policy.impact.window_seconds) - CLOCK_SKEW
    others = [rule for rule in (*inventory.rules.values(), *context.promised) if _is_recent(rule, since)]
    impacts = [impact, *context.victims]
    for rule in others:
        taint = Taint.of_rule(rule, in_tree=in_tree)
        impacts.append(impact_of(inventory, rule.selector, taint, context.now, partial(context.budget.check, _PHASE)))
    slices = list(_slices(inventory, since, context, in_tree=in_tree))
    impacts += slices
    empty: frozenset[str] = frozenset()
    return Numbers(
        _devices(inventory, [new, *others]) + sum(each.devices for each in slices) if devices else 0,
        len(empty.union(*[each.claims for each in impacts])),
        len(empty.union(*[each.pods for each in impacts])),
        len(empty.union(*[each.namespaces for each in impacts])),
    )


def _is_recent(rule: DeviceTaintRule, since: datetime) -> bool:
    added = rule.taint.time_added
    return rule.effective_effect == NO_EXECUTE and (added is None or added >= since)


def _slices(inventory: Inventory, since: datetime, context: AdmissionContext, *, in_tree: bool) -> Iterator[Impact]:
    for identity, pool in inventory.pools.items():
        recent = {
            device: [
                Taint.of_slice(taint, in_tree=in_tree)
                for taint in taints
                if taint.time_added is None or taint.time_added >= since
            ]
            for device, taints in pool.evicting.items()
        }
        recent = {device: taints for device, taints in recent.items() if taints}
        if recent:
            context.budget.check(_PHASE)
            yield impact_on_devices(inventory, identity, recent, context.now)


def _devices(inventory: Inventory, rules: list[DeviceTaintRule]) -> int:
    """Published devices that one of the rules selects."""
    return sum(
        1
        for (driver, name), pool in inventory.pools.items()
        for device in pool.devices
        if any(selects(rule.selector, driver, name, device) for rule in rules)
    )
