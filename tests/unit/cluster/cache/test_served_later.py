"""A kind that is served by now, but was not read since: its objects are unknown."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from tests.unit.cluster.api_peer import ALL
from tests.unit.cluster.cache.following import QUICK, PartialObject, page, waits_of
from tests.unit.cluster.cache.inventory_bench import RULES, a_claim, a_rule, a_slice, caching
from tests.unit.cluster.cache.test_known_patches import Patched, following, patch
from tests.unit.cluster.cache.test_resumed_watches import Fickle
from tests.unit.cluster.peer import Answer, Peer, cluster_of, status, until
from tests.unit.running import running
from webhook.cluster.cache.known_patches import PatchCache
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.settings import InventorySettings

WITHOUT_RULES = {version: resources - {RULES} for version, resources in ALL.items()}


async def test_inventory_is_not_current_while_rules_that_are_served_by_now_may_not_be_listed() -> None:
    async with caching(a_slice(), a_claim("a"), a_rule(), served=WITHOUT_RULES) as bench:
        await bench.cache.synced()
        await until(lambda: bench.cache.sight().inventory is not None, "what is served")
        bench.peer.forbidden, bench.peer.served = frozenset({RULES}), ALL
        await until(lambda: f"no {RULES} for you" in (bench.cache.problem or ""), "the reason")
        assert bench.cache.sight().unknown == f"{RULES} not read yet"
        bench.peer.forbidden = frozenset()
        await bench.settles()


async def test_patches_are_not_known_while_those_that_are_served_by_now_may_not_be_listed() -> None:
    async with following(patches_served=False) as bench:
        await bench.until_known()
        bench.objects.forbidden, bench.objects.patches_served = True, True
        bench.objects.patches = [patch("a")]
        await until(lambda: "no patches for you" in (bench.cache.problem or ""), "the reason")
        assert bench.cache.known().unknown == "resourceslicepatches not read yet"
        assert not bench.cache.for_slices().known
        bench.objects.forbidden = False
        await until(lambda: set(bench.cache.known().patches) == {"a"}, "the list")


async def test_controller_waits_for_patches_that_are_served_by_now_but_not_for_those_that_are_not() -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        objects = peer.otherwise = Patched()
        objects.patches_served = False
        cache = PatchCache(cluster, random=lambda: 0.5, settings=InventorySettings(reflector=QUICK))
        async with running(cache.patches.run()):
            await cache.patches.synced.wait()
            assert "resourceslicepatches" not in (cache.problem or "")
            objects.forbidden = objects.patches_served = True
            await until(lambda: "no patches for you" in (cache.problem or ""), "the reason")
            assert not cache.patches_served
            objects.forbidden = False
            await until(lambda: cache.patches_served, "the list")
            assert "resourceslicepatches" not in (cache.problem or "")


async def test_kind_that_is_served_by_now_is_soon_asked_for_again_though_its_list_is_not_found(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "webhook.cluster.cache.reflector")
    things = Fickle("example.com", "v1", "things")
    things.served = False
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = lambda _: Answer(status(404, "not here yet"), 404)
        settings = replace(QUICK, backoff_most_seconds=0.016, absent_most_seconds=0.064)
        reflector = Reflector(cluster, things, PartialObject, random=lambda: 0.0, settings=settings, optional=True)
        async with running(reflector.run()):
            await until(lambda: 0.064 in waits_of(caplog, "things"), "rare looks")
            things.served = True
            await until(lambda: reflector.unread, "that it is served")
            caplog.clear()
            await until(lambda: len(waits_of(caplog, "things")) >= 3, "vain lists")
            assert max(waits_of(caplog, "things")) == 0.016
            peer.otherwise = lambda _: page(5)
            await until(lambda: not reflector.unserved, "the list")
