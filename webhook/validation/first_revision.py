"""What only the first revision of KEP-5055 asks of a slice. `semantics.md` V-3, P-20, P-21."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE
from webhook.validation.slices import slice_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.api.field import FieldError
    from webhook.api.slices import ResourceSlice
    from webhook.validation.releases import Release

TAINTS_PER_DEVICE: Final = 8
_EFFECTS: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})


def first_revision_slice_errors(
    new: ResourceSlice, old: ResourceSlice | None, release: Release
) -> Iterator[FieldError]:
    """As any slice, with at most eight taints a device and without the effect None."""
    most = min(TAINTS_PER_DEVICE, release.taints_per_device)  # 1.33 serves v1alpha3 with its own, lower limit
    yield from slice_errors(new, old, replace(release, taints_per_device=most, effects=_EFFECTS))
