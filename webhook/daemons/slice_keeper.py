"""Keeps attributes and capacity of patches in the slices: has those written again that are not as they should be.

What is to be written follows from each slice alone, so a change costs a look at the slices that it may concern. That
is worked out beside the event loop, a few slices at a time; `/mutate` does the writing (`cluster.patch_writer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, NoReturn

from webhook.api.slices import DeviceClassSelectors, ResourceSlice
from webhook.cluster.patch_writer import SliceToucher
from webhook.flowcontrol.loop import Again, Loop, together
from webhook.patches.filters import DeviceSelectors
from webhook.patches.overriding import Faults
from webhook.patches.slice_patches import (
    ATTRIBUTES_APPLIED,
    AppliedAttributes,
    SliceLedger,
    SlicePatches,
    SliceWork,
    slice_work,
)
from webhook.patches.stored import StoredPatch
from webhook.validation.device_objects import device_faults

AT_ONCE: Final = 16
"""Slices that are worked out together."""
PAUSE_SECONDS: Final = 1.0
"""From one pass to the next, so that a patch that many slices come in for has its status written once a second."""
PENDING_SECONDS: Final = 5.0
"""How often it is looked why slices are still to be written."""
SLICE_STEPS: Final = 2_000_000
"""Of all CEL evaluations for a slice together, as in a review."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperParts:
    """What the keeper needs. `current`: whether this process may write, and knows enough to.

    `report` is called with the names of patches whose outcome has changed.
    `pause_seconds`: from one pass to the next.
    """

    toucher: SliceToucher
    current: Callable[[], bool]
    report: Callable[[Collection[str]], None]
    pause_seconds: float = PAUSE_SECONDS


class SliceKeeper:
    """One event loop calls `observe_...`, `run` works."""

    def __init__(self, parts: KeeperParts) -> None:
        self._parts = parts
        self._ledger = SliceLedger()
        self._loop = Loop(self._keep)
        self._problems: dict[str, str] = {}
        self._complete = False
        """Whether every slice was looked at since the last change."""
        self._asked: set[str] = set()
        """Patches that were asked about while it was not."""

    # --- changes ---------------------------------------------------------------------------------

    def observe_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """Note that a slice came, changed or went."""
        self._ledger.apply_slice(old, new)
        self._wake()

    def observe_class(self, name: str, new: DeviceClassSelectors | None) -> None:
        """Note that a DeviceClass came, changed or, if it is None, went."""
        self._ledger.apply_class(name, new)
        self._wake()

    def observe_patch(self, name: str, new: StoredPatch | None) -> None:
        """Note that a patch came, changed or went. One being deleted counts until it is gone, as in `/mutate`."""
        self._ledger.apply_patch(name, None if new is None else new.patch)
        self._wake()

    @property
    def pending(self) -> int:
        """How many slices are not as patches say, if this process writes them."""
        return len(self._ledger.touch) if self._parts.current() else 0

    def _wake(self) -> None:
        if self._ledger.open:
            self._complete = False
        self._loop.wake()

    # --- the work --------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Work until it is cancelled."""
        await together(self._parts.toucher.run(), self._loop.run())

    async def _keep(self) -> Again:
        """Look at slices if that may be done; again in a while if some are still to be written, to see why."""
        pause, ledger = self._parts.pause_seconds, self._ledger
        if not self._parts.current():
            return Again(0, pause)
        await self._pass()
        return Again(PENDING_SECONDS if ledger.touch or ledger.open else None, pause)

    async def _pass(self) -> None:
        """Look at all slices that have to be, and have those written that are not as they should be."""
        ledger, parts = self._ledger, self._parts
        while ledger.open and parts.current():
            some = ledger.take(AT_ONCE)
            works = await asyncio.to_thread(_works, some, ledger.patches)
            for value, work in zip(some, works, strict=True):
                ledger.put(value, work)
            parts.toucher.want(ledger.touch)
        if ledger.open:
            return
        self._complete = True
        parts.toucher.want(ledger.touch)
        problems = dict(parts.toucher.problems)
        others = [name for name in {*problems, *self._problems} if problems.get(name) != self._problems.get(name)]
        self._problems = problems
        changed = {*ledger.take_changed(), *ledger.pending(others), *self._asked}
        self._asked.clear()
        if changed:
            parts.report(changed)

    # --- what users see --------------------------------------------------------------------------

    def applied(self, stored: StoredPatch) -> AppliedAttributes:
        """Return what its status should say; what it says now, while slices are being looked at."""
        name = stored.meta.name
        if not self._complete:
            self._asked.add(name)
            said = [each for each in stored.status.conditions if each.type == ATTRIBUTES_APPLIED]
            return AppliedAttributes(stored.status.patched_devices, said[0] if said else None)
        if not self._ledger.sets(name):
            return AppliedAttributes()
        found = self._ledger.of(name)
        return AppliedAttributes(found.patched, found.condition(self._problems))


def _works(slices: list[ResourceSlice], patches: SlicePatches) -> list[SliceWork]:
    """Work out each slice by itself."""
    return [slice_work(each, patches, DeviceSelectors(SLICE_STEPS), _faults_of(each)) for each in slices]


def _faults_of(value: ResourceSlice) -> Faults:
    """Return faults as `/mutate` finds them, so that it is not asked for what it will not do."""
    named = {} if value.partition_type is None else {"partitionTypeAttribute": value.partition_type}
    return device_faults({"driver": value.driver, **named})
