"""The patches that change ResourceSlices themselves, what they say about a slice, and which slices to write again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec import structs

from webhook.api.meta import ObjectMeta
from webhook.api.patches import ResourceSlicePatch
from webhook.api.slices import DeviceClassSelectors, ResourceSlice
from webhook.inventory.pools import Check, Pools, in_steps, unchecked
from webhook.patches.filters import CompilesSelectors
from webhook.patches.overriding import (
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
        patches = [each for each in self.patches if self.may_concern(each, found.value)]
        if not patches:
            return {}
        pools = Pools()
        meta = ObjectMeta(found.value.meta.name)
        pools.apply(None, structs.replace(found.value, meta=meta, raw_devices=list(found.devices)))
        effective = effective_devices(pools, patches, self.classes, compiles, check)
        return {address.device: overrides_of(device) for address, device in effective.devices.items()}

    @staticmethod
    def may_concern(patch: ResourceSlicePatch, value: ResourceSlice) -> bool:
        """Return whether a patch may select devices of a slice, by the names of driver and pool."""
        selector = patch.selector
        return selector.driver in (None, value.driver) and selector.pool in (None, value.pool)

    @property
    def ranking(self) -> tuple[str, ...]:
        """The names of the patches, in that order."""
        return tuple([each.meta.name for each in self.patches])


FaultsOf = Callable[["ResourceSlice"], "Faults"]


class SliceWork(NamedTuple):
    """What the controller of patches does about slices."""

    touch: tuple[str, ...]
    """Slices that are not what `/mutate` would make of them, by name."""
    refused: Mapping[str, tuple[Refusal, ...]]
    """What is not carried out, by slice."""
    patched: Mapping[str, int]
    """Devices that each patch changes, by patch; all patches that set anything."""


def slice_work(
    slices: Iterable[ResourceSlice],
    patches: SlicePatches,
    compiles: CompilesSelectors,
    faults_of: FaultsOf,
    check: Check = unchecked,
) -> SliceWork:
    """Return the work on slices as they are stored, and their devices. `check`, called now and then, may raise."""
    touch: list[str] = []
    refused: dict[str, tuple[Refusal, ...]] = {}
    patched = Counter(dict.fromkeys(patches.ranking, 0))
    for value in in_steps(slices, check):
        given = value.meta.annotations.get(ORIGINALS, "")
        if not patches.known or not (patches.patches or given):
            continue
        found = arrived(value, value, same_spec=True)
        overrides = patches.overrides(found, compiles, check)
        result = overridden(found, overrides, patches.ranking, faults_of(value))
        if result.annotation != given or next(changed_settings(value, result), None) is not None:
            touch.append(value.meta.name)
        if result.refused:
            refused[value.meta.name] = result.refused
        left_out = {(each.patch, each.device) for each in result.refused}
        for device, origins in overrides.items():
            winners = {each.patch for each in origins.values()}
            patched.update([each for each in winners if not left_out & {(each, device), (each, None)}])
    return SliceWork(tuple(sorted(touch)), dict(sorted(refused.items())), dict(patched))
