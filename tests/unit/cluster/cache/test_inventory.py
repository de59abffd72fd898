"""The cache of an inventory: which versions it reads, when it says that it knows, and that it ends with the truth."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from tests.builders import DRIVER, make_rule, make_taint
from tests.unit.cluster.api_peer import ALL, ApiPeer
from tests.unit.cluster.cache.following import EXPIRED, bookmark
from tests.unit.cluster.cache.inventory_bench import (
    CLAIMS,
    GROUPS,
    QUICK,
    RULES,
    SLICES,
    Bench,
    Json,
    a_claim,
    a_group,
    a_pod,
    a_rule,
    a_slice,
    caching,
    contents,
)
from tests.unit.cluster.peer import until
from webhook.api.claims import allocated_classes
from webhook.cluster.settings import InventorySettings
from webhook.inventory.state import Sight
from webhook.server.state import ReviewState, RuleObserver


@pytest.mark.parametrize(
    ("version", "rule_version"), [("v1", "v1"), ("v1beta2", "v1beta2"), ("v1beta1", "v1alpha3"), ("v1", "v1alpha3")]
)
async def test_each_version_that_is_served_is_read(version: str, rule_version: str) -> None:
    served = {rule_version: frozenset({RULES})}
    served[version] = served.get(version, frozenset()) | {CLAIMS, SLICES}
    objects = (
        *(a_claim(name, "gpu-0", f"pod-{name}", version=version) for name in ("a", "b", "c")),
        *(a_slice(name, of=2, version=version) for name in ("s", "t")),
        a_rule(version=rule_version),
    )
    async with caching(*objects, served=served) as bench:
        await bench.cache.synced()
        await bench.settles()
        await bench.happens(a_claim("d", "gpu-1", version=version))
        await bench.happens(a_claim("a", version=version), gone=True)
        await bench.settles()
        inventory = bench.cache.inventory
        assert (len(inventory.claims), len(inventory.slices), len(inventory.rules)) == (3, 2, 1)
        paged = {request.path.rpartition("/")[2] for request in bench.peer.lists if "limit" in request.query}
        assert paged == {CLAIMS, SLICES, RULES}


async def test_sight_names_what_is_missing_until_everything_is_there() -> None:
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


async def test_claims_that_are_not_served_leave_everything_unknown() -> None:
    async with caching(a_slice(), a_rule(), served={"v1": frozenset({SLICES, RULES})}) as bench:
        await until(lambda: bench.cache.sight().unknown == "resourceclaims are not served", "that")
        assert "resourceclaims.resource.k8s.io is not served in v1, v1beta2, v1beta1" in (bench.cache.problem or "")
        assert bench.count("inventory_synced") == 0.0


@pytest.mark.parametrize(("resource", "held", "name"), [(RULES, "rules", "broken"), (GROUPS, "pod_groups", "crew")])
async def test_rules_and_groups_that_are_not_served_are_none_until_they_are(
    resource: str, held: str, name: str
) -> None:
    every = ALL | {"v1beta1": frozenset({GROUPS})}
    served = {version: each - {resource} for version, each in every.items()}
    async with caching(a_slice(), a_claim("a"), a_rule(), a_group("crew"), served=served, pods=True) as bench:
        await bench.cache.synced()
        await until(lambda: bench.cache.sight().inventory is not None, "the rest")
        assert (dict(getattr(bench.cache.inventory, held)), bench.cache.problem) == ({}, None)
        assert bench.count("reflector_errors_total", resource=resource) == 0
        bench.peer.served = every
        await until(lambda: bool(getattr(bench.cache.inventory, held)), "the objects")
        await bench.settles()
        assert [each.meta.name for each in getattr(bench.cache.inventory, held).values()] == [name]


@pytest.mark.parametrize(
    ("resource", "group", "held", "name"),
    [(RULES, "resource.k8s.io", "rules", "broken"), (GROUPS, "scheduling.k8s.io", "pod_groups", "crew")],
)
async def test_rules_and_groups_that_are_served_no_longer_are_in_doubt_and_then_dropped(
    resource: str, group: str, held: str, name: str
) -> None:
    """M9: what follows no changes is not current; without any of them, there is nothing to be in doubt about."""
    served = ALL | {"v1beta1": frozenset({GROUPS})}
    async with caching(a_slice(), a_claim("a"), a_rule(), a_group("crew"), served=served, pods=True) as bench:
        await bench.settles()
        path = bench.peer.path_of(resource)
        await bench.peer.until_watched(path)
        bench.peer.served = {version: each - {resource} for version, each in served.items()}
        await bench.peer.say_on(path, cut=True)
        gone = f"{resource} are served no longer"
        await until(lambda: bench.cache.sight() == Sight(None, gone), "that they are not served")
        assert f"{resource}.{group} is not served" in (bench.cache.problem or "")
        bench.now[0] += 600.0
        await until(lambda: not getattr(bench.cache.inventory, held), "that they are dropped")
        assert bench.cache.sight().inventory is bench.cache.inventory
        old, new = bench.told[-1]
        assert old is not None
        assert (old.meta.name, new) == (name, None)
        bench.peer.served = served
        await bench.settles()
        assert [each.meta.name for each in getattr(bench.cache.inventory, held).values()] == [name]


async def test_lost_watch_is_trusted_for_as_long_as_the_settings_say() -> None:
    patient = InventorySettings(reflector=QUICK, stale_seconds=15.0)
    async with caching(a_slice(), a_claim("a"), a_rule(), settings=patient) as bench:
        await bench.settles()
        await bench.peer.stop()
        for resource in (SLICES, CLAIMS, RULES):
            await until(lambda: bench.count("reflector_errors_total", resource=resource) >= 2, "failed attempts")  # noqa: B023 -- waited for
        bench.now[0] += 15.0
        assert (bench.cache.sight().inventory is not None, bench.cache.problem) == (True, None)
        bench.now[0] += 1.0
        assert bench.cache.sight() == Sight(None, "resourceslices not watched for 16 s")
        assert bench.count("inventory_synced") == 0.0
        assert (bench.cache.problem or "").count("not watched for 16 s (") == 3
        bench.peer.put(a_claim("b"))
        await bench.peer.start()
        await bench.settles()


async def test_expired_watch_is_not_trusted_for_a_moment() -> None:
    async with caching(a_slice(), a_claim("a"), a_rule()) as bench:
        await bench.settles()
        bench.peer.put(a_claim("missed"))
        await bench.peer.until_watched(bench.peer.path_of(CLAIMS))
        bench.peer.forbidden = frozenset({CLAIMS})
        await bench.peer.say_on(bench.peer.path_of(CLAIMS), EXPIRED)
        failed = partial(bench.count, "reflector_errors_total", resource=CLAIMS)
        await until(lambda: failed() >= 2, "an expired watch and a list that fails")
        assert bench.cache.sight() == Sight(None, "resourceclaims being listed again")
        bench.peer.forbidden = frozenset()
        await bench.settles()
        assert set(bench.cache.inventory.claims) == {"ml/a", "ml/missed"}


async def test_rules_of_a_list_that_is_read_again_do_not_begin_again() -> None:
    """R7: of the first list none begins, of the next one only the rule that the watch had missed."""

    def evicting(name: str, pod: int) -> Json:
        selector = {"driver": DRIVER, "pool": "node-0", "device": f"gpu-{pod}"}
        return make_rule(meta={"name": name}, selector=selector, taint=make_taint(effect="NoExecute"))

    claims = [a_claim(str(number), f"gpu-{number}", f"pod-{number}") for number in range(3)]
    async with caching(a_slice(), *claims, evicting("first", 0)) as bench:
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


async def test_pods_are_read_only_when_asked_for_and_held_only_with_claims() -> None:
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


@pytest.mark.parametrize("seed", range(4))
async def test_any_order_of_events_and_faults_ends_with_what_a_list_gives(seed: int) -> None:
    """Events twice, late, cut in the middle, expired; watches that end in order, and slices half published."""
    random = Random(seed)
    async with caching(a_slice(), a_claim("c0"), a_rule()) as bench:
        await bench.settles()
        for _ in range(25):
            await _something(bench, random)
            await bench.settles()  # each time, for the next list would mend what an event spoilt
        expected = contents(bench.cache.inventory)
        replayed = type(bench.cache.inventory)()
        for old, new in bench.told:
            replayed.apply(old, new)
        assert contents(replayed) == expected, "what is told adds up to what is held"


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
