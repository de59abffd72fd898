"""A resource as the API server has it, followed: list, watch, and list again when the thread is lost.

What callers may rely on: `items` holds the state of some moment of the server, never less once it was full, and what
subscribers are told adds up to it. While the server is away the last known items stay; `staleness_seconds` says for
how long.

Instead of list and watch, servers can stream the list as the beginning of a watch (sendInitialEvents). That would
replace `_list` here and nothing else; it pays for lists larger than ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, NoReturn

import msgspec

from webhook.cluster.backoff import Backoff
from webhook.cluster.client import JSON
from webhook.cluster.errors import ClusterError, Gone, NotFound, Refused, Silent, Unavailable, error_of
from webhook.cluster.settings import ReflectorSettings
from webhook.cluster.wire import Page, W, WatchEvent, Wire, is_newer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.cluster.client import Cluster
    from webhook.cluster.discovery import Collection
    from webhook.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

_EVENT: Final = msgspec.json.Decoder(WatchEvent)
_BOOKMARK: Final = msgspec.json.Decoder(Wire)
_METADATA: Final = "application/json;as={};g=meta.k8s.io;v=v1,application/json"
METADATA: Final = _METADATA.format("PartialObjectMetadata")
"""Asks for metadata only."""
_GRAVES: Final = 1024
"""So many deleted objects are remembered, lest an event that comes late brings one back."""


class Reflector(Generic[W]):
    """Keeps the objects of one collection, as far as the struct `wire` describes them, by `namespace/name` or name."""

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        cluster: Cluster,
        collection: Collection,
        wire: type[W],
        *,
        random: Callable[[], float],
        field_selector: str = "",
        metadata_only: bool = False,
        settings: ReflectorSettings = ReflectorSettings(),  # noqa: B008 -- frozen
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`random` gives numbers in [0, 1), `clock` any seconds. `metadata_only` spares the server and us the rest."""
        self._cluster = cluster
        self._collection = collection
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._selector = {"fieldSelector": field_selector} if field_selector else {}
        self._list_accept = _METADATA.format("PartialObjectMetadataList") if metadata_only else JSON
        self._watch_accept = METADATA if metadata_only else JSON
        self._page: msgspec.json.Decoder[Page[W]] = msgspec.json.Decoder(Page[wire])  # type: ignore[valid-type]
        self._wire = msgspec.json.Decoder(wire)
        self._random = random
        self._backoff = Backoff(settings.backoff_seconds, settings.backoff_most_seconds, random)
        self._items: dict[str, W] = {}
        self._graves: dict[str, str] = {}
        self._version = ""
        self._told = ""
        self._alive_at: float | None = None
        self._subscribers: list[Callable[[W | None, W | None], None]] = []
        self.items: Mapping[str, W] = MappingProxyType(self._items)
        """What is known; it changes under the reader, between two awaits."""
        self.synced = asyncio.Event()
        """Set once the first list was complete and told to subscribers; never unset."""
        if metrics is not None:
            metrics.watch_reflector(self.resource, lambda: self.staleness_seconds)

    @property
    def resource(self) -> str:
        """The plural."""
        return self._collection.resource

    @property
    def staleness_seconds(self) -> float:
        """Time since the last sign of life of the server; a healthy idle watch gives one every few minutes.

        Infinite before the first.
        """
        return math.inf if self._alive_at is None else self._clock() - self._alive_at

    def subscribe(self, on_change: Callable[[W | None, W | None], None]) -> None:
        """From now on every change is told as (old, new): None is old for what was added and new for what is gone.

        The items have changed already when it is told. What it raises ends `run`.
        """
        self._subscribers.append(on_change)

    async def run(self) -> NoReturn:
        """Follows the resource; returns only when cancelled."""
        while True:
            try:
                await self._list()
                await self._follow()
            except Silent as error:
                self._backoff.reset()
                log.debug("silent watch given up", extra={"resource": self.resource, "error": str(error)})
            except ClusterError as error:
                await self._recover(error)

    # --- list ------------------------------------------------------------------------------------

    async def _list(self) -> None:
        """Reads all pages, then tells how they differ from what was known."""
        try:
            path = await self._collection.path()
        except NotFound:
            # Not served, so there is nothing. What was known stays: a server that is being replaced may say so too.
            self._alive()
            self._set_synced(0)
            raise
        try:
            found, version = await self._pages(path, self._settings.page_size)
        except Gone:  # it took so long that the first page's state is forgotten; in one piece this cannot happen
            found, version = await self._pages(path, 0)
        except NotFound:
            self._collection.forget()
            raise
        if self._metrics is not None:
            self._metrics.count_list(self.resource)
        self._replace(found)
        self._version, self._told = version, ""
        self._set_synced(len(found))

    async def _pages(self, path: str, size: int) -> tuple[dict[str, W], str]:
        """All items, and the version of the state they are of."""
        found: dict[str, W] = {}
        query: dict[str, str | int] = {**self._selector, "limit": size} if size else {**self._selector}
        while True:
            answer = await self._cluster.get(path, query, accept=self._list_accept)
            self._alive()
            try:
                page = self._page.decode(answer)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise Unavailable(f"GET {path}: cannot be read: {error}") from None
            found.update((item.key, item) for item in page.items or ())
            if not page.metadata.next_page:
                return found, page.metadata.resource_version
            query["continue"] = page.metadata.next_page

    def _replace(self, found: dict[str, W]) -> None:
        """What is known becomes what was found, change by change."""
        self._graves.clear()
        for key in [key for key in self._items if key not in found]:
            self._tell(self._items.pop(key), None)
        for key, new in found.items():
            self._put(key, new)

    # --- watch -----------------------------------------------------------------------------------

    async def _follow(self) -> NoReturn:
        """Watch after watch, until a list is needed: then it raises what went wrong."""
        while True:
            try:
                await self._watch()
            except Unavailable as error:
                if error.code != HTTPStatus.TOO_MANY_REQUESTS:
                    raise
                # Only busy: nothing was missed yet, and a list would be harder on the server than a watch.
                await self._recover(error)

    async def _watch(self) -> None:
        """One watch, from the last known version to its orderly end. Raises Gone and others if it ends otherwise."""
        settings = self._settings
        query = {**self._selector, "resourceVersion": self._version, "allowWatchBookmarks": "true"}
        path = await self._collection.path()
        began, seen = self._clock(), False
        lines = self._cluster.watch(
            path,
            query,
            accept=self._watch_accept,
            # up to twice the time, as in client-go, lest the watches of all replicas end as one
            watch_seconds=int(settings.watch_seconds * (1 + self._random())),
            silence_seconds=settings.silence_seconds,
        )
        async with contextlib.aclosing(lines):
            async for line in lines:
                self._alive()
                if line:
                    self._handle(line)
                    seen = True
                    self._backoff.reset()
        if not seen and self._clock() - began < settings.short_watch_seconds:
            raise Unavailable(f"WATCH {path}: ended as soon as it began")
        self._backoff.reset()

    def _handle(self, line: bytes) -> None:
        """One event. Kinds of events that we do not know are for others."""
        try:
            event = _EVENT.decode(line)
            match event.type:
                case "ADDED" | "MODIFIED":
                    self._came(self._wire.decode(event.object))
                case "DELETED":
                    self._went(self._wire.decode(event.object))
                case "BOOKMARK":
                    self._advance(_BOOKMARK.decode(event.object))
                case "ERROR":
                    raise error_of(f"WATCH {self.resource}", bytes(event.object))
                case _:
                    pass
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(f"WATCH {self.resource}: an event cannot be read: {error}") from None

    def _came(self, new: W) -> None:
        """Added or changed; unless it was heard before, or something later was."""
        known = self._items.get(new.key)
        latest = known.metadata.resource_version if known else self._graves.get(new.key)
        if latest is None or is_newer(new.metadata.resource_version, latest):
            self._put(new.key, new)
        self._advance(new)

    def _went(self, last: W) -> None:
        """Deleted; its version is that of the deletion."""
        version = last.metadata.resource_version
        known = self._items.get(last.key)
        if known is None or not is_newer(known.metadata.resource_version, version):
            self._graves[last.key] = version
            if len(self._graves) > _GRAVES:
                del self._graves[next(iter(self._graves))]
            if known is not None:
                self._tell(self._items.pop(last.key), None)
        self._advance(last)

    def _advance(self, obj: Wire) -> None:
        """Where the next watch begins."""
        if is_newer(obj.metadata.resource_version, self._version):
            self._version = obj.metadata.resource_version

    # --- both ------------------------------------------------------------------------------------

    def _put(self, key: str, new: W) -> None:
        """The object is there now; one of the same name but another uid is another object."""
        old = self._items.get(key)
        if old is not None:
            if old.metadata.resource_version == new.metadata.resource_version:
                return
            if old.metadata.uid != new.metadata.uid:
                self._tell(self._items.pop(key), None)
                old = None
        self._items[key] = new
        self._tell(old, new)

    def _tell(self, old: W | None, new: W | None) -> None:
        for on_change in self._subscribers:
            on_change(old, new)

    def _alive(self) -> None:
        self._alive_at = self._clock()

    def _set_synced(self, items: int) -> None:
        if not self.synced.is_set():
            log.info("synced", extra={"resource": self.resource, "items": items})
            self.synced.set()

    async def _recover(self, error: ClusterError) -> None:
        """Says what went wrong, once for each new thing, and waits until it may be tried again."""
        expired = isinstance(error, Gone)
        seconds = self._backoff.next_seconds(error.retry_after_seconds)
        if expired and self._backoff.failures == 1:
            seconds = 0.0  # nobody is at fault, and a list brings what was missed
        if self._metrics is not None:
            self._metrics.count_reflector_error(self.resource)
        level = logging.INFO if expired else logging.ERROR if isinstance(error, Refused) else logging.WARNING
        log.log(
            level if str(error) != self._told else logging.DEBUG,
            "resource not followed",
            extra={
                "resource": self.resource,
                "error": str(error),
                "attempt": self._backoff.failures,
                "delaySeconds": round(seconds, 3),
            },
        )
        self._told = str(error)
        await asyncio.sleep(seconds)
