"""The handler of the admission port, asked as its listener asks it, without a socket."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser

from tests.builders import encoded, make_claim, make_review, make_toleration
from tests.https.serving import post
from tests.unit.policy.documents import make_entry
from tests.unit.server.doubles import Transport
from webhook.policy.match import KnownNames
from webhook.server.http import Reviews
from webhook.server.settings import ReviewSettings
from webhook.server.state import ReviewState
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable

RESOURCES = ("resourceclaims", "resourceslices", "devicetaintrules", "configmaps")
ONLY_GPUS = make_entry("gpus-only", "allow", {"drivers": ["gpu.example.com"]})
NO_TEAM = make_entry("no-team", "deny", {"namespaces": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}})
CLAIM = make_review(make_claim([make_toleration()]))
DRIVERS = {"gpu.example.com": frozenset({"gpu.example.com"})}


class Protocol(BaseProtocol):
    """What a request asks of its connection."""

    ssl_context = peername = sockname = None


async def ask(reviews: Reviews, request: bytes) -> tuple[int, Any]:
    """The status and the body of the answer to a request that came whole."""
    loop = asyncio.get_running_loop()
    protocol = Protocol(loop)
    protocol.connection_made(cast("Any", Transport()))
    [(message, content)], *_ = HttpRequestParser(protocol, loop, 2**24).feed_data(request)
    unused = cast("Any", None)
    answer = await reviews(web.BaseRequest(message, content, cast("Any", protocol), unused, unused, loop))
    return answer._status, json.loads(answer._body)


def reviewed(
    state: ReviewState,
    review: Any,
    *,
    path: str = "/validate",
    seconds: float = 30.0,
    clock: Callable[[], float] = time.monotonic,
    settings: ReviewSettings = ReviewSettings(),  # noqa: B008 -- frozen
) -> dict[str, Any]:
    """What is answered to a review, with the samples of its metrics under "metrics".

    By default it has the longest time that a caller can give, since machines may be slow, and coverage slows them down.
    """
    metrics = Metrics(version="0", resources=RESOURCES)
    metrics.policy.use([rule.name for rule in state.policies.active.policy.rules], ["candidate-rule"])
    reviews = Reviews(settings, metrics, state)
    reviews._clock = clock
    _, answer = asyncio.run(ask(reviews, post(encoded(review), f"{path}?timeout={seconds}s")))
    samples = {
        (sample.name.removeprefix("device_taint_webhook_"), *sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
    }
    response: dict[str, Any] = answer["response"]
    return response | {"metrics": samples}


class Cluster:
    """A cluster that is asked for names: it says what it knows, and remembers what it was asked."""

    def __init__(self, namespaces: Any = None, device_classes: Any = None) -> None:
        self._facts = (namespaces or {}, device_classes or {})
        self.state = ReviewState(look_up=self.look_up, names=KnownNames())
        self.asked: list[tuple[set[str], set[str], float]] = []
        self.when_asked: Callable[[], None] = lambda: None

    async def look_up(self, namespaces: frozenset[str], device_classes: frozenset[str], seconds: float) -> bool:
        self.asked.append((set(namespaces), set(device_classes), seconds))
        self.when_asked()
        self.state.names = KnownNames(*self._facts)
        return any(self._facts)
