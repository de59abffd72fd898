"""The impact of all recent taints together: many small rules must not do what one large rule may not.

Pods, claims and namespaces count where a taint began to evict, devices where one began to act at all.

A limit on devices that is a number is for the devices of all drivers together. One that is a share holds for each
driver whose devices the rule closes, and is of that driver's own devices: the devices of a large driver must not make
room for all devices of a small one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from webhook.admission.confirmation import NOTHING, Numbers
from webhook.admission.context import AdmissionContext
from webhook.admission.lint import CLOCK_SKEW
from webhook.api.rules import DeviceTaintRule
from webhook.api.taints import NO_EXECUTE
from webhook.inventory.impact import Impact, Taint, impact_on_devices, impact_on_users
from webhook.inventory.pools import Check, Pools, ShareUse, in_steps, unchecked
from webhook.inventory.rule_delta import EFFECT_RANK, begins_to_evict, narrower
from webhook.inventory.state import Inventory
from webhook.inventory.targets import DeviceNames, Extent, can_judge
from webhook.patches.patch_reach import REACH_SECONDS, TOO_LONG, nominal_rules, patch_reach
from webhook.policy.limits import limit_on_devices, resolve_limit
from webhook.policy.model import ImpactLimits, Share

PHASE: Final = "impact of the last taints"
POOLS_BETWEEN_CHECKS: Final = 16
"""A pool is a node's devices as a rule, so these are some hundreds."""
_ANY_TIME: Final = datetime.min.replace(tzinfo=UTC)


def totals(inventory: Inventory, check: Check = unchecked) -> Numbers:
    """Count all that could be hit: published devices, used claims, their pods and namespaces, for shares."""
    pods: set[str] = set()
    claims: set[str] = set()
    namespaces: set[str] = set()
    for group in in_steps(inventory.usage.groups.values(), check):
        pods |= group.pods.keys()
        claims |= group.claims.keys()
        namespaces |= group.namespaces.keys()
    return Numbers(inventory.pools.device_count(None, check), len(claims), len(pods), len(namespaces))


def limits_in_numbers(limits: ImpactLimits, inventory: Inventory, check: Check = unchecked) -> dict[str, int | None]:
    """Return the limits on claims, pods and namespaces in numbers; None is no limit. A share is of all there are."""
    given = {name: getattr(limits, name) for name in Numbers._fields if name != "devices"}
    shared = any(isinstance(limit, Share) for limit in given.values())
    total = totals(inventory, check) if shared else NOTHING.numbers
    return {name: resolve_limit(limit, getattr(total, name)) for name, limit in given.items()}


def begins_to_act(new: DeviceTaintRule, old: DeviceTaintRule | None) -> bool:
    """Return whether a rule puts NoSchedule or NoExecute on devices, or evicts pods, that it spared before."""
    rank = EFFECT_RANK.get(new.effective_effect, 0)
    if old is None or rank > EFFECT_RANK.get(old.effective_effect, 0):
        return rank > 0
    return begins_to_evict(new, old) or (rank > 0 and not narrower(new.selector, old.selector))


def victims_of(rule: DeviceTaintRule, inventory: Inventory, *, in_tree: bool) -> Impact:
    """Return the impact of a rule on the present inventory, from its timeAdded on; empty if it does not evict."""
    if rule.effective_effect != NO_EXECUTE:
        return Impact()
    taint = Taint.of_rule(rule, in_tree=in_tree)
    return impact_on_users(inventory, rule.selector, taint, rule.taint.time_added or _ANY_TIME)


def hit_with_recent(
    impact: Impact, inventory: Inventory, context: AdmissionContext, *, only_at_once: bool = False
) -> Numbers:
    """Count claims, pods and namespaces that a rule and all taints of the window hit together. Raises OutOfTime.

    What the rule itself was before counts too: a rule that moves from device to device empties one after the other.
    `only_at_once`: taints that only our worker is asked to carry out do not count.
    """
    since, check = window_start(context), partial(context.budget.check, PHASE)
    claims: set[str] = set()
    pods: set[str] = set()
    namespaces: set[str] = set()
    impacts = _impacts(impact, inventory, context, since, only_at_once=only_at_once)
    for each in in_steps(impacts, check, size=1):
        namespaces |= each.namespaces
        for wave in each.waves:
            claims |= wave.claims
            pods |= wave.pods
    return Numbers(0, len(claims), len(pods), len(namespaces))


def _impacts(
    impact: Impact,
    inventory: Inventory,
    context: AdmissionContext,
    since: datetime,
    *,
    only_at_once: bool,
) -> Iterator[Impact]:
    """Yield the impact of the rule and of each taint of the window, also of what stopped hitting its pods."""
    check = partial(context.budget.check, PHASE)
    yield impact
    yield from context.victims_at_once if only_at_once else context.victims
    rules = chain(inventory.rules.values(), context.assumed, _hidden(inventory, context, since))
    for rule in in_steps(rules, check):
        if (rule.taint.effect if only_at_once else rule.effective_effect) == NO_EXECUTE:
            taint = Taint.of_rule(rule, in_tree=context.in_tree)
            if _evicts_since(taint, since):
                check()
                yield impact_on_users(inventory, rule.selector, taint, context.now, check)
    yield from _slices(inventory, since, context)


def _hidden(inventory: Inventory, context: AdmissionContext, since: datetime) -> Iterator[DeviceTaintRule]:
    """Yield what patches of the window hide of others: when they go, all of it begins at once, unasked."""
    check, go_on = partial(context.budget.check, PHASE), context.budget.lasting(REACH_SECONDS)
    reach_of = partial(patch_reach, known=context.patches, pools=inventory.pools, check=check, go_on=go_on)
    in_use: tuple[tuple[str, str, str], ...] | None = None
    for patch in () if context.patches.unknown else context.patches.patches.values():
        acting = [each for each in nominal_rules(patch) if each.effective_effect == NO_EXECUTE]
        if patch.deleting or not any(
            each.taint.time_added is None or each.taint.time_added >= since for each in acting
        ):
            continue
        reach = reach_of(patch)
        if reach.won is not None:
            in_use = tuple(inventory.usage.unpublished(inventory.pools, check)) if in_use is None else in_use
            most = reach_of(patch, judged=since, unpublished=in_use)
            yield from (acting if most.unknown == TOO_LONG else most.rules) if most.rules != reach.rules else ()
        elif reach.unknown == TOO_LONG:
            yield from acting  # it counts for all that has its names


def _evicts_since(taint: Taint, since: datetime) -> bool:
    """Return whether the taint began to evict pods in the window, or is yet to begin."""
    added, start = taint.taint.time_added, taint.not_before
    return added is None or added >= since or (start is not None and start >= since)


def yet_to_begin(inventory: Inventory, context: AdmissionContext) -> bool:
    """Return whether any rule evicts pods at a later time, by its `/not-before`."""
    rules = chain(inventory.rules.values(), context.assumed)
    starts = [Taint.of_rule(rule, in_tree=context.in_tree).not_before for rule in rules]
    return any(start is not None and start > context.now for start in starts)


def window_start(context: AdmissionContext) -> datetime:
    """Return when the window began. What started since then counts."""
    # A timeAdded that lies back by no more than clocks may differ is never refused, so it must not leave the window.
    return context.now - timedelta(seconds=context.policy.impact.window_seconds) - CLOCK_SKEW


def recent_rules(rules: Iterable[DeviceTaintRule], since: datetime, check: Check) -> Iterator[DeviceTaintRule]:
    """Yield the rules that act, and whose taint was added in the window."""
    for rule in in_steps(rules, check):
        added = rule.taint.time_added
        if rule.effective_effect in EFFECT_RANK and (added is None or added >= since):
            yield rule


def _slices(inventory: Inventory, since: datetime, context: AdmissionContext) -> Iterator[Impact]:
    check = partial(context.budget.check, PHASE)
    for identity, pool in in_steps(inventory.pools.items(), check, POOLS_BETWEEN_CHECKS):
        recent = {
            device: [
                Taint.of_slice(taint, in_tree=context.in_tree)
                for taint in taints
                if taint.time_added is None or taint.time_added >= since
            ]
            for device, taints in pool.evicting.items()
        }
        recent = {device: taints for device, taints in recent.items() if taints}
        if recent:
            yield impact_on_devices(inventory, identity, recent, context.now, check)


# --- devices --------------------------------------------------------------------------------------


class ClosedDevices(NamedTuple):
    """Devices that are closed, how many may be, and of how many; of one driver, or (None) of all."""

    devices: int
    limit: int
    published: int
    driver: str | None = None

    @property
    def over(self) -> bool:
        """Whether that is more than the limit."""
        return self.devices > self.limit


def closed_together(
    limit: int | Share | None,
    own: Sequence[DeviceNames],
    beside: Iterable[DeviceNames],
    inventory: Inventory,
    context: AdmissionContext,
) -> ClosedDevices | None:
    """Return what is closed by itself; of several drivers the worst off. None without a limit or a closed device.

    `own` are the devices that the limit is for; those `beside` are closed as well, by what has a limit of its own.
    """
    pools, extent, check = inventory.pools, Extent([*own, *beside]), partial(context.budget.check, "impact")
    return _worst(limit, _drivers_of(limit, own, pools, check), pools, partial(extent.count, pools), context, check)


def closed_together_with_recent(
    limit: int | Share | None,
    own: Sequence[DeviceNames],
    beside: Iterable[DeviceNames],
    inventory: Inventory,
    context: AdmissionContext,
) -> ClosedDevices | None:
    """Return what that and the window's taints closed together, of the driver worst off. Raises OutOfTime.

    Only drivers count that lose further devices of `own`: devices that no stored taint of the window keeps closed now.
    A rule that is gone still counts. None if there is no limit, or nothing further is closed.
    """
    pools = inventory.pools
    since, check = window_start(context), partial(context.budget.check, PHASE)
    drivers = _drivers_of(limit, own, pools, check)
    used, standing = Extent(context.closed), Extent()
    for assumed in recent_rules(context.assumed, since, check):
        used.add(DeviceNames.of(assumed.selector, inventory.servers))
    for stored in recent_rules(inventory.rules.values(), since, check):
        used.add(DeviceNames.of(stored.selector, inventory.servers))
        if can_judge(stored.selector) and not stored.deleting:
            standing.add(DeviceNames.of(stored.selector, inventory.servers))
    for driver in drivers:
        use = None if driver is None else ShareUse(pools, driver)
        for each in _recent_in_slices(driver, pools, since, check):
            standing.add(each)
            if use is None or (each.pool is not None and use.add(each.pool)):
                used.add(each)
    for each in (*own, *beside):
        used.add(each)
    further = [
        driver for driver in drivers if not all(standing.holds_all(names, pools, driver, check) for names in own)
    ]
    return _worst(limit, further, pools, partial(used.count, pools), context, check)


def _drivers_of(
    limit: int | Share | None, own: Sequence[DeviceNames], pools: Pools, check: Check
) -> Sequence[str | None]:
    """Return whose devices a limit is for: a number is for all together, a share for each driver that is reached."""
    if not isinstance(limit, Share):
        return () if limit is None else (None,)
    found: set[str] = set()
    for names in own:
        if names.driver is not None:
            found.add(names.driver)
        elif names.pool is None:
            found.update(pools.drivers)
        else:
            found.update(driver for (driver, _), _ in in_steps(pools.selected(None, names.pool), check))
    return sorted(found)


def _worst(
    limit: int | Share | None,
    drivers: Iterable[str | None],
    pools: Pools,
    count: Callable[[str | None, Check], int],
    context: AdmissionContext,
    check: Check,
) -> ClosedDevices | None:
    """Return the driver that has the largest part of its devices closed, and of equals the first by name."""
    worst: ClosedDevices | None = None
    before = context.now - timedelta(seconds=context.policy.impact.window_seconds)
    for driver in drivers:
        published = pools.device_count(driver, check)
        most = limit_on_devices(limit, 0 if driver is None else pools.counted_devices(driver, before, check))
        if most is None:
            return None
        found = ClosedDevices(count(driver, check), most, published, driver)
        # Shares are compared as fractions, a/b < c/d as a*d < c*b; a limit is exceeded by the largest if by any.
        if worst is None or (found.over, found.devices * worst.published) > (
            worst.over,
            worst.devices * found.published,
        ):
            worst = found
    return worst


def _recent_in_slices(driver: str | None, pools: Pools, since: datetime, check: Check) -> Iterator[DeviceNames]:
    """Yield the devices that a driver, or any, closed within the window."""
    for number, ((name, pool), each) in enumerate(pools.selected(driver, None)):
        if number % POOLS_BETWEEN_CHECKS == 0 or each.closed:
            check()
        for device, added in each.closed.items():
            if added >= since:
                yield DeviceNames(name, pool, device)
