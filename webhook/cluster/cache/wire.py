"""Structs that msgspec fills from JSON: the fields that are read, and nothing else is built."""

from __future__ import annotations

from sys import intern
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from webhook.api.meta import ObjectMeta
from webhook.api.owners import Owner, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self


class ObjectIdentity(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The metadata that identifies an object and its state."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Meta(ObjectIdentity, frozen=True, gc=False):
    """An object's metadata with its labels."""

    labels: dict[str, str] | None = None


class Named(Protocol):
    """What `ObjectIdentity` and `api.meta.ObjectMeta` have in common."""

    @property
    def name(self) -> str:
        """Unique in its namespace, or in the cluster."""

    @property
    def namespace(self) -> str:
        """Empty for what has none."""

    @property
    def uid(self) -> str:
        """Of this object, and of none that takes its name later."""

    @property
    def resource_version(self) -> str:
        """Of this state of the object."""


class Stored(Protocol):
    """A value that a store keeps."""

    @property
    def meta(self) -> Named:
        """Its name, uid and resource version."""


V = TypeVar("V", bound=Stored)
V_co = TypeVar("V_co", bound=Stored, covariant=True)


class WireStruct(Protocol[V_co]):
    """A struct that msgspec fills, and the value made of it."""

    def to_value(self) -> V_co:
        """The value to keep; the struct is dropped."""


class WireValue(msgspec.Struct, frozen=True):
    """Base of structs that are stored as they are."""

    metadata: Meta

    @property
    def meta(self) -> Meta:
        """The same, under the name that values of the API have for it."""
        return self.metadata

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone for what has no namespace."""
        return key_of(self.metadata)

    def to_value(self) -> Self:
        """Itself."""
        return self


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch; what the object is depends on the type."""

    type: str
    object: msgspec.Raw


class _BookmarkMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class Bookmark(msgspec.Struct, frozen=True):
    """An event with nothing but a version: all changes up to it have been sent."""

    metadata: _BookmarkMeta


def key_of(meta: Named) -> str:
    """`namespace/name`, or the name alone for what has no namespace."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def is_newer(version: str, than: str) -> bool:
    """Whether one resource version comes after another.

    They are numbers that grow (KEP-5504 promises it); should they be anything else, whatever differs is newer.
    """
    if version.isdigit() and than.isdigit():
        return (len(version), version) > (len(than), than)
    return version != than


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
