"""Metadata as an inventory holds it."""

from __future__ import annotations

from sys import intern
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.api.meta import ObjectMeta
from webhook.api.owners import Owner, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.cluster.cache.wire import ObjectIdentity

_NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})


def object_meta(identity: ObjectIdentity) -> ObjectMeta:
    """Name, namespace, uid and version; an inventory needs nothing else."""
    return ObjectMeta(
        name=identity.name,
        namespace=intern(identity.namespace),
        uid=identity.uid,
        resource_version=identity.resource_version,
        annotations=_NO_ANNOTATIONS,
    )


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """An entry of ownerReferences."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


def controller_of(references: tuple[OwnerReference, ...] | None) -> OwnerReference | None:
    """The one that controls the object."""
    return next((each for each in references or () if each.controller), None)


def owner_of(controller: OwnerReference | None) -> Owner | None:
    """The same as `api.owners.decode_owner` returns it."""
    if controller is None:
        return None
    kind = kind_of(controller.api_version, controller.kind)
    return Owner(intern(kind), intern(controller.name), intern(controller.uid))


_REMEMBERED_BYTES: Final = 4096
"""Lists whose JSON is longer are not shared: they hardly repeat."""
REMEMBERED_ENTRIES: Final = 2048
"""What is shared is forgotten beyond this number, and shared again from then on."""


class SharedLists:
    """Values of lists by their JSON. The same text is the same value, so it is read once and held once."""

    def __init__(self, read: Callable[[Any], tuple[Any, ...]]) -> None:
        self._read = read
        self._known: dict[bytes, tuple[Any, ...]] = {}

    def of(self, raw: msgspec.Raw) -> tuple[Any, ...]:
        """The value; missing and null read as empty."""
        text = bytes(raw)
        if not text:
            return ()
        known = self._known.get(text)
        if known is None:
            known = self._read(msgspec.json.decode(text))
            if len(text) <= _REMEMBERED_BYTES:
                if len(self._known) >= REMEMBERED_ENTRIES:
                    self._known.clear()
                self._known[text] = known
        return known
