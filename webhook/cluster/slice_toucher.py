"""Has `/mutate` look at stored ResourceSlices again, by writes that say nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NoReturn

from webhook.cluster.client.errors import ClusterError, NotFound
from webhook.flowcontrol.workqueue import WorkQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from webhook.cluster.cache.discovery import Collection as ServedAt
    from webhook.cluster.client.rest import Cluster

FIRST_SECONDS: Final = 1.0
MOST_SECONDS: Final = 300.0


class SliceToucher:
    """Touches slices until they are as they should be: again and again, at growing intervals.

    A touch does not help while no replica of the webhook answers, or while the one that does has not heard of a patch.
    """

    def __init__(
        self,
        cluster: Cluster,
        slices: ServedAt,
        *,
        random: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        first_seconds: float = FIRST_SECONDS,
        most_seconds: float = MOST_SECONDS,
    ) -> None:
        """`slices` finds the served version; `random` returns numbers in [0, 1), `clock` seconds that only go forward.

        After a touch that did not help the next one waits for `first_seconds`, and twice as long each time.
        """
        self._cluster = cluster
        self._slices = slices
        self._queue: WorkQueue[str] = WorkQueue(
            clock=clock, random=random, first_seconds=first_seconds, most_seconds=most_seconds
        )
        self._wanted: frozenset[str] = frozenset()
        self.problems: dict[str, str] = {}
        """Why a touch failed, by slice; without those that are as they should be."""

    @property
    def waiting(self) -> frozenset[str]:
        """The slices that are not as they should be."""
        return self._wanted

    def failures(self, name: str) -> int:
        """How often a slice was touched in vain, in a row."""
        return self._queue.failures(name)

    def want(self, names: Collection[str]) -> None:
        """All slices that are to be touched now, by name; call it whenever slices or patches have changed."""
        wanted = frozenset(names)
        for name in self._wanted - wanted:
            self._queue.discard(name)
            self.problems.pop(name, None)
        for name in sorted(wanted - self._wanted):
            self._queue.add(name)
        self._wanted = wanted

    async def run(self) -> NoReturn:
        """Touches what is wanted, one after the other; returns only when cancelled."""
        while True:
            name = await self._queue.get()
            try:
                if name in self._wanted:
                    await self._touch(name)
            finally:
                self._queue.done(name)

    async def _touch(self, name: str) -> None:
        seconds = 0.0
        try:
            # No resourceVersion: the API server applies it to whatever is stored, and repeats that on a conflict.
            await self._cluster.patch(f"{await self._slices.path()}/{name}", {})
            self.problems.pop(name, None)
        except NotFound as error:
            self._slices.forget()  # the slice is gone, which a watch will tell soon, or the version
            self.problems[name] = str(error)
        except ClusterError as error:
            self.problems[name] = str(error)
            seconds = error.retry_after_seconds
        if name in self._wanted:
            self._queue.add_rate_limited(name, seconds)
