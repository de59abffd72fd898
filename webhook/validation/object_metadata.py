"""What an API server refuses in metadata beyond the name. Source: apimachinery/pkg/api/validation, objectmeta.go.

`managedFields` is left out: tools do not write it, and a server replaces what it gets. So is `resourceVersion`, which
exported manifests carry.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from webhook.api.field import FieldError, Path, forbidden, invalid, required, too_long
from webhook.api.schema import fields_of
from webhook.validation.formats import dns1123_label, each_invalid, label_key, label_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.validation.nodes import Node

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


def template_metadata_errors(meta: Node) -> Iterator[FieldError]:
    """The metadata that a template gives to its claims: labels and annotations, and nothing else."""
    yield from _map_errors(meta)
    for name, value in meta.value.items():
        if name in _FIELDS and name not in _TEMPLATE_FIELDS and value not in (None, "", 0):
            yield forbidden(meta.at(name), "cannot be set")


def _map_errors(meta: Node) -> Iterator[FieldError]:
    path = meta.at("labels")
    for key, value in (meta.get("labels") or {}).items():
        yield from each_invalid(path, key, label_key(key))
        yield from each_invalid(path, value or "", label_value(value or ""))
    annotations, path = meta.get("annotations") or {}, meta.at("annotations")
    for key in annotations:
        yield from each_invalid(path, key, label_key(key.lower()))
    if _size_bytes(annotations) > ANNOTATIONS_MAX_BYTES:
        yield too_long(path, ANNOTATIONS_MAX_BYTES)


def _size_bytes(annotations: dict[str, str | None]) -> int:
    return sum(
        len(key.encode(errors="surrogatepass")) + len((value or "").encode(errors="surrogatepass"))
        for key, value in annotations.items()
    )


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
