"""Everything that an API server refuses in an object besides taints and tolerations, for files.

On a cluster the server validates an object before it calls the webhook, so reviews do not use this. Wrong types come
first: a server answers those with 400 before any rule is checked. Null reads as missing everywhere, as in Go, and the
fields come from `api.schema`; unknown fields are left to `strict`.
Source: apimachinery/pkg/api/validation, objectmeta.go, for metadata. `managedFields` is left out: tools do not write
it, and a server replaces it. So is `resourceVersion`, which exported manifests carry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from webhook.api.decode import INT64
from webhook.api.field import JSON, FieldError, Path, forbidden, invalid, outline, required, too_long, type_invalid
from webhook.api.meta import A_TIME, GROUP, GroupVersionKind, parse_time
from webhook.api.quantities import A_QUANTITY, parse_quantity
from webhook.api.schema import RELEASES, Reference, fields_of, held_by, type_of
from webhook.validation.claim_objects import claim_spec_errors
from webhook.validation.device_objects import slice_spec_errors
from webhook.validation.formats import dns1123_label, each_invalid, go_lower, label_key, label_value, size_bytes
from webhook.validation.nodes import Node
from webhook.validation.releases import Release

_NAMESPACED: Final = frozenset({"ResourceClaim", "ResourceClaimTemplate"})
_IMMUTABLE: Final = "ResourceClaim"


def object_errors(value: JSON, old: JSON, kind: GroupVersionKind, release: Release) -> Iterator[FieldError]:
    """Yield the errors of an object that is created (`old` is None) or updated, where reviews do not look.

    Wrong types end the walk. What an update left wrong is not reported again: for most fields the server ratchets,
    and a claim's spec cannot change.
    """
    errors = list(decoding_errors(value, kind, release))
    if errors or kind.group != GROUP:
        yield from errors
        return
    found = _rule_errors(value, kind, release, created=old is None)
    if old is None or any(decoding_errors(old, kind, release)):
        yield from found
        return
    before = {_key(error) for error in _rule_errors(old, kind, release, created=False)}
    for error in found:
        if _key(error) not in before:
            yield error


def _key(error: FieldError) -> tuple[str, str, str]:
    return error.field, error.type.value, error.body


def _rule_errors(value: JSON, kind: GroupVersionKind, release: Release, *, created: bool) -> Iterator[FieldError]:
    name = type_of(kind, release.minor)
    root = Node.of(value if name is None else _legible(value, name, release.minor))
    yield from metadata_errors(root.child("metadata"), namespaced=kind.kind in _NAMESPACED, created=created)
    rules = _RULES.get(kind.kind)
    if rules is not None and (created or kind.kind != _IMMUTABLE):
        yield from rules(root.child("spec"), kind.version, release)


def _legible(value: JSON, type_name: str, minor: int) -> JSON:
    """The value without fields of wrong types that a release lacks: they are unknown there, and have no type.

    `strict` reports them. The rules look at the fields of all releases, and could not read these.
    """
    if not isinstance(value, dict):
        return value
    fields, newest = fields_of(type_name, minor), held_by(type_name, RELEASES[-1])
    held_fields = held_by(type_name, minor)
    kept: dict[str, JSON] = {}
    for name, entry in value.items():
        held = held_fields.get(name)
        if held is not None and held.has_fields:
            kept[name] = _each_legible(entry, held, minor)
        elif name in fields or not _is_misread(entry, newest.get(name), name):
            kept[name] = entry
    return kept


def _is_misread(entry: JSON, held: Reference | None, name: str) -> bool:
    return entry is not None and held is not None and any(_of_field(entry, held, Path.root(), name, RELEASES[-1]))


def _each_legible(entry: JSON, held: Reference, minor: int) -> JSON:
    if isinstance(entry, list):
        return [_legible(each, held.type, minor) for each in entry]
    if held.container and isinstance(entry, dict):
        return {key: _legible(each, held.type, minor) for key, each in entry.items()}
    return _legible(entry, held.type, minor)


def _template_errors(spec: Node, version: str, release: Release) -> Iterator[FieldError]:
    """A template: what its metadata gives to its claims, which is labels and annotations and nothing else."""
    meta = spec.child("metadata")
    yield from _map_errors(meta)
    for name, value in meta.value.items():
        if name in _FIELDS and name not in _TEMPLATE_FIELDS and value not in (None, "", 0):
            yield forbidden(meta.at(name), "cannot be set")
    yield from claim_spec_errors(spec.child("spec"), version, release)


_RULES: Final[dict[str, Callable[[Node, str, Release], Iterator[FieldError]]]] = {
    "ResourceClaim": claim_spec_errors,
    "ResourceClaimTemplate": _template_errors,
    "ResourceSlice": slice_spec_errors,
}


# --- wrong types ---------------------------------------------------------------------------------


_INT32: Final = range(-(2**31), 2**31)


def decoding_errors(value: JSON, kind: GroupVersionKind, release: Release) -> Iterator[FieldError]:
    """An error for each value of a wrong type, at the path as written."""
    root = type_of(kind, release.minor)
    if root is not None:
        yield from _of_type(value, root, Path.root(), release.minor)


def _of_type(value: JSON, type_name: str, path: Path, minor: int) -> Iterator[FieldError]:
    """The errors of a value that should be an object of a type with fields."""
    if value is None:
        return
    if not isinstance(value, dict):
        yield type_invalid(path, outline(value), "an object")
        return
    fields = held_by(type_name, minor)
    for name, entry in value.items():
        held = fields.get(name)
        if held is not None and entry is not None:
            yield from _of_field(entry, held, path, name, minor)


def _of_field(value: JSON, held: Reference, path: Path, name: str, minor: int) -> Iterator[FieldError]:
    if not held.container:
        yield from _one(value, held, path, f".{name}", minor)
    elif held.container == "[":
        if not isinstance(value, list):
            yield type_invalid(path.child(name), outline(value), "a list")
            return
        at = path.child(name) if held.has_fields else None
        for position, entry in enumerate(value):
            yield from _one(entry, held, at or path, f"[{position}]" if at else f".{name}[{position}]", minor)
    else:
        if not isinstance(value, dict):
            yield type_invalid(path.child(name), outline(value), "an object")
            return
        for key, entry in value.items():
            yield from _one(entry, held, path.child(name), path.key(key).normal, minor)


def _one(value: JSON, held: Reference, path: Path, step: str, minor: int) -> Iterator[FieldError]:
    """One value, which stands a step below the path; the path is built only where it is needed."""
    if held.has_fields:
        yield from _of_type(value, held.type, Path(path, step), minor)
    elif value is not None and not _SCALARS[held.type][0](value):
        yield type_invalid(Path(path, step), outline(value), _SCALARS[held.type][1])


_SCALARS: Final[dict[str, tuple[Callable[[JSON], bool], str]]] = {
    "string": (lambda value: value.__class__ is str, "a string"),
    "boolean": (lambda value: value is True or value is False, "true or false"),
    # `true` is no number, and neither 1.5 nor 1.0 is one for Go.
    "int64": (lambda value: value.__class__ is int and value in INT64, "a 64-bit integer"),
    "int32": (lambda value: value.__class__ is int and value in _INT32, "a 32-bit integer"),
    "quantity": (lambda value: parse_quantity(value) is not None, A_QUANTITY),
    "time": (lambda value: value.__class__ is str and parse_time(value) is not None, A_TIME),
    "raw": (lambda _: True, "JSON"),
}


# --- metadata ------------------------------------------------------------------------------------

ANNOTATIONS_MAX_BYTES: Final = 256 * 1024
_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_NOT_FULLY_QUALIFIED: Final = "name is neither a standard finalizer name nor is it fully qualified"
_OWNER_TEXTS: Final = ("apiVersion", "kind", "name", "uid")
_GROUP_VERSION: Final = re.compile(r"[^/]*/[^/]+|[^/]+")
_FIELDS: Final = fields_of("meta.v1.ObjectMeta").keys()
_TEMPLATE_FIELDS: Final = frozenset({"annotations", "labels"})


def metadata_errors(meta: Node, *, namespaced: bool, created: bool) -> Iterator[FieldError]:
    """Labels, annotations, owners, finalizers and the namespace of an object."""
    if created and namespaced and meta.text("namespace"):
        yield from each_invalid(meta.at("namespace"), meta.text("namespace"), dns1123_label(meta.text("namespace")))
    elif created and meta.text("namespace"):
        yield forbidden(meta.at("namespace"), "not allowed on this type")
    yield from _map_errors(meta)
    yield from _owner_errors(meta)
    finalizers, path = meta.texts("finalizers"), meta.at("finalizers")
    for position, name in enumerate(finalizers):
        yield from each_invalid(path, name, label_key(name))
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            yield invalid(path.index(position), name, _NOT_FULLY_QUALIFIED)
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        yield invalid(path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set")


def _map_errors(meta: Node) -> Iterator[FieldError]:
    path = meta.at("labels")
    for key, value in (meta.get("labels") or {}).items():
        yield from each_invalid(path, key, label_key(key))
        yield from each_invalid(path, value or "", label_value(value or ""))
    annotations, path = meta.get("annotations") or {}, meta.at("annotations")
    for key in annotations:
        yield from each_invalid(path, key, label_key(go_lower(key)))
    if sum(size_bytes(key) + size_bytes(value or "") for key, value in annotations.items()) > ANNOTATIONS_MAX_BYTES:
        yield too_long(path, ANNOTATIONS_MAX_BYTES)


def _owner_errors(meta: Node) -> Iterator[FieldError]:
    controllers = 0
    seen: set[tuple[str | bool | None, ...]] = set()
    for owner in meta.entries("ownerReferences"):
        content = (*map(owner.text, _OWNER_TEXTS), owner.get("controller"), owner.get("blockOwnerDeletion"))
        if content in seen:
            continue  # the server drops what is there already
        seen.add(content)
        yield from _one_owner(owner.path, owner)
        controllers += owner.get("controller") is True
        if owner.get("controller") is True and controllers > 1:
            yield invalid(meta.at("ownerReferences"), "", "Only one reference can have Controller set to true")


def _one_owner(path: Path, owner: Node) -> Iterator[FieldError]:
    version = owner.text("apiVersion")
    if version and not _GROUP_VERSION.fullmatch(version):
        yield invalid(path.child("apiVersion"), version, "must be <group>/<version> or <version>")
    for name in _OWNER_TEXTS:
        if not owner.text(name):
            yield required(path.child(name), "must not be empty")
    if version == "v1" and owner.text("kind") == "Event":
        yield invalid(path, owner.text("name"), "/v1, Kind=Event is disallowed from being an owner")
