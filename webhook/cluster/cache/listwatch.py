"""Lists and watches of one collection, with values instead of JSON; a Store adds them up, a Wire decodes them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from sys import intern
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import msgspec

from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta
from webhook.api.pods import Owner, kind_of
from webhook.cluster.cache.discovery import Collection
from webhook.cluster.client.answers import decode, decode_large
from webhook.cluster.client.errors import Undecodable, error_of
from webhook.cluster.client.list_pages import Page, collection_version, list_pages
from webhook.cluster.client.rest import JSON, Cluster
from webhook.flowcontrol.workqueue import TimeSlice

_TOMBSTONES_MOST: Final = 1024
"""Deleted objects that are remembered, so that an event that comes late does not bring one back."""
_METADATA: Final = "application/json;as={};g=meta.k8s.io;v=v1,application/json"
METADATA: Final = _METADATA.format("PartialObjectMetadata")
"""Asks for metadata only."""


class ObjectIdentity(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The metadata that identifies an object and its state."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Meta(ObjectIdentity, frozen=True, gc=False):
    """An object's metadata with its labels."""

    labels: dict[str, str] | None = None


Named: TypeAlias = ObjectIdentity | ObjectMeta


class Stored(Protocol):
    """A value that a store keeps."""

    @property
    def meta(self) -> Named:
        """Its name, uid and resource version."""


K = TypeVar("K")
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


class WholeWire(msgspec.Struct, frozen=True):
    """An object that is kept whole: a field that is not known must be recognized as one."""

    metadata: dict[str, Any]
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None

    @property
    def reader(self) -> Reader:
        """Reads the object."""
        return Reader({"metadata": self.metadata, "spec": self.spec, "status": self.status}, [])


def key_of(meta: Named) -> str:
    """`namespace/name`, or the name alone for what has no namespace."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def is_newer(version: str, than: str) -> bool:
    """Return whether one resource version comes after another.

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
    """The same as `api.pods.decode_owner` returns it."""
    if controller is None:
        return None
    kind = kind_of(controller.api_version, controller.kind)
    return Owner(intern(kind), intern(controller.name), intern(controller.uid))


_REMEMBERED_BYTES: Final = 4096
"""Lists whose JSON is longer are not shared: they hardly repeat."""


REMEMBERED_ENTRIES: Final = 2048
"""What is shared is forgotten beyond this number, and shared again from then on."""


class SharedValues(Generic[K]):
    """Equal values are one, up to a number of them."""

    def __init__(self) -> None:
        self._known: dict[K, K] = {}

    def of(self, value: K) -> K:
        """The one that is known; the value itself if none is, or if it cannot be a key."""
        if len(self._known) >= REMEMBERED_ENTRIES:
            self._known.clear()
        try:
            return self._known.setdefault(value, value)
        except TypeError:
            return value


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


class _WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch; what the object is depends on the type."""

    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct, frozen=True):
    """An event with nothing but a version: all changes up to it have been sent."""

    metadata: ObjectIdentity


_EVENT: Final = msgspec.json.Decoder(_WatchEvent)
_BOOKMARK: Final = msgspec.json.Decoder(_Bookmark)


class Store(Generic[V]):
    """Objects by `namespace/name` or name, and subscribers that are notified of each change."""

    def __init__(self, items: Mapping[str, V] | None = None) -> None:
        """`items`: where the first subscriber keeps the objects, by the same keys; then they are not kept here."""
        own: dict[str, V] = {}
        self._own = own if items is None else None
        self._tombstones: dict[str, str] = {}
        self._subscribers: list[Callable[[V | None, V | None], None]] = []
        self.items: Mapping[str, V] = MappingProxyType(own) if items is None else items

    def subscribe(self, on_change: Callable[[V | None, V | None], None]) -> None:
        """Calls `on_change(old, new)` for every change from now on, after the items have changed."""
        self._subscribers.append(on_change)

    def upsert(self, new: V) -> None:
        """Added or changed; ignored if this version or a later one has been seen."""
        key = key_of(new.meta)
        known = self.items.get(key)
        latest = known.meta.resource_version if known is not None else self._tombstones.get(key)
        if latest is None or is_newer(new.meta.resource_version, latest):
            self._set(key, new)

    def delete(self, last: V) -> None:
        """Deleted; the version is that of the deletion."""
        key, version = key_of(last.meta), last.meta.resource_version
        known = self.items.get(key)
        if known is not None and is_newer(known.meta.resource_version, version):
            return
        self._tombstones[key] = version
        if len(self._tombstones) > _TOMBSTONES_MOST:
            del self._tombstones[next(iter(self._tombstones))]
        if known is not None:
            self._remove(key)

    def collect(self, found: dict[str, V], new: V) -> None:
        """Adds an item of a list to `found`, as the object that is stored already if it has not changed."""
        key = key_of(new.meta)
        known, meta = self.items.get(key), new.meta
        same = known is not None and (known.meta.uid, known.meta.resource_version) == (meta.uid, meta.resource_version)
        found[key] = known if known is not None and same else new

    async def replace(self, found: Mapping[str, V], timeslice: TimeSlice) -> None:
        """The items become those found, change by change; other tasks run in between."""
        self._tombstones.clear()
        for key in [key for key in self.items if key not in found]:
            self._remove(key)
            await timeslice.pause()
        for key, new in found.items():
            self._set(key, new)
            await timeslice.pause()

    def _set(self, key: str, new: V) -> None:
        """The object is there now; one of the same name but another uid is another object."""
        old = self.items.get(key)
        if old is not None:
            if old.meta.resource_version == new.meta.resource_version:
                return
            if old.meta.uid != new.meta.uid:
                self._remove(key)
                old = None
        if self._own is not None:
            self._own[key] = new
        self._notify(old, new)

    def _remove(self, key: str) -> None:
        old = self.items[key]
        if self._own is not None:
            del self._own[key]
        self._notify(old, None)

    def _notify(self, old: V | None, new: V | None) -> None:
        for on_change in self._subscribers:
            on_change(old, new)


class Event(NamedTuple, Generic[V]):
    """One line of a watch: a value added or changed, a value deleted, or neither and only a sign of life."""

    upserted: V | None = None
    """Added or changed."""
    deleted: V | None = None
    version: str = ""
    """All changes up to it have been sent; empty if the line does not say."""


class ListWatch(Generic[V]):
    """Lists and watches of one collection; the struct `wire` says which fields are read."""

    def __init__(
        self,
        cluster: Cluster,
        collection: Collection,
        wire: type[WireStruct[V]],
        *,
        field_selector: str = "",
        metadata_only: bool = False,
    ) -> None:
        """`metadata_only`: the server sends nothing else of each object."""
        self._cluster = cluster
        self.collection = collection
        self._selector = {"fieldSelector": field_selector} if field_selector else {}
        self._list_accept = _METADATA.format("PartialObjectMetadataList") if metadata_only else JSON
        self._watch_accept = METADATA if metadata_only else JSON
        self._object: msgspec.json.Decoder[WireStruct[V]] = msgspec.json.Decoder(wire)

    async def pages(self, size: int) -> AsyncGenerator[tuple[Iterator[V], str], None]:
        """Each page of a list: its items, read while they are taken, and the version, which all pages have.

        0 asks for all in one piece. Raises Gone if it took so long that the first page's state is forgotten.
        """
        path = await self.collection.path()
        listed = list_pages(self._cluster, path, size, selector=self._selector, accept=self._list_accept)
        async with contextlib.aclosing(listed) as pages:
            async for page in pages:
                yield self._items(path, page), page.metadata.resource_version

    async def newest_version(self) -> str:
        """The version of the collection as it is now. Raises ClusterError."""
        path = await self.collection.path()
        return await collection_version(self._cluster, path, selector=self._selector, accept=self._list_accept)

    def _items(self, path: str, page: Page) -> Iterator[V]:
        try:
            for item in page.items or ():
                yield decode(self._object, item).to_value()
        except msgspec.DecodeError as error:
            raise Undecodable(f"GET {path}: cannot be read: {error}") from None

    async def watch(
        self, version: str, *, watch_seconds: int, silence_seconds: float
    ) -> AsyncGenerator[Event[V], None]:
        """An empty event once the server has accepted, then each one after `version`, until the server ends the watch.

        Raises as Cluster.watch does, and what an event of type ERROR stands for. Close the generator when leaving it
        early.
        """
        lines = self._cluster.watch(
            await self.collection.path(),
            {**self._selector, "resourceVersion": version, "allowWatchBookmarks": "true"},
            accept=self._watch_accept,
            watch_seconds=watch_seconds,
            silence_seconds=silence_seconds,
        )
        nothing: Event[V] = Event()
        async with contextlib.aclosing(lines):
            async for line in lines:
                yield await self._event(line) if line else nothing

    async def _event(self, line: bytes) -> Event[V]:
        """What a line says; of an unknown type of event, nothing."""
        resource = self.collection.resource
        try:
            event = await decode_large(_EVENT, line)
            match event.type:
                case "ADDED" | "MODIFIED":
                    value = decode(self._object, event.object).to_value()
                    return Event(upserted=value, version=value.meta.resource_version)
                case "DELETED":
                    value = decode(self._object, event.object).to_value()
                    return Event(deleted=value, version=value.meta.resource_version)
                case "BOOKMARK":
                    return Event(version=_BOOKMARK.decode(event.object).metadata.resource_version)
                case "ERROR":
                    raise error_of(f"WATCH {resource}", bytes(event.object))
                case _:
                    return Event()
        except msgspec.DecodeError as error:
            raise Undecodable(f"WATCH {resource}: an event cannot be read: {error}") from None
