"""The inventory of a live cluster: slices, rules, claims and, where they may be read, pods and PodGroups; by watches.

`sight` returns it together with whether it is current; callers decide what follows from that.

`ClaimsHorizon` tells when claims are known: a watch says up to which version it has come, but not when that version
was made: it may be late without a sign of it. So the server is asked which version the collection has now (a list of
one object, which is answered from the newest state); all changes made before that request are in the inventory once
the watch has come that far. Where claims do not change, a watch comes no further for a minute or two, until the
server sends a bookmark. A short second watch from the same version shows sooner that nothing was missed: the server
sends a bookmark 2 s before it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

from webhook.api.meta import GROUP, RULE_VERSIONS, SERVED_VERSIONS
from webhook.api.pods import POD_GROUP_VERSIONS, POD_GROUPS, Pod
from webhook.api.servers import ServerFacts
from webhook.cluster.cache.decoders import (
    AskingClaimWire,
    ClaimWire,
    ClassedClaimWire,
    RuleWire,
    SliceWire,
    WholeSliceWire,
)
from webhook.cluster.cache.discovery import Collection, FixedCollection, ServedCollection, ServerVersions
from webhook.cluster.cache.listwatch import ListWatch, WireValue, is_newer
from webhook.cluster.cache.pods import PodGroupWire, PodWire
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.client.errors import ClusterError, NotFound
from webhook.cluster.client.rest import Cluster
from webhook.cluster.settings import InventorySettings
from webhook.flowcontrol.loop import Again, LastingFault, Loop, together
from webhook.flowcontrol.rates import Backoff
from webhook.inventory.state import Inventory, InventoryObject, Sight
from webhook.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
_WATCH_SECONDS: Final = 3
"""How long the second watch is open: it gets its bookmark after 1 to 2 s."""
_SILENCE_SECONDS: Final = 10.0
_BACKOFF_MOST_SECONDS: Final = 10.0
_ASK_AGAIN_SECONDS: Final = 30.0
"""How long the inventory may take to come to a version, which it never does if etcd was restored meanwhile."""


class InventoryCache:
    """Watches that fill one inventory; it lags behind the cluster by the delay of events.

    Where rules or PodGroups are not served there are none, and discovery is repeated: for rules every few seconds, for
    PodGroups ever more rarely. Those that are known from a server that did serve them are not current; after a while
    they are dropped.
    """

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        cluster: Cluster,
        *,
        random: Callable[[], float],
        metrics: Metrics | None = None,
        settings: InventorySettings = InventorySettings(),  # noqa: B008 -- frozen
        pods: bool = False,
        attributes: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`random` returns numbers in [0, 1), `clock` seconds that only go forward.

        Pods, PodGroups, and the device classes of claims, are kept only with `pods`. Unless the
        settings need them, the inventory is current whether pods are or not: see `pods_problem`. `attributes`: devices
        are kept with what selectors see of them, and claims with what they ask for.
        """
        self.inventory = held = Inventory()
        self._trusted = Sight(held)
        self._stale_seconds = settings.stale_seconds
        self.on_servers: Callable[[], None] = lambda: None
        """Called when servers do something else than before with the same objects."""
        self._servers = ServerVersions(cluster, self._servers_changed, clock)
        self._subscribers: list[Callable[[InventoryObject | None, InventoryObject | None], None]] = []
        follow = partial(
            Reflector[Any], cluster, random=random, metrics=metrics, clock=clock, on_open=self._servers.ask
        )
        common = settings.reflector
        slices = ServedCollection(cluster, GROUP, SERVED_VERSIONS, "resourceslices")
        rules = ServedCollection(cluster, GROUP, RULE_VERSIONS, "devicetaintrules")
        claims = ServedCollection(cluster, GROUP, SERVED_VERSIONS, "resourceclaims")
        small = replace(common, page_size=settings.slice_page_size)
        self._rules = follow(rules, RuleWire, items=held.rules, settings=common, optional=True)
        asked = AskingClaimWire if attributes else ClassedClaimWire if pods else ClaimWire
        self._claims = follow(claims, asked, items=held.claims, settings=common)
        self._reflectors = [
            follow(slices, WholeSliceWire if attributes else SliceWire, items=held.slices, settings=small),
            self._rules,
            self._claims,
        ]
        if pods:
            every = FixedCollection("", "v1", "pods")
            large = replace(common, page_size=settings.pod_page_size)
            self._reflectors.append(follow(every, PodWire, items=held.pods, settings=large))
            groups = ServedCollection(cluster, POD_GROUPS[0], POD_GROUP_VERSIONS, POD_GROUPS[1])
            rarely = replace(common, absent_most_seconds=settings.pod_groups_seconds)
            pod_groups = follow(groups, PodGroupWire, items=held.pod_groups, settings=rarely, optional=True)
            self._reflectors.append(pod_groups)
        needed = len(self._reflectors) if settings.pods_needed else 3
        self._needed, self._beside = self._reflectors[:needed], self._reflectors[needed:]
        for each in self._reflectors:
            each.subscribe(self._changed)
        if metrics is not None:
            counts = {each.resource: partial(len, each.items) for each in self._reflectors}
            metrics.watch_inventory(lambda: self.sight().inventory is not None, counts)

    def subscribe(self, on_change: Callable[[InventoryObject | None, InventoryObject | None], None]) -> None:
        """Calls `on_change(old, new)` for every change, once the inventory has it; what it raises ends `run`."""
        self._subscribers.append(on_change)

    def sight(self) -> Sight:
        """The inventory if it is current, or why not. Cheap enough for each review."""
        for reflector in self._needed:
            unknown = reflector.doubt(self._stale_seconds)
            if unknown:
                return Sight(None, unknown)
        return self._trusted

    @property
    def claims_version(self) -> str:
        """The inventory has all changes of claims up to this version."""
        return self._claims.version

    @property
    def problem(self) -> str | None:
        """Why the inventory is not current, with the server's error, or None."""
        return self._problem_of(self._needed)

    @property
    def pods_problem(self) -> str | None:
        """The same for pods and PodGroups, where they are not needed."""
        return self._problem_of(self._beside)

    @property
    def pods_current(self) -> bool:
        """Whether pods and PodGroups are current. Cheap enough for each review."""
        return not any(each.doubt(self._stale_seconds) for each in self._beside)

    def _problem_of(self, reflectors: Iterable[Reflector[Any]]) -> str | None:
        return "; ".join(filter(None, [each.problem(self._stale_seconds) for each in reflectors])) or None

    async def synced(self) -> None:
        """Returns once each resource was read in full, or found not to be served; waits for ever if they never are."""
        for reflector in self._reflectors:
            await reflector.synced.wait()
        await self._servers.read.wait()

    async def run(self) -> NoReturn:
        """Follow all of them until it is cancelled."""
        await together(self._servers.run(), *[each.run() for each in self._reflectors])

    def _servers_changed(self, facts: ServerFacts) -> None:
        self.inventory.servers = facts
        self.on_servers()

    def _changed(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        if old is None and isinstance(new, Pod) and not new.is_held:
            return  # not held, so each of its changes looks like the first
        self.inventory.apply(old, new)
        for on_change in self._subscribers:
            on_change(old, new)


class _ClaimIdentity(WireValue, frozen=True):
    """A claim's metadata, requested as PartialObjectMetadata."""


class _Mark(NamedTuple):
    """All changes made before `at` are known once the inventory has come to `version`."""

    at: float
    version: str


class ClaimsHorizon:
    """A record of up to when all changes of claims are in the inventory; it asks the server when that is wanted."""

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
        self._loop = Loop(self._look)

    def reached(self, at: float) -> bool:
        """Return whether all changes made before `at`, a past moment, are in the inventory; if not, call it again."""
        while self._marks and not is_newer(self._marks[0].version, self._version()):
            self._known_at, self._marks = self._marks[0].at, self._marks[1:]
        if self._known_at >= at:
            return True
        if at > self._wanted_at:
            self._wanted_at = at
            self._loop.wake()
        return False

    async def run(self) -> NoReturn:
        """Ask the server while an answer is wanted, until it is cancelled."""
        await self._loop.run()

    async def _look(self) -> Again:
        if self.reached(self._wanted_at):
            return Again()  # the first look comes before anything is wanted
        try:
            await self._ask()
        except ClusterError as error:
            seconds = self._backoff.next_seconds(error.retry_after_seconds)
            if self._fault.failed(str(error)):
                about = {"error": str(error), "delaySeconds": round(seconds, 3), **self._fault.fields}
                log.warning("version of claims not read", extra=about)
            return Again(0, pause=seconds)
        self._backoff.reset()
        self._fault.ended()
        return Again(_ASK_AGAIN_SECONDS)

    async def _ask(self) -> None:
        """Find what the inventory has to come to for all that is wanted now."""
        at, known = self._clock(), self._version()
        try:
            newest = needed = await self._claims.newest_version()
        except NotFound:
            self._claims.collection.forget()
            raise
        await asyncio.sleep(self._event_seconds)
        if is_newer(newest, self._version()):
            with contextlib.suppress(ClusterError):  # such as 410: then only the first watch can say
                needed = await self._last_change(newest)
        # Versions that go back, as after etcd was restored, would never reach the older mark; and an inventory from
        # before that has come further than this one, but does not know what it stands for.
        older = [mark for mark in self._marks[:1] if not is_newer(mark.version, newest)]
        self._marks = (*older, *([] if is_newer(known, newest) else [_Mark(at, needed)]))

    async def _last_change(self, until: str) -> str:
        """Return the version of the last change up to `until`, if a watch shows it; else `until` itself."""
        last = self._version()
        events = self._claims.watch(last, watch_seconds=_WATCH_SECONDS, silence_seconds=_SILENCE_SECONDS)
        async with contextlib.aclosing(events):
            async for event in events:
                if event.upserted is not None or event.deleted is not None:
                    last = event.version
                if event.version and not is_newer(until, event.version):
                    return last
        return until
