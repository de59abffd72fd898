"""Field rules of the taints in a ResourceSlice.

Source: `semantics.md` S-*, T-13, V-3; `seeds.md` N-1, N-2, N-4, N-5, P-20, P-21.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Final

from webhook.api.field import FieldError, Path, invalid, required, too_many
from webhook.api.slices import Device, ResourceSlice, devices_as_written
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE
from webhook.validation.claims import semantic
from webhook.validation.formats import dns1123_label, driver_name, each_invalid, is_driver_name, object_meta_errors
from webhook.validation.releases import MAX_DEVICES, Release
from webhook.validation.taints import effect_errors, taint_errors, taint_is_fine, taint_list_errors

SLICE_TAINTS_MAX: Final = 32
SPEC: Final = Path.root().child("spec")
_DEVICES: Final = SPEC.child("devices")
_taints_of: Final = attrgetter("taints")
_counters_of: Final = attrgetter("counter_sets")
_has_list_attributes: Final = attrgetter("list_attributes")


def slice_errors(new: ResourceSlice, old: ResourceSlice | None, release: Release) -> Iterator[FieldError]:
    """A ResourceSlice that is created (`old` is None) or updated."""
    yield from object_meta_errors(new.meta, created=old is None)
    if not is_driver_name(new.driver):  # a path takes longer to build than the check
        yield from driver_name(SPEC.child("driver"), new.driver, empty_twice=release.empty_driver_twice)
    if old is not None:
        yield from _immutable_errors(new, old)
    if new.has_shared_counters and new.has_devices and release.counters_apart:
        yield invalid(SPEC, "", "only one of `sharedCounters` or `devices` is allowed")
    if not release.devices_as_one:
        yield from device_list_errors(new, old, release)
    elif old is None or not _same_devices(new, old):
        yield from device_list_errors(new, None, release)
    yield from slice_taint_errors(new, old, release)


def _immutable_errors(new: ResourceSlice, old: ResourceSlice) -> Iterator[FieldError]:
    """What an update may not change (S-5)."""
    for path, value, before in (
        (SPEC.child("driver"), new.driver, old.driver),
        (SPEC.child("pool", "name"), new.pool, old.pool),
        (SPEC.child("nodeName"), new.node_name, old.node_name),
    ):
        if value != before:
            yield invalid(path, value, "field is immutable")


def device_list_errors(new: ResourceSlice, old: ResourceSlice | None, release: Release) -> Iterator[FieldError]:
    """How many devices, and the taints of each (S-1, S-2, T-13)."""
    devices = new.devices
    maximum = max_devices(new, release)
    crowded = len(devices) > maximum
    if crowded:
        yield too_many(_DEVICES, len(devices), maximum)
    taints = new.distinct_taints
    fine = all(taint_is_fine(taint, release) for taint in taints)
    if not taints or (fine and max(map(len, map(_taints_of, devices))) <= release.taints_per_device):
        return
    ratchets = release.ratchets and old is not None
    # What is checked before the conversion ratchets only where the whole list is as it was (T-13, seen on 1.37.0).
    effects_again = release.declarative and not (ratchets and old is not None and _same_devices(new, old))
    if crowded and release.long_lists_end_the_look:
        if effects_again:
            for position, device in enumerate(devices):
                yield from _effect_list_errors(taints_path(position, device), device, release)
        return
    before = {device.name: device for device in reversed(old.devices)} if ratchets and old else {}
    for position, device in enumerate(devices):
        if fine and len(device.taints) <= release.taints_per_device:
            continue
        path = taints_path(position, device)
        stored = before.get(device.name)
        if stored is None or stored.taints != device.taints:
            yield from taint_list_errors(path, device.taints, release)
        elif effects_again:  # key, value and count ratchet by name
            yield from _effect_list_errors(path, device, release)


def _same_devices(new: ResourceSlice, old: ResourceSlice) -> bool:
    """Whether nothing at all changed in them, attributes and capacity included."""
    return new.devices == old.devices and semantic(devices_as_written(new)) == semantic(devices_as_written(old))


def _effect_list_errors(path: Path, device: Device, release: Release) -> Iterator[FieldError]:
    for index, taint in enumerate(device.taints):
        yield from effect_errors(path.index(index), taint, release)


def taints_path(position: int, device: Device) -> Path:
    """The list of a device's taints, with the level that only v1beta1 has."""
    path = _DEVICES.index(position)
    return (path.only_written("basic") if device.basic else path).child("taints")


def max_devices(new: ResourceSlice, release: Release) -> int:
    """128, or 64 if any device has a taint or another of the features that make devices large (S-2)."""
    devices, limit = new.devices, release.devices_with_taints
    if len(devices) <= limit:
        return MAX_DEVICES
    large = (
        bool(new.distinct_taints)
        or (release.counters_apart and any(map(_counters_of, devices)))
        or (release.as_since_1_36 and any(map(_has_list_attributes, devices)))
    )
    return limit if large else MAX_DEVICES


def slice_taint_errors(new: ResourceSlice, old: ResourceSlice | None, release: Release) -> Iterator[FieldError]:
    """Taints listed beside the devices, in the 1.35-era revision (N-1, N-2, N-4, N-5)."""
    taints = new.slice_taints
    if not taints:
        return
    path = SPEC.child("taints")
    if new.devices:
        yield invalid(SPEC, "", "only one of `devices` or `taints` is allowed")
    if len(taints) > SLICE_TAINTS_MAX:
        yield too_many(path, len(taints), SLICE_TAINTS_MAX)
        return
    stored = old.slice_taints if old else ()
    for position, entry in enumerate(taints):
        if entry in stored:
            continue  # judged when it came
        at = path.index(position)
        if not entry.device:
            yield required(at.child("device"))
        else:
            yield from each_invalid(at.child("device"), entry.device, dns1123_label(entry.device))
        yield from taint_errors(at.child("taint"), entry.taint, release)


# --- the first revision --------------------------------------------------------------------------

TAINTS_PER_DEVICE: Final = 8
FIRST_REVISION_EFFECTS: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})


def first_revision_slice_errors(
    new: ResourceSlice, old: ResourceSlice | None, release: Release
) -> Iterator[FieldError]:
    """As any slice, with at most eight taints a device and without the effect None."""
    most = min(TAINTS_PER_DEVICE, release.taints_per_device)  # 1.33 serves v1alpha3 with its own, lower limit
    yield from slice_errors(new, old, replace(release, taints_per_device=most, effects=FIRST_REVISION_EFFECTS))
