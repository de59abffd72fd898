"""One collection as the API server tells it: a list in pages, and watches, with values instead of JSON.

Nothing is remembered here; what the values add up to is the reflector's affair.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

import msgspec

from webhook.cluster.cache.wire import Bookmark, V, WatchEvent
from webhook.cluster.client.errors import Unavailable, error_of
from webhook.cluster.client.list_pages import list_pages
from webhook.cluster.client.rest import JSON

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping

    from webhook.cluster.cache.discovery import Collection
    from webhook.cluster.cache.wire import OnWire
    from webhook.cluster.client.list_pages import Page
    from webhook.cluster.client.rest import Cluster

_EVENT: Final = msgspec.json.Decoder(WatchEvent)
_BOOKMARK: Final = msgspec.json.Decoder(Bookmark)
_METADATA: Final = "application/json;as={};g=meta.k8s.io;v=v1,application/json"
METADATA: Final = _METADATA.format("PartialObjectMetadata")
"""Asks for metadata only."""
LIST_FIRST: Final[Mapping[str, str]] = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
"""Asks for a watch that begins with the list: as it is now, since no version is named (KEP-3157)."""


class Event(NamedTuple, Generic[V]):
    """One line of a watch: a value that is there now, or one that is gone, or neither and only a sign of life."""

    came: V | None = None
    went: V | None = None
    version: str = ""
    """Everything up to it was told; empty if the line does not say."""
    ends_list: bool = False
    """Whether all that there was when the watch began has been told."""


class Feed(Generic[V]):
    """Lists and watches of one collection, as far as the struct `wire` describes its objects."""

    def __init__(
        self,
        cluster: Cluster,
        collection: Collection,
        wire: type[OnWire[V]],
        *,
        field_selector: str = "",
        metadata_only: bool = False,
    ) -> None:
        """`metadata_only` spares the server and us the rest."""
        self._cluster = cluster
        self.collection = collection
        self._selector = {"fieldSelector": field_selector} if field_selector else {}
        self._list_accept = _METADATA.format("PartialObjectMetadataList") if metadata_only else JSON
        self._watch_accept = METADATA if metadata_only else JSON
        self._object: msgspec.json.Decoder[OnWire[V]] = msgspec.json.Decoder(wire)

    async def pages(self, size: int) -> AsyncGenerator[tuple[Iterator[V], str], None]:
        """Each page of a list: its items, read while they are taken, and the version, which all pages have.

        0 asks for all in one piece. Raises Gone if it took so long that the first page's state is forgotten.
        """
        path = await self.collection.path()
        listed = list_pages(self._cluster, path, size, selector=self._selector, accept=self._list_accept)
        async with contextlib.aclosing(listed) as pages:
            async for page in pages:
                yield self._items(path, page), page.metadata.resource_version

    def _items(self, path: str, page: Page) -> Iterator[V]:
        try:
            for item in page.items or ():
                yield self._object.decode(item).kept()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(f"GET {path}: cannot be read: {error}") from None

    async def watch(
        self, start: Mapping[str, str], *, watch_seconds: int, silence_seconds: float
    ) -> AsyncGenerator[Event[V], None]:
        """First an empty event once the server has said yes, then each event, until the server ends it in order.

        `start` says where: a resourceVersion, or LIST_FIRST. Raises as Cluster.watch does, and what an event of type
        ERROR stands for. Close the generator when leaving it early.
        """
        lines = self._cluster.watch(
            await self.collection.path(),
            {**self._selector, **start, "allowWatchBookmarks": "true"},
            accept=self._watch_accept,
            watch_seconds=watch_seconds,
            silence_seconds=silence_seconds,
        )
        nothing: Event[V] = Event()
        async with contextlib.aclosing(lines):
            async for line in lines:
                yield self._event(line) if line else nothing

    def _event(self, line: bytes) -> Event[V]:
        """What a line says. Kinds of events that we do not know are for others."""
        resource = self.collection.resource
        try:
            event = _EVENT.decode(line)
            match event.type:
                case "ADDED" | "MODIFIED":
                    came = self._object.decode(event.object).kept()
                    return Event(came=came, version=came.meta.resource_version)
                case "DELETED":
                    went = self._object.decode(event.object).kept()
                    return Event(went=went, version=went.meta.resource_version)
                case "BOOKMARK":
                    bookmark = _BOOKMARK.decode(event.object)
                    return Event(version=bookmark.metadata.resource_version, ends_list=bookmark.ends_list)
                case "ERROR":
                    raise error_of(f"WATCH {resource}", bytes(event.object))
                case _:
                    return Event()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(f"WATCH {resource}: an event cannot be read: {error}") from None
