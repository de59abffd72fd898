"""Claims after etcd was restored from a backup: versions go back, and the inventory may still be of the time before."""

from __future__ import annotations

import pytest

from tests.unit.cluster.cache.following import page
from tests.unit.cluster.cache.test_claims_horizon import asking
from tests.unit.cluster.peer import Lines, until
from webhook.cluster.cache import inventory

ENDED = Lines(then="end")


async def test_version_that_is_never_reached_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "_ASK_AGAIN_SECONDS", 0.01)
    async with asking(page(20), watches=(ENDED,)) as bench:
        bench.horizon.reached(100.0)
        await bench.answered(1, 1)
        bench.peer.otherwise = lambda _: page(9)
        bench.version = "9"
        await bench.knows(100.0)


async def test_what_is_known_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "_ASK_AGAIN_SECONDS", 0.0)
    async with asking(page(10)) as bench:
        bench.horizon.reached(100.0)
        await bench.knows(100.0)
        bench.now = 101.0
        bench.peer.otherwise = lambda _: page(10)
        bench.horizon.reached(101.0)
        await bench.knows(101.0)
        assert len(bench.peer.lists) == 2


async def test_inventory_from_before_the_restore_does_not_know_what_came_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "_ASK_AGAIN_SECONDS", 0.01)
    async with asking() as bench:
        bench.peer.otherwise = lambda _: page(9)
        bench.version = "20"
        bench.horizon.reached(100.0)
        await until(lambda: len(bench.peer.lists) == 2, "a second answer")
        assert not bench.horizon.reached(100.0)
        bench.version = "9"
        await bench.knows(100.0)
