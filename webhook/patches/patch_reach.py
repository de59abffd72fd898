"""What one patch taints beside the patches that there are, as the rules that say the same; and what an update adds.

The guard asks this during a review, so only patches that can win over the one in question are looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from webhook.api.meta import ObjectMeta
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import DeviceSelector, DeviceTaintRule
from webhook.api.slices import DeviceClassSelectors
from webhook.api.taints import NO_EXECUTE, DeviceTaint
from webhook.inventory.pools import Check, PoolId, Pools, in_steps, unchecked
from webhook.inventory.rule_delta import EFFECT_RANK, asks_for_more, narrower, only_less, skips_a_step
from webhook.inventory.targets import DeviceId, DeviceNames, Extent
from webhook.patches.covering import RULES_MAX
from webhook.patches.expansion import has_only_names, is_written_for_patch, rules_of, selectors_for, selectors_of
from webhook.patches.filter_memo import FilterMemo
from webhook.patches.filters import CannotFilterError
from webhook.patches.patching import Origin, by_precedence, origin_of, taints_of_patch

_NOTHING: Final[frozenset[str]] = frozenset()
TOO_LONG: Final = "to evaluate its filter takes longer than a review may"
REACH_SECONDS: Final = 1.0
"""How long filters may be evaluated in a review. Nothing else is answered meanwhile."""


class KnownPatches(NamedTuple):
    """The patches and device classes that there are, by name; `unknown` says why that is not known (any more)."""

    patches: Mapping[str, ResourceSlicePatch] = {}
    classes: Mapping[str, DeviceClassSelectors] = {}
    unknown: str = ""
    memo: FilterMemo | None = None
    """What filters select, from question to question."""


class PatchReach(msgspec.Struct, frozen=True):
    """The rules that say what a patch says about taints; with `unknown` there are none, and it says why.

    `won` has the devices on which each taint counts, unless the rules have the very filter of the patch: then they
    hold for devices that are yet to be published as well.
    """

    rules: tuple[DeviceTaintRule, ...] = ()
    won: Mapping[Origin, tuple[DeviceId, ...]] | None = None
    unknown: str = ""


def always() -> bool:
    """Return True, for callers that may take as long as they like."""
    return True


def patch_reach(  # noqa: PLR0913 -- the last ones by name
    patch: ResourceSlicePatch,
    known: KnownPatches,
    pools: Pools,
    check: Check = unchecked,
    go_on: Callable[[], bool] = always,
    *,
    judged: datetime | None = None,
    stored: Collection[DeviceTaintRule] = (),
    unpublished: Sequence[tuple[str, str, str]] = (),
    among: DeviceSelector | None = None,
) -> PatchReach:
    """Return what the patch taints in these pools, beside the other known patches. `check` may raise to stop.

    `judged`: also what it would taint if patches were gone that do less to the same pods, or do it later, as nothing
    is asked when they go; and everywhere what evicts and was added before this time. A patch that needs more than a
    rule for a taint wins then only where one is `stored`: it may need more than it may have, and have none.
    `unpublished`: devices in use that no slice shows, which count then as well. `among`: only pools that have the names
    in this selector are in question, and no others are looked at.

    Not known if `go_on` says no before every device was asked. A filter with fields that are not known here is taken
    for every device, as in a rule. However many rules it takes, they are all there: a controller may have another
    ceiling.
    """
    if patch.selector.unknown:
        return PatchReach(nominal_rules(patch))
    rivals = list(_rivals(patch, known, judged, check))
    if has_only_names(patch.selector) and not rivals:
        return PatchReach(nominal_rules(patch))
    matching = _Matching(known, pools, check, go_on)
    wanted = None if among is None else frozenset([each for each, _ in pools.selected(among.driver, among.pool)])
    try:
        selected = matching.selected(patch, wanted)
    except CannotFilterError as error:
        return PatchReach(unknown=str(error))
    if selected is None:
        return PatchReach(unknown=TOO_LONG)
    taken: dict[Origin, dict[PoolId, set[str]]] = {}
    for rival, shared in rivals:
        theirs = matching.of_rival(rival, selected.keys(), unpublished)
        if theirs is None:
            return PatchReach(unknown=TOO_LONG)
        sure = judged is None or (has_only_names(rival.selector) and not any(_rivals(rival, known, None, check)))
        held = {} if sure else _standing(rival, stored)
        for origin in shared:
            extent = None if sure else Extent(map(DeviceNames.of, held[origin]))
            for identity, names in theirs.items():
                some = names if extent is None else [name for name in names if extent.holds(*identity, name)]
                taken.setdefault(origin, {}).setdefault(identity, set()).update(some)
    return _reach(patch, pools, selected, taken, unpublished)


def _rivals(
    patch: ResourceSlicePatch, known: KnownPatches, judged: datetime | None, check: Check
) -> Iterator[tuple[ResourceSlicePatch, frozenset[Origin]]]:
    """Yield patches that may win over the patch, with the taints in question."""
    for other in in_steps(known.patches.values(), check):
        shared = _contested(other, patch, judged)
        if shared and _may_win(other, patch):
            yield other, shared


class _Matching:
    """Which devices filters select, in one question."""

    def __init__(self, known: KnownPatches, pools: Pools, check: Check, go_on: Callable[[], bool]) -> None:
        self._known = known
        self._pools = pools
        self._check = check
        self._go_on = go_on
        self._memo = known.memo or FilterMemo()

    def selected(
        self, patch: ResourceSlicePatch, wanted: Collection[PoolId] | None
    ) -> Mapping[PoolId, AbstractSet[str]] | None:
        """Return the devices of a patch in these pools (None: in all); None if that takes too long.

        Raises: CannotFilterError.
        """
        selector = patch.selector
        if not has_only_names(patch.selector):
            self._check()
            return self._memo.selected(selector, self._known.classes, self._pools, self._go_on, wanted)
        found = in_steps(self._pools.selected(selector.driver, selector.pool), self._check)
        device = selector.device
        return {
            identity: pool.devices.keys() if device is None else {device} & pool.devices.keys()
            for identity, pool in found
            if wanted is None or identity in wanted
        }

    def of_rival(
        self, rival: ResourceSlicePatch, wanted: Collection[PoolId], unpublished: Sequence[tuple[str, str, str]]
    ) -> Mapping[PoolId, AbstractSet[str]] | None:
        """Do the same for a rival, with unpublished devices that it names; none where its filter cannot be judged.

        It is not applied then.
        """
        if rival.selector.unknown:
            return {}
        try:
            found = self.selected(rival, wanted)
        except CannotFilterError:
            return {}
        if found is None or not unpublished or not has_only_names(rival.selector):
            return found
        named = Extent([DeviceNames.of(rival.selector)])
        every = {identity: set(names) for identity, names in found.items()}
        for driver, pool, device in unpublished:
            if named.holds(driver, pool, device):
                every.setdefault((driver, pool), set()).add(device)
        return every


def _reach(
    patch: ResourceSlicePatch,
    pools: Pools,
    selected: Mapping[PoolId, AbstractSet[str]],
    taken: Mapping[Origin, Mapping[PoolId, AbstractSet[str]]],
    unpublished: Sequence[tuple[str, str, str]],
) -> PatchReach:
    """Return the rules for what is left of the devices where other patches take theirs.

    If they take any, so do the unpublished ones count that have the names in its filter, if it has nothing else. If it
    has, those count that a newer generation of their pool does not show yet: the controller goes by the one before.
    """
    plain = has_only_names(patch.selector)
    every = tuple([DeviceId(*identity, name) for identity, names in sorted(selected.items()) for name in sorted(names)])
    reached = Extent([DeviceNames.of(patch.selector)])
    coming = frozenset[tuple[str, str]]() if plain else pools.incomplete
    gone = [DeviceId(*each) for each in unpublished if reached.holds(*each) and (plain or each[:2] in coming)]
    won: dict[Origin, tuple[DeviceId, ...]] = {}
    for origin in taints_of_patch(patch):
        lost = taken.get(origin, {})
        left, beside = (
            [each for each in some if each.device not in lost.get((each.driver, each.pool), _NOTHING)]
            for some in (every, gone)
        )
        won[origin] = every if len(left) == len(every) and (plain or not beside) else (*left, *beside)
    return PatchReach(_rules(patch, selectors_of(pools, patch, every, won.values())), won)


def stands(patch: ResourceSlicePatch, reach: PatchReach, stored: Iterable[DeviceTaintRule]) -> bool:
    """Return whether a patch has rules for all that it says: one for each taint will do, or those are stored.

    If it needs more than it may have, it has none.
    """
    held = _standing(patch, stored)
    won = reach.won or {}
    extents = {origin: Extent(map(DeviceNames.of, held[origin])) for origin in won}
    return all(extents[origin].holds(*each) for origin, devices in won.items() for each in devices)


def _standing(patch: ResourceSlicePatch, stored: Iterable[DeviceTaintRule]) -> Mapping[Origin, list[DeviceSelector]]:
    """Return what a patch's stored rules select, by taint. Others may write our marks, but not for themselves."""
    found: dict[Origin, list[DeviceSelector]] = defaultdict(list)
    for rule in stored:
        ours = rule.origin.patch and rule.origin.belongs_to == patch.meta.uid != ""
        if ours and not rule.deleting and is_written_for_patch(rule, patch):
            found[origin_of(rule.taint)].append(rule.selector or DeviceSelector())
    return found


def nominal_rules(patch: ResourceSlicePatch) -> tuple[DeviceTaintRule, ...]:
    """Make a rule for each taint with the filter as it stands, for where it cannot be evaluated."""
    return _rules(patch, [(patch.selector,)] * len(taints_of_patch(patch)))


def added_rules(
    new: ResourceSlicePatch,
    reach: PatchReach,
    before: PatchReach,
    pools: Pools,
    usual_rates: Iterable[float],
) -> tuple[DeviceTaintRule, ...]:
    """Return the rules of an updated patch that act and do more than its rules did before.

    A rule that has the patch's own filter counts as a whole if it is wider than before, as a rule of its own does. Of
    a filter with a class or CEL only the devices count that are new.
    """
    rates, own = tuple(usual_rates), new.selector
    found: list[DeviceTaintRule] = []
    for origin, rules in _by_taint(reach.rules).items():
        like = [
            each for each in before.rules if _is_no_more(structs.replace(rules[0], selector=each.selector), each, rates)
        ]
        if reach.won is None or (len(rules) == 1 and rules[0].selector == own):
            found += [each for each in rules if not any(narrower(each.selector, was.selector) for was in like)]
            continue
        known = Extent([DeviceNames.of(each.selector) for each in like])
        fresh = [address for address in reach.won[origin] if not known.holds(*address)]
        singly = not has_only_names(new.selector) and len(fresh) <= RULES_MAX
        found += [structs.replace(rules[0], selector=each) for each in selectors_for(pools, fresh, singly=singly)]
    return tuple(found)


def does_no_more(new: ResourceSlicePatch, old: ResourceSlicePatch, usual_rates: Iterable[float]) -> bool:
    """Return whether an update of a patch can only taint less, whatever devices and other patches there are."""
    if new.priority > old.priority or not narrower(new.selector, old.selector):
        return False
    rates, were = tuple(usual_rates), [_without_devices(each) for each in nominal_rules(old)]
    acting = [_without_devices(each) for each in nominal_rules(new) if each.effective_effect in EFFECT_RANK]
    return all(any(_is_no_more(each, was, rates) for was in were) for each in acting)


def patch_skips_a_step(new: ResourceSlicePatch, old: ResourceSlicePatch | None) -> bool:
    """Tell whether any taint evicts what the patch was never stored for without that; see `skips_a_step`."""
    before = (None, *(() if old is None else nominal_rules(old)))
    return any(all(skips_a_step(rule, was) for was in before) for rule in nominal_rules(new))


def judged_whole(new: ResourceSlicePatch, old: ResourceSlicePatch, known: Iterable[ResourceSlicePatch]) -> bool:
    """Return whether admission has judged an update of a patch for every pod that it evicts; `known`: all patches.

    It judges what an update adds. That is all of it if each taint that evicts is another one than before, or if the
    patch moves to other names where no other patch takes precedence. Of any other update it may have judged nothing.
    """
    evicts = _evicting_taints(new)
    if not evicts:
        return False
    if evicts.isdisjoint(_evicting_taints(old)):
        return True
    if not (has_only_names(new.selector) and has_only_names(old.selector)):
        return False
    moved = not narrower(new.selector, old.selector)
    return moved and not any(_may_win(other, new) for other in known)


def _evicting_taints(patch: ResourceSlicePatch) -> frozenset[tuple[str, str]]:
    """Return keys and values of the taints of a patch that evict pods."""
    rules = nominal_rules(patch)
    return frozenset([(each.taint.key, each.taint.value) for each in rules if each.effective_effect == NO_EXECUTE])


def _without_devices(rule: DeviceTaintRule) -> DeviceTaintRule:
    return structs.replace(rule, selector=DeviceSelector())


def _is_no_more(new: DeviceTaintRule, old: DeviceTaintRule, usual_rates: tuple[float, ...]) -> bool:
    return only_less(new, old) and not asks_for_more(new, old, usual_rates)


def _by_taint(rules: Iterable[DeviceTaintRule]) -> dict[Origin, list[DeviceTaintRule]]:
    """Return the rules that act."""
    found: dict[Origin, list[DeviceTaintRule]] = {}
    for rule in rules:
        if rule.effective_effect in EFFECT_RANK:
            found.setdefault(origin_of(rule.taint), []).append(rule)
    return found


def _may_win(other: ResourceSlicePatch, patch: ResourceSlicePatch) -> bool:
    """Tell whether the other may select the same devices, and outranks the patch. A deleted one sets nothing."""
    return (
        other.meta.name != patch.meta.name
        and not other.deleting
        and may_meet(other.selector, patch.selector)
        and by_precedence([patch, other])[0] is other
    )


def _contested(other: ResourceSlicePatch, patch: ResourceSlicePatch, judged: datetime | None) -> frozenset[Origin]:
    """Return the taints that both set; if they are `judged`, only those that do at least as much in the other."""
    theirs, ours = taints_of_patch(other), taints_of_patch(patch)
    return frozenset(
        [
            origin
            for origin, taint in ours.items()
            if origin in theirs and (judged is None or _does_as_much(other, theirs[origin], patch, taint, judged))
        ]
    )


def _does_as_much(
    other: ResourceSlicePatch, rival: DeviceTaint, patch: ResourceSlicePatch, taint: DeviceTaint, since: datetime
) -> bool:
    """Return whether a taint evicts, by the same evictor and no later, whom one of its key and effect would evict."""
    softened = patch.is_softened(taint)
    if rival.value != taint.value or softened > other.is_softened(rival):
        return False
    if not softened and taint.effect != NO_EXECUTE:
        return True
    added, theirs = taint.time_added, rival.time_added
    return added is None or (theirs is not None and since <= added and theirs <= added)


def may_meet(one: DeviceSelector, other: DeviceSelector) -> bool:
    """Return whether there can be devices that have the names in both selectors."""
    pairs = ((one.driver, other.driver), (one.pool, other.pool), (one.device, other.device))
    return all(first is None or second is None or first == second for first, second in pairs)


def _rules(patch: ResourceSlicePatch, selectors: Iterable[tuple[DeviceSelector, ...]]) -> tuple[DeviceTaintRule, ...]:
    return tuple(
        [
            DeviceTaintRule(ObjectMeta(each.name, annotations=each.annotations), each.selector, each.taint)
            for each in rules_of(patch, selectors)
        ]
    )
