"""The path of a resource, in the first of our versions that the server serves, and the version of the server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, Protocol

import msgspec

from webhook.api.servers import UNKNOWN, ServerFacts, facts_of
from webhook.cluster.client.answers import decode
from webhook.cluster.client.errors import ClusterError, NotFound, Unavailable
from webhook.cluster.client.rest import Cluster, path_of
from webhook.flowcontrol.loop import Again, Loop

log = logging.getLogger(__name__)
_PATH: Final = "/version"
_EVERY_SECONDS: Final = 300.0
_AT_MOST_EVERY_SECONDS: Final = 5.0
_SAMPLES: Final = 3
"""Connections on which a version is asked for each time: behind one address there may be several servers."""
_ASSUMED: Final = "a missing selector closes every device; tolerations without effect protect from no in-tree eviction"
_KEPT_SECONDS: Final = 2 * _EVERY_SECONDS + 60
"""How long a version counts since it was last read."""


class Collection(Protocol):
    """Where the objects of one resource are listed and watched."""

    @property
    def resource(self) -> str:
        """The plural, for logs and metrics."""

    async def path(self) -> str:
        """The path to list and watch. Raises NotFound if it is not served, Unavailable without an answer."""

    def forget(self) -> None:
        """The path was not found: discover it again at the next call."""


class FixedCollection:
    """A resource that every server has served in the same version for years."""

    def __init__(self, group: str, version: str, resource: str, *, namespace: str = "") -> None:
        self.resource = resource
        self._path = path_of(group, version, resource, namespace=namespace)

    async def path(self) -> str:
        """Always the same."""
        return self._path

    def forget(self) -> None:
        """There is nothing else to try."""


class ServedCollection:
    """A cluster-wide resource in the first of `versions` that is served; discovered once, and again after `forget`."""

    def __init__(self, cluster: Cluster, group: str, versions: Sequence[str], resource: str) -> None:
        self.resource = resource
        self._cluster = cluster
        self._group = group
        self._versions = versions
        self._path: str | None = None

    async def path(self) -> str:
        """The path in the version that is served."""
        if self._path is None:
            version = await served_version(self._cluster, self._group, self._versions, self.resource)
            if version is None:
                raise NotFound(f"{self.resource}.{self._group} is not served in {', '.join(self._versions)}", code=404)
            self._path = path_of(self._group, version, self.resource)
        return self._path

    def forget(self) -> None:
        """The version is not served any more, it seems."""
        self._path = None


class _Resource(msgspec.Struct):
    name: str


class _ResourceList(msgspec.Struct):
    """As far as it is read: meta/v1 APIResourceList."""

    resources: list[_Resource] | None = None


_RESOURCES: Final = msgspec.json.Decoder(_ResourceList)


async def served_version(cluster: Cluster, group: str, versions: Sequence[str], resource: str) -> str | None:
    """The first version in which the resource is served; a version of a group need not have all its resources."""
    for version in versions:
        try:
            answer = await cluster.get(path_of(group, version, ""))
        except NotFound:
            continue
        try:
            resources = decode(_RESOURCES, answer).resources or []
        except msgspec.DecodeError as error:
            raise Unavailable(f"the list of resources of {group}/{version} cannot be read: {error}") from None
        if any(each.name == resource for each in resources):
            return version
    return None


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


_DECODER: Final = msgspec.json.Decoder(_Version)


async def read_facts(cluster: Cluster) -> ServerFacts:
    """What the server that answers does."""
    try:
        return facts_of([decode(_DECODER, await cluster.get(_PATH)).git_version])
    except (ClusterError, msgspec.DecodeError) as error:
        log.debug("version of the server not read", extra={"error": str(error)})
        return UNKNOWN


class ServerVersions:
    """The versions of the servers that answered of late: read at start, soon after `ask`, and every five minutes."""

    def __init__(
        self, cluster: Cluster, on_change: Callable[[ServerFacts], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`on_change` is called with what changed facts are; `clock` returns seconds that only go forward."""
        self._cluster = cluster
        self._on_change = on_change
        self._clock = clock
        self._seen: dict[str, float] = {}
        self._facts = UNKNOWN
        self._warned = False
        self._loop = Loop(self._look)
        self.read = asyncio.Event()
        """Set once a server was asked, whether it answered or not."""

    def ask(self) -> None:
        """Look again: a connection was made, perhaps to another server than before."""
        self._loop.wake()

    async def run(self) -> NoReturn:
        """Follow them until it is cancelled."""
        await self._loop.run()

    async def _look(self) -> Again:
        problem, now = await self._sample(), self._clock()
        self._seen = {each: at for each, at in self._seen.items() if now - at < _KEPT_SECONDS}
        facts = facts_of(self._seen)
        if problem and facts == UNKNOWN and not self._warned:
            log.warning("versions of the API servers not known", extra={"error": problem, "assumed": _ASSUMED})
        self._warned = facts == UNKNOWN and (self._warned or bool(problem))
        if facts != self._facts:
            log.info("versions of the API servers", extra={"versions": sorted(self._seen)})
            self._facts = facts
            self._on_change(facts)
        self.read.set()
        return Again(_EVERY_SECONDS - _AT_MOST_EVERY_SECONDS, _AT_MOST_EVERY_SECONDS)

    async def _sample(self) -> str:
        """Ask some of the servers; return why nothing may follow from that, empty if one gave no answer."""
        try:
            for _ in range(_SAMPLES):
                self._seen[decode(_DECODER, await self._cluster.sample(_PATH)).git_version] = self._clock()
        except (ClusterError, msgspec.DecodeError) as error:
            return "" if isinstance(error, Unavailable) else str(error)
        return f"not understood, or too far apart: {', '.join(sorted(self._seen))}"
