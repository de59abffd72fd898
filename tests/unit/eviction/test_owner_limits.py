"""How many pods of one owner may be missing at once."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.eviction.objects import claim, owned, pod, rule, tolerates, using
from tests.unit.eviction.test_units import JOB_SET
from tests.unit.eviction.world import FREE, Budget, World, evicting, gentle
from webhook.api.decode import Reader
from webhook.api.pods import decode_owner
from webhook.api.rules import DeviceSelector

ONE = structs.replace(FREE, per_owner_unavailable=1)
ON_GPU_0 = rule(selector=DeviceSelector(device="gpu-0"))


def places(world: World, owner: str = "rs") -> tuple[int, int]:
    """The places of an owner, and those of them that are unavailable."""
    every, missing = world.worker._core.room.owner(f"ml/uid-{owner}")
    return len(every), len(missing)


def test_owner_misses_at_most_one_and_the_next_goes_when_its_replacement_is_ready() -> None:
    world = gentle(*using("a", "b", "c", make=owned), rule(), claim("other"), owned("other", by="else"))
    assert sorted(world.settled()) == ["a", "other"]
    fresh = owned("fresh", claims=(), extended_claim="fresh-claim", phase="Pending")
    world.add(fresh)
    assert len(world.after(30)) == 2
    started = structs.replace(fresh, phase="Running")
    world.change(fresh, started)
    assert len(world.after(30)) == 2
    world.edit(started, ready=True)
    assert len(world.after(1)) == 3


def test_owner_with_a_budget_is_left_to_it() -> None:
    world = gentle(*using("a", "b", "c", make=owned), rule(), budgeted=frozenset({"uid-rs"}))
    assert world.settled() == ["a", "b", "c"]


def test_pod_that_is_missing_anyway_may_go_beside_the_limit() -> None:
    world = gentle(claim("broken"), owned("broken", phase="Pending"), claim("fine"), owned("fine"), rule())
    assert world.after(1) == ["broken"]


def test_pod_of_a_gang_that_is_not_whole_anyway_may_go_beside_the_limit() -> None:
    world = gentle()
    world.add(owned("broken", gang="ring", ready=False), claim("a"), owned("a", gang="ring"), claim("b"), owned("b"))
    world.add(rule())
    assert world.after(1) == ["a"]


# --- which places an owner has ------------------------------------------------------------------


def test_pod_that_gets_another_owner_counts_for_that_one() -> None:
    """A pod without a controller may be adopted, and released again."""
    world = World()
    orphan = pod("pod", ready=False)
    old, new = owned("pod", by="old", ready=False), owned("pod", by="new", ready=False)
    sizes = []
    for before, after in ((None, orphan), (orphan, old), (old, new), (new, orphan)):
        world.change(before, after)
        sizes.append([places(world, "old"), places(world, "new")])
    assert sizes == [[(0, 0), (0, 0)], [(1, 1), (0, 0)], [(0, 0), (1, 1)], [(0, 0), (0, 0)]]


# --- who is missing -----------------------------------------------------------------------------


def test_sibling_that_a_person_deletes_is_missing_although_it_is_still_ready() -> None:
    world = evicting(claim("a", devices=("clean",)), owned("a"), claim("b"), owned("b"), base=ONE)
    world.change(world.pod("a"), owned("a", deleting=True))
    world.add(ON_GPU_0)
    assert world.settled() == []
    world.remove(world.pod("a"))
    assert world.settled() == ["b"]


# --- how long a place counts as empty, and which owners exempt a pod ------------------------------


@pytest.mark.parametrize("ready", [True, False])
def test_pods_of_other_namespaces_neither_hold_up_an_owner_nor_replace_its_pods(ready: bool) -> None:  # noqa: FBT001
    """Anybody may name the uid of an owner in another namespace."""
    world = evicting(per_owner_unavailable=1)
    stranger = owned("stranger", namespace="other", phase="Running" if ready else "Pending")
    world.add(claim("a"), owned("a"), claim("b"), owned("b"), stranger)
    world.cluster.lingering = True
    world.add(rule())
    assert len(world.after(1)) == 1
    if ready:
        world.add(owned("another", namespace="other"))
    else:
        world.advance(60)
        world.remove(world.pod(world.evicted[0]))
    assert len(world.after(30)) == (1 if ready else 2)


def test_each_evicted_pod_counts_as_missing_for_five_seconds() -> None:
    """L1: of two pods evicted at 0 s and 4 s the second one is missing until 9 s, and not until the first is not."""
    world = evicting(per_owner_unavailable=2)
    for number, seconds in enumerate((0, 4, 5, 5, 60, 60)):
        name = f"web-{number}"
        world.add(claim(name, tolerates(seconds), devices=(name,)), owned(name))
    world.add(rule())
    world.advance(30)
    assert world.times == pytest.approx([0, 4, 5, 9], abs=0.01)


@pytest.mark.parametrize(
    ("changes", "evicted"),
    [
        pytest.param({}, 0, id="the DaemonSet of apps"),
        pytest.param({"apiVersion": "example.com/v1"}, 1, id="another group"),
        pytest.param({"apiVersion": "apps/v99"}, 1, id="a version that no garbage collector finds"),
        pytest.param({"controller": False}, 1, id="no controller"),
        pytest.param({"controller": None}, 1, id="nothing said about control"),
    ],
)
def test_only_the_controller_of_a_daemon_set_of_apps_exempts(changes: dict[str, object], evicted: int) -> None:
    """S1: a user who may create pods can write any owner reference."""
    reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "made-up", "controller": True}
    owner = decode_owner(Reader({"metadata": {"ownerReferences": [{**reference, **changes}]}}, []))
    world = evicting(claim("agent"), pod("agent", owner=owner), rule())
    assert len(world.after(20)) == evicted


@pytest.mark.parametrize("labels", [(), ((JOB_SET, "js"),)], ids=["by uid", "by name"])
def test_pod_goes_once_its_budget_opens_although_it_waits_for_its_owner(labels: tuple[tuple[str, str], ...]) -> None:
    """After the deadline its DELETE, which passes the budget by, waits for the limit of the owner."""
    profile = structs.replace(FREE, per_owner_unavailable=1, deadline_seconds=20.0, delete_after_deadline=True)
    world = evicting(claim("a"), owned("a", gang="one", labels=labels), base=profile, budgets=[Budget("a", status=0)])
    world.add(claim("d", devices=("gpu-9",)), owned("d", gang="two", ready=False, labels=labels))
    world.add(rule(selector=DeviceSelector(device="gpu-0")))
    assert world.after(100) == []
    world.budgets[0].allows_at, world.budgets[0].status = 0.0, 1
    world.worker.observe_budget("ml", "0")
    assert world.after(3600) == ["a"]
