"""What has become of one patch: what it selects, and the rules that it needs. Source: `inventory.expansion`."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from webhook.inventory.covering import each_of
from webhook.inventory.expansion import rules_of_taint
from webhook.inventory.patching import Origin, taints_of_patch
from webhook.patches.filter_match import NO_DEVICES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.rules import DeviceSelector
    from webhook.api.taints import DeviceTaint
    from webhook.inventory.covering import Cover, DeviceNameSet
    from webhook.inventory.expansion import ExpandedRule
    from webhook.inventory.pools import PoolId
    from webhook.patches.faults import SelectorFaults
    from webhook.patches.filter_match import FilterMatch
    from webhook.patches.index import PatchIndex


class Standing(NamedTuple):
    """One patch as it should be.

    `rules` are none if there would be more than the ceiling; `needed` is how many there would be.
    """

    rules: tuple[ExpandedRule, ...]
    needed: int
    selected: int
    """Published devices that the filter selects."""
    tainted: int
    """Those of them on which a taint of the patch counts."""
    faults: tuple[SelectorFaults, ...]
    unusable: str
    """Why the filter selects nothing at all; empty if it can be judged."""


def standing_of(index: PatchIndex, name: str, ceiling: int) -> Standing:
    """That of a patch, which exists, once the index has nothing left to do. Raises: KeyError."""
    patch, match = index.patches[name], index.match_of(name)
    selected = sum([len(names) for _, names in match.selected(index.fleet)])
    if match.unusable:
        return Standing((), 0, 0, 0, (), match.unusable)
    taints = taints_of_patch(patch)
    lost = [index.left_of(Origin("taint", taint.key, taint.effect), name) for taint in taints]
    won = sum([_tainted(index, match, selected, [each]) for each in lost])
    covers = _Covers(index, match, singly=not match.plain and won <= ceiling)
    plans: list[tuple[DeviceTaint, Iterable[DeviceSelector]]] = []
    needed = 0
    for taint, left in zip(taints, lost, strict=True):
        if match.plain and not left:
            plans.append((taint, (match.selector,)))
            needed += 1
        else:
            found = covers.of(left)
            plans.append((taint, (each for cover in found for each in cover.selectors())))
            needed += sum([cover.needed for cover in found])
    fits = needed <= ceiling
    rules = tuple(_rules(patch, plans)) if fits else ()
    return Standing(rules, needed, selected, _tainted(index, match, selected, lost), match.faults, "")


def _rules(
    patch: ResourceSlicePatch, plans: Iterable[tuple[DeviceTaint, Iterable[DeviceSelector]]]
) -> Iterator[ExpandedRule]:
    for taint, selectors in plans:
        yield from rules_of_taint(patch.meta.name, taint, selectors, softened=patch.is_softened(taint))


class _Covers:
    """Covers for what a filter selects. Taints that lose the same have the same; most lose nothing."""

    def __init__(self, index: PatchIndex, match: FilterMatch, *, singly: bool) -> None:
        self._index = index
        self._match = match
        self._cover = each_of if singly else index.fleet.cover
        self._known: dict[frozenset[tuple[PoolId, DeviceNameSet]], list[Cover]] = {}

    def of(self, left: Mapping[PoolId, DeviceNameSet]) -> list[Cover]:
        """The covers by driver; `left` are the pools in which other devices count than the filter selects."""
        key = frozenset(left.items())
        if key not in self._known:
            wanted: dict[str, dict[str, DeviceNameSet]] = defaultdict(dict)
            for pool, names in self._match.selected(self._index.fleet):
                own = left.get(pool, names)
                if own:
                    wanted[pool[0]][pool[1]] = own
            self._known[key] = [self._cover(driver, wanted[driver]) for driver in sorted(wanted)]
        return self._known[key]


def _tainted(index: PatchIndex, match: FilterMatch, selected: int, lost: list[Mapping[PoolId, DeviceNameSet]]) -> int:
    if not lost:
        return 0
    in_question = set(lost[0]).intersection(*lost)  # elsewhere some taint counts on all that is selected
    kept = sum([len(NO_DEVICES.union(*[left[pool] for left in lost])) for pool in in_question])
    return selected - sum([len(match.selected_in(pool, index.fleet)) for pool in in_question]) + kept
