"""Whether an API server would still take a slice once one of its devices was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.api.meta import GroupVersionKind
from webhook.validation.objects import object_errors
from webhook.validation.releases import NEWEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.field import JSON


def device_faults(manifest: JSON) -> Callable[[dict[str, JSON]], list[str]]:
    """For a slice: what would be wrong with it if this were its only device."""
    spec, kind = manifest.get("spec"), GroupVersionKind.parse(manifest.get("apiVersion", ""), "ResourceSlice")
    rest = {**manifest, "metadata": {"name": "slice"}, "spec": spec}

    def faults(device: dict[str, JSON]) -> list[str]:
        alone = {**rest, "spec": {**spec, "devices": [device]}}
        return [str(error) for error in object_errors(alone, None, kind, NEWEST)]

    return faults
