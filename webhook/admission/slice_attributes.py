"""What `/mutate` puts into a ResourceSlice for patches: attributes and capacity, and the annotation that undoes it.

Never refuses anything: a driver whose slice is refused loses its devices. What a patch cannot do is left undone, and
the controller of patches says so on the patch.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from webhook.admission.jsonpatch import REMOVED
from webhook.inventory.device_selectors import DeviceSelectors
from webhook.inventory.originals import BASIC, ORIGINALS, content_of, same, settings_of, written_devices
from webhook.inventory.overriding import arrived, overridden
from webhook.validation.device_faults import device_faults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.admission.context import AdmissionContext
    from webhook.admission.defaulting import Edit
    from webhook.admission.jsonpatch import Pointer
    from webhook.admission.review import AdmissionRequest
    from webhook.api.slices import ResourceSlice
    from webhook.inventory.overriding import Rewritten

REVIEW_STEPS: Final = 2_000_000
"""Of all CEL evaluations of a review together: less than a second. Usual selectors take ten for each device."""


def attribute_edits(
    new: ResourceSlice, old: ResourceSlice | None, request: AdmissionRequest, context: AdmissionContext
) -> Iterator[Edit]:
    """What to set in a slice that is created (`old` is None) or updated. Raises OutOfTime."""
    patches = context.slice_patches
    if patches is None:
        return
    known = any(ORIGINALS in each.meta.annotations for each in (new, old) if each is not None)
    if not patches.patches and not known:
        return
    same_spec = old is not None and request.object.get("spec") == request.old_object.get("spec")
    found = arrived(new, old, context.now, same_spec=same_spec)
    overrides = patches.overrides(found, DeviceSelectors(REVIEW_STEPS), partial(context.budget.check, "patches"))
    result = overridden(found, overrides, patches.ranking, context.now, device_faults(request.object))
    yield from _device_edits(new, result)
    if result.annotation != new.meta.annotations.get(ORIGINALS, ""):
        yield ("metadata", "annotations", ORIGINALS), result.annotation or REMOVED


def _device_edits(new: ResourceSlice, result: Rewritten) -> Iterator[Edit]:
    for position, (name, raw) in enumerate(written_devices(new)):
        at: Pointer = ("spec", "devices", position, *(() if content_of(raw) is raw else (BASIC,)))
        given, wanted = settings_of(raw), result.devices[name]
        for setting in given:
            if setting not in wanted:
                yield (*at, *setting), REMOVED
        for setting, value in wanted.items():
            if not same(setting.kind, given.get(setting), value):
                yield (*at, *setting), value
