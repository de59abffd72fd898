"""Whether an API server would still take a slice once attributes and capacities of a device were changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.validation.device_objects import capacity_errors, count_errors
from webhook.validation.nodes import Node
from webhook.validation.releases import NEWEST
from webhook.validation.slice_objects import partition_type_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.field import JSON


def device_faults(spec: dict[str, JSON]) -> Callable[[dict[str, JSON]], list[str]]:
    """For the `spec` of a slice of the right types: what would be wrong with it by such a change of a device.

    Values are right by themselves: they come from a patch or from a driver. Of the `spec` only `driver` and
    `partitionTypeAttribute` matter.
    """
    named = spec.get("partitionTypeAttribute") is not None

    def faults(device: dict[str, JSON]) -> list[str]:
        basic = isinstance(device.get("basic"), dict)
        content = Node.of(device["basic"] if basic else device)
        found = [*count_errors(content), *capacity_errors(content, NEWEST)]
        if named:
            alone = Node.of({**spec, "devices": [device]})
            found += partition_type_errors(alone, "v1beta1" if basic else "v1", NEWEST)
        return [str(error) for error in found]

    return faults
