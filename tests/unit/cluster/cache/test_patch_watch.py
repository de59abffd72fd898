"""Patches as the worker follows them: for their codes, and never in the way of evictions."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from tests.unit.cluster.cache.following import event, waits_of
from tests.unit.cluster.cache.test_known_patches import PATCHES, QUICK, Patched, patch
from tests.unit.cluster.peer import Peer, cluster_of, until
from tests.unit.running import running
from webhook.cluster.cache.known_patches import PatchWatch
from webhook.cluster.settings import InventorySettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from webhook.api.patches import ResourceSlicePatch

WHERE = f"{PATCHES}/resourceslicepatches"


class Bench:
    def __init__(self, peer: Peer, objects: Patched, seen: list[tuple[str, str]], watch: PatchWatch) -> None:
        self.peer = peer
        self.objects = objects
        self.seen = seen
        self.watch = watch


@contextlib.asynccontextmanager
async def watching(patience: float = 5.0, **state: object) -> AsyncIterator[Bench]:
    async with Peer() as peer, cluster_of(peer) as cluster:
        objects = Patched()
        for name, value in state.items():
            setattr(objects, name, value)
        peer.otherwise = objects
        seen: list[tuple[str, str]] = []

        def name_of(each: ResourceSlicePatch | None) -> str:
            return each.meta.name if each else ""

        watch = PatchWatch(
            cluster,
            lambda old, new: seen.append((name_of(old), name_of(new))),
            random=lambda: 0.5,
            settings=InventorySettings(reflector=QUICK, pod_groups_seconds=0.064),
            patience_seconds=patience,
        )
        async with running(watch.reflector.run()):
            yield Bench(peer, objects, seen, watch)


async def test_patches_are_known_by_name_and_changes_are_passed_on() -> None:
    async with watching(patches=[patch("a")]) as bench:
        await bench.watch.looked()
        assert (set(bench.watch.patches()), bench.watch.problem) == ({"a"}, None)
        await bench.peer.until_watched(WHERE)
        await bench.peer.say_on(WHERE, event("ADDED", patch("b", 11)))
        await until(lambda: "b" in bench.watch.patches(), "another one")
        assert bench.seen == [("", "a"), ("", "b")]


async def test_kind_that_is_not_served_is_no_problem_and_looked_for_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "webhook.cluster.cache.reflector")
    async with watching(patches_served=False) as bench:
        await bench.watch.looked()
        assert (dict(bench.watch.patches()), bench.watch.problem) == ({}, None)
        await until(lambda: max(waits_of(caplog, "resourceslicepatches"), default=0) > 0.02, "longer waits")
        bench.objects.patches_served, bench.objects.patches = True, [patch("a")]
        await until(lambda: "a" in bench.watch.patches(), "the patch")


async def test_worker_does_not_wait_for_patches_that_it_may_not_read() -> None:
    async with watching(patience=0.5, forbidden=True, patches=[patch("a")]) as bench:
        began = time.monotonic()
        await bench.watch.looked()
        assert 0.4 < time.monotonic() - began < 4
        assert dict(bench.watch.patches()) == {}
        problem = bench.watch.problem or ""
        assert problem.startswith("resourceslicepatches not read yet (")
        assert "no patches for you" in problem
        bench.objects.forbidden = False
        await until(lambda: bench.watch.problem is None, "the list")
        assert set(bench.watch.patches()) == {"a"}
