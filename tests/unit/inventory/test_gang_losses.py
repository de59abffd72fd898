"""How many pods each gang has, kept up to date, and which gangs lose pods."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.unit.inventory.values import claim, inventory_of, pod
from webhook.api.pods import Owner
from webhook.inventory.gangs import BrokenGang, Gang, GangSizes, broken_gangs, count_gangs, gang_of
from webhook.inventory.state import Inventory

if TYPE_CHECKING:
    from webhook.api.pods import Pod

JOB_SET = "jobset.sigs.k8s.io/jobset-name"
RING = "example.com/ring"
TRAIN = Gang("JobSet", "ml", "train")


def rank(name: str, *claims: str, **fields: Any) -> Pod:
    return structs.replace(pod(name, *(claims or ("c",))), labels=((JOB_SET, "train"),), **fields)


def test_only_gangs_of_several_pods_break_and_those_that_lose_most_come_first() -> None:
    sizes = {Gang("x", "ml", name): size for name, size in (("a", 2), ("b", 2), ("c", 9), ("d", 1))}
    lost = {Gang("x", "ml", name): number for name, number in (("b", 1), ("a", 1), ("c", 3), ("d", 1))}
    assert broken_gangs(lost, sizes) == (
        BrokenGang(Gang("x", "ml", "c"), 3, 9),
        BrokenGang(Gang("x", "ml", "a"), 1, 2),
        BrokenGang(Gang("x", "ml", "b"), 1, 2),
    )


def test_pods_without_a_gang_and_those_on_their_way_out_do_not_count() -> None:
    pods = [rank("a"), rank("b", deleting=True), rank("c", phase="Failed"), pod("d")]
    assert count_gangs(pods, gang_of) == {TRAIN: 1}


def test_counting_can_be_stopped() -> None:
    def stop() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        count_gangs([rank("a")], gang_of, stop)


def followed(*pods: Pod) -> tuple[Inventory, GangSizes]:
    inventory = Inventory()
    sizes = GangSizes(inventory)
    for each in pods:
        inventory.apply(None, each)
        sizes.observe(None, each)
    return inventory, sizes


def test_pod_counts_until_it_leaves_or_is_gone() -> None:
    _, sizes = followed(rank("a"), rank("b"))
    known = sizes.by_labels(())
    assert known == {TRAIN: 2}
    sizes.observe(rank("b"), rank("b", deleting=True))
    assert known == {TRAIN: 1}
    sizes.observe(rank("b", deleting=True), None)
    assert known == {TRAIN: 1}
    sizes.observe(rank("a"), None)
    assert known == {}
    sizes.observe(None, claim("c"))
    assert known == {}


def test_owner_counts_where_the_pod_names_no_gang() -> None:
    job = Owner("Job", "train", "uid-job")
    _, sizes = followed(structs.replace(pod("a", "c"), owner=job), rank("b", owner=job))
    assert sizes.by_labels(()) == {Gang("Job", "ml", "train", "uid-job"): 1, TRAIN: 1}


def test_labels_of_profiles_count_once_they_are_asked_for() -> None:
    beside = structs.replace(pod("a", "c"), labels=((RING, "r"),))
    inventory, sizes = followed(beside, rank("b"))
    assert sizes.by_labels(()) == {TRAIN: 1}
    assert sizes.by_labels((RING, "other")) == {Gang(RING, "ml", "r"): 1, TRAIN: 1}
    another = structs.replace(beside, meta=structs.replace(beside.meta, name="d", uid="d"))
    inventory.apply(None, another)
    sizes.observe(None, another)
    assert sizes.by_labels(("other", RING, RING)) == {Gang(RING, "ml", "r"): 2, TRAIN: 1}
    assert sizes.by_labels(()) == {TRAIN: 1}


def test_pods_that_no_inventory_holds_do_not_count() -> None:
    without = structs.replace(rank("a"), claims=())
    _, sizes = followed(without)
    assert sizes.by_labels(()) == {}
    sizes.observe(rank("b"), without)
    assert sizes.by_labels(()) == {TRAIN: -1}, "as the caller said that it had counted"


@pytest.mark.parametrize("seed", range(5))
def test_sizes_are_those_of_a_fresh_count_after_any_history(seed: int) -> None:
    choose = random.Random(seed)
    inventory, sizes = followed()
    for _ in range(200):
        name = f"p{choose.randrange(12)}"
        old = inventory.pods.get(f"ml/{name}")
        labels = tuple((key, choose.choice("xy")) for key in (RING, JOB_SET) if choose.random() < 0.5)
        new = None
        if choose.random() < 0.8:
            claims = ("c",) if choose.random() < 0.8 else ()
            owner = Owner("Job", "j", "uid-j") if choose.random() < 0.5 else None
            phase = choose.choice(("Running", "Succeeded"))
            new = structs.replace(pod(name, *claims), labels=labels, owner=owner, phase=phase)
        if old is None and (new is None or not new.is_held):
            continue
        inventory.apply(old, new)
        sizes.observe(old, new)
        if choose.random() < 0.1:
            sizes.by_labels(choose.choice(((), (RING,))))
    fresh = GangSizes(inventory)
    for each in inventory_of(*inventory.pods.values()).pods.values():
        fresh.observe(None, each)
    assert sizes.by_labels((RING,)) == fresh.by_labels((RING,))
    assert sizes.by_labels(()) == fresh.by_labels(())
