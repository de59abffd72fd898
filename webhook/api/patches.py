"""ResourceSlicePatch: ours, after KEP-5027 and the first revision of KEP-5055. `semantics.md` P-*."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Final

import msgspec
from msgspec import structs

from webhook.api.decode import Reader
from webhook.api.field import JSON
from webhook.api.meta import OWN_GROUP, ObjectMeta
from webhook.api.quantities import A_QUANTITY
from webhook.api.rules import DeviceSelector, decode_selector
from webhook.api.taints import NO_SCHEDULE, DeviceTaint, decode_taints

SOFTENED_KEYS: Final = f"{OWN_GROUP}/softened-keys"
"""Annotation of a patch: keys, comma-separated. Its NoSchedule taints with these keys evict pods through our worker, as
rules with `/evict` do: `/mutate` writes it where it makes NoSchedule of NoExecute."""
ATTRIBUTES_AND_CAPACITIES_MAX: Final = 32
ATTRIBUTE_KINDS: Final = ("int", "bool", "string", "version", "null")
_EVERY_DEVICE: Final = DeviceSelector()
_SETTINGS: Final = ("attributes", "capacity")


class PatchedAttribute(msgspec.Struct, frozen=True, gc=False):
    """An attribute to set, or with `null: {}` to remove (P-8). `kinds` are the value fields that are set."""

    name: str
    kinds: tuple[str, ...]
    value: JSON = None


class PatchedCapacity(msgspec.Struct, frozen=True, gc=False):
    """A capacity to set (P-9). `value` is the quantity as it was written: a text or a number; None if it is missing."""

    name: str
    value: JSON = None


class ResourceSlicePatch(msgspec.Struct, frozen=True, gc=False):
    """Attributes, capacity and taints for every device that the filter matches; no filter matches all (P-2).

    `created` is when it was created: of patches with the same priority the older one wins (P-11). `first_revision`: it
    follows the first revision of KEP-5055, which knows fewer effects and defaults fewer times (P-21). `deleting`: it
    has a deletionTimestamp, and is gone once its finalizers are.
    """

    meta: ObjectMeta
    filter: DeviceSelector | None
    priority: int = 0
    attributes: tuple[PatchedAttribute, ...] = ()
    capacity: tuple[PatchedCapacity, ...] = ()
    taints: tuple[DeviceTaint, ...] = ()
    created: datetime | None = None
    first_revision: bool = False
    deleting: bool = False
    left_out: int = 0
    """Attributes and capacities that are not read, as there are more than a patch may have."""

    @property
    def selector(self) -> DeviceSelector:
        """The filter; one that selects every device where there is none."""
        return self.filter or _EVERY_DEVICE

    @property
    def softened_keys(self) -> frozenset[str]:
        """Keys of the taints that were softened, by its annotation."""
        return frozenset(filter(None, self.meta.annotations.get(SOFTENED_KEYS, "").split(",")))

    def is_softened(self, taint: DeviceTaint) -> bool:
        """Whether our worker evicts pods for a taint of this patch that only keeps devices from being allocated."""
        return taint.effect == NO_SCHEDULE and taint.key in self.softened_keys


def decode_first_revision_patch(reader: Reader) -> ResourceSlicePatch:
    """A ResourceSlicePatch in the group and version that KEP-5027 planned for it, resource.k8s.io/v1alpha3."""
    return structs.replace(decode_patch(reader), first_revision=True)


def decode_patch(reader: Reader) -> ResourceSlicePatch:
    """A ResourceSlicePatch of ours."""
    devices = reader.child_or_empty("spec").child_or_empty("devices")
    selector = devices.child("filter")
    metadata = reader.child("metadata")
    most = ATTRIBUTES_AND_CAPACITIES_MAX + 1
    return ResourceSlicePatch(
        reader.meta(),
        None if selector is None else decode_selector(selector),
        devices.integer("priority") or 0,
        tuple([_decode_attribute(name, each) for name, each in islice(devices.entries("attributes"), most)]),
        tuple([_decode_capacity(name, each) for name, each in islice(devices.entries("capacity"), most)]),
        decode_taints(devices),
        None if metadata is None else metadata.time("creationTimestamp"),
        deleting=metadata is not None and metadata.has("deletionTimestamp"),
        left_out=sum([max(0, len(each) - most) for each in map(devices.raw.get, _SETTINGS) if isinstance(each, dict)]),
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


def _decode_capacity(name: str, reader: Reader) -> PatchedCapacity:
    value = reader.raw.get("value")
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int | float)):
        reader.wrong("value", A_QUANTITY)
        value = None
    return PatchedCapacity(name, value)
