"""A unit takes one place in limits, whatever links its pods, and gangs count for their owners as gangs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from tests.unit.eviction.objects import claim, owned, pod, rule, users
from tests.unit.eviction.world import EVICTED, FAILED, FREE, World, evicting
from webhook.api.pods import PodClaim
from webhook.eviction.modes import Mode
from webhook.policy.model import NamespaceMatch, Share

LIMITS = pytest.mark.parametrize("limits", [{"overall": 1}, {"per_namespace": 1}], ids=["overall", "perNamespace"])


def world_of(**fields: Any) -> World:
    """Pods stay in Terminating until they are removed."""
    return evicting(lingering=True, **fields)


def share(world: World, name: str, gangs: Mapping[str, str], owner: str = "") -> None:
    """Pods that use one claim: their gangs by their names, empty for none."""
    world.add(claim(name, consumers=users(*gangs), owner="", devices=(f"gpu-{name}",)))
    for each, gang in gangs.items():
        claims = (PodClaim(f"{name}-claim", generated=False),)
        world.add(owned(each, owner, gang=gang, claims=claims) if owner else pod(each, gang=gang, claims=claims))


def alone(world: World, name: str, gang: str = "", owner: str = "") -> None:
    fresh = owned(name, owner, gang=gang) if owner else pod(name, gang=gang)
    world.add(claim(name, devices=(f"gpu-{name}",)), fresh)


def taken(world: World) -> tuple[int, int]:
    """The places that are taken, in all and in the namespace."""
    room = world.worker._core.room
    return len(room.everywhere), len(room.namespaces.get("ml", ()))


def places(world: World, owner: str) -> tuple[int, int]:
    """The places of an owner, and those of them that are unavailable."""
    every, missing = world.worker._core.room.owner(owner)
    return len(every), len(missing)


def test_places_and_pods_are_counted_in_all_and_by_namespace() -> None:
    world = world_of()
    for name, namespace, gang in (("a", "ml", "one"), ("b", "ml", "one"), ("c", "web", "")):
        world.add(claim(name, namespace=namespace), pod(name, namespace=namespace, gang=gang))
    world.add(rule())
    world.settle()
    room, seen = world.worker._core.room, []
    for name, namespace in (("", ""), ("a", "ml"), ("c", "web"), ("b", "ml")):
        world.remove(*[each for key, each in world.inventory.pods.items() if key == f"{namespace}/{name}"])
        found = {key: (len(held), held.pods) for key, held in room.namespaces.items()}
        seen.append((len(room.everywhere), world.sample("pods_under_way"), found))
    assert seen == [
        (2, 3, {"ml": (1, 2), "web": (1, 1)}),
        (2, 2, {"ml": (1, 1), "web": (1, 1)}),
        (1, 1, {"ml": (1, 1)}),
        (0, 0, {}),
    ]


@LIMITS
def test_gang_takes_one_place_until_its_last_pod_is_gone(limits: dict[str, int]) -> None:
    world = world_of(**limits)
    for name, gang in {"a0": "one", "a1": "one", "b0": "two", "b1": "two"}.items():
        alone(world, name, gang)
    world.add(rule())
    assert sorted(world.settled()) == ["a0", "a1"]
    world.remove(world.pod("a0"))
    assert len(world.settled()) == 2
    world.remove(world.pod("a1"))
    assert sorted(world.settled()) == ["a0", "a1", "b0", "b1"]


@LIMITS
@pytest.mark.parametrize("other", ["", "ring"], ids=["a gang and a pod", "two gangs"])
def test_gang_and_what_shares_a_claim_with_it_take_one_place(limits: dict[str, int], other: str) -> None:
    world = world_of(**limits)
    share(world, "s", {"a": "train", "x": other})
    alone(world, "b", "train")
    alone(world, "y", other)
    world.add(rule())
    world.settle()
    first = ["a", "b", "x", "y"] if other else ["a", "b", "x"]
    assert sorted(world.evicted) == first
    assert taken(world) == (1, 1)
    world.remove(*[world.pod(name) for name in first[1:]])
    assert len(world.settled()) == len(first)
    assert taken(world) == (1, 1)
    world.remove(world.pod(first[0]))
    assert sorted(world.settled()) == ["a", "b", "x", "y"]
    assert taken(world) == ((0, 0) if other else (1, 1))


def test_pod_that_joins_the_gang_of_a_unit_under_way_takes_its_place_whatever_else_links_that() -> None:
    world = world_of(overall=1)
    share(world, "s", {"a": "train", "x": ""})
    world.add(rule())
    assert sorted(world.settled()) == ["a", "x"]
    alone(world, "other")
    alone(world, "b", "train")
    assert sorted(world.settled()) == ["a", "b", "x"]
    assert taken(world) == (1, 1)


@LIMITS
def test_pods_that_are_linked_by_others_take_one_place_with_them(limits: dict[str, int]) -> None:
    """The members of a gang share a claim each with a pod of none."""
    world = world_of(**limits)
    share(world, "s", {"a": "train", "x": ""})
    share(world, "t", {"b": "train", "y": ""})
    world.add(rule())
    assert sorted(world.settled()) == ["a", "b", "x", "y"]
    assert taken(world) == (1, 1)


def refused(a: str, b: str, owner: str = "", **limit: int) -> World:
    """Of two pods that share a claim, and have these gangs, the first has gone, and the second was refused."""
    world = world_of(answers=[EVICTED, FAILED], **limit)
    share(world, "s", {"a": a, "b": b}, owner)
    world.add(rule())
    assert world.settled() == ["a"]
    return world


@pytest.mark.parametrize("gangs", [("", ""), ("train", ""), ("", "train"), ("train", "ring"), ("train", "zeal")])
def test_pod_that_was_refused_after_others_of_its_unit_went_takes_their_place(gangs: tuple[str, str]) -> None:
    world = refused(*gangs, overall=1)
    assert taken(world) == (1, 1)
    assert world.after(30) == ["a", "b"]
    assert taken(world) == (1, 1)


def test_unit_that_is_retried_takes_the_place_of_those_that_went_whichever_pod_comes_first() -> None:
    """`c` joins the unit after the others of it were refused, and is due first."""
    world = refused("", "train", overall=1)
    world.add(claim("c"), pod("c", gang="train", priority=-1))
    assert sorted(world.after(30)) == ["a", "b", "c"]


def test_pod_that_was_refused_waits_for_a_place_once_the_others_of_its_unit_are_gone() -> None:
    world = refused("", "", overall=1)
    world.edit(world.pod("b"), hold="wait")
    alone(world, "other")
    world.remove(world.pod("a"))
    assert world.settled() == ["a", "other"]
    world.edit(world.pod("b"), hold=None)
    assert world.after(30) == ["a", "other"]
    world.remove(world.pod("other"))
    assert world.after(30) == ["a", "other", "b"]


# --- owners -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gangs", "limit", "expected"),
    [
        pytest.param(("one", "two", "three"), 2, (3, 2), id="gangs of one unit count as gangs"),
        pytest.param(("", "", ""), 1, (3, 1), id="pods without a gang count as one"),
    ],
)
def test_unit_takes_places_of_its_owner(gangs: tuple[str, str, str], limit: int, expected: tuple[int, int]) -> None:
    """Two gangs that share a claim break both: while one is not whole, the owner misses one of its two."""
    world = world_of(per_owner_unavailable=limit)
    share(world, "s", {"a": gangs[0], "b": gangs[1]}, "job")
    alone(world, "c", gangs[2], "job")
    world.add(rule())
    assert sorted(world.settled()) == ["a", "b"]
    assert places(world, "ml/uid-job") == expected
    assert taken(world) == (1, 1)


def test_pod_that_was_refused_takes_the_place_of_its_owner_that_others_of_its_unit_still_take() -> None:
    """They are gone and not replaced, so the place in `overall` is free and that of the owner is not."""
    world = refused("", "", "job", per_owner_unavailable=1)
    world.remove(world.pod("a"))
    assert world.after(3) == ["a", "b"]


def test_refused_pod_of_a_gang_counts_as_its_gang() -> None:
    world = refused("one", "", "job", per_owner_unavailable=1)
    world.remove(world.pod("a"))
    alone(world, "c", "one", "job")
    assert "c" in world.settled()


@pytest.mark.parametrize("labels_first", [True, False])
def test_gangs_that_labels_of_the_namespace_make_take_one_place_each_of_their_owner(*, labels_first: bool) -> None:
    """They choose another profile: 25 % of eight rings is two, and of 16 pods four. `ml-2` is another namespace."""
    plain = structs.replace(FREE, per_owner_unavailable=Share(25))
    trains = structs.replace(plain, namespaces=NamespaceMatch(labels=(("kind", "train"),)), gang_labels=("ring",))
    world = World(Mode.REPLACEMENT, trains, plain)
    if labels_first:
        world.relabel("ml", kind="train")
    for number in range(16):
        name, labels = f"rank-{number:02}", (("ring", f"ring-{number // 2}"),)
        for namespace in ("ml", "ml-2"):
            fields: dict[str, Any] = {"namespace": namespace, "uid": f"{namespace}-{name}", "ready": number > 5}
            world.add(claim(name, namespace=namespace), owned(name, by=f"rs-{namespace}", labels=labels, **fields))
    world.settle()
    owners = ("ml/uid-rs-ml", "ml-2/uid-rs-ml-2")
    if not labels_first:
        assert [places(world, owner) for owner in owners] == [(16, 6), (16, 6)]
        world.relabel("ml", kind="train")
    assert [places(world, owner) for owner in owners] == [(8, 3), (16, 6)]


@pytest.mark.parametrize("labels_first", [True, False])
def test_gangs_that_a_changed_policy_makes_take_one_place_each_of_their_owner(*, labels_first: bool) -> None:
    """25 % of eight rings is two."""
    plain = structs.replace(FREE, per_owner_unavailable=Share(25))
    rings = structs.replace(plain, gang_labels=("example.com/ring",))
    world = World(Mode.REPLACEMENT, rings if labels_first else plain)
    world.cluster.lingering = True
    for number in range(16):
        name, labels = f"rank-{number:02}", (("example.com/ring", f"ring-{number // 2}"),)
        world.add(claim(name, devices=(f"gpu-{name}",)), owned(name, labels=labels))
    if not labels_first:
        assert places(world, "ml/uid-rs") == (16, 0)
        world.change_policy(rings)
    assert places(world, "ml/uid-rs") == (8, 0)
    world.add(rule())
    assert len(world.after(30)) == 4
    if not labels_first:
        world.change_policy(plain)  # 25 % of 16 pods, of which as many are missing
        assert len(world.after(30)) == 4


def test_pods_that_were_refused_together_and_go_alone_by_now_take_a_place_each() -> None:
    world = world_of(overall=1)
    for name in "abc":
        alone(world, name, "train")
    world.cluster.answers.extend([EVICTED, FAILED, FAILED])
    world.add(rule())
    assert world.settled() == ["a"]
    for name in "bc":
        world.edit(world.pod(name), gang="")
    world.remove(world.pod("a"))
    assert len(world.after(30)) == 2
