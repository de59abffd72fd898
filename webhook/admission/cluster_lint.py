"""Advice that depends on the cluster: objects that are valid but will not do there what their author expects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from functools import partial
from math import ceil
from typing import Final

from webhook.admission.context import AdmissionContext
from webhook.admission.impact_text import siblings_text
from webhook.admission.lint import advice
from webhook.admission.over_limit import usual_rates
from webhook.api.claims import ResourceClaim, ResourceClaimTemplate
from webhook.api.field import Finding
from webhook.api.remembered import remembered
from webhook.api.rules import EXPIRES_AT, DeviceTaintRule
from webhook.api.taints import NO_EXECUTE
from webhook.inventory.hardware import Siblings, siblings_of_rule
from webhook.inventory.pools import Check, acts, in_steps, selects
from webhook.inventory.rule_delta import EFFECT_RANK, asks_for_more, is_wide, narrower
from webhook.inventory.state import Inventory
from webhook.inventory.targets import DeviceNames, Extent
from webhook.validation.claims import SPEC, TEMPLATE_SPEC, toleration_lists
from webhook.validation.rules import SELECTOR

_PHASE: Final = "lint"
_UNKNOWN_KEYS_MAX: Final = 32
"""Keys of an object that are compared with the published ones: each costs as much as judging a small claim."""
_SHOWN: Final = 3
_NEARLY: Final = 0.9
"""Share of what two keys have in common, where one may be a slip of the other (difflib)."""
_COMPARED_LENGTH_MAX: Final = 80
"""Characters: longer keys are compared by their names only. The time grows with the product of the lengths."""
_COMPARED_MAX: Final = 50
"""Pairs of keys of about the same length that are compared for an object: 0.1 ms each as a rule, and 1 ms at worst."""


def cluster_lint(
    new: object, old: object | None, context: AdmissionContext, siblings: Siblings | None = None
) -> Iterator[Finding]:
    """Yield advice based on the inventory; none while there is no inventory to rely on. Raises OutOfTime.

    `siblings`: of a rule, if they were looked for already (`siblings_of_rule`).
    """
    inventory = context.sight.inventory if context.sight is not None else None
    if inventory is None:
        return
    match new:
        case DeviceTaintRule():
            if not isinstance(old, DeviceTaintRule) or _selects_otherwise(new, old):
                yield from _rule(new, inventory, context, siblings)
        case ResourceClaim() | ResourceClaimTemplate() if old is None:
            yield from _tolerations(new, inventory, partial(context.budget.check, _PHASE))
        case _:
            pass


def _selects_otherwise(new: DeviceTaintRule, old: DeviceTaintRule) -> bool:
    return (new.selector, new.taint.key, new.effective_effect) != (old.selector, old.taint.key, old.effective_effect)


# --- rules --------------------------------------------------------------------------------------


def _rule(
    rule: DeviceTaintRule, inventory: Inventory, context: AdmissionContext, siblings: Siblings | None
) -> Iterator[Finding]:
    if rule.selector is None:
        return
    if not is_wide(rule.selector) and not _matches_any(rule, inventory, partial(context.budget.check, _PHASE)):
        yield advice("DT201", SELECTOR, None, "matches no published device and no allocated one")
    check = partial(context.budget.check, _PHASE)
    rates, stored = usual_rates(context), in_steps(inventory.rules.values(), check)
    other = next((each for each in stored if _covers(each, rule) and not asks_for_more(rule, each, rates)), None)
    if other is not None:
        text = f"adds nothing to rule {other.meta.name}, which sets the same taint on all these devices"
        yield advice("DT203", SELECTOR, None, text)
    if acts(rule.taint.effect) and not rule.selector.unknown:
        for driver in _emptied(rule, inventory, check):
            text = (
                f"leaves driver {driver} no device without a taint: claims for its devices wait, unless they tolerate"
            )
            yield advice("DT204", SELECTOR, None, text)
    # Schedulers and evictors look at the taints of the very device, so its partitions, or its whole, go on.
    beside = siblings_of_rule(inventory, rule, check=check) if siblings is None else siblings
    if beside:
        yield advice("DT205", SELECTOR, None, siblings_text(beside))


def _matches_any(rule: DeviceTaintRule, inventory: Inventory, check: Check) -> bool:
    selector = rule.selector
    assert selector is not None
    for _, pool in in_steps(inventory.pools.selected(selector.driver, selector.pool), check):
        if selector.device is None or selector.device in pool.devices:
            return True
    check()
    return inventory.usage.in_use(selector.driver, selector.pool, selector.device)


def _covers(other: DeviceTaintRule, rule: DeviceTaintRule) -> bool:
    """Return whether the other rule does as much as this one by its spec, at least as early and for as long."""
    if other.meta.name == rule.meta.name or other.selector is None or other.deleting:
        return False
    if other.meta.annotations.get(EXPIRES_AT) not in {None, rule.meta.annotations.get(EXPIRES_AT)}:
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


def _emptied(rule: DeviceTaintRule, inventory: Inventory, check: Check) -> Iterator[str]:
    """Yield the drivers that lose their last device without a taint."""
    selector = rule.selector
    assert selector is not None
    stored = (each for each in in_steps(inventory.rules.values(), check) if each.meta.name != rule.meta.name)
    others = Extent(
        # A missing selector is left out: it may be written for schedulers that take it for none.
        DeviceNames.of(each.selector)
        for each in stored
        if each.selector is not None and acts(each.taint.effect)
    )
    drivers = inventory.pools.drivers if selector.driver is None else (selector.driver,)
    for driver in drivers:
        takes = left = False
        for pool_name, device in _free_devices(driver, inventory, others, check):
            if not selects(selector, driver, pool_name, device):
                left = True
                break
            takes = True
            if selector.pool is None and selector.device is None:
                break  # it takes all the others as well
        if takes and not left:
            yield driver


def _free_devices(driver: str, inventory: Inventory, others: Extent, check: Check) -> Iterator[tuple[str, str]]:
    """Yield the devices of a driver that no taint keeps from being allocated."""
    devices = (
        (name, device, taints)
        for (_, name), pool in inventory.pools.selected(driver, None)
        for device, taints in pool.devices.items()
    )
    for name, device, taints in in_steps(devices, check):
        if not any(acts(taint.effect) for taint in taints) and not others.holds(driver, name, device):
            yield name, device


# --- claims -------------------------------------------------------------------------------------


def _tolerations(new: ResourceClaim | ResourceClaimTemplate, inventory: Inventory, check: Check) -> Iterator[Finding]:
    """Yield keys that look like published ones but are not. Other unknown keys are fine: the taint may come later."""
    spec = SPEC if isinstance(new, ResourceClaim) else TEMPLATE_SPEC
    likeness: _Likeness | None = None
    unknown: dict[str, list[str]] = {}
    for path, tolerations in toleration_lists(spec, new.requests):
        for position, toleration in enumerate(tolerations):
            key = toleration.key
            if not key or inventory.publishes(key):
                continue
            if key not in unknown:
                if len(unknown) == _UNKNOWN_KEYS_MAX:
                    return
                likeness = likeness or _Likeness(inventory.taint_keys(), check)
                unknown[key] = likeness.similar_to(key)
            if unknown[key]:
                shown = ", ".join(unknown[key][:_SHOWN])
                at = path.index(position).child("key")
                yield advice("DT202", at, key, f"is on no device and in no rule; published are {shown}")


class _Likeness:
    """Published keys that others may be meant for: those with the same name in another domain, or nearly the same."""

    def __init__(self, published: Iterable[str], check: Check) -> None:
        self._check = check
        self._left = _COMPARED_MAX
        self._names: dict[str, list[str]] = {}
        self._lengths: dict[int, list[str]] = {}
        for key in in_steps(sorted(published), check):
            self._names.setdefault(_name_of(key), []).append(key)
            if len(key) <= _COMPARED_LENGTH_MAX:
                self._lengths.setdefault(len(key), []).append(key)

    def similar_to(self, key: str) -> list[str]:
        """Return published keys that are like this one, by their alphabet."""
        self._check()
        return sorted({*self._names.get(_name_of(key), ()), *self._nearly(key)})

    def _nearly(self, key: str) -> Iterator[str]:
        """Yield those of the compared ones that have nearly all letters in common with it."""
        if len(key) > _COMPARED_LENGTH_MAX:
            return
        # The ratio is twice the letters in common by the sum of the lengths, so lengths alone rule most keys out.
        least, most = ceil(len(key) * _NEARLY / (2 - _NEARLY)), int(len(key) * (2 - _NEARLY) / _NEARLY)
        for length in range(least, most + 1):
            for other in self._lengths.get(length, ()):
                if not self._left:
                    return
                self._left -= 1
                self._check()
                if _alike(key, other):
                    yield other


def _name_of(key: str) -> str:
    return key.rpartition("/")[2].lower()


@remembered(4096)
def _alike(one: str, other: str) -> bool:
    """Return whether one key is nearly the other; what is cheap to know is asked first."""
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    return matcher.quick_ratio() >= _NEARLY and matcher.ratio() >= _NEARLY
