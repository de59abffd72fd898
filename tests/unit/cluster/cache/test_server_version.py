"""Which versions servers say they have, and what follows for the inventory."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.unit.cluster.api_peer import ApiPeer
from tests.unit.cluster.cache.inventory_bench import Bench, a_claim, a_rule, a_slice, caching
from tests.unit.cluster.peer import Answer, Peer, cluster_of, status, until
from webhook.api.servers import UNKNOWN, facts_of
from webhook.cluster.cache import discovery as module
from webhook.cluster.cache.discovery import read_facts

if TYPE_CHECKING:
    import asyncio

    from tests.unit.cluster.peer import Reply, Request

NOT_KNOWN: Final = "versions of the API servers not known"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_MOST_EVERY_SECONDS", 0.0)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(status(403, "no version for you", reason="Forbidden"), 403),
        Answer({"major": "1"}),
        Answer({"gitVersion": 37}),
        Answer(b"<html>one moment</html>"),
        Answer({"gitVersion": "tomorrow"}),
    ],
    ids=["forbidden", "no version", "a number", "no JSON", "no version that is known"],
)
async def test_server_that_does_not_say_is_an_unknown_one(answer: Any) -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.answers.append(answer)
        assert await read_facts(cluster) == UNKNOWN


async def _becomes(bench: Bench, *versions: str) -> None:
    def known() -> bool:
        bench.now[0] += 0.01
        return bench.cache.inventory.servers == facts_of(versions)

    await until(known, f"the facts of {versions}")


async def test_version_is_read_at_start_and_when_a_watch_is_opened_again() -> None:
    async with caching(a_claim("a", "gpu-0", "p"), a_slice(), a_rule()) as bench:
        await bench.cache.synced()
        await _becomes(bench, "v1.37.2")
        changes = list[object]()
        bench.cache.on_servers = lambda: changes.append(bench.cache.inventory.servers)
        bench.peer.git_version = "v1.38.0"
        await bench.happens(a_claim("b"), cut=True)
        await _becomes(bench, "v1.37.2", "v1.38.0")
        assert changes == [bench.cache.inventory.servers]
        bench.now[0] += 700
        await bench.happens(a_claim("c"), cut=True)
        await _becomes(bench, "v1.38.0")


class Balanced(ApiPeer):
    """One address, behind which two servers take connections in turn."""

    def __init__(self, *versions: str) -> None:
        super().__init__()
        self._versions = itertools.cycle(versions)
        self._server_of: dict[asyncio.StreamWriter, str] = {}

    async def _reply(self, reply: Reply, writer: asyncio.StreamWriter, path: str) -> None:
        if path == "/version":
            if writer not in self._server_of:
                self._server_of[writer] = next(self._versions)
            reply = Answer({"gitVersion": self._server_of[writer]})
        await super()._reply(reply, writer, path)


async def test_servers_behind_one_address_are_told_apart() -> None:
    """Though all requests but watches would fit one connection."""
    async with caching(a_slice(), peer=Balanced("v1.37.0", "v1.38.0")) as bench:
        await bench.cache.synced()
        await _becomes(bench, "v1.37.0", "v1.38.0")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(status(403, "no version for you", reason="Forbidden"), 403), "no version for you"),
        (Answer({"gitVersion": "tomorrow"}), "not understood, or too far apart: tomorrow"),
        (Answer({"major": "1"}), "gitVersion"),
        (Answer(status(503, "one moment"), 503), None),
    ],
)
async def test_lasting_silence_of_servers_is_a_warning_that_says_what_is_assumed(
    answer: Answer, error: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, until a version is known again. A server that does not answer has warnings of its own."""
    caplog.set_level("WARNING", "webhook.cluster.cache.discovery")
    async with caching(a_slice()) as bench:
        await _becomes(bench, "v1.37.2")
        for rounds in (1, 2):
            bench.peer.about_version = answer
            bench.now[0] += 700
            asked = len(_reads(bench))
            for number in range(4):
                await bench.happens(a_claim(f"c-{number}"), cut=True)
                await _asked(bench, asked + number + 1)
            said = [each.__dict__ for each in caplog.records if each.message == NOT_KNOWN]
            assert len(said) == (0 if error is None else rounds)
            assert all(error in each["error"] and "missing selector" in each["assumed"] for each in said if error)
            assert error is None or bench.cache.inventory.servers == UNKNOWN
            bench.peer.about_version = None
            bench.now[0] += 700
            await bench.happens(a_claim("d"), cut=True)
            await _becomes(bench, "v1.37.2")


def _reads(bench: Bench) -> list[Request]:
    return [each for each in bench.peer.requests if each.path == "/version"]


async def _asked(bench: Bench, times: int) -> None:
    await until(lambda: len(_reads(bench)) >= times, "it is asked again")
