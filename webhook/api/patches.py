"""ResourceSlicePatch: ours, after KEP-5027 and the first revision of KEP-5055. `semantics.md` P-*."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.api.field import JSON
from webhook.api.meta import ObjectMeta
from webhook.api.rules import DeviceSelector, decode_selector
from webhook.api.taints import DeviceTaint, decode_taints

if TYPE_CHECKING:
    from webhook.api.decode import Reader

ATTRIBUTE_KINDS: Final = ("int", "bool", "string", "version", "null")


class PatchedAttribute(msgspec.Struct, frozen=True, gc=False):
    """An attribute to set, or with `null: {}` to remove (P-8). `kinds` are the value fields that are set."""

    name: str
    kinds: tuple[str, ...]
    value: JSON = None


class ResourceSlicePatch(msgspec.Struct, frozen=True, gc=False):
    """Attributes, capacity and taints for every device that the filter matches; no filter matches all (P-2)."""

    meta: ObjectMeta
    filter: DeviceSelector | None
    priority: int = 0
    attributes: tuple[PatchedAttribute, ...] = ()
    capacity: tuple[str, ...] = ()
    taints: tuple[DeviceTaint, ...] = ()


def decode_patch(reader: Reader) -> ResourceSlicePatch:
    """A ResourceSlicePatch."""
    devices = reader.child_or_empty("spec").child_or_empty("devices")
    selector = devices.child("filter")
    return ResourceSlicePatch(
        reader.meta(),
        None if selector is None else decode_selector(selector),
        devices.integer("priority") or 0,
        tuple([_decode_attribute(name, each) for name, each in devices.entries("attributes")]),
        tuple(devices.map("capacity")),
        decode_taints(devices),
    )


def _decode_attribute(name: str, reader: Reader) -> PatchedAttribute:
    kinds = tuple(kind for kind in ATTRIBUTE_KINDS if reader.has(kind))
    values = {
        "int": reader.integer,
        "bool": reader.boolean,
        "string": reader.text,
        "version": reader.text,
        "null": reader.child,
    }
    read = {kind: values[kind](kind) for kind in kinds}
    value = read[kinds[0]] if len(kinds) == 1 and kinds[0] != "null" else None
    return PatchedAttribute(name, kinds, value)
