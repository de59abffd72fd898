"""Up to which moment all changes of claims are known for certain, however late the watch is.

A watch says up to which version it has come, but not when that version was made: it may be late without a sign of it.
So the server is asked which version the collection has now (a list of one object, which is answered from the newest
state); all changes made before that request are in the inventory once the watch has come that far. Where claims do
not change, a watch comes no further for a minute or two, until the server sends a bookmark. A short second watch from
the same version shows sooner that nothing was missed: the server sends a bookmark 2 s before it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from webhook.cluster.cache.listwatch import ListWatch, WireValue, is_newer
from webhook.cluster.client.errors import ClusterError, NotFound
from webhook.flowcontrol.backoff import Backoff
from webhook.telemetry.repeats import LastingFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.cluster.cache.discovery import Collection
    from webhook.cluster.client.rest import Cluster

log = logging.getLogger(__name__)

_WATCH_SECONDS: Final = 3
"""How long the second watch is open: it gets its bookmark after 1 to 2 s."""
_SILENCE_SECONDS: Final = 10.0
_BACKOFF_MOST_SECONDS: Final = 10.0


class _ClaimIdentity(WireValue, frozen=True):
    """A claim's metadata, requested as PartialObjectMetadata."""


class _Mark(NamedTuple):
    """All changes made before `at` are known once the inventory has come to `version`."""

    at: float
    version: str


class ClaimsHorizon:
    """Answers whether all changes of claims before a moment are in the inventory; asks the server when it is needed."""

    def __init__(
        self,
        cluster: Cluster,
        claims: Collection,
        version: Callable[[], str],
        *,
        clock: Callable[[], float],
        random: Callable[[], float],
        event_seconds: float = 0.5,
    ) -> None:
        """`version`: up to which one the inventory has the changes. `clock`: seconds that only go forward.

        `event_seconds`: how long its own watch may take to come to a version before a second watch is opened.
        """
        self._claims = ListWatch[Any](cluster, claims, _ClaimIdentity, metadata_only=True)
        self._event_seconds = event_seconds
        self._version = version
        self._clock = clock
        self._backoff = Backoff(1.0, _BACKOFF_MOST_SECONDS, random)
        self._fault = LastingFault(clock)
        self._known_at = -math.inf
        self._marks: tuple[_Mark, ...] = ()
        """Not reached yet: the oldest, which no newer one may replace, and the newest."""
        self._wanted_at = -math.inf
        self._wanted = asyncio.Event()

    def reached(self, at: float) -> bool:
        """Whether all changes made before `at`, a moment that is past, are in the inventory; if not, call it again."""
        while self._marks and not is_newer(self._marks[0].version, self._version()):
            self._known_at, self._marks = self._marks[0].at, self._marks[1:]
        if self._known_at >= at:
            return True
        if at > self._wanted_at:
            self._wanted_at = at
            self._wanted.set()
        return False

    async def run(self) -> NoReturn:
        """Asks the server while an answer is wanted; returns only when cancelled."""
        while True:
            await self._wanted.wait()
            try:
                await self._look()
            except ClusterError as error:
                await self._recover(error)
            else:
                self._backoff.reset()
                self._fault.ended()

    async def _look(self) -> None:
        """Finds what the inventory has to come to for all that is wanted now."""
        at, wanted_at = self._clock(), self._wanted_at
        newest = needed = await self._newest_version()
        await asyncio.sleep(self._event_seconds)
        if is_newer(newest, self._version()):
            needed = await self._last_change(newest)
        # Versions that go back, as after etcd was restored, would never reach the older mark.
        older = [mark for mark in self._marks[:1] if not is_newer(mark.version, newest)]
        self._marks = (*older, _Mark(at, needed))
        if self._wanted_at == wanted_at:
            self._wanted.clear()

    async def _newest_version(self) -> str:
        """The version of the collection as it is now."""
        try:
            return await self._claims.newest_version()
        except NotFound:
            self._claims.collection.forget()
            raise

    async def _last_change(self, until: str) -> str:
        """The version of the last change up to `until`, as far as the server says; else `until` itself."""
        with contextlib.suppress(ClusterError):  # such as 410: then only the first watch can say
            return await self._replayed(until)
        return until

    async def _replayed(self, until: str) -> str:
        last = self._version()
        events = self._claims.watch(last, watch_seconds=_WATCH_SECONDS, silence_seconds=_SILENCE_SECONDS)
        async with contextlib.aclosing(events):
            async for event in events:
                if event.upserted is not None or event.deleted is not None:
                    last = event.version
                if event.version and not is_newer(until, event.version):
                    return last
        return until

    async def _recover(self, error: ClusterError) -> None:
        seconds = self._backoff.next_seconds(error.retry_after_seconds)
        if self._fault.failed(str(error)):
            about = {"error": str(error), "delaySeconds": round(seconds, 3), **self._fault.fields}
            log.warning("version of claims not read", extra=about)
        await asyncio.sleep(seconds)
