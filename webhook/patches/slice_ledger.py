"""Which slices have to be looked at again because of patches, and what came of it: slice by slice, never all at once.

The caller takes a few slices at a time, works out what `/mutate` would make of them (`patches.slice_patches`), beside
its event loop if it likes, and puts down the result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from webhook.api.patches import ResourceSlicePatch
from webhook.api.slices import DeviceClassSelectors, ResourceSlice
from webhook.patches.overriding import Refusal
from webhook.patches.slice_patches import SlicePatches, SliceWork
from webhook.patches.status import PatchInSlices


class _Entry(NamedTuple):
    """What came of a slice; kept only where something did."""

    touch: bool
    refused: tuple[Refusal, ...]
    patched: Mapping[str, int]

    @property
    def patches(self) -> set[str]:
        return {*self.patched, *[each.patch for each in self.refused]}


class SliceLedger:
    """Slices, patches and classes in; slices to look at and what has become of patches out."""

    def __init__(self) -> None:
        self._slices: dict[str, ResourceSlice] = {}
        self._patches: dict[str, ResourceSlicePatch] = {}
        self._classes: dict[str, DeviceClassSelectors] = {}
        self._current: SlicePatches | None = None
        self._open: dict[str, None] = {}
        self._entries: dict[str, _Entry] = {}
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
                if any(SlicePatches.may_concern(each, value) for each in patches):
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
            patched = {patch: number for patch, number in work.patched.items() if number}
            self._enter(name, _Entry(bool(work.touch), work.refused.get(name, ()), patched))

    def _enter(self, name: str, new: _Entry | None) -> None:
        old = self._entries.pop(name, None)
        if new is not None and (new.touch or new.refused or new.patched):
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
