"""What a rule or a slice would do before it is set: its impact, and the rows of pods behind the figures."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, DeviceTaint
from webhook.inventory.fates import ANYWHERE, DeviceNames
from webhook.inventory.impact import Impact, Taint, impact_of, impact_on_devices
from webhook.inventory.rows import GroupRow, PodOutcome, PodRow, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from webhook.api.rules import DeviceTaintRule
    from webhook.api.slices import ResourceSlice
    from webhook.inventory.state import Inventory

_ACTING: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})


class Preview(msgspec.Struct, frozen=True):
    """What taints would do. `simulated`: they do nothing, and this is what they would with effect NoExecute."""

    impact: Impact
    taints: tuple[tuple[DeviceNames, Taint], ...] = ()
    """What is on which devices, as it is judged here."""
    simulated: bool = False
    pods: tuple[PodRow, ...] = ()
    """Who is evicted, soonest first; then the others."""
    pod_groups: tuple[GroupRow, ...] = ()

    def count(self, outcome: PodOutcome) -> int:
        """How many pods share an outcome."""
        return sum(row.outcome is outcome for row in self.pods)

    @property
    def waves(self) -> dict[int, int]:
        """How many pods go, by seconds from now, soonest first."""
        return dict(sorted(Counter(row.seconds for row in self.pods if row.seconds is not None).items()))

    @property
    def claims(self) -> list[str]:
        """The claims for which pods or PodGroups are evicted."""
        return sorted({claim for row in self._evicted() for claim in row.claims})

    @property
    def namespaces(self) -> list[str]:
        """Where pods or PodGroups are evicted."""
        return sorted({row.namespace for row in self._evicted()})

    def _evicted(self) -> Iterator[PodRow | GroupRow]:
        rows: tuple[PodRow | GroupRow, ...] = (*self.pods, *self.pod_groups)
        for row in rows:
            if row.outcome is PodOutcome.EVICTED:
                yield row


def acts(effect: str) -> bool:
    """Whether a taint with that effect does anything; unknown ones act as None (T-11)."""
    return effect in _ACTING


def rule_preview(inventory: Inventory, rule: DeviceTaintRule, *, in_tree: bool, now: datetime) -> Preview:
    """What a rule would do, from `now` on; with an effect that does nothing, what it would with NoExecute (E-40)."""
    taint = Taint.of_rule(rule, in_tree=in_tree)
    simulated = not acts(rule.effective_effect)
    if simulated:
        taint = taint.as_if_evicting(in_tree=in_tree)
    impact = impact_of(inventory, rule.selector, taint, now)
    selector = rule.selector
    if selector is None:
        return Preview(impact, ((ANYWHERE, taint),), simulated)
    taints = ((DeviceNames.of(selector), taint),)
    return Preview(impact, taints, simulated, *rows_of(inventory, taints, now))


def slice_preview(inventory: Inventory, value: ResourceSlice, *, in_tree: bool, now: datetime) -> Preview:
    """What the new taints of a slice would do; what does nothing is judged only if all of them do nothing."""
    added = new_taints(inventory, value)
    simulated = not any(acts(taint.effect) for taints in added.values() for taint in taints)
    judged: dict[str, list[Taint]] = {}
    for device, taints in added.items():
        found = [Taint.of_slice(taint, in_tree=in_tree) for taint in taints if simulated or acts(taint.effect)]
        if found:
            judged[device] = [taint.as_if_evicting(in_tree=in_tree) for taint in found] if simulated else found
    if not judged:
        return Preview(Impact())
    impact = impact_on_devices(inventory, (value.driver, value.pool), judged, now)
    pairs = tuple(
        (DeviceNames(value.driver, value.pool, device), taint) for device, taints in judged.items() for taint in taints
    )
    return Preview(impact, pairs, simulated, *rows_of(inventory, pairs, now))


def new_taints(inventory: Inventory, value: ResourceSlice) -> dict[str, tuple[DeviceTaint, ...]]:
    """The taints of a slice by device that the device does not have yet, timeAdded aside; none if it is outdated."""
    if outdated(inventory, value):
        return {}
    pool = inventory.pools.get((value.driver, value.pool))
    found: dict[str, list[DeviceTaint]] = {}
    for name, taint in _taints_in(value):
        known = pool.taints_of(name) if pool is not None else ()
        listed = found.setdefault(name, [])
        if all(_identity(taint) != _identity(each) for each in (*known, *listed)):
            listed.append(taint)
    return {name: tuple(taints) for name, taints in found.items() if taints}


def outdated(inventory: Inventory, value: ResourceSlice) -> bool:
    """Whether a newer generation of the pool is published, so that nobody looks at the slice (E-2)."""
    pool = inventory.pools.get((value.driver, value.pool))
    return pool is not None and pool.generation > value.pool_generation


def _taints_in(value: ResourceSlice) -> Iterator[tuple[str, DeviceTaint]]:
    for device in value.devices:
        for taint in device.taints:
            yield device.name, taint
    for entry in value.slice_taints:
        yield entry.device, entry.taint


def _identity(taint: DeviceTaint) -> tuple[str, str, str]:
    return taint.key, taint.value, taint.effect
