"""Single names that a cache does not have (yet): asked for once, and the answer remembered for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from webhook.cluster.client.errors import ClusterError
from webhook.validation.formats import dns1123_subdomain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from webhook.cluster.settings import NameSettings

V = TypeVar("V")


class Answer(NamedTuple, Generic[V]):
    """What the server said of a name: `value` is None where it has no such object, or did not say."""

    value: V | None
    until: float
    """On the clock of the lookups."""


class Lookups(Generic[V]):
    """Answers by name. One request a name at a time, however many ask for it."""

    def __init__(self, ask: Callable[[str], Awaitable[V]], settings: NameSettings, clock: Callable[[], float]) -> None:
        """`ask` makes one request and raises ClusterError; `clock` gives seconds."""
        self._ask = ask
        self._settings = settings
        self._clock = clock
        self._answers: dict[str, Answer[V]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def value(self, name: str) -> V | None:
        """What was answered, if that was not too long ago."""
        answer = self._answers.get(name)
        return answer.value if answer is not None and answer.until > self._clock() else None

    def forget(self, name: str) -> None:
        """Somebody knows better."""
        self._answers.pop(name, None)

    async def fetch(self, names: Iterable[str], timeout_seconds: float) -> None:
        """Asks for those that have no answer, and waits for at most the given time. Never raises.

        Names that no object can have are not asked for; nor are more than a few in one go, or while many are under
        way: whoever writes names must not be able to make us ask without end.
        """
        wanted: set[asyncio.Task[None]] = set()
        for name in dict.fromkeys(names):
            if len(wanted) >= self._settings.names_most:
                break
            task = self._asking.get(name) or self._begin(name)
            if task is not None:
                wanted.add(task)
        if wanted:
            await asyncio.wait(wanted, timeout=timeout_seconds)

    def close(self) -> None:
        """Gives up what is under way."""
        for task in self._asking.values():
            task.cancel()

    def _begin(self, name: str) -> asyncio.Task[None] | None:
        answer = self._answers.get(name)
        answered = answer is not None and answer.until > self._clock()
        if answered or len(self._asking) >= self._settings.asking_most or not name or dns1123_subdomain(name):
            return None
        task = self._asking[name] = asyncio.create_task(self._answer(name))
        task.add_done_callback(lambda _: self._asking.pop(name))
        return task

    async def _answer(self, name: str) -> None:
        value, seconds = None, self._settings.absent_seconds
        try:
            value = await self._ask(name)
            seconds = self._settings.present_seconds
        except ClusterError:
            pass  # told where the reflector tells it; what is not known is decided by the rules
        self._answers.pop(name, None)  # the newest stands last
        self._answers[name] = Answer(value, self._clock() + seconds)
        if len(self._answers) > self._settings.remembered_most:
            del self._answers[next(iter(self._answers))]
