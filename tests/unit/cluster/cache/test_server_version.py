"""Which versions servers say they have, and what follows for the inventory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cluster.cache.inventory_bench import Bench, a_claim, a_rule, a_slice, caching
from tests.unit.cluster.peer import Answer, Peer, cluster_of, run, status, until
from webhook.api.servers import UNKNOWN, facts_of
from webhook.cluster.cache import discovery as module
from webhook.cluster.cache.discovery import read_facts


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
def test_server_that_does_not_say_is_an_unknown_one(answer: Any) -> None:
    async def test() -> None:
        async with Peer() as peer, cluster_of(peer) as cluster:
            peer.answers.append(answer)
            assert await read_facts(cluster) == UNKNOWN

    run(test())


async def _becomes(bench: Bench, *versions: str) -> None:
    def known() -> bool:
        bench.now[0] += 0.01
        return bench.cache.inventory.servers == facts_of(versions)

    await until(known, f"the facts of {versions}")


def test_version_is_read_at_start_and_when_a_watch_is_opened_again() -> None:
    async def test() -> None:
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

    run(test())


def test_server_that_falls_silent_is_forgotten() -> None:
    async def test() -> None:
        async with caching(a_slice()) as bench:
            await bench.cache.synced()
            await _becomes(bench, "v1.37.2")
            bench.peer.git_version = ""
            bench.now[0] += 700
            await bench.happens(a_claim("c"), cut=True)
            await _becomes(bench)

    run(test())
