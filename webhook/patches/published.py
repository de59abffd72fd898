"""Devices as their drivers publish them: all that a patch may select them by or change, without what patches override.

What is under the values that patches put into ResourceSlices is kept in an annotation of the slice.

Drivers publish slices with k8s.io/dynamic-resource-allocation/resourceslice (v0.37.0, resourceslicecontroller.go):

- `syncPool` compares stored slices with what the driver wants. Where they differ it sends an Update: a copy of the
  stored slice, with its resourceVersion and annotations, and all of the driver's devices. It looks again `SyncDelay`
  (30 seconds) after each change of a slice, its own and those of others.
- `sliceStored` compares the answer with what was sent. If the devices differ, it copies those of the answer into what
  the driver wants, so from then on a patched value is sent as if it were the driver's, and it reports a
  `DroppedFieldsError`, once. kubeletplugin/draplugin.go wraps that as recoverable: drivers log it.
- What the driver passes to `Update` replaces all of that by a deep copy: fresh values. So does a restart.
- `DevicesDeepEqual` takes equal quantities for equal, however they are written, and an empty map for a missing one.
- A slice that another client deletes is created again from what the driver wants, without its annotations. So values
  that it adopted become its own, until it publishes fresh ones.

Hence a value that is sent is either fresh or an echo, and for each value that was ever overridden it must be known
what the driver may send as an echo: `now` and `sent` below. An answer that is lost is not recognized (ADR 33).
Source: resource.k8s.io/v1 Device; `semantics.md` P-4, P-15.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, zip_longest
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from webhook.api.field import JSON
from webhook.api.meta import OWN_GROUP
from webhook.api.quantities import parse_quantity
from webhook.api.slices import ResourceSlice
from webhook.api.taints import DeviceTaint
from webhook.inventory.pools import Pool, PoolId
from webhook.inventory.targets import DeviceId

ORIGINALS: Final = f"{OWN_GROUP}/originals"
"""The annotation of a ResourceSlice."""
ATTRIBUTES: Final = "attributes"
CAPACITY: Final = "capacity"
BASIC: Final = "basic"
_VERSION: Final = 1
_REWRITES_MOST: Final = 2**31
_LEVELS_MOST: Final = 8
"""Of objects and lists in a value: an attribute or a capacity has four."""
_TYPES: Final[Mapping[str, type]] = {"int": int, "bool": bool, "string": str, "version": str}
_encoder: Final = msgspec.json.Encoder(order="deterministic")


class Setting(NamedTuple):
    """An attribute or capacity of a device, by its name as it is written in the slice."""

    kind: str
    name: str


Settings = Mapping[Setting, JSON]
"""Of one device: each attribute and capacity that it has, as JSON."""


class Overridden(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that is overridden, or was until lately. None is a value too: the device does not have the setting.

    Without `now` it is a tombstone: the original is back in the slice, but the driver may still send what it adopted.
    """

    was: dict[str, JSON] | None = None
    """The driver's."""
    now: dict[str, JSON] | UnsetType | None = UNSET
    """What overrides it; missing once nothing does."""
    sent: dict[str, JSON] | UnsetType | None = UNSET
    """What the driver was last answered, if that was not its own value; it has adopted that."""

    def echoes(self, value: JSON, kind: str) -> bool:
        """Return whether a value that is sent need not be the driver's own."""
        return any(each is not UNSET and same(kind, each, value) for each in (self.now, self.sent))

    @property
    def spent(self) -> bool:
        """Whether nothing is overridden, and whatever the driver sends is its own."""
        return self.now is UNSET and self.sent is UNSET


Kept = Mapping[Setting, Overridden]
"""Of one device."""


def kept_in(annotation: str | None) -> dict[str, dict[Setting, Overridden]]:
    """Read what an annotation holds, by device, without what is not of our making: anything may be in there.

    None, and what cannot be read at all, holds nothing.
    """
    devices = {name: _kept_of(raw) for name, raw in _items(_decoded(annotation).get("devices"))}
    return {name: kept for name, kept in devices.items() if kept}


def rewrites_in(annotation: str | None) -> int:
    """Return how often a slice with this annotation was rewritten, if it says so; else 0."""
    found = _decoded(annotation).get("rewrites")
    return found if isinstance(found, int) and 0 <= found < _REWRITES_MOST else 0


def _decoded(annotation: str | None) -> dict[str, JSON]:
    if not annotation:
        return {}
    try:
        found = msgspec.json.decode(annotation.encode())
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and found.get("version") == _VERSION else {}


def _kept_of(raw: JSON) -> dict[Setting, Overridden]:
    kept = {}
    for kind in (ATTRIBUTES, CAPACITY):
        for name, entry in _items(raw.get(kind) if isinstance(raw, dict) else None):
            try:
                value = msgspec.convert(entry, Overridden)
            except msgspec.ValidationError:
                continue
            values = value.was, value.now, value.sent
            if not value.spent and all(_is_value(kind, each) for each in values[:2]) and not _is_deep(values):
                kept[Setting(kind, name)] = value
    return kept


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _is_value(kind: str, value: dict[str, JSON] | UnsetType | None) -> bool:
    """Return whether an API server would take it: what is put back must not make a slice invalid."""
    if value is UNSET or value is None:
        return True
    if kind == CAPACITY:
        return "value" in value and value["value"] is not None and parse_quantity(value["value"]) is not None
    if len(value) != 1:
        return False
    ((name, given),) = value.items()
    wanted = _TYPES.get(name)
    if wanted is not None:
        return _is_of(wanted, given)
    element = _TYPES.get(name.removesuffix("s"))
    return element is not None and isinstance(given, list) and all(_is_of(element, each) for each in given)


def _is_deep(value: Any, levels: int = _LEVELS_MOST) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return not levels or any(_is_deep(each, levels - 1) for each in parts)


def _is_of(wanted: type, value: JSON) -> bool:
    """Check the type of a value; Python takes a boolean for a number too."""
    return isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))


def annotation_of(kept: Mapping[str, Kept], rewrites: int = 0) -> str:
    """Write the annotation that holds this; empty if there is nothing to hold."""
    devices: dict[str, Any] = {}
    for device, settings in kept.items():
        for (kind, name), value in settings.items():
            devices.setdefault(device, {}).setdefault(kind, {})[name] = value
    counted = {"rewrites": rewrites} if rewrites else {}
    return _encoder.encode({"version": _VERSION, "devices": devices, **counted}).decode() if devices else ""


def written_devices(value: ResourceSlice) -> list[tuple[str, dict[str, JSON]]]:
    """Return the devices of a slice in order, by name, as they were written; empty objects where that was not kept."""
    raw = value.raw_devices
    if isinstance(raw, bytes):
        raw = msgspec.json.decode(raw)
    entries = raw if isinstance(raw, list) else []
    return [
        (device.name, each if isinstance(each, dict) else {})
        for device, each in zip_longest(value.devices, entries[: len(value.devices)])
    ]


def content_of(device: dict[str, JSON]) -> dict[str, JSON]:
    """Return where everything but the name is: v1beta1 has it a level deeper."""
    basic = device.get(BASIC)
    return basic if isinstance(basic, dict) else device


def settings_of(device: dict[str, JSON]) -> dict[Setting, JSON]:
    """Return the attributes and capacities of a device, of a slice of any version, without what is no object."""
    content = content_of(device)
    return {
        Setting(kind, name): value
        for kind in (ATTRIBUTES, CAPACITY)
        for name, value in _items(content.get(kind))
        if isinstance(value, dict)
    }


def with_settings(device: dict[str, JSON], settings: Settings) -> dict[str, JSON]:
    """Return the device with these attributes and capacities and no others."""
    if isinstance(device.get(BASIC), dict):
        return {**device, BASIC: with_settings(device[BASIC], settings)}
    rest = {name: value for name, value in device.items() if name not in (ATTRIBUTES, CAPACITY)}
    for (kind, name), value in settings.items():
        rest.setdefault(kind, {})[name] = value
    return rest


def published_settings(sent: Settings, kept: Kept) -> dict[Setting, JSON]:
    """Return what the driver means by what it sent, or by what is stored: echoes are replaced by the originals."""
    settings = dict(sent)
    for setting, value in kept.items():
        if value.echoes(sent.get(setting), setting.kind):
            put(settings, setting, value.was)
    return settings


def put(settings: dict[Setting, JSON], setting: Setting, value: JSON) -> None:
    """Set a value; None takes it away."""
    if value is None:
        settings.pop(setting, None)
    else:
        settings[setting] = value


def same(kind: str, one: JSON, other: JSON) -> bool:
    """Return whether two values are the same to an API server, which writes quantities in its own way."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(kind, one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(kind, *pair) for pair in zip(one, other, strict=True))
    if type(one) is type(other) and one == other:
        return True
    if kind != CAPACITY or one is None or other is None:
        return False
    number = parse_quantity(one)
    return number is not None and number == parse_quantity(other)


# --- published devices ------------------------------------------------------------------------------


class PublishedDevice(msgspec.Struct, frozen=True):
    """A device as its driver publishes it.

    Attributes (`{"int": 1}`) and capacities (`{"value": "40Gi"}`) are JSON by fully qualified name: what a slice lists
    without a domain is in the driver's. They are empty where slices are kept without them.
    """

    address: DeviceId
    attributes: Mapping[str, JSON] = {}
    capacity: Mapping[str, JSON] = {}
    taints: tuple[DeviceTaint, ...] = ()
    allow_multiple_allocations: bool = False


def published_devices(identity: PoolId, pool: Pool) -> Iterator[PublishedDevice]:
    """Yield the devices of a pool's newest generation, each name once, with the taints that the slices put on them.

    What patches override in the slices themselves is not published (P-15): there the driver's own values count.
    """
    return chain.from_iterable(published_by_slice(identity, pool))


def published_by_slice(identity: PoolId, pool: Pool) -> Iterator[list[PublishedDevice]]:
    """Yield the same slice by slice. Each is read when it is asked for, which may take some milliseconds."""
    driver, name = identity
    newest, taints = pool.newest, pool.devices
    last = {device.name: value for value in newest for device in value.devices}
    for value in newest:
        yield [
            PublishedDevice(
                DeviceId(driver, name, device),
                _qualified(driver, _items(content.get(ATTRIBUTES))),
                _qualified(driver, [(name, _capacity(value)) for name, value in _items(content.get(CAPACITY))]),
                taints[device],
                content.get("allowMultipleAllocations") is True,
            )
            for device, content in dict(_contents(value)).items()
            if last[device] is value
        ]


def _contents(value: ResourceSlice) -> Iterator[tuple[str, dict[str, JSON]]]:
    """Yield each device's name and what stands in it, a level deeper in v1beta1; nothing where that was not kept."""
    overridden = kept_in(value.meta.annotations.get(ORIGINALS))
    for name, raw in written_devices(value):
        content = content_of(raw)
        if name in overridden:
            content = with_settings(content, published_settings(settings_of(content), overridden[name]))
        yield name, content


def _qualified(driver: str, entries: list[tuple[str, JSON]]) -> dict[str, JSON]:
    """Return values by qualified name; what is no object is left out.

    Of a name that is given both with and without the driver's domain the former counts.
    """
    found = [(name, value) for name, value in entries if isinstance(value, dict)]
    short = {qualified_name(driver, name): value for name, value in found if "/" not in name}
    return short | {name: value for name, value in found if "/" in name}


def qualified_name(driver: str, name: str) -> str:
    """Return the name of an attribute or capacity with its domain."""
    return name if "/" in name else f"{driver}/{name}"


def _capacity(value: JSON) -> JSON:
    """Return a capacity as an object; before v1beta1 it was the quantity itself."""
    return value if isinstance(value, dict) else {"value": value}
