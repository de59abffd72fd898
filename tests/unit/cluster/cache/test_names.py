"""Names and holds: what the watches bring, what single requests fill in, and that requests stay bounded."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import convert

from tests.unit.cluster.acting import acting_cluster
from tests.unit.cluster.cache.following import event, no_chance, page, synced
from tests.unit.cluster.peer import Answer, Drop, Peer, Reply, Request, Silence, cluster_of, status, until
from tests.unit.running import running
from webhook.api.pods import HOLD
from webhook.cluster.cache.decoders import DeviceClassWire
from webhook.cluster.cache.names import ClassDrivers, ClusterCache, Namespace, NamespaceCache
from webhook.cluster.settings import NameSettings, ReflectorSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from webhook.policy.match import ClusterNames


CLASSES = "/apis/resource.k8s.io/v1"
ABSENT = Answer(status(404, "not found"), 404)


def namespace(name: str, version: int = 1, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version), "labels": labels}}


def device_class(name: str, *expressions: str, version: int = 1) -> dict[str, Any]:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}, "spec": {"selectors": selectors}}


GPU = device_class("gpu", 'device.driver == "gpu.example.com"')


class Objects:
    """A peer's answers: lists, single objects, and nothing else."""

    def __init__(self) -> None:
        self.namespaces: dict[str, Any] = {}
        self.classes: dict[str, Any] = {}
        self.served = True

    def add(self, *objects: dict[str, Any]) -> None:
        for obj in objects:
            (self.classes if "spec" in obj else self.namespaces)[obj["metadata"]["name"]] = obj

    def __call__(self, request: Request) -> Reply:
        if request.path == CLASSES and self.served:
            return Answer({"resources": [{"name": "deviceclasses"}]})
        collection, _, name = request.path.rpartition("/")
        if request.path in ("/api/v1/namespaces", f"{CLASSES}/deviceclasses"):
            items = self.namespaces if name == "namespaces" else self.classes
            return Answer({"metadata": {"resourceVersion": "10"}, "items": list(items.values())})
        objects = self.namespaces if collection == "/api/v1/namespaces" else self.classes
        return Answer(objects[name]) if name in objects else ABSENT


class Bench:
    def __init__(self, peer: Peer, cache: ClusterCache, objects: Objects) -> None:
        self.peer = peer
        self.cache = cache
        self.objects = objects
        self.now = [1000.0]

    def asked(self, name: str) -> int:
        return sum(request.path.endswith(f"/{name}") for request in self.peer.requests)


@contextlib.asynccontextmanager
async def caching(
    *objects: dict[str, Any],
    watching: bool = True,
    settings: NameSettings = NameSettings(),  # noqa: B008 -- frozen
) -> AsyncIterator[Bench]:
    """A cache that has read these objects; without `watching` it knows nothing, and `fetch` alone is at work."""
    async with Peer() as peer, cluster_of(peer) as cluster:
        now = [1000.0]
        known = Objects()
        known.add(*objects)
        peer.otherwise = known
        quick = ReflectorSettings(backoff_seconds=0.001, backoff_most_seconds=0.01)
        cache = ClusterCache(
            cluster, random=lambda: 0.5, settings=settings, reflector_settings=quick, clock=lambda: now[0]
        )
        bench = Bench(peer, cache, known)
        bench.now = now
        async with contextlib.AsyncExitStack() as work:
            if watching:
                await work.enter_async_context(running(cache.run()))
                await cache.synced()
            try:
                yield bench
            finally:
                cache._namespace_lookups.close()
                cache._class_lookups.close()


def labels(cache: ClusterNames, name: str) -> dict[str, str] | None:
    facts = cache.namespace(name)
    return None if facts is None else dict(facts.labels)


async def test_cache_fills_the_port_of_the_policy() -> None:
    loose = device_class("loose", "device.capacity['x'].memory.isGreaterThan(quantity('1Gi'))")
    async with caching(namespace("ml", team="a"), namespace("bare"), GPU, loose) as bench:
        assert labels(bench.cache, "ml") == {"team": "a"}
        assert labels(bench.cache, "bare") == {}
        assert bench.cache.namespace("nobody") is None
        assert bench.cache.drivers("gpu") == frozenset({"gpu.example.com"})
        assert bench.cache.drivers("loose") is None
        assert bench.cache.drivers("nobody") is None
        assert bench.cache.unreadable_classes() == ["loose"]
        assert bench.cache.problem is None


async def test_namespace_stays_the_same_value_until_its_labels_change() -> None:
    """Decisions are remembered by it; an annotation or a finalizer must not make us forget them."""
    async with caching(namespace("ml", team="a"), watching=False) as bench:
        await bench.cache.fetch(["ml"], [], 5)
        first = bench.cache.namespace("ml")
        assert first is not None
        async with running(bench.cache.namespace_reflector.run()):
            await bench.peer.say(event("MODIFIED", namespace("ml", 11, team="a")))
            await until(lambda: _version(bench, "ml") == "11", "the change")
            assert bench.cache.namespace("ml") is first
            await bench.peer.say(event("MODIFIED", namespace("ml", 12, team="b")))
            await until(lambda: _version(bench, "ml") == "12", "the change")
            assert bench.cache.namespace("ml") is not first


async def test_class_is_read_again_when_its_selectors_change_and_forgotten_when_it_goes() -> None:
    async with caching(watching=False) as bench, running(bench.cache.class_reflector.run()):
        await until(lambda: len(bench.peer.watched) == 1, "a watch")
        loose = device_class("gpu", "true", version=12)
        relabelled = {**loose, "metadata": {**loose["metadata"], "resourceVersion": "13", "labels": {"a": "b"}}}
        await bench.peer.say(event("ADDED", {**GPU, "metadata": {**GPU["metadata"], "resourceVersion": "11"}}))
        await until(lambda: bench.cache.drivers("gpu") == frozenset({"gpu.example.com"}), "the class")
        await bench.peer.say(event("MODIFIED", loose), event("MODIFIED", relabelled))
        await until(lambda: bench.cache.unreadable_classes() == ["gpu"], "the change")
        await bench.peer.say(event("DELETED", device_class("gpu", "true", version=14)))
        await until(lambda: not bench.cache.unreadable_classes(), "the end")


@pytest.mark.parametrize(
    ("spec", "drivers"),
    [
        ({}, None),
        ({"selectors": None}, None),
        ({"selectors": [{"cel": {"expression": "device.driver == 'a'"}}, {"other": {}}]}, frozenset({"a"})),
        ({"selectors": [{"other": {}}]}, None),
        ({"selectors": [{"cel": {"expression": "device.driver =="}}]}, None),
    ],
)
def test_class_gives_what_its_selectors_leave(spec: dict[str, Any], drivers: frozenset[str] | None) -> None:
    raw = {"metadata": {"name": "gpu"}, "spec": spec}
    assert ClassDrivers.of(convert(raw, DeviceClassWire).to_value()).names == drivers


def _version(bench: Bench, name: str) -> str:
    item = bench.cache.namespace_reflector.items.get(name)
    return item.metadata.resource_version if item else ""


async def test_problem_names_what_was_not_read() -> None:
    async with caching(watching=False) as bench:
        assert bench.cache.problem == "not read yet: namespaces, deviceclasses"


async def test_server_without_device_classes_has_none_and_is_asked_again() -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        objects = Objects()
        objects.served = False
        objects.add(GPU)
        peer.otherwise = objects
        quick = ReflectorSettings(backoff_seconds=0.001, backoff_most_seconds=0.01)
        cache = ClusterCache(cluster, random=lambda: 0.5, reflector_settings=quick)
        async with running(cache.run()):
            await cache.synced()
            assert (cache.problem, cache.drivers("gpu")) == (None, None)
            objects.served = True
            await until(lambda: cache.drivers("gpu") is not None, "the class")


async def test_missing_names_are_asked_for_once_each() -> None:
    async with caching(namespace("ml", team="a"), GPU) as bench:
        bench.objects.add(namespace("new", team="b"), device_class("fpga", 'device.driver == "fpga.example.com"'))
        before = len(bench.peer.requests)
        await bench.cache.fetch(["ml", "new", "new", "nobody"], ["gpu", "fpga", "nothing"], 5)
        assert labels(bench.cache, "new") == {"team": "b"}
        assert bench.cache.drivers("fpga") == frozenset({"fpga.example.com"})
        assert bench.cache.namespace("nobody") is None
        assert bench.cache.drivers("nothing") is None
        await bench.cache.fetch(["ml", "new", "nobody"], ["gpu", "fpga", "nothing"], 5)
        single = [request for request in bench.peer.requests[before:] if not request.is_watch]
        assert sorted(request.path.rpartition("/")[2] for request in single) == ["fpga", "new", "nobody", "nothing"]
        assert {request.headers["accept"].partition(";")[2][:26] for request in single} == {
            "as=PartialObjectMetadata;g",
            "",
        }


async def test_answers_run_out_absent_ones_sooner() -> None:
    async with caching(namespace("there"), watching=False) as bench:
        await bench.cache.fetch(["there", "nobody"], [], 5)
        bench.now[0] += 4.9
        await bench.cache.fetch(["there", "nobody"], [], 5)
        assert (bench.asked("there"), bench.asked("nobody")) == (1, 1)
        bench.now[0] += 0.2
        await bench.cache.fetch(["there", "nobody"], [], 5)
        assert (bench.asked("there"), bench.asked("nobody")) == (1, 2)
        assert labels(bench.cache, "there") == {}
        bench.now[0] += 60
        assert bench.cache.namespace("there") is None
        await bench.cache.fetch(["there"], [], 5)
        assert bench.asked("there") == 2


def _partial(obj: dict[str, Any]) -> Namespace:
    return convert(obj, Namespace)


def _watched(cache: ClusterCache, old: Namespace | None, new: Namespace | None) -> None:
    """As if the watch had brought it."""
    for on_change in cache.namespace_reflector._store._subscribers:
        on_change(old, new)


async def test_many_who_ask_for_one_name_share_a_request() -> None:
    async with caching(namespace("new"), watching=False) as bench:
        await asyncio.gather(*(bench.cache.fetch(["new"], [], 5) for _ in range(50)))
        assert bench.asked("new") == 1
        assert labels(bench.cache, "new") == {}


@contextlib.contextmanager
def slow(cache: ClusterCache) -> Iterator[asyncio.Event]:
    """Requests wait for the event before they go out."""
    gate = asyncio.Event()
    original = cache._cluster.get

    async def get(*args: Any, **options: Any) -> bytes:
        await gate.wait()
        return await original(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache._cluster, "get", get)
        yield gate


async def test_watch_knows_better_than_an_answer_that_comes_late() -> None:
    async with caching(namespace("new", 10, team="a"), watching=False) as bench:
        cache, added = bench.cache, _partial(namespace("new", 11))
        with slow(cache) as gate:
            asking = asyncio.create_task(cache.fetch(["new"], [], 30))
            await until(lambda: len(cache._namespace_lookups._in_flight) == 1, "the request")
            _watched(cache, None, added)
            gate.set()
            await asking
        assert labels(cache, "new") == {}
        _watched(cache, added, None)
        assert cache.namespace("new") is None


async def test_slow_answer_is_not_waited_for_but_kept() -> None:
    async with caching(namespace("new"), watching=False) as bench:
        with slow(bench.cache) as gate:
            await bench.cache.fetch(["new"], [], 0.01)
            assert bench.cache.namespace("new") is None
            gate.set()
            await until(lambda: bench.cache.namespace("new") is not None, "the late answer")
        assert bench.asked("new") == 1


async def test_caller_that_is_cancelled_cancels_no_other() -> None:
    async with caching(namespace("new"), watching=False) as bench:
        with slow(bench.cache) as gate:
            one, other = (asyncio.create_task(bench.cache.fetch(["new"], [], 30)) for _ in range(2))
            await until(lambda: len(bench.cache._namespace_lookups._in_flight) == 1, "the request")
            one.cancel()
            await asyncio.wait([one])
            gate.set()
            await other
        assert one.cancelled()
        assert labels(bench.cache, "new") == {}
        assert bench.asked("new") == 1


@pytest.mark.parametrize(
    "reply",
    [Drop(), Answer(status(403, "forbidden"), 403), Answer(status(500, "no"), 500), Answer(b"<html>"), Answer([])],
)
async def test_fetch_never_raises_and_does_not_insist(reply: Reply) -> None:
    async with caching(watching=False) as bench:
        bench.peer.otherwise = lambda _: reply
        for _ in range(3):
            await bench.cache.fetch(["ml"], ["gpu"], 5)
        assert bench.cache.namespace("ml") is None
        assert bench.asked("ml") == (2 if isinstance(reply, Drop) else 1)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../secrets/key", "A", "a b", "-a", "a" * 254, "x%2Fy", "a?b", "\u0660"]
)
async def test_names_that_nothing_can_have_are_not_asked_for(name: str) -> None:
    async with caching(watching=False) as bench:
        await bench.cache.fetch([name], [name], 5)
        assert bench.peer.requests == []


async def test_one_review_asks_for_a_few_names_only() -> None:
    async with caching(watching=False) as bench:
        await bench.cache.fetch([], [f"class-{number}" for number in range(256)], 5)
        asked = [request for request in bench.peer.requests if "class-" in request.path]
        assert len(asked) == NameSettings().names_most


async def test_many_reviews_do_not_ask_without_end() -> None:
    settings = NameSettings(names_most=3, in_flight_most=5)
    async with caching(watching=False, settings=settings) as bench:
        bench.peer.otherwise = lambda _: Silence()
        await asyncio.gather(*(bench.cache.fetch([f"n{a}-{b}" for b in range(10)], [], 0.01) for a in range(10)))
        assert len(bench.cache._namespace_lookups._in_flight) == 5
        await until(lambda: len(bench.peer.requests) == 5, "the requests")
        await bench.cache.fetch(["one-more"], [], 0.01)
        assert len(bench.cache._namespace_lookups._in_flight) == 5


async def test_answers_are_not_kept_without_end() -> None:
    async with caching(watching=False, settings=NameSettings(remembered_most=10)) as bench:
        for number in range(30):
            await bench.cache.fetch([f"n{number}"], [], 5)
        assert list(bench.cache._namespace_lookups._answers) == [f"n{number}" for number in range(20, 30)]


async def test_end_gives_up_what_is_under_way() -> None:
    async with caching() as bench:
        bench.peer.answers.append(Silence())
        await bench.cache.fetch(["stuck"], [], 0.01)
        [task] = bench.cache._namespace_lookups._in_flight.values()
    assert task.cancelled() or task.cancelling()


def held_namespace(name: str, version: int = 3, hold: str | None = None, **labels: str) -> dict[str, Any]:
    annotations = {"other": "x"} | ({} if hold is None else {HOLD: hold})
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": {**meta, "labels": labels, "annotations": annotations}}


async def test_holds_and_labels_of_namespaces_are_known_and_their_changes_told() -> None:
    told: list[str] = []
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.append(page(10, held_namespace("ml", tier="prod"), held_namespace("web", hold="release")))
        namespaces = NamespaceCache(cluster, random=no_chance, on_change=told.append)
        async with synced(namespaces.reflector):
            facts = namespaces.facts_of("ml")
            assert facts is not None
            assert facts.labels == {"tier": "prod"}
            assert [namespaces.hold_of(name) for name in ("ml", "web", "none")] == [None, "release", None]
            assert told == ["ml", "web"]
            told.clear()
            await peer.say(event("MODIFIED", held_namespace("ml", 11, hold="stop", tier="prod")))
            await peer.say(event("MODIFIED", held_namespace("web", 12, hold="release", tier="x")))
            await peer.say(event("MODIFIED", held_namespace("ml", 13, hold="stop", tier="prod")))  # something else
            await peer.say(event("DELETED", held_namespace("web", 14)))
            await until(lambda: namespaces.facts_of("web") is None, "deleted")
            assert told == ["ml", "web", "web"]
            assert namespaces.hold_of("ml") == "stop"
