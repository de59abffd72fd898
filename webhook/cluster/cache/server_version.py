"""What the API servers of a cluster do, by the versions that they say they have."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from webhook.api.servers import UNKNOWN, facts_of
from webhook.cluster.client.answers import decode
from webhook.cluster.client.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.servers import ServerFacts
    from webhook.cluster.client.rest import Cluster

log = logging.getLogger(__name__)

_PATH: Final = "/version"
_EVERY_SECONDS: Final = 300.0
_AT_MOST_EVERY_SECONDS: Final = 5.0
_KEPT_SECONDS: Final = 2 * _EVERY_SECONDS + 60
"""How long a version counts since it was last read: behind one address there may be several servers."""


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


_DECODER: Final = msgspec.json.Decoder(_Version)


async def read_version(cluster: Cluster) -> str:
    """What the server that answers says it is, such as `v1.37.2`; empty if it does not say."""
    try:
        return decode(_DECODER, await cluster.get(_PATH)).git_version
    except (ClusterError, msgspec.DecodeError) as error:
        log.debug("version of the server not read", extra={"error": str(error)})
        return ""


async def read_facts(cluster: Cluster) -> ServerFacts:
    """What the server that answers does."""
    return facts_of([await read_version(cluster)])


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
        self._asked = asyncio.Event()
        self.read = asyncio.Event()
        """Set once a server was asked, whether it answered or not."""

    def ask(self) -> None:
        """A connection was made, perhaps to another server than before."""
        self._asked.set()

    async def run(self) -> NoReturn:
        """Follows them; returns only when cancelled."""
        while True:
            self._asked.clear()
            version, now = await read_version(self._cluster), self._clock()
            if version:
                self._seen[version] = now
            self._seen = {each: at for each, at in self._seen.items() if now - at < _KEPT_SECONDS}
            facts = facts_of(self._seen)
            if facts != self._facts:
                log.info("versions of the API servers", extra={"versions": sorted(self._seen)})
                self._facts = facts
                self._on_change(facts)
            self.read.set()
            await asyncio.sleep(_AT_MOST_EVERY_SECONDS)
            try:
                async with asyncio.timeout(_EVERY_SECONDS - _AT_MOST_EVERY_SECONDS):
                    await self._asked.wait()
            except TimeoutError:
                pass
