"""What new taints in a slice will hit. Only warnings: a driver whose slice is refused loses its devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import structs

from webhook.admission.context import AdmissionContext
from webhook.admission.decision import REMOVED
from webhook.admission.guard import SILENT, GuardFindings, warn
from webhook.admission.impact_text import annotation_of, slice_figures_of
from webhook.admission.review import AdmissionRequest
from webhook.api.field import JSON
from webhook.api.meta import GroupVersionKind
from webhook.api.slices import ResourceSlice
from webhook.api.taints import NO_EXECUTE, DeviceTaint
from webhook.inventory.hardware import siblings_of_slice
from webhook.inventory.impact import Taint, impact_on_devices, with_companions, with_gangs
from webhook.inventory.pools import Evictor
from webhook.inventory.rule_delta import EFFECT_RANK
from webhook.inventory.state import Inventory
from webhook.patches.filters import DeviceSelectors
from webhook.patches.overriding import arrived, changed_settings, overridden
from webhook.patches.published import BASIC, ORIGINALS, content_of, written_devices
from webhook.policy.model import PolicyMode
from webhook.validation.device_objects import device_faults
from webhook.validation.objects import decoding_errors
from webhook.validation.releases import NEWEST
from webhook.validation.slices import SPEC

if TYPE_CHECKING:
    from webhook.admission.defaulting import Edit

_DEVICES: Final = SPEC.child("devices")
TaintId = tuple[str, str, str]
"""Of a taint in a pool: device, key, value."""


def guard_slice(new: ResourceSlice, old: ResourceSlice | None, context: AdmissionContext) -> GuardFindings:
    """Return figures of the taints that begin to evict with this slice. Raises OutOfTime."""
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
        for device, taint in _evicting(new)
        if (identity := (device, taint.key, taint.value)) not in known
        and not context.recently_had(new.driver, new.pool, identity)
    ]
    if not fresh:
        return SILENT
    if inventory is None:
        text = f"the impact of its new taints is not known: {context.sight.unknown}"
        return GuardFindings((warn(_DEVICES, text),), {"impact": f"unknown: {context.sight.unknown}"})
    return _measured(new, fresh, inventory, context)


def _measured(
    new: ResourceSlice, fresh: list[tuple[str, DeviceTaint]], inventory: Inventory, context: AdmissionContext
) -> GuardFindings:
    check = partial(context.budget.check, "impact")
    check()
    taints: dict[str, list[Taint]] = {}
    for device, taint in fresh:
        taints.setdefault(device, []).append(Taint.of_slice(taint, in_tree=context.in_tree))
    impact = impact_on_devices(inventory, (new.driver, new.pool), taints, context.now, check)
    evictor = Evictor.IN_TREE if context.in_tree else Evictor.OURS
    impact = with_companions(inventory, impact, evictor, context.pods, check)
    impact = structs.replace(
        with_gangs(inventory, impact, context.pods, check),
        siblings=siblings_of_slice(inventory, new, dict.fromkeys(taints, EFFECT_RANK[NO_EXECUTE]), check),
    )
    findings = tuple(warn(_DEVICES, text) for text in slice_figures_of(impact, context.servers))
    return GuardFindings(findings, {"impact": annotation_of(impact, acts=True, over=())})


def evicting(slices: Iterable[ResourceSlice]) -> set[TaintId]:
    """Return NoExecute taints of a pool's slices, of any generation: drivers put the old ones on new slices."""
    return {(device, taint.key, taint.value) for value in slices for device, taint in _evicting(value)}


def _evicting(value: ResourceSlice) -> Iterator[tuple[str, DeviceTaint]]:
    """Yield the NoExecute taints of a slice, by device."""
    for device in value.devices:
        for taint in device.taints:
            if taint.effect == NO_EXECUTE:
                yield device.name, taint
    for entry in value.slice_taints:
        if entry.taint.effect == NO_EXECUTE:
            yield entry.device, entry.taint


# --- what /mutate puts into a slice for patches ---------------------------------------------------

REVIEW_STEPS: Final = 2_000_000
"""Of all CEL evaluations of a review together: less than a second. Usual selectors take ten for each device."""


def attribute_edits(
    new: ResourceSlice, old: ResourceSlice | None, request: AdmissionRequest, context: AdmissionContext
) -> Iterator[Edit]:
    """Yield what patches set in a slice that is created (`old` is None) or updated. Raises OutOfTime.

    What a patch cannot do is left undone, and the controller of patches says so on the patch.
    """
    patches = context.slice_patches
    if patches is None:
        return
    known = any(ORIGINALS in each.meta.annotations for each in (new, old) if each is not None)
    if not patches.patches and not known:
        return
    if any(
        decoding_errors(request.object, GroupVersionKind.parse(request.object["apiVersion"], "ResourceSlice"), NEWEST)
    ):
        return  # the API server will say so
    same_spec = old is not None and request.object.get("spec") == request.old_object.get("spec")
    found = arrived(new, old, same_spec=same_spec)
    check, faults_of = partial(context.budget.check, "patches"), device_faults(request.object["spec"])
    overrides = patches.overrides(found, DeviceSelectors(REVIEW_STEPS), check)

    def faults(device: dict[str, JSON]) -> list[str]:
        check()
        return faults_of(device)

    result = overridden(found, overrides, patches.ranking, faults)
    devices = written_devices(new)
    for position, setting, value in changed_settings(new, result):
        below = (BASIC,) if content_of(devices[position][1]) is not devices[position][1] else ()
        yield ("spec", "devices", position, *below, *setting), REMOVED if value is None else value
    if result.annotation != new.meta.annotations.get(ORIGINALS, ""):
        yield ("metadata", "annotations", ORIGINALS), result.annotation or REMOVED
