"""ResourceClaim and ResourceClaimTemplate. Source: KEP-4381, KEP-5055; `semantics.md` L-9 to L-13.

A claim's specification has three shapes: `exactly` and `firstAvailable` (v1beta2, v1), and the flat request of
v1beta1. All read into the same values; `DeviceRequest.flat` remembers what was written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from webhook.api.decode import Reader
from webhook.api.field import JSON
from webhook.api.meta import ObjectMeta
from webhook.api.pods import Owner, decode_owner, decode_owning_pod_group
from webhook.api.quantities import parse_quantity
from webhook.api.remembered import remembered
from webhook.api.rules import decode_cel_selectors
from webhook.api.taints import DeviceToleration, decode_tolerations

EXTENDED_RESOURCE: Final = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of claims that the scheduler makes (resource/v1.ExtendedResourceClaimAnnotation)."""
FROM_TEMPLATE: Final = "resource.kubernetes.io/pod-claim-name"
"""Annotation of claims that are made from templates (resource/v1.PodResourceClaimAnnotation)."""

# As the scheduler names them: plugins/dynamicresources/extendeddynamicresources.go, storage/names/generate.go.
_EXTENDED_REQUEST: Final = re.compile(r"container-[0-9]+-request-[0-9]+")
_EXTENDED_NAME: Final = "-extended-resources-"
_LONGEST_BASE: Final = 58
_RANDOM_LENGTH: Final = 5
_ALL: Final = "All"
Amounts = tuple[tuple[str, Fraction], ...]
"""Quantities by name."""


class ExactRequest(msgspec.Struct, frozen=True, gc=False):
    """One device request: a class of devices, and the tolerated taints. `name` is empty except in alternatives."""

    name: str = ""
    device_class_name: str = ""
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()


class DeviceRequest(msgspec.Struct, frozen=True, gc=False):
    """One request of a claim: exact, or a list of alternatives; the scheduler takes the first that fits."""

    name: str
    exactly: ExactRequest | None = None
    first_available: tuple[ExactRequest, ...] = ()
    flat: bool = False


class Wish(msgspec.Struct, frozen=True):
    """A request, or one of its alternatives: a number of devices of a class, or (`every`) all of a node.

    `name` is that in allocation results: `request`, or `request/alternative`. A selector that is not CEL is None.
    """

    name: str
    device_class: str
    selectors: tuple[str | None, ...] = ()
    every: bool = False
    count: int = 1
    admin: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: Amounts = ()


class Constraint(NamedTuple):
    """The devices of these requests, or of all, have one value of an attribute; or (`distinct`) each another one."""

    attribute: str
    requests: frozenset[str]
    distinct: bool

    def concerns(self, ask: Wish) -> bool:
        """Tell whether it is about the devices of a request."""
        return not self.requests or not self.requests.isdisjoint((ask.name, ask.name.partition("/")[0]))


class Demand(msgspec.Struct, frozen=True):
    """The requests of a claim, each with its alternatives in order. `unknown` names fields that are not known here."""

    requests: tuple[tuple[Wish, ...], ...] = ()
    constraints: tuple[Constraint, ...] = ()
    unknown: str = ""
    admin: bool = False
    """Whether it asks for admin access to any device."""

    def ask_of(self, name: str) -> Wish | None:
        """Return what a result of an allocation was asked for by."""
        return next((ask for asks in self.requests for ask in asks if ask.name == name), None)


class AllocationResult(msgspec.Struct, frozen=True, gc=False):
    """One allocated device, with the tolerations copied from the request (L-12)."""

    request: str
    driver: str
    pool: str
    device: str
    tolerations: tuple[DeviceToleration, ...] = ()


class Consumer(msgspec.Struct, frozen=True, gc=False):
    """An entry of `reservedFor`: usually a pod, sometimes a PodGroup (E-18)."""

    api_group: str
    resource: str
    name: str
    uid: str


class ResourceClaim(msgspec.Struct, frozen=True, gc=False):
    """A claim. `allocation` is None until devices are allocated. `spec` is kept raw, for comparison only.

    In an inventory, `requests` holds only what `classes_only` keeps, and only where classes are needed.
    Reviews do not read the last three fields: whether the scheduler made the claim for an extended resource (see
    `made_for_extended_resource`), the uid of its controller, and the controller's name if that is a PodGroup. They are
    empty if the claim has no controller (E-17).
    """

    meta: ObjectMeta
    requests: tuple[DeviceRequest, ...] = ()
    allocation: tuple[AllocationResult, ...] | None = None
    reserved_for: tuple[Consumer, ...] = ()
    spec: JSON = None
    extended_resource: bool = False
    controller_uid: str = ""
    pod_group: str = ""
    demand: Demand | None = None
    """Its requests and constraints; None where they are not kept."""


class ResourceClaimTemplate(msgspec.Struct, frozen=True, gc=False):
    """A template; `spec.metadata` goes into every claim generated from it."""

    meta: ObjectMeta
    requests: tuple[DeviceRequest, ...] = ()
    claim_meta: ObjectMeta = ObjectMeta()
    spec: JSON = None


CLAIMING: Final = (ResourceClaim, ResourceClaimTemplate)
"""The kinds that request devices, for isinstance: a union of the two would be created for each review."""
_FLAT_FIELDS = (
    *("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity"),
    "derivedAttributes",
)


def decode_claim(reader: Reader) -> ResourceClaim:
    """A ResourceClaim of any version."""
    return ResourceClaim(
        reader.meta(),
        _decode_requests(reader.child_or_empty("spec")),
        *(_decode_status(reader.child_or_empty("status")) if "status" in reader.raw else (None, ())),
        reader.raw.get("spec"),
    )


def decode_stored_claim(reader: Reader) -> ResourceClaim:
    """A stored ResourceClaim: with the fields that only inventories read, without those that only reviews read."""
    owner = decode_owner(reader)
    claim = structs.replace(
        decode_claim(reader),
        requests=(),
        spec=None,
        controller_uid=owner.uid if owner else "",
        pod_group=decode_owning_pod_group(reader),
    )
    return structs.replace(claim, extended_resource=made_for_extended_resource(claim, owner))


def made_for_extended_resource(claim: ResourceClaim, owner: Owner | None) -> bool:
    """Whether the scheduler made the claim for the extended resources of the pod that controls it, `owner`.

    The annotation alone proves nothing: anyone who may edit a claim can set it, and a template can bring it. In-tree
    eviction does not read it, so a claim that only carries it must count like any other. See `has_scheduler_shape`.
    """
    annotations = claim.meta.annotations
    return (
        annotations.get(EXTENDED_RESOURCE) == "true"
        and FROM_TEMPLATE not in annotations
        and has_scheduler_shape(claim, owner)
    )


def has_scheduler_shape(claim: ResourceClaim, owner: Owner | None) -> bool:
    """Whether a claim looks, apart from its annotations, as the scheduler of 1.37 makes it for a pod.

    Its name and the names of its requests are generated and cannot be changed later; it has no tolerations and no
    alternatives; and it is reserved for no pod but the one that controls it. The value may hold only some of these.
    """
    return (
        owner is not None
        and owner.kind == "Pod"
        and claim.meta.name[:-_RANDOM_LENGTH] == f"{owner.name}{_EXTENDED_NAME}"[:_LONGEST_BASE]
        and all(consumer.uid == owner.uid for consumer in claim.reserved_for)
        and all(_is_extended(each.name, each.exactly) for each in claim.requests)
        and all(_is_extended(each.request, each) for each in claim.allocation or ())
    )


def _is_extended(name: str, asked: ExactRequest | AllocationResult | None) -> bool:
    return asked is not None and not asked.tolerations and _EXTENDED_REQUEST.fullmatch(name) is not None


def classes_only(requests: tuple[DeviceRequest, ...]) -> tuple[DeviceRequest, ...]:
    """Keep nothing of requests but their names and classes."""
    return tuple(
        [
            DeviceRequest(
                request.name,
                None if request.exactly is None else ExactRequest("", request.exactly.device_class_name),
                tuple([ExactRequest(each.name, each.device_class_name) for each in request.first_available]),
            )
            for request in requests
        ]
    )


def allocated_classes(claim: ResourceClaim) -> frozenset[str]:
    """The classes of the devices allocated to a claim, by its known requests and the alternatives that were taken."""
    taken = {result.request for result in claim.allocation or ()}
    classes = {each.exactly.device_class_name for each in claim.requests if each.exactly and each.name in taken}
    for request in claim.requests:
        classes |= {
            each.device_class_name for each in request.first_available if f"{request.name}/{each.name}" in taken
        }
    return frozenset(classes)


def decode_template(reader: Reader) -> ResourceClaimTemplate:
    """A ResourceClaimTemplate of any version."""
    spec = reader.child_or_empty("spec")
    return ResourceClaimTemplate(
        reader.meta(), _decode_requests(spec.child_or_empty("spec")), spec.meta(), reader.raw.get("spec")
    )


def _decode_requests(spec: Reader) -> tuple[DeviceRequest, ...]:
    devices = spec.child("devices")
    if devices is None:
        return ()
    count = len(devices.list("requests"))
    return tuple([_decode_request(devices.entry("requests", position)) for position in range(count)])


def _decode_request(reader: Reader) -> DeviceRequest:
    exactly = reader.child("exactly")
    flat = exactly is None and is_flat(reader.raw)
    if flat:
        exactly = reader
    return DeviceRequest(
        reader.text("name"),
        None if exactly is None else _decode_exact(exactly, ""),
        tuple([_decode_exact(each, each.text("name")) for each in reader.each("firstAvailable")])
        if "firstAvailable" in reader.raw
        else (),
        flat,
    )


def is_flat(raw: Mapping[str, JSON]) -> bool:
    """Whether a request of v1beta1 is an exact one (conversion.go, hasAnyMainRequestFieldsSet).

    An API server writes out empty classes beside `firstAvailable`, so presence says nothing.
    """
    return any(
        (value := raw.get(field)) is not None and value != "" and not (value.__class__ is int and value == 0)
        for field in _FLAT_FIELDS
    )


def _decode_exact(reader: Reader, name: str) -> ExactRequest:
    return ExactRequest(
        name,
        reader.text("deviceClassName"),
        reader.boolean("adminAccess") or False,
        decode_tolerations(reader),
    )


@remembered(4096, 4 * 1024)
def demand_in(devices: bytes) -> Demand:
    """Read `spec.devices` of a claim of any version, as JSON; most claims are made from few templates."""
    reader = Reader.of(json.loads(devices), [])
    requests, unknown = [], set[str]()
    for request in reader.each("requests"):
        name, exactly = request.text("name"), request.child("exactly")
        if exactly is None and is_flat(request.raw):
            exactly = request
        several = [] if exactly is not None else list(request.each("firstAvailable"))
        asks = [_ask(each, f"{name}/{each.text('name')}") for each in several] if exactly is None else []
        requests.append(tuple(asks) if exactly is None else (_ask(exactly, name),))
        unknown |= {"derivedAttributes" for each in (exactly, *several) if each and each.has("derivedAttributes")}
    constraints = []
    for each in reader.each("constraints"):
        distinct, of = each.text("distinctAttribute"), frozenset(each.texts("requests"))
        constraints.append(Constraint(distinct or each.text("matchAttribute"), of, bool(distinct)))
    if not all(requests) or not all(each.attribute for each in constraints):
        unknown.add("requests or constraints of a later release")
    admin = any(ask.admin for asks in requests for ask in asks)
    return Demand(tuple(requests), tuple(constraints), ", ".join(sorted(unknown)), admin)


def _ask(reader: Reader, name: str) -> Wish:
    return Wish(
        name,
        reader.text("deviceClassName"),
        tuple([each.expression for each in decode_cel_selectors(reader)]),
        reader.text("allocationMode") == _ALL,
        reader.integer("count") or 1,
        reader.boolean("adminAccess") or False,
        decode_tolerations(reader),
        _amounts(reader.child_or_empty("capacity").map("requests")),
    )


def _amounts(values: Mapping[str, JSON]) -> Amounts:
    return tuple([(name, parse_quantity(value) or Fraction(0)) for name, value in values.items()])


def _decode_status(status: Reader) -> tuple[tuple[AllocationResult, ...] | None, tuple[Consumer, ...]]:
    allocation = status.child("allocation")
    results: tuple[AllocationResult, ...] | None = None
    if allocation is not None:
        results = tuple([_decode_result(each) for each in allocation.child_or_empty("devices").each("results")])
    consumers = [
        Consumer(each.text("apiGroup"), each.text("resource"), each.text("name"), each.text("uid"))
        for each in status.each("reservedFor")
    ]
    return results, tuple(consumers)


def _decode_result(reader: Reader) -> AllocationResult:
    return AllocationResult(
        reader.text("request"),
        reader.text("driver"),
        reader.text("pool"),
        reader.text("device"),
        decode_tolerations(reader),
    )
