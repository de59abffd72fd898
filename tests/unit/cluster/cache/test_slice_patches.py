"""Patches and device classes for `/mutate`, by watches."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from tests.unit.cluster.cache.following import event
from tests.unit.cluster.peer import Answer, Peer, Reply, Request, cluster_of, run, status, until
from webhook.api.device_classes import DeviceClassSelectors
from webhook.api.rules import CELSelector
from webhook.cluster.cache.slice_patches import SlicePatchCache
from webhook.cluster.settings import ReflectorSettings
from webhook.inventory.slice_patches import SlicePatches

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OWN = "/apis/devicetaint.io/v1alpha1"
UPSTREAM = "/apis/resource.k8s.io/v1"


def patch(name: str, version: int = 1, **devices: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": name, "resourceVersion": str(version), "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": {"devices": devices}}


def gpu_class() -> dict[str, Any]:
    selectors = [{"cel": {"expression": "true"}}]
    return {"metadata": {"name": "gpu", "uid": "gpu", "resourceVersion": "1"}, "spec": {"selectors": selectors}}


SETS: Any = {"attributes": {"a.example/b": {"int": 1}}}


class Server:
    """A peer's answers to everything but watches."""

    def __init__(self, *patches: dict[str, Any]) -> None:
        self.patches = list(patches)
        self.served = True
        self.classes_readable = True

    def __call__(self, request: Request) -> Reply:
        if request.path == OWN:
            return Answer({"resources": [{"name": "resourceslicepatches"}] if self.served else []})
        if request.path == UPSTREAM:
            return Answer({"resources": [{"name": "deviceclasses"}]})
        if request.path.endswith("patches") and not self.served:
            return Answer(status(404, "not found"), 404)
        if request.path.endswith("deviceclasses") and not self.classes_readable:
            return Answer(status(403, "no classes for you"), 403)
        items = self.patches if request.path.endswith("patches") else [gpu_class()]
        return Answer({"metadata": {"resourceVersion": "10"}, "items": items})


@contextlib.asynccontextmanager
async def following(server: Server) -> AsyncIterator[tuple[SlicePatchCache, Peer]]:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = server
        quick = ReflectorSettings(backoff_seconds=0.001, backoff_most_seconds=0.01, unserved_seconds=60.0)
        cache = SlicePatchCache(cluster, random=lambda: 0.5, settings=quick)
        task = asyncio.create_task(cache.run())
        try:
            yield cache, peer
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def test_patches_and_classes_are_followed() -> None:
    async def test() -> None:
        async with following(Server(patch("a", **SETS), patch("b", priority=1, **SETS), patch("c"))) as (cache, peer):
            assert cache.current == SlicePatches(known=False)
            problems = [cache.problem]
            await until(lambda: cache.current.known, "both lists")
            assert [*problems, cache.problem] == ["not read yet: resourceslicepatches, deviceclasses", None]
            first = cache.current
            assert first.ranking == ("b", "a")
            assert first.classes == {"gpu": DeviceClassSelectors("gpu", (CELSelector("true"),))}
            assert cache.current is first
            await peer.say_on(f"{OWN}/resourceslicepatches", event("DELETED", patch("b", 11, priority=1, **SETS)))
            await until(lambda: cache.current.ranking == ("a",), "the change")
            changed = {**gpu_class(), "spec": {}}
            changed["metadata"] = {**changed["metadata"], "resourceVersion": "12"}
            await peer.say_on(f"{UPSTREAM}/deviceclasses", event("MODIFIED", changed))
            await until(lambda: not cache.current.classes["gpu"].selectors, "the class's change")

    run(test())


def test_where_patches_are_not_served_there_are_none() -> None:
    async def test() -> None:
        server = Server()
        server.served = False
        async with following(server) as (cache, _):
            await until(lambda: cache.current.known, "an answer")
            assert (cache.current.patches, cache.problem) == ((), None)

    run(test())


def test_patches_that_are_suddenly_not_served_are_not_gone() -> None:
    """A server that is being replaced may say so."""

    async def test() -> None:
        server = Server(patch("a", **SETS))
        async with following(server) as (cache, peer):
            await until(lambda: cache.current.known, "both lists")
            server.served = False
            await peer.say_on(f"{OWN}/resourceslicepatches", event("ERROR", status(404, "gone")), cut=True)
            await until(lambda: not cache.current.known, "doubt")

    run(test())


def test_nothing_is_known_without_the_classes() -> None:
    async def test() -> None:
        server = Server(patch("a", **SETS))
        server.classes_readable = False
        async with following(server) as (cache, _):
            await until(lambda: "no classes for you" in (cache.problem or ""), "the reason")
            assert cache.problem is not None
            assert "resourceslicepatches" not in cache.problem
            assert not cache.current.known

    run(test())
