"""What new taints in a slice will hit. Only warnings: a driver whose slice is refused loses its devices."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from webhook.admission.guard import GUARD, SILENT, GuardFindings
from webhook.admission.impact_text import annotation_of, slice_figures_of
from webhook.api.field import Finding, Severity, forbidden
from webhook.api.taints import NO_EXECUTE, DeviceTaint
from webhook.inventory.gang_impact import with_companions, with_gangs
from webhook.inventory.hardware import siblings_of_slice
from webhook.inventory.impact import Taint, impact_on_devices
from webhook.inventory.matching import Evictor
from webhook.inventory.rule_delta import EFFECT_RANK
from webhook.policy.model import InTreeEvictor, PolicyMode
from webhook.validation.slices import SPEC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.admission.context import AdmissionContext
    from webhook.api.slices import ResourceSlice
    from webhook.inventory.state import Inventory

TaintId = tuple[str, str, str]
"""Of a taint in a pool: device, key, value."""


def guard_slice(new: ResourceSlice, old: ResourceSlice | None, context: AdmissionContext) -> GuardFindings:
    """Figures of the taints that begin to evict with this slice. Raises OutOfTime."""
    if context.sight is None or context.policy.mode is PolicyMode.OFF:
        return SILENT
    if not any(taint.effect == NO_EXECUTE for taint in new.distinct_taints) and not new.slice_taints:
        return SILENT
    inventory = context.sight.inventory
    known = evicting([old] if old is not None else [])
    if inventory is not None:
        pool = inventory.pools.get((new.driver, new.pool))
        beside = pool.slices.values() if pool is not None else ()
        known |= evicting([each for each in beside if each.node_name == new.node_name])
    fresh = [
        (device, taint)
        for device, taint in _fresh(new, known)
        if not context.recently_had(new.driver, new.pool, (device, taint.key, taint.value))
    ]
    if not fresh:
        return SILENT
    if inventory is None:
        text = f"what its new taints hit is not known: {context.sight.unknown}"
        return GuardFindings((_warn(text),), {"impact": f"unknown: {context.sight.unknown}"})
    return _measured(new, fresh, inventory, context)


def _measured(
    new: ResourceSlice, fresh: list[tuple[str, DeviceTaint]], inventory: Inventory, context: AdmissionContext
) -> GuardFindings:
    check = partial(context.budget.check, "impact")
    check()
    in_tree = context.policy.in_tree_evictor is InTreeEvictor.ACTIVE
    taints: dict[str, list[Taint]] = {}
    for device, taint in fresh:
        taints.setdefault(device, []).append(Taint.of_slice(taint, in_tree=in_tree))
    impact = impact_on_devices(inventory, (new.driver, new.pool), taints, context.now, check)
    evictor = Evictor.IN_TREE if in_tree else Evictor.OURS
    impact = with_companions(inventory, impact, evictor, context.pods, check)
    impact = structs.replace(
        with_gangs(inventory, impact, context.pods, check),
        siblings=siblings_of_slice(inventory, new, dict.fromkeys(taints, EFFECT_RANK[NO_EXECUTE]), check),
    )
    findings = tuple(_warn(text) for text in slice_figures_of(impact, context.servers))
    return GuardFindings(findings, {"impact": annotation_of(impact, acts=True, over=())})


def _warn(text: str) -> Finding:
    return Finding(Severity.WARN, forbidden(SPEC.child("devices"), text), rule=GUARD)


def _fresh(value: ResourceSlice, known: set[TaintId]) -> Iterator[tuple[str, DeviceTaint]]:
    """The NoExecute taints that the pool does not have yet, by device."""
    for device, taint in _all(value):
        if taint.effect == NO_EXECUTE and (device, taint.key, taint.value) not in known:
            yield device, taint


def evicting(slices: Iterable[ResourceSlice]) -> set[TaintId]:
    """NoExecute taints of some slices of a pool, in any generation: a driver puts the old taints on new slices."""
    return {
        (device, taint.key, taint.value)
        for value in slices
        for device, taint in _all(value)
        if taint.effect == NO_EXECUTE
    }


def _all(value: ResourceSlice) -> Iterator[tuple[str, DeviceTaint]]:
    for device in value.devices:
        for taint in device.taints:
            yield device.name, taint
    for entry in value.slice_taints:
        yield entry.device, entry.taint
