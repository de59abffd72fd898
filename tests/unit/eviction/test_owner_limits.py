"""How many pods of one owner may be missing at once."""

from __future__ import annotations

from msgspec import structs

from tests.unit.eviction.objects import claim, owned, pod, rule, using
from tests.unit.eviction.world import BLUNT, FREE, World, evicting, gentle
from webhook.api.claims import Consumer
from webhook.api.pods import PodClaim
from webhook.api.rules import DeviceSelector
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, EvictionResult
from webhook.policy.model import Share

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


def test_owner_that_is_scaled_down_does_not_hold_up_the_rest() -> None:
    world = gentle(*using("a", "b", make=owned), rule())
    assert world.after(4) == ["a"]
    assert world.after(2) == ["a", "b"]


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


def test_share_of_an_owner_is_rounded_up() -> None:
    world = gentle(*using(*[f"p{number}" for number in range(5)], make=owned), rule(), per_owner_unavailable=Share(25))
    assert len(world.settled()) == 2


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


def test_pod_that_goes_leaves_the_others_of_its_owner() -> None:
    world = evicting(*[owned(name) for name in "abc"], base=BLUNT)
    found = [places(world)]
    for name in "abc":
        world.remove(world.pod(name))
        found.append(places(world))
    assert found == [(3, 0), (2, 0), (1, 0), (0, 0)]


def test_pods_that_are_evicted_together_keep_their_one_place_when_one_of_them_joins_a_gang() -> None:
    world = evicting(base=ONE, lingering=True)
    consumers = tuple([Consumer("", "pods", name, f"uid-{name}") for name in "ab"])
    world.add(claim("shared", owner="", consumers=consumers))
    world.add(*[owned(name, claims=(PodClaim("shared-claim"),)) for name in "ab"], rule())
    world.settle()
    assert (sorted(world.evicted), places(world)) == (["a", "b"], (2, 1))
    world.edit(world.pod("a"), gang="ring")
    assert places(world) == (2, 1)


def test_pod_that_is_missing_by_itself_is_missing_in_its_gang_once_it_joins_one() -> None:
    world = evicting(owned("b", gang="ring"), owned("a", ready=False), owned("c", ready=False), base=BLUNT)
    assert places(world) == (3, 2)
    for name in "ac":
        world.edit(world.pod(name), gang="ring")
    assert places(world) == (1, 1)


# --- who is missing -----------------------------------------------------------------------------


def test_pod_that_goes_by_itself_leaves_its_owner_no_replacement_to_wait_for() -> None:
    world = evicting(claim("a", devices=("clean",)), owned("a"), claim("b"), owned("b"), base=ONE)
    world.change(world.pod("a"), owned("a", deleting=True))
    world.remove(world.pod("a"))
    world.add(ON_GPU_0)
    assert world.settled() == ["b"]


def test_pod_that_was_not_evicted_after_all_is_available_to_its_owner() -> None:
    world = evicting(claim("a"), owned("a"), claim("b"), owned("b"), base=ONE)
    world.cluster.answers.append(EvictionOutcome(EvictionResult.FAILED, "500"))
    world.add(rule())
    world.settle()
    assert [name for _, name, _ in world.cluster.requests] == ["ml/a", "ml/b"]
    assert world.evicted == ["b"]


def test_sibling_that_a_person_deletes_is_missing_although_it_is_still_ready() -> None:
    world = evicting(claim("a", devices=("clean",)), owned("a"), claim("b"), owned("b"), base=ONE)
    world.change(world.pod("a"), owned("a", deleting=True))
    world.add(ON_GPU_0)
    assert world.settled() == []
    world.remove(world.pod("a"))
    assert world.settled() == ["b"]


def test_gang_waits_for_the_owner_of_any_of_its_pods() -> None:
    """The first of them has no owner."""
    world = World(Mode.REPLACEMENT, ONE)
    broken = owned("broken", ready=False)
    world.add(claim("a"), pod("a", gang="train"), claim("b"), owned("b", gang="train"), broken, rule())
    assert world.settled() == []
    world.edit(broken, ready=True)
    assert sorted(world.settled()) == ["a", "b"]
