"""Devices with attributes, and patches for them, as short as they can be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta
from webhook.api.patches import PatchedAttribute, PatchedCapacity, ResourceSlicePatch
from webhook.api.rules import CELSelector, DeviceSelector
from webhook.api.slices import DeviceClassSelectors, ResourceSlice, decode_slice
from webhook.inventory.pools import Pools
from webhook.inventory.targets import DeviceId
from webhook.patches import published
from webhook.patches.covering import RULES_MAX
from webhook.patches.expansion import PatchExpansion, expansion
from webhook.patches.filters import CannotCompileError, CannotMatchError, DeviceTest
from webhook.patches.overriding import Refusal
from webhook.patches.patching import EffectiveDevices, effective_devices
from webhook.patches.published import written_devices
from webhook.patches.slice_patches import SlicePatches, slice_work

if TYPE_CHECKING:
    import pytest

    from webhook.api.taints import DeviceTaint
    from webhook.patches.published import PublishedDevice

DRIVER: Final = "gpu.example.com"
CREATED: Final = datetime(2026, 1, 1, tzinfo=UTC)


def slice_of(
    *devices: Any, pool: str = "node-0", driver: str = DRIVER, generation: int = 1, name: str = "", **spec: Any
) -> ResourceSlice:
    """A slice as it is read from JSON; a device is its name, or all of it."""
    entries = [{"name": each} if isinstance(each, str) else each for each in devices]
    manifest = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{driver}-{pool}-{generation}"},
        "spec": {
            "driver": driver,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
            "devices": entries,
            **spec,
        },
    }
    return decode_slice(Reader.of(manifest, []))


def slices_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the slices of which devices are read from now on, in order."""
    read: list[str] = []

    def note(value: ResourceSlice) -> list[tuple[str, dict[str, Any]]]:
        read.append(value.meta.name)
        return written_devices(value)

    monkeypatch.setattr(published, "written_devices", note)
    return read


def pools_of(*slices: ResourceSlice) -> Pools:
    pools = Pools()
    for each in slices:
        pools.apply(None, each)
    return pools


def patch_of(
    name: str = "patch",
    *,
    priority: int = 0,
    created: datetime | None = CREATED,
    cel: Iterable[str | None] = (),
    attributes: dict[str, Any] | None = None,
    capacity: dict[str, Any] | None = None,
    taints: Iterable[DeviceTaint] = (),
    anything: bool = False,
    **names: Any,
) -> ResourceSlicePatch:
    """`names` are the filter's; `anything`: there is no filter at all. An attribute of None is removed."""
    selector = DeviceSelector(selectors=tuple([CELSelector(each) for each in cel]), **names)
    return ResourceSlicePatch(
        ObjectMeta(name),
        None if anything else selector,
        priority,
        tuple(
            [
                PatchedAttribute(key, ("null",)) if value is None else PatchedAttribute(key, ("int",), value)
                for key, value in (attributes or {}).items()
            ]
        ),
        tuple([PatchedCapacity(key, value) for key, value in (capacity or {}).items()]),
        tuple(taints),
        created,
    )


def class_of(name: str, *cel: str | None) -> dict[str, DeviceClassSelectors]:
    return {name: DeviceClassSelectors(name, tuple([CELSelector(each) for each in cel]))}


def by_number(expression: str) -> DeviceTest:
    """A stand-in for CEL: `n > 1` compares the driver's int attribute n, and fails where there is none."""
    name, _, number = expression.partition(" > ")
    if not number:
        raise CannotCompileError(f"{expression} is no comparison")

    def test(device: PublishedDevice) -> bool:
        value = device.attributes.get(f"{device.address.driver}/{name}")
        if value is None:
            raise CannotMatchError(f"no such key: {name}")
        return bool(value["int"] > int(number))

    return DeviceTest(test)


def effective(
    pools: Pools, *patches: ResourceSlicePatch, classes: dict[str, DeviceClassSelectors] | None = None
) -> EffectiveDevices:
    return effective_devices(pools, patches, classes or {}, by_number)


def expansions(
    pools: Pools, patches: Iterable[ResourceSlicePatch], found: EffectiveDevices, ceiling: int = RULES_MAX
) -> dict[str, PatchExpansion]:
    """The rules of each patch by its name."""
    return {each.meta.name: expansion(pools, each, found, ceiling) for each in patches}


def at(device: str, pool: str = "node-0", driver: str = DRIVER) -> DeviceId:
    return DeviceId(driver, pool, device)


class Together(NamedTuple):
    """The work on several slices: those to touch in order, what is refused by slice, and devices by patch."""

    touch: tuple[str, ...] = ()
    refused: Mapping[str, tuple[Refusal, ...]] = {}
    patched: Mapping[str, int] = {}


def work_on(slices: Iterable[ResourceSlice], patches: SlicePatches, faults_of: Callable[[Any], Any]) -> Together:
    """`faults_of` is asked for each slice; all patches are counted."""
    works = {each.meta.name: slice_work(each, patches, by_number, faults_of(each)) for each in slices}
    patched = Counter(dict.fromkeys(patches.ranking, 0))
    for each in works.values():
        patched.update(each.patched)
    return Together(
        tuple(sorted(name for name, each in works.items() if each.touch)),
        {name: each.refused for name, each in sorted(works.items()) if each.refused},
        dict(patched),
    )
