"""The impact of all recent taints together: many small rules must not do what one large rule may not.

Pods, claims and namespaces count where a taint began to evict, devices where a taint began to act at all.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from webhook.admission.confirmation import Numbers
from webhook.admission.lint import CLOCK_SKEW
from webhook.admission.rule_delta import EFFECT_RANK, begins_to_evict, narrower
from webhook.api.taints import NO_EXECUTE
from webhook.inventory.extent import Extent, names_of
from webhook.inventory.fates import DeviceNames
from webhook.inventory.impact import Impact, Taint, impact_on_devices, impact_on_users
from webhook.policy.impact_limits import resolve_limit
from webhook.policy.model import Share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.admission.context import AdmissionContext
    from webhook.api.rules import DeviceTaintRule
    from webhook.inventory.state import Inventory
    from webhook.policy.model import ImpactLimits


_PHASE: Final = "impact of the last taints"
_POOLS_BETWEEN_CHECKS: Final = 16
"""A pool is a node's devices as a rule, so these are some hundreds."""
_NOTHING: Final = Numbers(0, 0, 0, 0)
_ANY_TIME: Final = datetime.min.replace(tzinfo=UTC)


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


def limits_in_numbers(limits: ImpactLimits, rule: DeviceTaintRule, inventory: Inventory) -> dict[str, int | None]:
    """The limits in numbers, by the names in Numbers; None is no limit.

    A share of devices is of those of the rule's driver, the other shares are of all there are.
    """
    given = {name: getattr(limits, name) for name in Numbers._fields}
    shared = any(isinstance(limit, Share) for name, limit in given.items() if name != "devices")
    total = totals(inventory) if shared else _NOTHING
    devices = inventory.pools.device_count(driver_of(rule))
    return {name: resolve_limit(limit, getattr(total._replace(devices=devices), name)) for name, limit in given.items()}


def driver_of(rule: DeviceTaintRule) -> str | None:
    """The driver whose devices a rule selects; None is any."""
    return names_of(rule.selector).driver


def begins_to_act(new: DeviceTaintRule, old: DeviceTaintRule | None) -> bool:
    """Whether a rule puts NoSchedule or NoExecute on devices, or evicts pods, that it spared before."""
    rank = EFFECT_RANK.get(new.effective_effect, 0)
    before = 0 if old is None else EFFECT_RANK.get(old.effective_effect, 0)
    if old is None or rank > before:
        return rank > 0
    return begins_to_evict(new, old) or (rank > 0 and not narrower(new.selector, old.selector))


def victims_of(rule: DeviceTaintRule, inventory: Inventory, *, in_tree: bool) -> Impact:
    """The impact of a rule on the present inventory, from its timeAdded on; empty if it does not evict."""
    if rule.effective_effect != NO_EXECUTE:
        return Impact()
    taint = Taint.of_rule(rule, in_tree=in_tree)
    return impact_on_users(inventory, rule.selector, taint, rule.taint.time_added or _ANY_TIME)


def hit_with_recent(impact: Impact, inventory: Inventory, context: AdmissionContext, *, in_tree: bool) -> Numbers:
    """Claims, pods and namespaces that a rule's impact and all taints of the window hit together. Raises OutOfTime.

    What the rule itself was before counts too: a rule that moves from device to device empties one after the other.
    """
    since = _since(context)
    impacts = [impact, *context.victims]
    for rule in _recent(inventory, context, since):
        if rule.effective_effect == NO_EXECUTE:
            taint = Taint.of_rule(rule, in_tree=in_tree)
            check = partial(context.budget.check, _PHASE)
            check()
            impacts.append(impact_on_users(inventory, rule.selector, taint, context.now, check))
    impacts += _slices(inventory, since, context, in_tree=in_tree)
    empty: frozenset[str] = frozenset()
    return Numbers(
        0,
        len(empty.union(*[each.claims for each in impacts])),
        len(empty.union(*[each.pods for each in impacts])),
        len(empty.union(*[each.namespaces for each in impacts])),
    )


def devices_with_recent(
    new: DeviceTaintRule, inventory: Inventory, context: AdmissionContext, driver: str | None
) -> int:
    """Devices on which the rule and all taints of the window began to act, of one driver or of all. Raises OutOfTime.

    0 if the rule acts on no device but theirs: then it closes none.
    """
    since = _since(context)
    pools, check = inventory.pools, partial(context.budget.check, _PHASE)
    extent = Extent(context.closed)
    for rule in _recent(inventory, context, since):
        extent.add(names_of(rule.selector))
    for number, ((name, pool), each) in enumerate(pools.selected(driver, None)):
        if number % _POOLS_BETWEEN_CHECKS == 0 or each.closed:
            check()
        for device, added in each.closed.items():
            if added >= since:
                extent.add(DeviceNames(name, pool, device))
    others = extent.count(pools, driver, check)
    extent.add(names_of(new.selector))
    together = extent.count(pools, driver, check)
    return together if together > others else 0


def _since(context: AdmissionContext) -> datetime:
    # A timeAdded that lies back by no more than clocks may differ is never refused, so it must not leave the window.
    return context.now - timedelta(seconds=context.policy.impact.window_seconds) - CLOCK_SKEW


def _recent(inventory: Inventory, context: AdmissionContext, since: datetime) -> Iterator[DeviceTaintRule]:
    """Rules that act, and whose taint was added in the window."""
    for rule in _all(inventory.rules, context.assumed):
        added = rule.taint.time_added
        if rule.effective_effect in EFFECT_RANK and (added is None or added >= since):
            yield rule


def _all(stored: Mapping[str, DeviceTaintRule], assumed: Iterable[DeviceTaintRule]) -> Iterator[DeviceTaintRule]:
    yield from stored.values()
    yield from assumed


def _slices(inventory: Inventory, since: datetime, context: AdmissionContext, *, in_tree: bool) -> Iterator[Impact]:
    check = partial(context.budget.check, _PHASE)
    for number, (identity, pool) in enumerate(inventory.pools.items()):
        if number % _POOLS_BETWEEN_CHECKS == 0:
            check()
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
            yield impact_on_devices(inventory, identity, recent, context.now, check)
