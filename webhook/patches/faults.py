"""CEL faults of a filter, counted by selector, as there may be one for each device. `semantics.md` P-16."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.counts import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from webhook.inventory.published import DeviceId

EXAMPLES_MAX: Final = 3
"""Devices that are named in an Event or a condition."""


class FaultExample(NamedTuple):
    """A device on which a selector failed, and how."""

    device: DeviceId
    detail: str


class SelectorFaults(NamedTuple):
    """The devices that one selector of a filter failed on. `where` is the selector, as in a PatchFault."""

    where: str
    devices: int
    """How many."""
    examples: tuple[FaultExample, ...]
    """The first few, by device."""

    def __str__(self) -> str:
        shown = ", ".join([f"{device} ({detail})" for device, detail in self.examples])
        more = self.devices - len(self.examples)
        return f"{self.where} fails on {counted(self.devices, 'device')}: {shown}{f' and {more} more' if more else ''}"


class FaultTally:
    """Counts the faults of one pool."""

    def __init__(self) -> None:
        self._found: dict[str, list[FaultExample]] = {}
        self._counts: dict[str, int] = {}

    def add(self, where: str, device: DeviceId, detail: str) -> None:
        """One more device."""
        self._counts[where] = self._counts.get(where, 0) + 1
        self._found.setdefault(where, []).append(FaultExample(device, detail))

    def counted(self) -> tuple[SelectorFaults, ...]:
        """By selector."""
        return tuple(
            [
                SelectorFaults(where, self._counts[where], tuple(heapq.nsmallest(EXAMPLES_MAX, found)))
                for where, found in sorted(self._found.items())
            ]
        )


def summed_faults(faults: Iterable[SelectorFaults]) -> tuple[SelectorFaults, ...]:
    """Those of several pools together, by selector."""
    counts: dict[str, int] = {}
    examples: dict[str, list[FaultExample]] = {}
    for each in faults:
        counts[each.where] = counts.get(each.where, 0) + each.devices
        known = examples.setdefault(each.where, [])
        known[:] = heapq.nsmallest(EXAMPLES_MAX, [*known, *each.examples])
    return tuple([SelectorFaults(where, counts[where], tuple(examples[where])) for where in sorted(counts)])


class FaultNotes:
    """What the last Event of each patch and selector said."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, str]] = {}

    def due(self, uid: str, faults: Sequence[SelectorFaults]) -> list[str]:
        """The texts of Events that are due for a patch, by its uid, now that these are all of its faults."""
        before = self._said.pop(uid, {})
        now = {each.where: str(each) for each in faults}
        if now:
            self._said[uid] = now
        return [text for where, text in now.items() if before.get(where) != text]
