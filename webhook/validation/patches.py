"""Field rules of ResourceSlicePatch. `semantics.md` P-3 to P-7, P-9, P-20, P-21."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from msgspec import structs

from webhook.api.field import FieldError, Path, invalid, required
from webhook.api.patches import ATTRIBUTES_AND_CAPACITIES_MAX, PatchedAttribute, PatchedCapacity, ResourceSlicePatch
from webhook.api.quantities import A_QUANTITY, parse_quantity
from webhook.api.taints import DeviceTaint
from webhook.validation.formats import (
    DRIVER_MAX_BYTES,
    VALUE_MAX_BYTES,
    dns1123_subdomain,
    each_invalid,
    identifier,
    length_errors,
    object_meta_errors,
    semantic_version,
)
from webhook.validation.releases import Release
from webhook.validation.rules import selector_errors
from webhook.validation.slices import FIRST_REVISION_EFFECTS
from webhook.validation.taints import taint_list_errors

DEVICES: Final = Path.root().child("spec", "devices")
PATCH_TAINTS_MAX: Final = 16


def patch_errors(new: ResourceSlicePatch, old: ResourceSlicePatch | None, release: Release) -> Iterator[FieldError]:
    """A ResourceSlicePatch that is created (`old` is None) or updated."""
    yield from object_meta_errors(new.meta, created=old is None)
    if new.filter is not None:
        stored = old.filter if old else None
        yield from selector_errors(DEVICES.child("filter"), new.filter, stored, release, evaluated=True)
    number = len(new.attributes) + len(new.capacity) + new.left_out
    if number > ATTRIBUTES_AND_CAPACITIES_MAX:
        detail = f"the total number of attributes and capacities must not exceed {ATTRIBUTES_AND_CAPACITIES_MAX}"
        yield invalid(DEVICES, number, detail)
    # What is as it was stored was judged when it came. Sets: both lists are as long as their authors like.
    known_attributes = frozenset(old.attributes if old else ())
    known_capacity = frozenset(old.capacity if old else ())
    for attribute in new.attributes:
        if attribute in known_attributes:
            continue
        path = DEVICES.child("attributes").key(attribute.name)
        yield from qualified_name_errors(path, attribute.name)
        yield from attribute_errors(path, attribute)
    for capacity in new.capacity:
        if capacity in known_capacity:
            continue
        path = DEVICES.child("capacity").key(capacity.name)
        yield from qualified_name_errors(path, capacity.name)
        yield from capacity_errors(path, capacity, whole=not new.first_revision)
    if new.first_revision:
        release = replace(release, effects=FIRST_REVISION_EFFECTS)
    if old is None or _without_times(old) != _without_times(new):
        yield from taint_list_errors(DEVICES.child("taints"), new.taints, release, maximum=PATCH_TAINTS_MAX)


def _without_times(patch: ResourceSlicePatch) -> list[DeviceTaint]:
    return [structs.replace(taint, time_added=None) for taint in patch.taints]


def qualified_name_errors(path: Path, name: str) -> Iterator[FieldError]:
    """`domain/identifier`; here the domain must be given (P-4, P-5)."""
    domain, slash, rest = name.partition("/")
    if not slash:
        yield invalid(path, name, "must include a domain, such as `driver.example.com/name`")
        domain, rest = "", name
    elif not domain:
        yield required(path, "the domain must not be empty")
    if domain:
        yield from length_errors(path, domain, DRIVER_MAX_BYTES)
        yield from each_invalid(path, domain, dns1123_subdomain(domain))
    if not rest:
        yield required(path, "the name must not be empty")
    else:
        yield from identifier(path, rest)


def attribute_errors(path: Path, attribute: PatchedAttribute) -> Iterator[FieldError]:
    """Exactly one value, short enough and, for versions, one by semver.org (P-7, P-8)."""
    if not attribute.kinds:
        yield required(path, "exactly one value must be specified")
        return
    if len(attribute.kinds) > 1:
        yield invalid(path, list(attribute.kinds), "exactly one value must be specified")
        return
    (kind,), value = attribute.kinds, attribute.value
    if kind in ("string", "version"):
        at = path.child(kind)
        yield from length_errors(at, value, VALUE_MAX_BYTES)
        if kind == "version":
            yield from each_invalid(at, value, semantic_version(value))


def capacity_errors(path: Path, capacity: PatchedCapacity, *, whole: bool) -> Iterator[FieldError]:
    """A quantity, which must be there: a capacity cannot be removed (P-9). `whole`: a number has no fraction.

    The CustomResourceDefinition of our own kind cannot have numbers with a fraction; as text they are fine.
    """
    at, value = path.child("value"), capacity.value
    if value is None:
        yield required(at, "a capacity cannot be removed; it can be set to 0")
    elif whole and isinstance(value, float):
        yield invalid(at, value, 'a number with a fraction must be text, such as "1.5"')
    elif parse_quantity(value) is None:
        yield invalid(at, value, f"must be {A_QUANTITY}")
