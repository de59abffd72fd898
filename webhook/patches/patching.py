"""What patches make of the published devices.

Source: KEP-5027, first revision of KEP-5055; `semantics.md` P-2, P-8 to P-17, P-22, K-9.

Filters are matched against devices as they are published, never against patched ones (P-15): so a patch selects the
same devices whatever other patches there are, and the order of patches does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from webhook.api.field import JSON
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import DeviceSelector
from webhook.api.slices import DeviceClassSelectors
from webhook.api.taints import DeviceTaint
from webhook.inventory.pools import Check, PoolId, Pools, in_steps, unchecked
from webhook.inventory.targets import DeviceId
from webhook.patches.filters import CannotFilterError, CompilesSelectors, DeviceTest, answer_of, tests_of
from webhook.patches.published import PublishedDevice, published_devices

NULL: Final = "null"
DEVICES_READ_AT_ONCE: Final = 100
_YOUNGEST: Final = datetime.max.replace(tzinfo=UTC)


class PatchFault(NamedTuple):
    """A device that a patch leaves out because a selector failed on it (P-16); `where` as in `PlacedTest`."""

    patch: str
    device: DeviceId
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.where}: device {self.device}: {self.detail}"


class Origin(NamedTuple):
    """What a patch sets on a device: `kind` is attribute, capacity or taint, `name` a name or the key of the taint."""

    kind: str
    name: str
    effect: str = ""


class PatchedDevice(msgspec.Struct, frozen=True):
    """A device that at least one patch selects, before and after. `origins` has the patch that won, by what it sets.

    A patch that removes an attribute is its origin too. Of the driver's taints those are left out whose key and effect
    a patch sets (P-22); the patches' taints follow them, the winning patch's first.
    """

    published: PublishedDevice
    attributes: Mapping[str, JSON]
    capacity: Mapping[str, JSON]
    taints: tuple[DeviceTaint, ...]
    origins: Mapping[Origin, str]


class EffectiveDevices(msgspec.Struct, frozen=True):
    """The devices that patches select, and what became of each patch."""

    devices: Mapping[DeviceId, PatchedDevice]
    selected: Mapping[str, tuple[DeviceId, ...]]
    """By the patch's name, all patches; in the order of the names of drivers, pools and devices."""
    faults: tuple[PatchFault, ...]
    """By patch, then by device."""
    inapplicable: Mapping[str, str]
    """Patches that select nothing because their filter cannot be judged, and why, such as a class that is missing."""


def by_precedence(patches: Iterable[ResourceSlicePatch]) -> list[ResourceSlicePatch]:
    """Order patches: the one that wins comes first, by priority, then the older, then by name (P-11, P-14).

    A patch without creation time is one that is yet to be created, and so the youngest.
    """
    return sorted(patches, key=lambda patch: (-patch.priority, patch.created or _YOUNGEST, patch.meta.name))


def origin_of(taint: DeviceTaint) -> Origin:
    """Return what a patch sets with a taint."""
    return Origin("taint", taint.key, taint.effect)


def taints_of_patch(patch: ResourceSlicePatch) -> Mapping[Origin, DeviceTaint]:
    """Return its taints, of the same key and effect only the last, as a later entry overwrites (P-22)."""
    return {origin_of(taint): taint for taint in patch.taints}


def effective_devices(
    pools: Pools,
    patches: Iterable[ResourceSlicePatch],
    classes: Mapping[str, DeviceClassSelectors],
    compiles: CompilesSelectors,
    check: Check = unchecked,
) -> EffectiveDevices:
    """Return what patches make of the newest generation of all pools. `check`, called now and then, may raise.

    Of two patches with the same name the last counts.
    """
    ranked = by_precedence({patch.meta.name: patch for patch in patches}.values())
    matching = _Matching(pools, classes, compiles, check)
    overlays: dict[DeviceId, _Overlay] = {}
    selected: dict[str, tuple[DeviceId, ...]] = {}
    for patch in ranked:
        found = sorted(in_steps(matching.devices(patch), check), key=lambda device: device.address)
        selected[patch.meta.name] = tuple([device.address for device in found])
        settings = _settings(patch)
        for device in in_steps(found, check):
            overlay = overlays.get(device.address)
            if overlay is None:
                overlay = overlays[device.address] = _Overlay(device)
            overlay.add(patch.meta.name, *settings)
    return EffectiveDevices(
        {address: overlay.device() for address, overlay in in_steps(sorted(overlays.items()), check)},
        dict(sorted(selected.items())),
        tuple(sorted(matching.faults)),
        dict(sorted(matching.inapplicable.items())),
    )


def _settings(patch: ResourceSlicePatch) -> tuple[Mapping[Origin, JSON], Mapping[Origin, DeviceTaint]]:
    """Return what a patch sets: attributes (None removes one) and capacities, and taints."""
    values: dict[Origin, JSON] = {}
    for attribute in patch.attributes:
        if len(attribute.kinds) == 1:  # else it has no value, and validation has said so
            (kind,) = attribute.kinds
            values[Origin("attribute", attribute.name)] = None if kind == NULL else {kind: attribute.value}
    for capacity in patch.capacity:
        values[Origin("capacity", capacity.name)] = {"value": capacity.value}
    return values, taints_of_patch(patch)


class _Overlay:
    """What patches set on one device. They are added in the order of precedence, so what is there already stays."""

    __slots__ = ("_origins", "_published", "_taints", "_values")

    def __init__(self, published: PublishedDevice) -> None:
        self._published = published
        self._values: dict[Origin, JSON] = {}
        self._taints: dict[Origin, DeviceTaint] = {}
        self._origins: dict[Origin, str] = {}

    def add(self, patch: str, values: Mapping[Origin, JSON], taints: Mapping[Origin, DeviceTaint]) -> None:
        """Add what the next patch sets (see `_settings`)."""
        origins = self._origins
        for origin, value in values.items():
            if origin not in origins:
                origins[origin] = patch
                self._values[origin] = value
        for origin, taint in taints.items():
            if origin not in origins:
                origins[origin] = patch
                self._taints[origin] = taint

    def device(self) -> PatchedDevice:
        published = self._published
        attributes, capacity = dict(published.attributes), dict(published.capacity)
        for origin, value in self._values.items():
            if value is None:
                attributes.pop(origin.name, None)
            elif origin.kind == "attribute":
                attributes[origin.name] = value
            else:  # what else the driver says about a capacity, such as its request policy, stays
                capacity[origin.name] = {**(capacity.get(origin.name) or {}), **value}
        kept = [each for each in published.taints if origin_of(each) not in self._taints]
        return PatchedDevice(published, attributes, capacity, (*kept, *self._taints.values()), self._origins)


class _Matching:
    """Which devices patches select; keeps the devices of each pool, as many patches look at the same."""

    def __init__(
        self, pools: Pools, classes: Mapping[str, DeviceClassSelectors], compiles: CompilesSelectors, check: Check
    ) -> None:
        self.faults: list[PatchFault] = []
        self.inapplicable: dict[str, str] = {}
        self._pools = pools
        self._classes = classes
        self._compiles = compiles
        self._check = check
        self._tests: dict[str, DeviceTest] = {}
        self._published: dict[PoolId, dict[str, PublishedDevice]] = {}

    def devices(self, patch: ResourceSlicePatch) -> Iterator[PublishedDevice]:
        """Yield the devices for which all that the filter names holds (P-2)."""
        selector = patch.selector
        try:
            tests = tests_of(selector, self._classes, self._compile)
        except CannotFilterError as error:
            self.inapplicable[patch.meta.name] = str(error)
            return
        for device in self._named(selector):
            steps = in_steps(tests, self._check, size=1)
            answer = next((found for test in steps if (found := answer_of(device, test)) is not True), True)
            if answer is True:
                yield device
            elif answer is not False:
                self.faults.append(PatchFault(patch.meta.name, device.address, *answer))

    def _named(self, selector: DeviceSelector) -> Iterator[PublishedDevice]:
        for identity, pool in self._pools.selected(selector.driver, selector.pool):
            if selector.device is not None and selector.device not in pool.devices:
                continue
            if identity not in self._published:
                found = in_steps(published_devices(identity, pool), self._check, DEVICES_READ_AT_ONCE)
                self._published[identity] = {device.address.device: device for device in found}
            known = self._published[identity]
            yield from known.values() if selector.device is None else (known[selector.device],)

    def _compile(self, expression: str) -> DeviceTest:
        if expression not in self._tests:
            self._tests[expression] = self._compiles(expression)
        return self._tests[expression]
