"""What has become of a patch's attributes and capacity in slices, as its condition `AttributesApplied` says it."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.counts import counted
from webhook.api.rules import Condition
from webhook.inventory.overriding import ORIGINALS_MAX_BYTES, Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

ATTRIBUTES_APPLIED: Final = "AttributesApplied"
TOO_MANY_ORIGINALS: Final = "TooManyOriginals"
DEVICE_INVALID: Final = "DeviceInvalid"
SLICES_PENDING: Final = "SlicesPending"
EXAMPLES_MAX: Final = 3
"""Slices that are named."""


class AppliedAttributes(NamedTuple):
    """What the status of a patch says about slices."""

    patched: int = 0
    """Devices of which it sets an attribute or a capacity."""
    condition: Condition | None = None
    """None for a patch that sets none, and where patches are not put into slices."""


class PatchInSlices(NamedTuple):
    """One patch in all slices that are written; slices by name."""

    patched: int = 0
    invalid: Mapping[str, tuple[Refusal, ...]] = {}
    """Devices that it would make invalid, by slice."""
    beyond: tuple[str, ...] = ()
    """Slices in which the originals do not fit."""
    pending: tuple[str, ...] = ()
    """Slices that are still to be written; what it sets there is not in `patched`."""

    def condition(self, problems: Mapping[str, str]) -> Condition:
        """Without time and generation. `problems`: why slices could not be written, by name."""
        reason, parts = "", []
        if self.beyond:
            reason = TOO_MANY_ORIGINALS
            limit = f"the drivers' own values would take more than {ORIGINALS_MAX_BYTES} bytes"
            parts.append(f"not applied in {counted(len(self.beyond), 'slice')}, where {limit}: {_named(self.beyond)}")
        if self.invalid:
            reason = reason or DEVICE_INVALID
            shown = {name: f"{name} ({each[0].device}: {each[0].reason})" for name, each in self.invalid.items()}
            devices = sum([len(each) for each in self.invalid.values()])
            number = counted(devices, "device")
            where = counted(len(self.invalid), "slice")
            parts.append(f"not applied to {number} in {where}, which would be invalid: {_named(self.invalid, shown)}")
        if self.pending:
            reason = reason or SLICES_PENDING
            shown = {name: f"{name} ({problems[name]})" for name in self.pending if name in problems}
            parts.append(f"{counted(len(self.pending), 'slice')} still to be written: {_named(self.pending, shown)}")
        if reason:
            return Condition(ATTRIBUTES_APPLIED, "False", reason, "; ".join(parts))
        return Condition(ATTRIBUTES_APPLIED, "True", ATTRIBUTES_APPLIED, "the slices have what the patch sets")


def _named(slices: Collection[str], shown: Mapping[str, str] | None = None) -> str:
    """The first slices, each as it is shown or by its name, and how many more there are."""
    texts = [(shown or {}).get(name, name) for name in heapq.nsmallest(EXAMPLES_MAX, slices)]
    more = len(slices) - len(texts)
    return ", ".join(texts) + (f" and {more} more" if more else "")
