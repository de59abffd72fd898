"""What of an object on the wire is kept: structs that msgspec fills from JSON, and the rest is never built."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec


class Meta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """An object's metadata, as far as it is read. Lists have the other two fields."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None


class Wire(msgspec.Struct, frozen=True):
    """The base of everything that a reflector follows."""

    metadata: Meta

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone for what has no namespace."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


W = TypeVar("W", bound=Wire)


class ListMeta(msgspec.Struct, frozen=True):
    """Of one page of a list."""

    resource_version: str = msgspec.field(name="resourceVersion", default="")
    next_page: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, Generic[W], frozen=True):
    """One answer to a list."""

    metadata: ListMeta
    items: list[W] | None = None


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch; what the object is depends on the type."""

    type: str
    object: msgspec.Raw


def is_newer(version: str, than: str) -> bool:
    """Whether one resource version comes after another.

    They are numbers that grow (KEP-5504 promises it); should they be anything else, whatever differs is newer.
    """
    if version.isdigit() and than.isdigit():
        return (len(version), version) > (len(than), than)
    return version != than
