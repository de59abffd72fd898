"""The DeviceTaintRules that say together what patches say about taints, in a cluster that has no patches of its own.

A rule only adds its taint: the driver's own taint of the same key and effect stays beside it, where a patch would
overwrite it (`semantics.md` P-22). Otherwise a device has from the rules what `patching` gives it from the patches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import structs

from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import (
    DATA,
    DESCRIPTION,
    EVICT,
    EVICTIONS_PER_SECOND,
    SOFTENED_FROM,
    DeviceSelector,
    DeviceTaintRule,
)
from webhook.api.taints import NO_EXECUTE, DeviceTaint
from webhook.inventory.pools import Pools
from webhook.inventory.rule_delta import narrower
from webhook.inventory.targets import DeviceId, is_named_for, is_same_taint, rule_name
from webhook.patches.covering import RULES_MAX, covering_selectors
from webhook.patches.patching import EffectiveDevices, taints_of_patch


class ExpandedRule(msgspec.Struct, frozen=True):
    """A DeviceTaintRule of a patch.

    `name` is the same wherever the same taint is put on the same selector by the same patch. `taint` has nothing that
    released servers would drop: that is in `annotations`.
    """

    name: str
    selector: DeviceSelector
    taint: DeviceTaint
    annotations: Mapping[str, str]


class PatchExpansion(msgspec.Struct, frozen=True):
    """The rules of one patch. `needed` is how many there would be; with more than the ceiling there are none at all."""

    rules: tuple[ExpandedRule, ...]
    needed: int


def expansion(
    pools: Pools, patch: ResourceSlicePatch, effective: EffectiveDevices, ceiling: int = RULES_MAX
) -> PatchExpansion:
    """Return the rules of a patch, for what `effective_devices` found in these pools for it and the others.

    A patch whose filter has only names becomes one rule a taint with that very selector, so it holds for devices that
    are yet to be published as well. Where another patch takes precedence on some of the devices there are the fewest
    rules that select those where the taint is the patch's. With a class or CEL each device has a rule of its own, which
    selects nothing that is published later; the fewest are for patches that would need more than the ceiling.
    """
    name = patch.meta.name
    if name in effective.inapplicable:
        return PatchExpansion((), 0)
    selected, devices = effective.selected[name], effective.devices
    won = [[each for each in selected if devices[each].origins[at] == name] for at in taints_of_patch(patch)]
    rules = tuple(rules_of(patch, selectors_of(pools, patch, selected, won, ceiling)))
    return PatchExpansion(rules if len(rules) <= ceiling else (), len(rules))


def has_only_names(selector: DeviceSelector) -> bool:
    """Tell whether a filter selects whatever has its names, published or not."""
    return selector.device_class_name is None and not selector.selectors


def selectors_of(
    pools: Pools,
    patch: ResourceSlicePatch,
    selected: Sequence[DeviceId],
    won: Iterable[Sequence[DeviceId]],
    ceiling: int = RULES_MAX,
) -> list[tuple[DeviceSelector, ...]]:
    """Return the selectors of rules for each taint of a patch: `won` has the devices on which it counts."""
    own, by_taint = patch.selector, [tuple(each) for each in won]
    plain = has_only_names(own)
    singly = not plain and sum(map(len, by_taint)) <= ceiling
    known: dict[tuple[DeviceId, ...], tuple[DeviceSelector, ...]] = {}
    found: list[tuple[DeviceSelector, ...]] = []
    for devices in by_taint:
        if plain and devices == selected:
            found.append((own,))
            continue
        if devices not in known:
            known[devices] = selectors_for(pools, devices, singly=singly)
        found.append(known[devices])
    return found


def selectors_for(pools: Pools, devices: Iterable[DeviceId], *, singly: bool) -> tuple[DeviceSelector, ...]:
    """Return the fewest for those that are published, if not `singly`, and one for each other."""
    known, others = list[DeviceId](), list[DeviceId]()
    for each in devices:
        pool = pools.get((each.driver, each.pool))
        (others if singly or pool is None or each.device not in pool.devices else known).append(each)
    return (*covering_selectors(pools, known), *[DeviceSelector(*each) for each in others])


def rules_of(patch: ResourceSlicePatch, selectors: Iterable[Iterable[DeviceSelector]]) -> Iterator[ExpandedRule]:
    """Yield the rules that put each taint of a patch on what its selectors select; see `taints_of_patch`.

    For a softened one our worker evicts pods, as it does for rules that were softened.
    """
    for taint, wanted in zip(taints_of_patch(patch).values(), selectors, strict=True):
        bare, annotations = structs.replace(taint, extras=None), annotations_of(taint)
        if patch.is_softened(taint):
            annotations |= {EVICT: "true", SOFTENED_FROM: NO_EXECUTE}
        for each in wanted:
            yield ExpandedRule(rule_name(patch.meta.name, taint, each), each, bare, annotations)


def is_written_for_patch(rule: DeviceTaintRule, patch: ResourceSlicePatch) -> bool:
    """Tell whether the controller may have written a rule for a patch: name, taint, and the filter's names."""
    own = patch.selector
    within = narrower(rule.selector, DeviceSelector(own.driver, own.pool, own.device))
    sets = any(is_same_taint(rule.taint, each) for each in taints_of_patch(patch).values())
    return sets and within and is_named_for(patch.meta.name, rule)


def annotations_of(taint: DeviceTaint) -> dict[str, str]:
    """Return data, description and rate of a taint, where our evictor finds them on a rule (N-9 to N-12)."""
    extras = taint.extras
    if extras is None:
        return {}
    found = {
        DATA: None if extras.data is None else msgspec.json.encode(extras.data, order="deterministic").decode(),
        DESCRIPTION: extras.description,
        EVICTIONS_PER_SECOND: None if extras.evictions_per_second is None else str(extras.evictions_per_second),
    }
    return {name: text for name, text in found.items() if text is not None}
