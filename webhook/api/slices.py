"""The part of a ResourceSlice that matters for taints, read whole or in part, and what a DeviceClass selects.

Attributes and capacity are most of a slice, and no review needs them: they stay in their place in the object as text, a
`msgspec.Raw`, so one decoder makes the same value of both (ADR 29).
Source: KEP-4381, KEP-5055; `semantics.md` S-*; `seeds.md` N-1, N-2, N-4 to N-6.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from webhook.api.decode import UNREADABLE, Reader
from webhook.api.field import JSON
from webhook.api.meta import ObjectMeta, parse_time
from webhook.api.rules import CELSelector, decode_cel_selectors
from webhook.api.taints import DeviceTaint, decode_taint, decode_taints, known_list, remember_list, remembered_taints

FEW_DEVICES: Final = 64
"""Up to here no limit depends on what the devices are like, so attributes need no look (S-2)."""
_MOST_DEVICES: Final = 128
_MOST_FIELDS: Final = 32
"""Of one device. What has more of either is refused, or soon will be, and would take longer to read in this way."""

_USUAL_FIELDS: Final = 3
"""Name, attributes and capacity."""
_BRACKET: Final = ord("[")
"""To look for a number in bytes takes a fifth of the time that it takes to look for bytes."""
_decode: Final = msgspec.json.Decoder().decode


class _Spec(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """All fields of every version."""

    devices: list[dict[str, Raw] | None] | UnsetType | None = UNSET
    driver: Any = UNSET
    pool: Any = UNSET
    node_name: Any = UNSET
    node_selector: Any = UNSET
    all_nodes: Any = UNSET
    per_device_node_selection: Any = UNSET
    shared_counters: Any = UNSET
    taints: Any = UNSET
    partition_type_attribute: Any = UNSET
    skip_node_operations: Any = UNSET


_SPEC_FIELDS: Final = tuple(zip(_Spec.__struct_fields__, _Spec.__struct_encode_fields__, strict=True))


class SliceText(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The text as msgspec decodes it. Decoding fails for any other shape."""

    api_version: Any = UNSET
    kind: Any = UNSET
    metadata: Any = UNSET
    spec: _Spec | UnsetType | None = UNSET

    def to_object(self) -> dict[str, JSON] | None:
        """The object, in part as text; None for one that is to be read whole. Raises one of UNREADABLE.

        Text are capacity, attributes unless they may count (S-2), and taints that are known by their text.
        """
        found: dict[str, JSON] = {"apiVersion": self.api_version, "kind": self.kind, "metadata": self.metadata}
        spec = self.spec
        if isinstance(spec, _Spec):
            devices = spec.devices or ()
            if len(devices) > _MOST_DEVICES:
                return None
            crowded = len(devices) > FEW_DEVICES
            for device in devices:
                if device is not None and not (_read_name(device, crowded) or _read_most(device, crowded)):
                    return None
            values = {name: getattr(spec, field) for field, name in _SPEC_FIELDS}
            found["spec"] = {name: value for name, value in values.items() if value is not UNSET}
        else:
            found["spec"] = spec
        return {name: value for name, value in found.items() if value is not UNSET}


# Arguments have no names in the calls of these two: there are 128 devices.
def _read_name(device: dict[str, Any], crowded: bool) -> bool:  # noqa: FBT001 -- see above
    """Reads the name of a device that has attributes and capacity besides, as most do; false for any other."""
    name, attributes = device.get("name"), device.get("attributes")
    if name is None or attributes is None or len(device) != _USUAL_FIELDS or "capacity" not in device:
        return False
    if crowded and not have_single_values(attributes):
        return False
    device["name"] = _decode(name)
    return True


def _read_most(device: dict[str, Any], crowded: bool) -> bool:  # noqa: FBT001 -- see above
    """Reads what the decoder will ask for, in its place. Returns whether it has done so."""
    if len(device) > _MOST_FIELDS:
        return False
    for name, text in device.items():
        if name == "taints":
            if known_list(text) is None:
                entries = _decode(text)
                if not remember_list(text, entries):
                    device[name] = entries
        elif name == "attributes":
            if crowded and not have_single_values(text):
                device[name] = _decode(text)
        elif name != "capacity":
            device[name] = _decode(text)
    return True


def have_single_values(attributes: Raw) -> bool:
    """Whether attributes are a map without a list in it, by a look at the text; False if that is not certain."""
    text = bytes(attributes)
    return text.startswith(b"{") and _BRACKET not in text


def read_rest(device: JSON) -> None:
    """Reads, in its place, all that was left as text in a device. What is no JSON stays text."""
    if device.__class__ is not dict:
        return
    for name, text in device.items():
        if text.__class__ is Raw:
            try:
                device[name] = _decode(text)
            except UNREADABLE:
                continue


_LIST_ATTRIBUTES: Final = frozenset({"bools", "ints", "strings", "versions"})
_TAINTS_MAX: Final = 128 * 16
"""More than these are on too many devices, or too many on one of those devices (S-1, S-2)."""
_taints_of: Final = attrgetter("taints")


class Device(msgspec.Struct, frozen=True, gc=False):
    """One device of a slice. `basic`: written in v1beta1, where the content lies a level deeper.

    `list_attributes` is looked up only in slices that are large enough for it to matter. `counter_sets` are those of
    its pool on which it draws, each once, even an empty one: devices with a common set share hardware (KEP-4815).
    """

    name: str
    taints: tuple[DeviceTaint, ...] = ()
    basic: bool = False
    counter_sets: tuple[str, ...] = ()
    list_attributes: bool = False


class SliceTaint(msgspec.Struct, frozen=True, gc=False):
    """A taint listed beside the devices (N-1): it applies to the device of that name in the pool (N-6)."""

    device: str
    taint: DeviceTaint


class ResourceSlice(msgspec.Struct, frozen=True, gc=False):
    """The devices that a driver publishes for one pool, or a part of them."""

    meta: ObjectMeta
    driver: str = ""
    pool: str = ""
    pool_generation: int = 0
    slice_count: int = 0
    node_name: str | None = None
    devices: tuple[Device, ...] = ()
    has_devices: bool = False
    has_shared_counters: bool = False
    counter_sets: tuple[str, ...] = ()
    """The counter sets that it publishes, by name."""
    slice_taints: tuple[SliceTaint, ...] = ()
    distinct_taints: tuple[DeviceTaint, ...] = ()
    """Every taint of a device, once: what holds for these holds for the hundreds that repeat them."""
    partition_type: str | None = None
    """The attribute that distinguishes partitions (`partitionTypeAttribute`, 1.37): they must have it."""
    created: datetime | None = None
    """When the server stored it first; None if that is not known."""
    raw_devices: JSON | bytes = None
    """All of the devices as they were written; bytes are JSON that is not read yet. In a review, parts of them may be
    text as well (`SliceText`): see `devices_as_written`."""
    beside_devices: Mapping[str, JSON] | bytes = {}
    """The fields of the spec that `api.offers` names, where someone asks where pods would go; bytes are JSON."""


def decode_slice(reader: Reader) -> ResourceSlice:
    """A ResourceSlice of any version."""
    spec = reader.child_or_empty("spec")
    pool = spec.child_or_empty("pool")
    crowded = len(spec.list("devices")) > FEW_DEVICES
    unusual: list[DeviceTaint] = []
    devices = tuple(
        [
            _usual_device(raw, crowded=crowded) or _any_device(spec, at, unusual, crowded=crowded)
            for at, raw in enumerate(spec.list("devices"))
        ]
    )
    taints = list(chain.from_iterable(map(_taints_of, devices)))
    metadata = reader.raw.get("metadata")
    created = metadata.get("creationTimestamp") if isinstance(metadata, dict) else None
    return ResourceSlice(
        meta=reader.meta(),
        driver=spec.text("driver"),
        pool=pool.text("name"),
        pool_generation=pool.integer("generation") or 0,
        slice_count=pool.integer("resourceSliceCount") or 0,
        node_name=spec.optional_text("nodeName"),
        devices=devices,
        has_devices=spec.has("devices"),
        has_shared_counters=spec.has("sharedCounters"),
        counter_sets=_names(spec.raw.get("sharedCounters"), "name"),
        slice_taints=tuple(
            [
                SliceTaint(each.text("device"), decode_taint(each.child_or_empty("taint")))
                for each in spec.each("taints")
            ]
        ),
        distinct_taints=tuple(dict(zip(map(id, taints), taints, strict=True)).values()),
        partition_type=spec.optional_text("partitionTypeAttribute"),
        created=parse_time(created) if isinstance(created, str) else None,
        raw_devices=spec.raw.get("devices"),
    )


def _usual_device(raw: JSON, *, crowded: bool) -> Device | None:
    """A device as most are written, without a reader: a third of the time. None for any other, whatever the reason."""
    if raw.__class__ is not dict or "basic" in raw or "consumesCounters" in raw:
        return None
    name, entries, attributes = raw.get("name"), raw.get("taints"), raw.get("attributes")
    if name.__class__ is not str:
        return None
    taints: tuple[DeviceTaint, ...] | None = ()
    if entries.__class__ is Raw:
        taints = known_list(entries)
    elif entries is not None:
        taints = remembered_taints(entries) if entries.__class__ is list else None
    if taints is None or (crowded and attributes is not None and not _have_single_values(attributes)):
        return None
    return Device(name, taints)


def _have_single_values(attributes: JSON) -> bool:
    """Whether no attribute has a field for a list; False as well for what is no map of objects, or may be none."""
    if attributes.__class__ is Raw:
        return True  # others were read
    try:
        return attributes.__class__ is dict and all(map(_LIST_ATTRIBUTES.isdisjoint, attributes.values()))
    except TypeError:  # the value of an attribute is a number, or null
        return False


def _any_device(spec: Reader, at: int, unusual: list[DeviceTaint], *, crowded: bool) -> Device:
    """Any other; `unusual` are the taints of those before it. Once they are too many, only its name is read."""
    if len(unusual) > _TAINTS_MAX:
        return Device(spec.entry("devices", at).text("name"))
    raw = spec.raw["devices"][at]
    if raw.__class__ is dict and raw.get("taints").__class__ is Raw:  # a list that is known by its text no longer
        raw["taints"] = _decode(raw["taints"])
    device = _decode_device(spec.entry("devices", at), crowded=crowded)
    unusual += device.taints
    return device


def devices_as_written(value: ResourceSlice) -> JSON:
    """All of the devices of a slice that was decoded from an object, none of it left as text."""
    if isinstance(value.raw_devices, list):
        for device in value.raw_devices:
            read_rest(device)
    return value.raw_devices


def _decode_device(reader: Reader, *, crowded: bool) -> Device:
    basic = reader.child("basic") if "basic" in reader.raw else None
    content = basic or reader
    return Device(
        reader.text("name"),
        decode_taints(content),
        basic is not None,
        _names(content.raw.get("consumesCounters"), "counterSet"),
        crowded and _has_list_attributes(content),
    )


def _names(entries: JSON, field: str) -> tuple[str, ...]:
    """What entries have in a field, each once. Wrong types, which `validation` reports, read as empty."""
    if not entries:
        return ()
    if not isinstance(entries, list):
        return ("",)
    found = [entry.get(field) if isinstance(entry, dict) else None for entry in entries]
    return tuple(dict.fromkeys([name if isinstance(name, str) else "" for name in found]))


def _has_list_attributes(device: Reader) -> bool:
    """Whether an attribute holds a list (1.36 and later; it halves the number of devices, S-2)."""
    if device.raw.get("attributes").__class__ is Raw:
        return False  # others were read
    for attribute in device.map("attributes").values():
        if isinstance(attribute, dict) and any(isinstance(attribute.get(name), list) for name in _LIST_ATTRIBUTES):
            return True
    return False


# --- device classes --------------------------------------------------------------------------------


class DeviceClassSelectors(msgspec.Struct, frozen=True):
    """A class by name, with the selectors that a device of it must satisfy, all of them."""

    name: str
    selectors: tuple[CELSelector, ...] = ()


def decode_device_class(reader: Reader) -> DeviceClassSelectors:
    """A DeviceClass of any version."""
    return DeviceClassSelectors(reader.meta().name, decode_cel_selectors(reader.child_or_empty("spec")))
