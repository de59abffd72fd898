"""The patches that change ResourceSlices themselves, and what they say about a slice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from webhook.api.device_classes import DeviceClassSelectors
from webhook.api.meta import ObjectMeta
from webhook.api.patches import ResourceSlicePatch
from webhook.inventory.overriding import overrides_of
from webhook.inventory.patching import by_precedence, effective_devices
from webhook.inventory.pools import Pools
from webhook.inventory.steps import unchecked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.api.slices import ResourceSlice
    from webhook.inventory.device_filter import CompilesSelectors
    from webhook.inventory.overriding import Arrived, DeviceOverrides
    from webhook.inventory.steps import Check


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
        """Those of all patches that matter here."""
        return cls(tuple(by_precedence([each for each in patches if each.attributes or each.capacity])), classes)

    def overrides(
        self, found: Arrived, compiles: CompilesSelectors, check: Check = unchecked
    ) -> Mapping[str, DeviceOverrides]:
        """What is set on each device of a slice, judged by what its driver publishes (P-15).

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
        """Whether a patch may select devices of a slice, by the names of driver and pool."""
        selector = patch.filter
        return selector is None or (selector.driver in (None, value.driver) and selector.pool in (None, value.pool))

    @property
    def ranking(self) -> tuple[str, ...]:
        """The names of the patches, in that order."""
        return tuple([each.meta.name for each in self.patches])
