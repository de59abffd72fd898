"""Devices as the scheduler reads them in a slice: with counters and capacity, and which nodes can use them.

Reviews need none of it, and inventories keep it only where someone asks where evicted pods would go.
Source: resource.k8s.io/v1 ResourceSliceSpec; core/v1 NodeSelector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

import msgspec

from webhook.api.decode import Reader
from webhook.api.field import JSON
from webhook.api.meta import LabelRequirement
from webhook.api.quantities import parse_quantity

_NAME: Final = "metadata.name"
_SETS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
BESIDE_DEVICES: Final = ("allNodes", "nodeSelector", "perDeviceNodeSelection", "sharedCounters")
"""Fields of a slice's spec that say where its devices are, and how much its counters hold."""


class Offer(msgspec.Struct, frozen=True, eq=False):
    """A device with everything that decides who gets it.

    `attributes` and `capacity` are JSON objects by name, as they are written. `draws` are quantities by counter set and
    counter. `shared`: it allows several allocations. `nodes`: as `reaches` reads it.
    """

    name: str
    attributes: Mapping[str, Any]
    capacity: Mapping[str, dict[str, JSON]]
    shared: bool
    draws: tuple[tuple[tuple[str, str], Fraction], ...]
    nodes: Mapping[str, JSON]


def decode_offers(spec: Reader) -> tuple[tuple[Offer, ...], Mapping[tuple[str, str], Fraction]]:
    """Read the spec of a slice of any version: its devices, and how much there is of each counter."""
    each_its_own = spec.boolean("perDeviceNodeSelection")
    offers = []
    for device in spec.each("devices"):
        content = device.child("basic") or device
        capacity = content.map("capacity")
        offers.append(
            Offer(
                device.text("name"),
                {name: each if isinstance(each, dict) else {} for name, each in content.map("attributes").items()},
                {name: each if isinstance(each, dict) else {"value": each} for name, each in capacity.items()},
                content.boolean("allowMultipleAllocations") or False,
                tuple(_counters(content, "consumesCounters", "counterSet")),
                content.raw if each_its_own else spec.raw,
            )
        )
    return tuple(offers), dict(_counters(spec, "sharedCounters", "name"))


def _counters(owner: Reader, field: str, name: str) -> Iterator[tuple[tuple[str, str], Fraction]]:
    for group in owner.each(field):
        for counter, value in group.entries("counters"):
            yield (group.text(name), counter), parse_quantity(value.raw.get("value")) or Fraction(0)


# --- nodes --------------------------------------------------------------------------------------


def reaches(owner: Mapping[str, Any], node: str, labels: Mapping[str, str]) -> bool:
    """Tell whether a node can use the devices of a slice's spec, or of a device that names nodes itself."""
    if owner.get("nodeName"):
        return bool(owner["nodeName"] == node)
    terms = Reader(dict(owner), []).child_or_empty("nodeSelector").each("nodeSelectorTerms")
    return bool(owner.get("allNodes")) or any(term_selects(term.raw, node, labels) for term in terms)


def term_selects(term: Mapping[str, Any], node: str, labels: Mapping[str, str]) -> bool:
    """Tell whether a term of a node selector selects a node: all in it holds; an empty one selects none."""
    reader = Reader(dict(term), [])
    fields, expressions = list(reader.each("matchFields")), list(reader.each("matchExpressions"))
    return bool(fields or expressions) and (
        all(_holds(each, {_NAME: node}) for each in fields) and all(_holds(each, labels) for each in expressions)
    )


def _holds(requirement: Reader, labels: Mapping[str, str]) -> bool:
    key, operator, values = requirement.text("key"), requirement.text("operator"), requirement.texts("values")
    if operator not in ("Gt", "Lt"):
        return operator in _SETS and LabelRequirement(key, operator, values).matches(labels)
    try:
        left, right = [int(each.replace("_", "no digit")) for each in (labels[key], next(iter(values)))]
    except (KeyError, ValueError, StopIteration):
        return False
    return left > right if operator == "Gt" else left < right
