"""What one patch taints beside the patches that there are, as the rules that say the same; and what an update adds.

The guard asks this during a review, so only patches that can win over the one in question are looked at, and
evaluations of CEL are limited.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import structs

from webhook.api.meta import ObjectMeta
from webhook.api.rules import DeviceSelector, DeviceTaintRule
from webhook.inventory.covering import covering_selectors
from webhook.inventory.device_selectors import DeviceSelectors
from webhook.inventory.expansion import expansion
from webhook.inventory.extent import Extent, names_of
from webhook.inventory.patching import (
    EffectiveDevices,
    Origin,
    by_precedence,
    effective_devices,
    taints_of_patch,
)
from webhook.inventory.pools import Pools
from webhook.inventory.published import DeviceId
from webhook.inventory.rule_delta import EFFECT_RANK, asks_for_more, narrower, only_less
from webhook.inventory.steps import in_steps, unchecked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.api.device_classes import DeviceClassSelectors
    from webhook.api.patches import ResourceSlicePatch
    from webhook.inventory.steps import Check

REACH_STEPS: Final = 3_000_000
"""Of all evaluations of CEL in a review: about a second. Usual selectors take ten for each device."""
_MANY: Final = 10**9
_TOO_LONG: Final = "to evaluate its filter takes too long for a review"


class KnownPatches(NamedTuple):
    """The patches and device classes that there are, by name; `unknown` says why that is not known (any more)."""

    patches: Mapping[str, ResourceSlicePatch] = {}
    classes: Mapping[str, DeviceClassSelectors] = {}
    unknown: str = ""


class PatchReach(msgspec.Struct, frozen=True):
    """The rules that say what a patch says about taints; with `unknown` there are none, and it says why.

    `won` has the devices on which each taint counts, unless the rules have the very filter of the patch: then they
    hold for devices that are yet to be published as well.
    """

    rules: tuple[DeviceTaintRule, ...] = ()
    won: Mapping[Origin, tuple[DeviceId, ...]] | None = None
    unknown: str = ""


class _LimitedSelectors(DeviceSelectors):
    """Selectors of one review."""

    @property
    def used_up(self) -> bool:
        """Whether evaluations failed because they took too long together."""
        return self._budget.left < 0


def patch_reach(patch: ResourceSlicePatch, known: KnownPatches, pools: Pools, check: Check = unchecked) -> PatchReach:
    """What the patch taints in these pools, beside the other known patches. `check` may raise to stop.

    A filter with fields that are not known here is taken for every device, as in a rule. However many rules it takes,
    they are all there: a controller may have another ceiling.
    """
    if _has_unknown_fields(patch):
        return PatchReach(nominal_rules(patch))
    name = patch.meta.name
    rivals = [other for other in in_steps(known.patches.values(), check) if _may_win(other, patch)]
    if _has_only_names(patch) and not rivals:
        nothing = EffectiveDevices({}, {name: ()}, (), {})
        return PatchReach(_expanded(pools, patch, nothing))
    compiles = _LimitedSelectors(REACH_STEPS)
    effective = effective_devices(pools, [patch, *rivals], known.classes, compiles, check)
    if compiles.used_up:
        return PatchReach(unknown=_TOO_LONG)
    if name in effective.inapplicable:
        return PatchReach(unknown=effective.inapplicable[name])
    won = {Origin("taint", taint.key, taint.effect): list[DeviceId]() for taint in taints_of_patch(patch)}
    for address in effective.selected[name]:
        for origin, winner in effective.devices[address].origins.items():
            if winner == name and origin in won:
                won[origin].append(address)
    return PatchReach(_expanded(pools, patch, effective), {origin: tuple(found) for origin, found in won.items()})


def nominal_rules(patch: ResourceSlicePatch) -> tuple[DeviceTaintRule, ...]:
    """A rule for each taint with the filter as it stands, for where it cannot be evaluated."""
    names = structs.replace(patch, filter=None)
    selector = patch.filter or DeviceSelector()
    nothing = EffectiveDevices({}, {patch.meta.name: ()}, (), {})
    return tuple([structs.replace(each, selector=selector) for each in _expanded(Pools(), names, nothing)])


def added_rules(
    new: ResourceSlicePatch,
    reach: PatchReach,
    before: PatchReach,
    pools: Pools,
    usual_rates: Iterable[float],
) -> tuple[DeviceTaintRule, ...]:
    """Of the rules of an updated patch those that act and do more than its rules did before.

    A rule that has the patch's own filter counts as a whole if it is wider than before, as a rule of its own does. Of
    a filter with a class or CEL only the devices count that are new.
    """
    rates, own = tuple(usual_rates), new.filter or DeviceSelector()
    found: list[DeviceTaintRule] = []
    for origin, rules in _by_taint(reach.rules).items():
        like = [
            each for each in before.rules if _is_no_more(structs.replace(rules[0], selector=each.selector), each, rates)
        ]
        if reach.won is None or (len(rules) == 1 and rules[0].selector == own):
            found += [each for each in rules if not any(narrower(each.selector, was.selector) for was in like)]
            continue
        known = Extent([names_of(each.selector) for each in like])
        fresh = [address for address in reach.won[origin] if not known.holds(*address)]
        found += [structs.replace(rules[0], selector=each) for each in covering_selectors(pools, fresh)]
    return tuple(found)


def does_no_more(new: ResourceSlicePatch, old: ResourceSlicePatch, usual_rates: Iterable[float]) -> bool:
    """Whether an update of a patch can only taint less, whatever devices and other patches there are."""
    if new.priority > old.priority or not narrower(new.filter or DeviceSelector(), old.filter or DeviceSelector()):
        return False
    rates, were = tuple(usual_rates), [_without_devices(each) for each in nominal_rules(old)]
    acting = [_without_devices(each) for each in nominal_rules(new) if each.effective_effect in EFFECT_RANK]
    return all(any(_is_no_more(each, was, rates) for was in were) for each in acting)


def _without_devices(rule: DeviceTaintRule) -> DeviceTaintRule:
    return structs.replace(rule, selector=DeviceSelector())


def _is_no_more(new: DeviceTaintRule, old: DeviceTaintRule, usual_rates: tuple[float, ...]) -> bool:
    return only_less(new, old) and not asks_for_more(new, old, usual_rates)


def _by_taint(rules: Iterable[DeviceTaintRule]) -> dict[Origin, list[DeviceTaintRule]]:
    """The rules that act."""
    found: dict[Origin, list[DeviceTaintRule]] = {}
    for rule in rules:
        if rule.effective_effect in EFFECT_RANK:
            found.setdefault(Origin("taint", rule.taint.key, rule.taint.effect), []).append(rule)
    return found


def _has_unknown_fields(patch: ResourceSlicePatch) -> bool:
    return patch.filter is not None and bool(patch.filter.unknown)


def _has_only_names(patch: ResourceSlicePatch) -> bool:
    return patch.filter is None or (patch.filter.device_class_name is None and not patch.filter.selectors)


def _may_win(other: ResourceSlicePatch, patch: ResourceSlicePatch) -> bool:
    """Whether the other may put the same taint on the same devices, and outranks the patch."""
    return (
        other.meta.name != patch.meta.name
        and not _identities(other).isdisjoint(_identities(patch))
        and _may_meet(other.filter or DeviceSelector(), patch.filter or DeviceSelector())
        and by_precedence([patch, other])[0] is other
    )


def _identities(patch: ResourceSlicePatch) -> frozenset[tuple[str, str]]:
    return frozenset([(taint.key, taint.effect) for taint in patch.taints])


def _may_meet(one: DeviceSelector, other: DeviceSelector) -> bool:
    pairs = ((one.driver, other.driver), (one.pool, other.pool), (one.device, other.device))
    return all(first is None or second is None or first == second for first, second in pairs)


def _expanded(pools: Pools, patch: ResourceSlicePatch, effective: EffectiveDevices) -> tuple[DeviceTaintRule, ...]:
    found = expansion(pools, [patch], effective, _MANY)[patch.meta.name].rules
    return tuple(
        [
            DeviceTaintRule(ObjectMeta(each.name, annotations=each.annotations), each.selector, each.taint)
            for each in found
        ]
    )
