"""The cache of an inventory: which versions it reads, when it says that it knows, and that it ends with the truth."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.builders import (
    DRIVER,
    make_basic_device,
    make_claim,
    make_device,
    make_rule,
    make_slice,
    make_status,
    make_taint,
    make_toleration,
)
from tests.unit.cluster.api_peer import ALL, ApiPeer
from tests.unit.cluster.cache.following import EXPIRED, bookmark
from tests.unit.cluster.peer import Lines, cluster_of, run, until
from webhook.api.claims import allocated_classes
from webhook.cluster.cache.inventory import InventoryCache
from webhook.cluster.settings import InventorySettings, ReflectorSettings
from webhook.inventory.state import Sight
from webhook.server.review_state import ReviewState
from webhook.server.rule_observer import RuleObserver
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from webhook.inventory.state import Inventory, InventoryObject

Json = dict[str, Any]

QUICK = ReflectorSettings(
    stream=True, page_size=2, backoff_seconds=0.004, backoff_most_seconds=0.02, short_watch_seconds=0.0
)
CLAIMS, SLICES, RULES = "resourceclaims", "resourceslices", "devicetaintrules"


def a_claim(name: str, device: str = "gpu-0", *users: str, version: str = "v1") -> Json:
    result = {"request": "r", "driver": DRIVER, "pool": "node-0", "device": device, "tolerations": [make_toleration()]}
    reserved = [{"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in users]
    meta = {"name": name, "namespace": "ml"}
    return make_claim(version=version, meta=meta, status=make_status(result) | {"reservedFor": reserved})


def a_slice(name: str = "node-0", generation: int = 1, of: int = 1, version: str = "v1") -> Json:
    make = make_basic_device if version == "v1beta1" else make_device
    manifest = make_slice([make("gpu-0", [make_taint()]), make("gpu-1")], version=version, meta={"name": name})
    manifest["spec"]["pool"] |= {"generation": generation, "resourceSliceCount": of}
    return manifest


def a_rule(name: str = "broken", version: str = "v1") -> Json:
    return make_rule(version=version, meta={"name": name})


def a_pod(name: str, *claims: str) -> Json:
    listed = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    spec = {"nodeName": "node-0", "resourceClaims": listed}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml"}, "spec": spec}


class Bench:
    def __init__(self, peer: ApiPeer, cache: InventoryCache, metrics: Metrics, now: list[float]) -> None:
        self.peer = peer
        self.cache = cache
        self.metrics = metrics
        self.now = now
        self.told: list[tuple[InventoryObject | None, InventoryObject | None]] = []
        cache.subscribe(lambda old, new: self.told.append((old, new)))

    async def happens(self, manifest: Json, *, gone: bool = False, cut: bool = False) -> None:
        """A change, told on the watch."""
        resource = {"ResourceClaim": CLAIMS, "ResourceSlice": SLICES, "DeviceTaintRule": RULES, "Pod": "pods"}
        line = self.peer.delete(manifest) if gone else self.peer.put(manifest)
        await self.peer.say_on(self.peer.path_of(resource[manifest["kind"]]), line, cut=cut)

    async def settles(self) -> None:
        await until(lambda: contents(self.cache.inventory) == contents(self.peer.inventory()), "the same as the peer")
        await until(self._knows, "that it knows")

    def _knows(self) -> bool:
        self.now[0] += 0.01  # a watch that is opened again is trusted after a while
        return self.cache.sight().inventory is self.cache.inventory

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"device_taint_webhook_{name}", labels) or 0.0


def contents(inventory: Inventory) -> tuple[Any, ...]:
    """What is held, without the classes of claims, which not everybody asks for."""
    claims = {key: structs.replace(claim, requests=()) for key, claim in inventory.claims.items()}
    held = (inventory.slices, inventory.rules, claims, inventory.pods)
    return (*map(dict, held), inventory.pools.incomplete, inventory.pools.device_count(), inventory.usage.groups.keys())


@contextlib.asynccontextmanager
async def caching(
    *objects: Json,
    served: Mapping[str, frozenset[str]] = ALL,
    streams: bool = True,
    pods: bool = False,
    settings: InventorySettings = InventorySettings(reflector=QUICK, slice_page_size=1),  # noqa: B008 -- frozen
) -> AsyncIterator[Bench]:
    metrics = Metrics(version="0", resources=())
    now = [1000.0]
    async with ApiPeer(served, streams=streams) as peer, cluster_of(peer) as cluster:
        for each in objects:
            peer.put(each)
        cache = InventoryCache(
            cluster, random=lambda: 0.5, metrics=metrics, settings=settings, pods=pods, clock=lambda: now[0]
        )
        bench = Bench(peer, cache, metrics, now)
        task = asyncio.create_task(cache.run())
        try:
            yield bench
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.mark.parametrize(
    ("version", "rule_version", "streams"),
    [("v1", "v1", True), ("v1beta2", "v1beta2", True), ("v1beta1", "v1alpha3", True), ("v1", "v1alpha3", False)],
)
def test_each_version_that_is_served_is_read(version: str, rule_version: str, *, streams: bool) -> None:
    async def test() -> None:
        served = {rule_version: frozenset({RULES})}
        served[version] = served.get(version, frozenset()) | {CLAIMS, SLICES}
        objects = (
            *(a_claim(name, "gpu-0", f"pod-{name}", version=version) for name in ("a", "b", "c")),
            *(a_slice(name, of=2, version=version) for name in ("s", "t")),
            a_rule(version=rule_version),
        )
        async with caching(*objects, served=served, streams=streams) as bench:
            await bench.cache.synced()
            await bench.settles()
            await bench.happens(a_claim("d", "gpu-1", version=version))
            await bench.happens(a_claim("a", version=version), gone=True)
            await bench.settles()
            inventory = bench.cache.inventory
            assert (len(inventory.claims), len(inventory.slices), len(inventory.rules)) == (3, 2, 1)
            paged = {request.path.rpartition("/")[2] for request in bench.peer.lists if "limit" in request.query}
            assert paged == (set() if streams else {CLAIMS, SLICES, RULES})

    run(test())


def test_sight_names_what_is_missing_until_everything_is_there() -> None:
    async def test() -> None:
        async with caching(a_slice(), a_rule()) as bench:
            assert bench.cache.sight() == Sight(None, "resourceslices not read yet")
            bench.peer.forbidden = frozenset({CLAIMS})
            await until(lambda: bench.cache.sight().unknown == "resourceclaims not read yet", "all but claims")
            await until(lambda: "403: no resourceclaims for you" in (bench.cache.problem or ""), "the server's words")
            assert bench.count("inventory_synced") == 0.0
            bench.peer.forbidden = frozenset()
            await bench.settles()
            assert bench.cache.sight() == Sight(bench.cache.inventory)
            assert bench.cache.problem is None
            assert bench.count("inventory_synced") == 1.0
            assert [bench.count("inventory_objects", resource=each) for each in (SLICES, RULES, CLAIMS)] == [1, 1, 0]

    run(test())


def test_claims_that_are_not_served_leave_everything_unknown() -> None:
    async def test() -> None:
        async with caching(a_slice(), a_rule(), served={"v1": frozenset({SLICES, RULES})}) as bench:
            await until(lambda: bench.cache.sight().unknown == "resourceclaims are not served", "that")
            assert "resourceclaims.resource.k8s.io is not served in v1, v1beta2, v1beta1" in (bench.cache.problem or "")
            assert bench.count("inventory_synced") == 0.0

    run(test())


def test_rules_that_are_not_served_are_none_until_they_are() -> None:
    async def test() -> None:
        async with caching(a_slice(), a_claim("a"), a_rule(), served={"v1": frozenset({CLAIMS, SLICES})}) as bench:
            await bench.cache.synced()
            await until(lambda: bench.cache.sight().inventory is not None, "the rest")
            assert (bench.cache.rules_served, dict(bench.cache.inventory.rules)) == (False, {})
            assert bench.cache.problem is None
            assert bench.count("reflector_errors_total", resource=RULES) == 0
            bench.peer.served = ALL
            await until(lambda: bench.cache.rules_served, "the rules")
            await bench.settles()
            assert set(bench.cache.inventory.rules) == {"broken"}

    run(test())


def test_rules_that_are_served_no_longer_are_in_doubt_and_then_dropped() -> None:
    """M9: what follows no changes is not current; without rules, there is nothing to be in doubt about."""

    async def test() -> None:
        async with caching(a_slice(), a_claim("a"), a_rule()) as bench:
            await bench.settles()
            path = bench.peer.path_of(RULES)
            bench.peer.served = {"v1": ALL["v1"] - {RULES}}
            await bench.peer.say_on(path, cut=True)
            await until(lambda: not bench.cache.rules_served, "that they are not served")
            assert bench.cache.sight() == Sight(None, "devicetaintrules are served no longer")
            assert "devicetaintrules.resource.k8s.io is not served" in (bench.cache.problem or "")
            bench.now[0] += 600.0
            await until(lambda: not bench.cache.inventory.rules, "that they are dropped")
            assert bench.cache.sight().inventory is bench.cache.inventory
            old, new = bench.told[-1]
            assert old is not None
            assert (old.meta.name, new) == ("broken", None)
            bench.peer.served = ALL
            await bench.settles()
            assert set(bench.cache.inventory.rules) == {"broken"}

    run(test())


def test_lost_watch_is_trusted_for_as_long_as_the_settings_say() -> None:
    async def test() -> None:
        patient = InventorySettings(reflector=QUICK, stale_seconds=15.0)
        async with caching(a_slice(), a_claim("a"), a_rule(), settings=patient) as bench:
            await bench.settles()
            await bench.peer.stop()
            for resource in (SLICES, CLAIMS, RULES):
                await until(lambda: bench.count("reflector_errors_total", resource=resource) >= 2, "failed attempts")  # noqa: B023 -- waited for
            bench.now[0] += 15.0
            assert bench.cache.sight().inventory is not None
            bench.now[0] += 1.0
            assert bench.cache.sight() == Sight(None, "resourceslices not watched for 16 s")
            assert bench.count("inventory_synced") == 0.0
            assert (bench.cache.problem or "").count("not watched for 16 s (") == 3
            bench.peer.put(a_claim("b"))
            await bench.peer.start()
            await bench.settles()

    run(test())


def test_expired_watch_is_not_trusted_for_a_moment() -> None:
    async def test() -> None:
        async with caching(a_slice(), a_claim("a"), a_rule()) as bench:
            await bench.settles()
            bench.peer.put(a_claim("missed"))
            bench.peer.watches.append(Lines())  # the stream that begins the list, and does not go on
            await bench.peer.say_on(bench.peer.path_of(CLAIMS), EXPIRED)
            await until(lambda: watches_of(bench.peer, CLAIMS) == 2, "another stream")
            assert bench.cache.sight() == Sight(None, "resourceclaims being listed again")
            await bench.peer.say_on(bench.peer.path_of(CLAIMS), cut=True)
            await bench.settles()
            assert set(bench.cache.inventory.claims) == {"ml/a", "ml/missed"}

    run(test())


@pytest.mark.parametrize("streams", [True, False])
def test_rules_of_a_list_that_is_read_again_do_not_begin_again(*, streams: bool) -> None:
    """R7: of the first list none begins, of the next one only the rule that the watch had missed."""

    def evicting(name: str, pod: int) -> Json:
        selector = {"driver": DRIVER, "pool": "node-0", "device": f"gpu-{pod}"}
        return make_rule(meta={"name": name}, selector=selector, taint=make_taint(effect="NoExecute"))

    async def test() -> None:
        claims = [a_claim(str(number), f"gpu-{number}", f"pod-{number}") for number in range(3)]
        async with caching(a_slice(), *claims, evicting("first", 0), streams=streams) as bench:
            state = ReviewState(sight=bench.cache.sight)
            bench.cache.subscribe(RuleObserver(state, bench.cache.inventory).observe)
            await bench.settles()
            await bench.happens(evicting("second", 1))
            await bench.settles()

            def remembered() -> list[set[str]]:
                return [set(each.pods) for each in state.assumed_rules.victims(600)]

            assert remembered() == [{"uid-pod-1"}]
            for _ in range(2):
                bench.peer.put(evicting("missed", 2))
                lists = bench.count("reflector_lists_total", resource=RULES)
                await bench.peer.say_on(bench.peer.path_of(RULES), EXPIRED)
                await until(lambda: bench.count("reflector_lists_total", resource=RULES) > lists, "another list")  # noqa: B023 -- waited for
                await bench.settles()
                assert remembered() == [{"uid-pod-1"}, {"uid-pod-2"}]

    run(test())


def watches_of(peer: ApiPeer, resource: str) -> int:
    """How many are open or were."""
    return sum(request.path == peer.path_of(resource) for request in peer.watched)


def test_pods_are_read_only_when_asked_for_and_held_only_with_claims() -> None:
    async def test() -> None:
        classed = a_claim("classed")
        classed["status"]["allocation"]["devices"]["results"][0]["request"] = "gpu"
        objects = a_slice(), a_claim("c", "gpu-0", "p"), classed, a_pod("p", "c"), a_pod("bystander")
        async with caching(*objects, pods=True) as bench:
            await bench.cache.synced()
            await bench.settles()
            assert set(bench.cache.inventory.pods) == {"ml/p"}
            await bench.happens(a_pod("bystander"))
            await bench.happens(a_pod("bystander"), gone=True)
            await bench.happens(a_pod("late", "c"))
            await bench.settles()
            assert bench.cache.inventory.pods_of("ml/c") == ("ml/late", "ml/p")
            told = [new.meta.name for _, new in bench.told if new is not None]
            assert "bystander" not in told
            assert bench.count("inventory_objects", resource="pods") == 2
            assert allocated_classes(bench.cache.inventory.claims["ml/classed"]) == {DRIVER}
        async with caching(*objects) as bench:
            await bench.cache.synced()
            assert not any(request.path.endswith("/pods") for request in bench.peer.requests)
            assert {claim.requests for claim in bench.cache.inventory.claims.values()} == {()}

    run(test())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("streams", [True, False])
def test_any_order_of_events_and_faults_ends_with_what_a_list_gives(seed: int, *, streams: bool) -> None:
    """Events twice, late, cut in the middle, expired; watches that end in order, and slices half published."""

    async def test() -> None:
        random = Random(seed)
        async with caching(a_slice(), a_claim("c0"), a_rule(), streams=streams) as bench:
            await bench.settles()
            for _ in range(25):
                await _something(bench, random)
                await bench.settles()  # each time, for the next list would mend what an event spoilt
            expected = contents(bench.cache.inventory)
            replayed = type(bench.cache.inventory)()
            for old, new in bench.told:
                replayed.apply(old, new)
            assert contents(replayed) == expected, "what is told adds up to what is held"

    run(test())


async def _something(bench: Bench, random: Random) -> None:
    peer = bench.peer
    resource = random.choice((CLAIMS, SLICES, RULES))
    path = peer.path_of(resource)
    await peer.until_watched(path)
    lines = [_change(peer, resource, random) for _ in range(random.randint(1, 5))]
    match random.randrange(6):
        case 0:
            await peer.say_on(path, *lines, *random.sample(lines, len(lines)))
        case 1:
            # each object's own order may be lost as well: the newest counts
            await peer.say_on(path, *random.sample(lines, len(lines)), *lines)
        case 2:
            await peer.say_on(path, *lines[:-1], lines[-1][: random.randrange(1, len(lines[-1]) - 1)], cut=True)
        case 3:
            await peer.say_on(path, EXPIRED, cut=True)
        case 4:
            peer.forgotten = peer.version
            await peer.say_on(path, *lines[:1], cut=True)
        case _:
            await peer.say_on(path, *lines, bookmark(peer.version))


def _change(peer: ApiPeer, resource: str, random: Random) -> bytes:
    name = f"c{random.randrange(3)}"
    known = peer.objects[resource]
    key = ("ml" if resource == CLAIMS else "", name)
    if key in known and random.random() < 0.3:
        return peer.delete(known[key])
    if resource == CLAIMS:
        return peer.put(
            a_claim(name, f"gpu-{random.randrange(2)}", *random.sample(["p", "q", "r"], random.randrange(3)))
        )
    if resource == SLICES:
        return peer.put(a_slice(name, generation=random.randint(1, 3), of=random.randint(1, 3)))
    return peer.put(a_rule(name))
