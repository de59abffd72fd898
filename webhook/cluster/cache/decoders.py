"""Slices, rules, claims and device classes on the wire, and the part of them that caches hold.

A cluster has hundreds of thousands, so equal strings are one string, equal lists are one list, and what only reviews
need is left out: requests, specifications and annotations of claims, attributes and shapes of devices, and how much
of a counter a device draws. Rules are few and kept whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from sys import intern
from typing import Any, Final

import msgspec

from webhook.api.claims import (
    EXTENDED_RESOURCE,
    FROM_TEMPLATE,
    AllocationResult,
    Consumer,
    ResourceClaim,
    classes_only,
    decode_claim,
    demand_in,
    has_scheduler_shape,
)
from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta
from webhook.api.offers import BESIDE_DEVICES
from webhook.api.pods import pod_group_of
from webhook.api.rules import DeviceTaintRule, decode_cel_selectors, decode_rule
from webhook.api.slices import Device, DeviceClassSelectors, ResourceSlice, decode_slice
from webhook.api.taints import decode_taints, decode_tolerations
from webhook.cluster.cache.listwatch import (
    ObjectIdentity,
    OwnerReference,
    SharedLists,
    SharedValues,
    WholeWire,
    controller_of,
    object_meta,
    owner_of,
)
from webhook.patches.published import ORIGINALS

_NOTHING: Final = msgspec.Raw()


_requests: Final = SharedLists(
    lambda value: classes_only(decode_claim(Reader({"spec": {"devices": {"requests": value}}}, [])).requests)
)
_tolerations: Final = SharedLists(lambda value: decode_tolerations(Reader({"tolerations": value}, [])))
_taints: Final = SharedLists(lambda value: decode_taints(Reader({"taints": value}, [])))
_slice_taints: Final = SharedLists(lambda value: decode_slice(Reader({"spec": {"taints": value}}, [])).slice_taints)
_devices: Final[SharedValues[Device]] = SharedValues()
"""Most have a number for a name, and no taint. One with a taint that has data of its own (N-9) may be no key."""
_beside_devices: Final[SharedValues[bytes]] = SharedValues()
_counter_sets: Final[SharedValues[tuple[str, ...]]] = SharedValues()
"""Names of counter sets: all parts of one piece of hardware have the same, and so has its like on other nodes."""


def _shared_names(names: Iterable[str]) -> tuple[str, ...]:
    """Each once, as one text, and equal ones as one tuple."""
    return _counter_sets.of(tuple(dict.fromkeys(map(intern, names))))


# --- claims -------------------------------------------------------------------------------------


class _ClaimAnnotations(msgspec.Struct, frozen=True, gc=False):
    extended_resource: str | None = msgspec.field(name=EXTENDED_RESOURCE, default=None)
    from_template: str | None = msgspec.field(name=FROM_TEMPLATE, default=None)

    @property
    def say_extended(self) -> bool:
        return self.extended_resource == "true" and self.from_template is None


class _ClaimMeta(ObjectIdentity, frozen=True, gc=False):
    annotations: _ClaimAnnotations | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class _Result(msgspec.Struct, frozen=True, gc=False):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    tolerations: msgspec.Raw = _NOTHING

    def to_value(self) -> AllocationResult:
        return AllocationResult(
            intern(self.request),
            intern(self.driver),
            intern(self.pool),
            intern(self.device),
            _tolerations.of(self.tolerations),
        )


class _Results(msgspec.Struct, frozen=True, gc=False):
    results: tuple[_Result, ...] | None = None


class _Allocation(msgspec.Struct, frozen=True, gc=False):
    devices: _Results | None = None

    def to_value(self) -> tuple[AllocationResult, ...]:
        found = (self.devices.results if self.devices else None) or ()
        return tuple([each.to_value() for each in found])


class _Consumer(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""

    def to_value(self, owner_uid: str) -> Consumer:
        """The pod that a claim was generated for is its owner and its consumer: one uid, so one text."""
        uid = owner_uid if self.uid == owner_uid else self.uid
        return Consumer(intern(self.api_group), intern(self.resource), self.name, uid)


class _ClaimStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    allocation: _Allocation | None = None
    reserved_for: tuple[_Consumer, ...] | None = None


_NO_STATUS: Final = _ClaimStatus()


class ClaimWire(msgspec.Struct, frozen=True, gc=False):
    """A ResourceClaim; all versions write its status the same way."""

    metadata: _ClaimMeta
    status: _ClaimStatus | None = None

    def to_value(self) -> ResourceClaim:
        """As `api.claims.decode_stored_claim` returns it, without annotations and generateName."""
        metadata, status = self.metadata, self.status or _NO_STATUS
        annotations, owner = metadata.annotations, controller_of(metadata.owner_references)
        owner_uid = owner.uid if owner else ""
        claim = ResourceClaim(
            meta=object_meta(metadata),
            allocation=status.allocation.to_value() if status.allocation else None,
            reserved_for=tuple([each.to_value(owner_uid) for each in status.reserved_for or ()]),
            controller_uid=owner_uid,
            pod_group=intern(pod_group_of(owner.api_version, owner.kind, owner.name)) if owner else "",
        )
        if annotations is None or not annotations.say_extended or not has_scheduler_shape(claim, owner_of(owner)):
            return claim
        return msgspec.structs.replace(claim, extended_resource=True)


class _Asked(msgspec.Struct, frozen=True, gc=False):
    """`config` is none of ours: drivers' parameters are kept raw, and may be what Python does not read."""

    requests: msgspec.Raw = _NOTHING
    constraints: msgspec.Raw = _NOTHING

    def to_bytes(self) -> bytes:
        return b'{"requests":%b,"constraints":%b}' % (self.requests or b"null", self.constraints or b"null")


class _ClaimSpec(msgspec.Struct, frozen=True, gc=False):
    devices: _Asked = _Asked()


class AskingClaimWire(ClaimWire, frozen=True, gc=False):
    """A ResourceClaim with its device classes and all that it asks for: many claims ask for the same."""

    spec: _ClaimSpec = _ClaimSpec()

    def to_value(self) -> ResourceClaim:
        """The same, with its demand."""
        asked = self.spec.devices
        return msgspec.structs.replace(
            super().to_value(), requests=_requests.of(asked.requests), demand=demand_in(asked.to_bytes())
        )


class ClassedClaimWire(ClaimWire, frozen=True, gc=False):
    """A ResourceClaim with its requests, and of those only the device classes."""

    spec: _ClaimSpec = _ClaimSpec()

    def to_value(self) -> ResourceClaim:
        """The same, with what `api.claims.classes_only` leaves of its requests."""
        return msgspec.structs.replace(super().to_value(), requests=_requests.of(self.spec.devices.requests))


# --- slices -------------------------------------------------------------------------------------


class _CounterUse(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    counter_set: str = ""


class _CounterSet(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class _Basic(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    taints: msgspec.Raw = _NOTHING
    consumes_counters: tuple[_CounterUse | None, ...] | None = None


class _Device(_Basic, frozen=True, gc=False):
    """A device in any shape: v1beta1 writes everything but the name a level deeper."""

    name: str = ""
    basic: _Basic | None = None

    def to_value(self) -> Device:
        content = self.basic or self
        uses = content.consumes_counters
        counter_sets = _shared_names([each.counter_set if each else "" for each in uses]) if uses else ()
        return _devices.of(Device(intern(self.name), _taints.of(content.taints), counter_sets=counter_sets))


class _Pool(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    generation: int | None = None
    resource_slice_count: int | None = None


class _SliceSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    driver: str = ""
    pool: _Pool = _Pool()
    node_name: str | None = None
    devices: tuple[_Device, ...] | None = None
    shared_counters: tuple[_CounterSet | None, ...] | None = None
    taints: msgspec.Raw = _NOTHING
    partition_type_attribute: str | None = None


class _SliceIdentity(ObjectIdentity, frozen=True, gc=False):
    creation_timestamp: datetime | None = None


class SliceWire(msgspec.Struct, frozen=True, gc=False):
    """A ResourceSlice of any version."""

    metadata: _SliceIdentity
    spec: _SliceSpec = _SliceSpec()

    def to_value(self) -> ResourceSlice:
        """As `api.slices.decode_slice` returns it, of devices only names, taints and counter sets."""
        return _slice(self.metadata, self.spec)


def _slice(metadata: _SliceIdentity, spec: _SliceSpec, raw_devices: bytes | None = None) -> ResourceSlice:
    return ResourceSlice(
        meta=object_meta(metadata),
        driver=intern(spec.driver),
        pool=intern(spec.pool.name),
        pool_generation=spec.pool.generation or 0,
        slice_count=spec.pool.resource_slice_count or 0,
        node_name=None if spec.node_name is None else intern(spec.node_name),
        devices=tuple([each.to_value() for each in spec.devices or ()]),
        has_devices=spec.devices is not None,
        counter_sets=_shared_names([each.name if each else "" for each in spec.shared_counters or ()]),
        slice_taints=_slice_taints.of(spec.taints),
        partition_type=None if spec.partition_type_attribute is None else intern(spec.partition_type_attribute),
        created=metadata.creation_timestamp,
        raw_devices=raw_devices,
    )


class _Contents(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    devices: msgspec.Raw = _NOTHING
    all_nodes: msgspec.Raw = _NOTHING
    node_selector: msgspec.Raw = _NOTHING
    per_device_node_selection: msgspec.Raw = _NOTHING
    shared_counters: msgspec.Raw = _NOTHING

    def beside_devices(self) -> bytes:
        values = (self.all_nodes, self.node_selector, self.per_device_node_selection, self.shared_counters)
        named = zip(BESIDE_DEVICES, map(bytes, values), strict=True)
        found = b",".join([b'"%b":%b' % (name.encode(), value) for name, value in named if value])
        return _beside_devices.of(b"{%b}" % found) if found else b""


_SLICE_SPEC: Final = msgspec.json.Decoder(_SliceSpec)
_CONTENTS: Final = msgspec.json.Decoder(_Contents)


class _SliceAnnotations(msgspec.Struct, frozen=True, gc=False):
    originals: str | None = msgspec.field(name=ORIGINALS, default=None)


class _SliceMeta(_SliceIdentity, frozen=True, gc=False):
    annotations: _SliceAnnotations | None = None


class WholeSliceWire(msgspec.Struct, frozen=True, gc=False):
    """A ResourceSlice of any version, for those who look at attributes and capacity."""

    metadata: _SliceMeta
    spec: msgspec.Raw = _NOTHING

    def to_value(self) -> ResourceSlice:
        """As SliceWire's; `raw_devices` are the bytes, a tenth of what the values would take.

        Of the annotations it has ORIGINALS. Raises: msgspec.DecodeError.
        """
        if bytes(self.spec):
            contents = _CONTENTS.decode(self.spec)
            found = _slice(self.metadata, _SLICE_SPEC.decode(self.spec), bytes(contents.devices) or None)
            if beside := contents.beside_devices():
                found = msgspec.structs.replace(found, beside_devices=beside)
        else:
            found = _slice(self.metadata, _SliceSpec())
        originals = self.metadata.annotations.originals if self.metadata.annotations else None
        if originals is None:
            return found
        meta = msgspec.structs.replace(found.meta, annotations={ORIGINALS: originals})
        return msgspec.structs.replace(found, meta=meta)


# --- device classes -----------------------------------------------------------------------------


class StoredClass(msgspec.Struct, frozen=True):
    """A DeviceClass in the cluster."""

    meta: ObjectMeta
    selectors: DeviceClassSelectors


class DeviceClassWire(msgspec.Struct, frozen=True):
    """A DeviceClass of any version. There are few."""

    metadata: ObjectIdentity
    spec: dict[str, Any] | None = None

    def to_value(self) -> StoredClass:
        """Its selectors as `api.slices.decode_device_class` returns them; no annotations."""
        selectors = decode_cel_selectors(Reader(self.spec or {}, []))
        return StoredClass(object_meta(self.metadata), DeviceClassSelectors(self.metadata.name, selectors))


# --- rules --------------------------------------------------------------------------------------


class RuleWire(WholeWire, frozen=True):
    """A DeviceTaintRule of any version, whole: a selector with unknown fields must be recognized as one."""

    def to_value(self) -> DeviceTaintRule:
        """As `api.rules.decode_rule` returns it."""
        return decode_rule(self.reader)
