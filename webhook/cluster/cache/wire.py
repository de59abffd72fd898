"""Structs that msgspec fills from JSON: the fields that are read, and nothing else is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
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
