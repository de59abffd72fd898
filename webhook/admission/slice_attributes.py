"""What `/mutate` puts into a ResourceSlice for patches: attributes and capacity, and the annotation that undoes it.

Never refuses anything: a driver whose slice is refused loses its devices. What a patch cannot do is left undone, and
the controller of patches says so on the patch.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from webhook.admission.jsonpatch import REMOVED
from webhook.api.meta import GroupVersionKind
from webhook.inventory.device_selectors import DeviceSelectors
from webhook.inventory.overriding import (
    BASIC,
    ORIGINALS,
    arrived,
    changed_settings,
    content_of,
    overridden,
    written_devices,
)
from webhook.validation.device_faults import device_faults
from webhook.validation.objects import decoding_errors
from webhook.validation.releases import NEWEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.admission.context import AdmissionContext
    from webhook.admission.defaulting import Edit
    from webhook.admission.review import AdmissionRequest
    from webhook.api.field import JSON
    from webhook.api.slices import ResourceSlice

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
