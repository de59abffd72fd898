"""Single names that a cache does not have (yet): each is fetched once, and the answer remembered for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from webhook.cluster.client.errors import ClusterError
from webhook.validation.formats import dns1123_subdomain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from webhook.cluster.settings import NameSettings

V = TypeVar("V")


class CachedAnswer(NamedTuple, Generic[V]):
    """What the server answered for a name: `value` is None where it has no such object, or gave no answer."""

    value: V | None
    until: float
    """On the clock of the lookups."""


class Lookups(Generic[V]):
    """Answers by name. At most one request for a name at a time, however many callers wait for it."""

    def __init__(self, get: Callable[[str], Awaitable[V]], settings: NameSettings, clock: Callable[[], float]) -> None:
        """`get` makes one request and raises ClusterError; `clock` returns seconds."""
        self._get = get
        self._settings = settings
        self._clock = clock
        self._answers: dict[str, CachedAnswer[V]] = {}
        self._in_flight: dict[str, asyncio.Task[None]] = {}

    def value(self, name: str) -> V | None:
        """The answer, if it is recent enough."""
        answer = self._answers.get(name)
        return answer.value if answer is not None and answer.until > self._clock() else None

    def forget(self, name: str) -> None:
        """The watch has brought the object, or its deletion."""
        self._answers.pop(name, None)

    async def fetch(self, names: Iterable[str], timeout_seconds: float) -> None:
        """Fetches those that have no answer, and waits for at most the given time. Never raises.

        Names that no object can have are skipped, and so are those beyond a few in one call or while many requests are
        in flight: the names come from users, who must not be able to make us send requests without end.
        """
        wanted: set[asyncio.Task[None]] = set()
        for name in dict.fromkeys(names):
            if len(wanted) >= self._settings.names_most:
                break
            task = self._in_flight.get(name) or self._start(name)
            if task is not None:
                wanted.add(task)
        if wanted:
            await asyncio.wait(wanted, timeout=timeout_seconds)

    def close(self) -> None:
        """Cancels the requests in flight."""
        for task in self._in_flight.values():
            task.cancel()

    def _start(self, name: str) -> asyncio.Task[None] | None:
        answer = self._answers.get(name)
        answered = answer is not None and answer.until > self._clock()
        full = len(self._in_flight) >= self._settings.in_flight_most
        if answered or full or not name or dns1123_subdomain(name):
            return None
        task = self._in_flight[name] = asyncio.create_task(self._fetch_one(name))
        task.add_done_callback(lambda _: self._in_flight.pop(name))
        return task

    async def _fetch_one(self, name: str) -> None:
        value, seconds = None, self._settings.absent_seconds
        try:
            value = await self._get(name)
            seconds = self._settings.present_seconds
        except ClusterError:
            pass  # the reflector logs it; the policy decides what an unknown name means
        self._answers.pop(name, None)  # so that the newest stands last
        self._answers[name] = CachedAnswer(value, self._clock() + seconds)
        if len(self._answers) > self._settings.remembered_most:
            del self._answers[next(iter(self._answers))]
