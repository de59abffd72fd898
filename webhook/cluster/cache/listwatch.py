"""Lists and watches of one collection, with values instead of JSON; a Store adds them up."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

import msgspec

from webhook.cluster.cache.wire import Bookmark, V, WatchEvent
from webhook.cluster.client.answers import decode, decode_large
from webhook.cluster.client.errors import Undecodable, error_of
from webhook.cluster.client.list_pages import collection_version, list_pages
from webhook.cluster.client.rest import JSON

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from webhook.cluster.cache.discovery import Collection
    from webhook.cluster.cache.wire import WireStruct
    from webhook.cluster.client.list_pages import Page
    from webhook.cluster.client.rest import Cluster

_EVENT: Final = msgspec.json.Decoder(WatchEvent)
_BOOKMARK: Final = msgspec.json.Decoder(Bookmark)
_METADATA: Final = "application/json;as={};g=meta.k8s.io;v=v1,application/json"
METADATA: Final = _METADATA.format("PartialObjectMetadata")
"""Asks for metadata only."""


class Event(NamedTuple, Generic[V]):
    """One line of a watch: a value added or changed, a value deleted, or neither and only a sign of life."""

    upserted: V | None = None
    """Added or changed."""
    deleted: V | None = None
    version: str = ""
    """All changes up to it have been sent; empty if the line does not say."""


class ListWatch(Generic[V]):
    """Lists and watches of one collection, as far as the struct `wire` describes its objects."""

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
