"""Patches that change ResourceSlices themselves: what they say about a slice, which to write again, what came of it.

Slice by slice, never all at once: the caller takes a few slices from the ledger at a time, works out what `/mutate`
would make of them (`slice_work`), beside its event loop if it likes, and puts down the result.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from webhook.api.messages import counted
from webhook.api.meta import ObjectMeta
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import Condition
from webhook.api.slices import DeviceClassSelectors, ResourceSlice
from webhook.inventory.pools import Check, Pools, names_pool, unchecked
from webhook.patches.filters import CompilesSelectors
from webhook.patches.overriding import (
    ORIGINALS_MAX_BYTES,
    Arrived,
    DeviceOverrides,
    Faults,
    Refusal,
    arrived,
    changed_settings,
    overridden,
    overrides_of,
)
from webhook.patches.patching import by_precedence, effective_devices
from webhook.patches.published import ORIGINALS


class SlicePatches(msgspec.Struct, frozen=True):
    """The patches that set attributes or capacity, and the device classes.

    Without `known` the cluster was not read yet: then what is overridden stays so.
    """

    patches: tuple[ResourceSlicePatch, ...] = ()
    """The one that wins most comes first."""
    classes: Mapping[str, DeviceClassSelectors] = {}
    known: bool = True

    @classmethod
    def of(cls, patches: Iterable[ResourceSlicePatch], classes: Mapping[str, DeviceClassSelectors]) -> SlicePatches:
        """Return those of all patches that matter here."""
        return cls(tuple(by_precedence([each for each in patches if each.attributes or each.capacity])), classes)

    def overrides(
        self, found: Arrived, compiles: CompilesSelectors, check: Check = unchecked
    ) -> Mapping[str, DeviceOverrides]:
        """Return what is set on each device of a slice, judged by what its driver publishes (P-15).

        `check` is called now and then, and may raise.
        """
        if not self.known:
            return found.unchanged
        identity = found.value.driver, found.value.pool
        patches = [each for each in self.patches if names_pool(each.selector, identity)]
        if not patches:
            return {}
        pools = Pools()
        meta = ObjectMeta(found.value.meta.name)
        pools.apply(None, structs.replace(found.value, meta=meta, raw_devices=list(found.devices)))
        effective = effective_devices(pools, patches, self.classes, compiles, check)
        return {address.device: overrides_of(device) for address, device in effective.devices.items()}

    @property
    def ranking(self) -> tuple[str, ...]:
        """The names of the patches, in that order."""
        return tuple([each.meta.name for each in self.patches])


class SliceWork(NamedTuple):
    """What the controller of patches does about a slice, and what has become of patches in it."""

    touch: bool = False
    """It is not what `/mutate` would make of it."""
    refused: tuple[Refusal, ...] = ()
    """What is not carried out."""
    patched: Mapping[str, int] = {}
    """Devices that each patch changes, by patch."""

    @property
    def patches(self) -> set[str]:
        """The patches that it says something of."""
        return {*self.patched, *[each.patch for each in self.refused]}


def slice_work(value: ResourceSlice, patches: SlicePatches, compiles: CompilesSelectors, faults: Faults) -> SliceWork:
    """Return the work on a slice as it is stored, and its devices."""
    given = value.meta.annotations.get(ORIGINALS, "")
    if not patches.known or not (patches.patches or given):
        return SliceWork()
    found = arrived(value, value, same_spec=True)
    overrides = patches.overrides(found, compiles)
    result = overridden(found, overrides, patches.ranking, faults)
    touch = result.annotation != given or next(changed_settings(value, result), None) is not None
    left_out = {(each.patch, each.device) for each in result.refused}
    patched = Counter[str]()
    for device, origins in overrides.items():
        winners = {each.patch for each in origins.values()}
        patched.update([each for each in winners if not left_out & {(each, device), (each, None)}])
    return SliceWork(touch, result.refused, dict(patched))


ATTRIBUTES_APPLIED: Final = "AttributesApplied"
TOO_MANY_ORIGINALS: Final = "TooManyOriginals"
DEVICE_INVALID: Final = "DeviceInvalid"
SLICES_PENDING: Final = "SlicesPending"
EXAMPLES_MAX: Final = 3
"""Slices that are named."""


class AppliedAttributes(NamedTuple):
    """What the status of a patch says about slices."""

    patched: int = 0
    """Devices on which it sets an attribute or a capacity."""
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
        """Make the condition, without time and generation. `problems`: why slices were not written, by name."""
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
    """Return the first slices, each as it is shown or by its name, and how many more there are."""
    texts = [(shown or {}).get(name, name) for name in heapq.nsmallest(EXAMPLES_MAX, slices)]
    more = len(slices) - len(texts)
    return ", ".join(texts) + (f" and {more} more" if more else "")


class SliceLedger:
    """Slices, patches and classes in; slices to look at and what has become of patches out."""

    def __init__(self) -> None:
        self._slices: dict[str, ResourceSlice] = {}
        self._patches: dict[str, ResourceSlicePatch] = {}
        self._classes: dict[str, DeviceClassSelectors] = {}
        self._current: SlicePatches | None = None
        self._open: dict[str, None] = {}
        self._entries: dict[str, SliceWork] = {}
        """Only those with something in them."""
        self._of_patch: defaultdict[str, set[str]] = defaultdict(set)
        self._changed: set[str] = set()
        self._touch: set[str] = set()

    # --- changes ---------------------------------------------------------------------------------

    def apply_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """Note that a slice came, changed or went."""
        if new is not None:
            self._slices[new.meta.name] = new
            self._open[new.meta.name] = None
        elif old is not None:
            self._slices.pop(old.meta.name, None)
            self._open.pop(old.meta.name, None)
            self._enter(old.meta.name, None)

    def apply_patch(self, name: str, new: ResourceSlicePatch | None) -> None:
        """Note that a patch came, changed or, if it is None, went."""
        old = self._patches.get(name)
        if new is not None and not (new.attributes or new.capacity):
            new = None
        if old is not None and new is not None and _meaning(old) == _meaning(new):
            return
        self._patches.pop(name, None)
        if new is not None:
            self._patches[name] = new
        either = [each for each in (old, new) if each is not None]
        if either:
            self._changed.add(name)
            self._look_at(either)

    def apply_class(self, name: str, new: DeviceClassSelectors | None) -> None:
        """Note that a DeviceClass came, changed or, if it is None, went."""
        if self._classes.get(name) == new:
            return
        self._classes.pop(name, None)
        if new is not None:
            self._classes[name] = new
        self._current = None
        self._look_at([each for each in self._patches.values() if each.selector.device_class_name == name])

    def _look_at(self, patches: list[ResourceSlicePatch]) -> None:
        """Look again at slices that these patches may concern by their names."""
        if patches:
            self._current = None
            for name, value in self._slices.items():
                if any(names_pool(each.selector, (value.driver, value.pool)) for each in patches):
                    self._open[name] = None

    # --- the work --------------------------------------------------------------------------------

    @property
    def patches(self) -> SlicePatches:
        """The patches that matter, with copies of all that may change."""
        if self._current is None:
            self._current = SlicePatches.of(self._patches.values(), dict(self._classes))
        return self._current

    @property
    def open(self) -> bool:
        """Whether there are slices to look at."""
        return bool(self._open)

    def take(self, most: int) -> list[ResourceSlice]:
        """Take the next slices to look at; whatever changes from now on has them looked at once more."""
        names = list(islice(self._open, most))
        for name in names:
            del self._open[name]
        return [self._slices[name] for name in names]

    def put(self, value: ResourceSlice, work: SliceWork) -> None:
        """Note what came of a slice that was taken; nothing if it has changed since, as then it comes again."""
        name = value.meta.name
        if self._slices.get(name) is value:
            self._enter(name, work)

    def _enter(self, name: str, new: SliceWork | None) -> None:
        old = self._entries.pop(name, None)
        if new is not None and new != SliceWork():
            self._entries[name] = new
        self._touch.discard(name)
        if new is not None and new.touch:
            self._touch.add(name)
        if old is not None and new is not None and old == new:
            return
        for patch in old.patches if old is not None else ():
            self._of_patch[patch].discard(name)
            self._changed.add(patch)
        for patch in new.patches if new is not None else ():
            self._of_patch[patch].add(name)
            self._changed.add(patch)

    # --- what came of it -------------------------------------------------------------------------

    @property
    def touch(self) -> frozenset[str]:
        """Slices that have to be written again, by name."""
        return frozenset(self._touch)

    def take_changed(self) -> set[str]:
        """Return patches, by name, whose outcome has changed since the last time; maybe some that are gone."""
        found, self._changed = self._changed, set()
        for name in found - self._patches.keys():
            if not self._of_patch.get(name):
                self._of_patch.pop(name, None)
        return found

    def pending(self, slices: Iterable[str]) -> set[str]:
        """Return the patches that are not in these slices yet."""
        return {patch for name in slices if name in self._entries for patch in self._entries[name].patches}

    def sets(self, patch: str) -> bool:
        """Return whether it sets attributes or capacity at all."""
        return patch in self._patches

    def of(self, patch: str) -> PatchInSlices:
        """Return what has become of a patch."""
        patched, pending, beyond = 0, [], []
        invalid: dict[str, tuple[Refusal, ...]] = {}
        for name in self._of_patch.get(patch, ()):
            entry = self._entries[name]
            refused = [each for each in entry.refused if each.patch == patch]
            if any(each.device is None for each in refused):
                beyond.append(name)
            elif refused:
                invalid[name] = tuple(refused)
            number = entry.patched.get(patch, 0)
            if entry.touch and number:
                pending.append(name)
            else:
                patched += number
        return PatchInSlices(patched, invalid, tuple(beyond), tuple(pending))


def _meaning(patch: ResourceSlicePatch) -> tuple[object, ...]:
    """Return all that slices depend on."""
    return patch.filter, patch.priority, patch.attributes, patch.capacity, patch.created
