"""Keeps a collection current: list, watch, watch again from where it broke, and list again when that is not possible.

Callers may rely on this: once synced, `items` is the state of the collection at some moment, and the changes that
subscribers are notified of add up to it. A list with many changes is applied in pieces, and `settled` is False
meanwhile. While the server is away the last known items stay; `lost_seconds` says for how long.

A list of a large cluster costs the server and each replica hundreds of megabytes, so a watch that breaks is resumed
from the last version that was read, as in client-go.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from http import HTTPStatus
from typing import Final, Generic, NoReturn

from webhook.cluster.cache.discovery import Collection
from webhook.cluster.cache.listwatch import Event, ListWatch, Store, V, WireStruct, is_newer
from webhook.cluster.client.errors import (
    ClusterError,
    Gone,
    NotFound,
    Refused,
    Silent,
    Unavailable,
    Undecodable,
    is_version_ahead,
)
from webhook.cluster.client.rest import Cluster
from webhook.cluster.settings import ReflectorSettings
from webhook.flowcontrol.loop import LastingFault
from webhook.flowcontrol.rates import Backoff
from webhook.flowcontrol.workqueue import REVIEW_SECONDS, TimeSlice
from webhook.telemetry.metrics import Metrics


class WatchGap:
    """The time from the end of one watch until the next one has brought what happened in between.

    The server accepts a watch first and sends the changes that were missed afterwards. It says with a bookmark that it
    has sent them; where none comes, they have arrived once the watch has been open for a while.
    """

    def __init__(self, clock: Callable[[], float], catch_up_seconds: float) -> None:
        """`clock` returns seconds that only go forward."""
        self._clock = clock
        self._catch_up_seconds = catch_up_seconds
        self._since: float | None = None
        self._open_since: float | None = None

    @property
    def seconds(self) -> float:
        """For how long changes may have been missed: 0 if none were, infinite if some were for certain."""
        return 0.0 if self._since is None or self._caught_up else self._clock() - self._since

    @property
    def watching(self) -> bool:
        """Whether a watch is open."""
        return self._open_since is not None

    def begin(self, at: float) -> None:
        """Changes may have been missed since `at`; an earlier time is kept."""
        if self._since is None or at < self._since:
            self._since = at

    def end(self) -> None:
        """Nothing is missing: a bookmark says so."""
        self._since = None

    def opened(self) -> None:
        """The server has accepted a watch."""
        self._open_since = self._clock()

    def closed(self) -> None:
        """The watch has ended, whatever the reason, or there never was one."""
        if self._caught_up:
            self._since = None
        self._open_since = None
        self.begin(self._clock())

    @property
    def _caught_up(self) -> bool:
        return self._open_since is not None and self._clock() - self._open_since >= self._catch_up_seconds


log = logging.getLogger(__name__)

_NOT_ALLOWED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


class Reflector(Generic[V]):
    """Keeps the objects of one collection by `namespace/name` or name; the struct `wire` says which fields."""

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        cluster: Cluster,
        collection: Collection,
        wire: type[WireStruct[V]],
        *,
        random: Callable[[], float],
        field_selector: str = "",
        metadata_only: bool = False,
        optional: bool = False,
        items: Mapping[str, V] | None = None,
        settings: ReflectorSettings = ReflectorSettings(),  # noqa: B008 -- frozen
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_open: Callable[[], None] = lambda: None,
    ) -> None:
        """`random` returns numbers in [0, 1), `clock` seconds that only go forward; `on_open` is called for each watch.

        `optional`: that the resource is not served is no error. `items`: where the first subscriber keeps the objects,
        by the same keys; then they are not kept a second time.
        """
        self._list_watch = ListWatch(
            cluster, collection, wire, field_selector=field_selector, metadata_only=metadata_only
        )
        self._optional = optional
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._on_open = on_open
        self._random = random
        self._backoff = Backoff(settings.backoff_seconds, settings.backoff_most_seconds, random)
        absent_most = settings.absent_most_seconds or settings.backoff_most_seconds
        self._absence = Backoff(settings.backoff_seconds, absent_most, random)
        self._timeslice = TimeSlice(REVIEW_SECONDS)
        self._store = Store(items)
        self._version = ""
        self._resumable = False
        """Whether a watch from `_version` may bring all that was missed."""
        self._broken = 0
        """Watches that broke in a row, without an event or a bookmark."""
        self._expired = False
        """Whether the version of the last watch was too old."""
        self._unserved_at: float | None = None
        self._fault = LastingFault(clock)
        self._alive_at = -math.inf
        self._gap = WatchGap(clock, settings.catch_up_seconds)
        self.items = self._store.items
        """By `namespace/name` or name; it changes while the reader awaits."""
        self.synced = asyncio.Event()
        """Set once subscribers were notified of the whole first list; never unset."""
        self.settled = True
        """False while a list is being applied: the items are of two moments then."""
        self.unserved = False
        """Whether the server said that it does not serve the resource, and it was not read since."""
        if metrics is not None:
            metrics.watch_reflector(self.resource, lambda: self.staleness_seconds)

    @property
    def resource(self) -> str:
        """The plural."""
        return self._list_watch.collection.resource

    @property
    def version(self) -> str:
        """The last version that was read: subscribers were notified of all changes up to it. Empty before the first."""
        return self._version

    @property
    def error(self) -> str:
        """Why the last list or watch failed; empty once one succeeded."""
        return "" if self._gap.watching else self._fault.text

    @property
    def staleness_seconds(self) -> float:
        """Time since the last sign of life of the server; on a healthy idle watch one comes every few minutes.

        Infinite before the first.
        """
        return self._clock() - self._alive_at

    @property
    def lost_seconds(self) -> float:
        """For how long changes may have been missed: 0 if none were, infinite if some were for certain.

        A watch that was opened again has to show first that it has brought what was missed.
        """
        return self._gap.seconds

    @property
    def unread(self) -> bool:
        """Whether the resource was not served, is served by now, and was not read since."""
        return self.unserved and self._unserved_at is None

    def doubt(self, stale_seconds: float) -> str:
        """Why the resource is not current, after its watch was lost for `stale_seconds` at the latest; empty if it is.

        Where an optional resource is not served there are none.
        """
        if self.unserved and not self.unread:
            if not self._optional:
                return f"{self.resource} are not served"
            # Kept for a while, as another server may serve them; meanwhile nothing follows their changes.
            return f"{self.resource} are served no longer" if self.items else ""
        if self.unread or not self.synced.is_set():
            return f"{self.resource} not read yet"
        lost = self.lost_seconds
        if self.settled and lost <= stale_seconds:
            return ""
        if not self.settled or lost == math.inf:
            return f"{self.resource} being listed again"
        return f"{self.resource} not watched for {lost:.0f} s"

    def problem(self, stale_seconds: float) -> str:
        """The same, with the server's error."""
        unknown = self.doubt(stale_seconds)
        return f"{unknown} ({self.error})" if unknown and self.error else unknown

    def subscribe(self, on_change: Callable[[V | None, V | None], None]) -> None:
        """Calls `on_change(old, new)` for every change; `old` is None for an addition, `new` for a deletion.

        The items have changed already by then. What it raises ends `run`.
        """
        self._store.subscribe(on_change)

    async def run(self) -> NoReturn:
        """Keeps the items current; returns only when cancelled."""
        while True:
            try:
                if not self._resumable:
                    await self._list()
                await self._watch()
            except Silent as error:
                self._gap.begin(self._alive_at)  # events may have been missed since the last one
                self._backoff.reset()
                self._resumable = self._expired = False
                log.debug("silent watch given up", extra={"resource": self.resource, "error": str(error)})
            except ClusterError as error:
                self._resumable = self._resumable and self._may_resume(error)
                await self._recover(error)

    def _may_resume(self, error: ClusterError) -> bool:
        """Return whether to watch again from the last version, although this watch failed."""
        if error.code == HTTPStatus.TOO_MANY_REQUESTS:
            return True  # only busy: nothing was missed yet, and a list would be harder on the server than a watch
        self._broken += 1
        if self._broken >= self._settings.resume_attempts or is_version_ahead(error):
            return False
        # An API server that has just started may refuse tokens and permissions that it does not know yet.
        return error.code in _NOT_ALLOWED or (isinstance(error, Unavailable) and not isinstance(error, Undecodable))

    # --- list ------------------------------------------------------------------------------------

    async def _list(self) -> None:
        """Reads all objects and applies the differences."""
        try:
            await self._list_watch.collection.path()
        except NotFound:
            await self._mark_unserved()
            raise
        self._unserved_at = None
        try:
            found, version = await self._read_list()
        except NotFound:
            self._list_watch.collection.forget()
            raise
        await self._replace(found, version)

    async def _mark_unserved(self) -> None:
        """Notes that the resource is not served. Known items stay at first: a server being replaced may say so, too."""
        now = self._clock()
        self.unserved = True
        if self._unserved_at is None:
            self._unserved_at = now
        elif self._optional and now - self._unserved_at >= self._settings.unserved_seconds:
            self.settled = False
            await self._store.replace({}, self._timeslice)
            self.settled = True
        self._mark_alive()
        self._set_synced(0)

    async def _read_list(self) -> tuple[dict[str, V], str]:
        """All items, and the version of the state they are of."""
        try:
            return await self._read(self._settings.page_size)
        except Gone:  # it took so long that the first page's state is forgotten; in one piece this cannot happen
            return await self._read(0)

    async def _read(self, page_size: int) -> tuple[dict[str, V], str]:
        """The same, in pages of that size."""
        found: dict[str, V] = {}
        version = ""
        async with contextlib.aclosing(self._list_watch.pages(page_size)) as pages:
            async for items, of in pages:
                self._mark_alive()
                version = of
                for item in items:
                    self._store.collect(found, item)
                    await self._timeslice.pause()
        return found, version

    async def _replace(self, found: dict[str, V], version: str) -> None:
        """Applies a list, change by change."""
        self.settled = False
        await self._store.replace(found, self._timeslice)
        self._version, self._resumable, self._broken = version, True, 0
        self._fault.ended()
        self._absence.reset()
        self.settled, self.unserved = True, False
        if self._metrics is not None:
            self._metrics.reflector_lists.labels(self.resource).inc()
        self._set_synced(len(found))

    # --- watch -----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """One watch from the last known version until the server ends it. Raises ClusterError if it ends otherwise."""
        began = self._clock()
        # Up to twice the time, as in client-go, so that the watches of replicas do not end together.
        seconds = int(self._settings.watch_seconds * (1 + self._random()))
        silence = self._settings.silence_seconds
        events = self._list_watch.watch(self._version, watch_seconds=seconds, silence_seconds=silence)
        async with contextlib.aclosing(events):
            any_event = await self._consume(events)
        if not any_event and self._clock() - began < self._settings.short_watch_seconds:
            raise Unavailable(f"WATCH {self.resource}: ended as soon as it began")
        self._mark_healthy()

    async def _consume(self, events: AsyncGenerator[Event[V], None]) -> bool:
        """Applies all events until the server ends the watch; returns whether there were any."""
        any_event = False
        try:
            async for event in events:
                self._mark_alive()
                if not self._gap.watching:
                    self._gap.opened()
                    self._on_open()
                if event.version:
                    self._handle(event)
                    self._mark_healthy()
                    any_event = True
                await self._timeslice.pause()
        finally:
            self._gap.closed()
        return any_event

    def _handle(self, event: Event[V]) -> None:
        if event.upserted is not None:
            self._store.upsert(event.upserted)
        elif event.deleted is not None:
            self._store.delete(event.deleted)
        else:
            self._gap.end()  # a bookmark: everything up to now has been sent
        if is_newer(event.version, self._version):
            self._version = event.version

    # --- both ------------------------------------------------------------------------------------

    def _mark_healthy(self) -> None:
        self._backoff.reset()
        self._fault.ended()
        self._broken, self._expired = 0, False

    def _mark_alive(self) -> None:
        self._alive_at = self._clock()

    def _set_synced(self, items: int) -> None:
        if not self.synced.is_set():
            log.info("synced", extra={"resource": self.resource, "items": items})
            self.synced.set()

    async def _recover(self, error: ClusterError) -> None:
        """Logs the error when it is new and every five minutes, and waits before the next attempt."""
        expired = isinstance(error, Gone)
        if expired:
            self._gap.begin(-math.inf)  # something was missed for certain
        absent = isinstance(error, NotFound) and self.unserved and not self.unread and self._optional
        # Objects of a server that did serve them are in doubt until it does again, so that is looked for often.
        backoff = self._absence if absent and not self.items else self._backoff
        seconds = backoff.next_seconds(error.retry_after_seconds)
        if expired and not self._expired:
            seconds = 0.0  # an expired version is normal, and a list brings what was missed
        self._expired = expired
        if self._metrics is not None and not absent:
            self._metrics.reflector_errors.labels(self.resource).inc()
        level = logging.INFO if expired or absent else logging.ERROR if isinstance(error, Refused) else logging.WARNING
        new = str(error) != self._fault.text
        # That an optional resource is absent is no lasting fault, so it is logged only when it is new.
        due = self._fault.failed(str(error)) and (new or not absent)
        about = {"resource": self.resource, "error": str(error), "delaySeconds": round(seconds, 3)}
        log.log(level if due else logging.DEBUG, "list or watch failed", extra={**about, **self._fault.fields})
        await asyncio.sleep(seconds)
