"""Advice that depends on the cluster: objects that are valid but will not do there what their author expects."""

from __future__ import annotations

from difflib import SequenceMatcher
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from webhook.admission.lint import advice
from webhook.admission.rule_delta import EFFECT_RANK, is_wide, narrower
from webhook.api.claims import ResourceClaim, ResourceClaimTemplate
from webhook.api.rules import DeviceTaintRule
from webhook.api.taints import NO_EXECUTE
from webhook.inventory.matching import keeps_from_allocation, selects
from webhook.validation.claims import SPEC, TEMPLATE_SPEC, toleration_lists
from webhook.validation.rules import SELECTOR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.admission.context import AdmissionContext
    from webhook.api.field import Finding
    from webhook.inventory.pools import Pool
    from webhook.inventory.state import Inventory

CLUSTER_LINTS: Final = {
    "DT201": "selector that matches no device",
    "DT202": "toleration of a key that is not published",
    "DT203": "rule that another one covers",
    "DT204": "driver left without a free device",
}
_DEVICES_A_CHECK: Final = 1000
"""Devices between two checks of the deadline."""
_UNKNOWN_KEYS_MAX: Final = 32
"""Keys of an object that are compared with the published ones: each costs as much as judging a small claim."""
_SHOWN: Final = 3
_NEARLY: Final = 0.9
"""Share of what two keys have in common, where one may be a slip of the other (difflib)."""


def cluster_lint(new: object, old: object | None, context: AdmissionContext) -> Iterator[Finding]:
    """Advice based on the inventory; none while there is no inventory to rely on. Raises OutOfTime."""
    inventory = context.sight.inventory if context.sight is not None else None
    if inventory is None:
        return
    match new:
        case DeviceTaintRule():
            if not isinstance(old, DeviceTaintRule) or _selects_otherwise(new, old):
                yield from _rule(new, inventory, context)
        case ResourceClaim() | ResourceClaimTemplate() if old is None:
            yield from _tolerations(new, inventory)
        case _:
            pass


def _selects_otherwise(new: DeviceTaintRule, old: DeviceTaintRule) -> bool:
    return (new.selector, new.taint.key, new.effective_effect) != (old.selector, old.taint.key, old.effective_effect)


# --- rules --------------------------------------------------------------------------------------


def _rule(rule: DeviceTaintRule, inventory: Inventory, context: AdmissionContext) -> Iterator[Finding]:
    if rule.selector is None:
        return
    if not is_wide(rule.selector) and not _matches_any(rule, inventory):
        yield advice("DT201", SELECTOR, None, "matches no published device and no allocated one")
    other = next((each for each in inventory.rules.values() if _covers(each, rule)), None)
    if other is not None:
        text = f"adds nothing to rule {other.meta.name}, which sets the same taint on all these devices"
        yield advice("DT203", SELECTOR, None, text)
    if keeps_from_allocation(rule.taint) and not rule.selector.unknown:
        for driver in _emptied(rule, inventory, context):
            text = (
                f"leaves driver {driver} no device without a taint: claims for its devices wait, unless they tolerate"
            )
            yield advice("DT204", SELECTOR, None, text)


def _matches_any(rule: DeviceTaintRule, inventory: Inventory) -> bool:
    selector = rule.selector
    assert selector is not None
    for _, pool in inventory.pools.selected(selector.driver, selector.pool):
        if selector.device is None or selector.device in pool.devices:
            return True
    return bool(inventory.usage.claims_on(selector.driver, selector.pool, selector.device))


def _covers(other: DeviceTaintRule, rule: DeviceTaintRule) -> bool:
    """Whether the other rule does everything that this one does, and at least as early."""
    if other.meta.name == rule.meta.name or other.selector is None:
        return False
    if (other.taint.key, other.taint.value) != (rule.taint.key, rule.taint.value):
        return False
    if other.taint.effect != rule.taint.effect or other.effective_effect != rule.effective_effect:
        return False
    if other.effective_effect == NO_EXECUTE:
        ours, theirs = rule.taint.time_added, other.taint.time_added
        if ours is not None and theirs is not None and theirs > ours:
            return False  # it evicts later
    return other.effective_effect in EFFECT_RANK and narrower(rule.selector, other.selector)


def _emptied(rule: DeviceTaintRule, inventory: Inventory, context: AdmissionContext) -> Iterator[str]:
    """The drivers that lose their last device without a taint."""
    selector = rule.selector
    assert selector is not None
    by_driver: dict[str, list[tuple[str, Pool]]] = {}
    for (driver, name), pool in inventory.pools.selected(selector.driver, None):
        by_driver.setdefault(driver, []).append((name, pool))
    stored = (each for each in inventory.rules.values() if each.meta.name != rule.meta.name)
    others = [each for each in stored if keeps_from_allocation(each.taint)]
    for driver, pools in sorted(by_driver.items()):
        takes = left = False
        for looked, (pool_name, device) in enumerate(_free_devices(driver, pools, others)):
            if looked % _DEVICES_A_CHECK == 0:
                context.budget.check("lint")
            if not selects(selector, driver, pool_name, device):
                left = True
                break
            takes = True
            if selector.pool is None and selector.device is None:
                break  # it takes all the others as well
        if takes and not left:
            yield driver


def _free_devices(
    driver: str, pools: list[tuple[str, Pool]], others: list[DeviceTaintRule]
) -> Iterator[tuple[str, str]]:
    """The devices of a driver that no taint keeps from being allocated."""
    for name, pool in pools:
        for device, taints in pool.devices.items():
            if any(map(keeps_from_allocation, taints)):
                continue
            if not any(selects(each.selector, driver, name, device) for each in others):
                yield name, device


# --- claims -------------------------------------------------------------------------------------


def _tolerations(new: ResourceClaim | ResourceClaimTemplate, inventory: Inventory) -> Iterator[Finding]:
    """Keys that look like published ones but are not. Other unknown keys are fine: the taint may come later."""
    spec = SPEC if isinstance(new, ResourceClaim) else TEMPLATE_SPEC
    unknown: set[str] = set()
    for path, tolerations in toleration_lists(spec, new.requests):
        for position, toleration in enumerate(tolerations):
            key = toleration.key
            if not key or inventory.publishes(key):
                continue
            unknown.add(key)
            if len(unknown) > _UNKNOWN_KEYS_MAX:
                return
            similar = [other for other in inventory.taint_keys() if _similar(key, other)]
            if similar:
                shown = ", ".join(sorted(similar)[:_SHOWN])
                at = path.index(position).child("key")
                yield advice("DT202", at, key, f"is on no device and in no rule; published are {shown}")


@lru_cache(maxsize=4096)
def _similar(one: str, other: str) -> bool:
    """Whether one key may be meant for another: the same name in another domain, or nearly the same key."""
    name, other_name = one.rpartition("/")[2], other.rpartition("/")[2]
    return name.lower() == other_name.lower() or SequenceMatcher(None, one, other).ratio() >= _NEARLY
