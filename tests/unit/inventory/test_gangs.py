"""Which pods belong together, under which object, how many each gang has, and which gangs lose pods."""

from __future__ import annotations

import random
from typing import Any, Final

import pytest
from msgspec import structs

from tests.unit.inventory.values import claim, inventory_of
from tests.unit.inventory.values import pod as pod_of
from webhook.api.meta import ObjectMeta
from webhook.api.pods import Owner, Pod, PodGroup, to_labels
from webhook.inventory.gangs import (
    BrokenGang,
    Gang,
    GangSizes,
    RootOwner,
    broken_gangs,
    count_gangs,
    gang_in,
    gang_of,
    root_owner,
)
from webhook.inventory.state import Inventory

JOB: Final = Owner("Job", "train", "uid-train")
JOB_SET: Final = {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/job-index": "0"}
LEADER: Final = "leaderworkerset.sigs.k8s.io"
LWS: Final = {f"{LEADER}/name": "serve", f"{LEADER}/group-index": "1", f"{LEADER}/worker-index": "0"}
KUEUE: Final = {"kueue.x-k8s.io/pod-group-name": "batch-7"}
HASH: Final = {"pod-template-hash": "6d5f"}


def pod(labels: dict[str, str] | None = None, **fields: Any) -> Pod:
    return Pod(ObjectMeta("p", namespace="ml"), labels=to_labels(labels or {}), **fields)


@pytest.mark.parametrize(
    ("member", "gang"),
    [
        pytest.param(pod(), None, id="alone"),
        pytest.param(pod(owner=JOB), None, id="of a Job"),
        pytest.param(pod({"app": "web"}, owner=JOB), None, id="other labels"),
        pytest.param(
            pod(JOB_SET | LWS | KUEUE, pod_group="crew", gang="mine"),
            Gang("PodGroup", "ml", "crew"),
            id="PodGroup first",
        ),
        pytest.param(pod(JOB_SET | LWS | KUEUE, gang="mine"), Gang("gang", "ml", "mine"), id="annotation"),
        pytest.param(pod(JOB_SET | LWS | KUEUE), Gang("JobSet", "ml", "train"), id="JobSet"),
        pytest.param(pod(LWS | KUEUE), Gang("LeaderWorkerSet", "ml", "serve", "1"), id="LeaderWorkerSet by index"),
        pytest.param(
            pod(LWS | {f"{LEADER}/group-key": "5e1f"}),
            Gang("LeaderWorkerSet", "ml", "serve", "5e1f"),
            id="LeaderWorkerSet by key",
        ),
        pytest.param(pod({f"{LEADER}/name": "serve"}), None, id="a LeaderWorkerSet without a group"),
        pytest.param(pod({f"{LEADER}/group-index": "1"}), None, id="a group without a LeaderWorkerSet"),
        pytest.param(pod(KUEUE), Gang("kueue.x-k8s.io/pod-group-name", "ml", "batch-7"), id="Kueue"),
        pytest.param(pod(dict.fromkeys(JOB_SET | LWS | KUEUE, "")), None, id="labels without a value"),
    ],
)
def test_gang_of_a_pod_is_the_first_that_it_names(member: Pod, gang: Gang | None) -> None:
    assert gang_of(member) == gang


@pytest.mark.parametrize(
    ("labels", "gang"),
    [
        pytest.param({"one": "a", "two": "b"}, Gang("two", "ml", "b"), id="in the order of the policy"),
        pytest.param({"one": "a"}, Gang("one", "ml", "a"), id="the second"),
        pytest.param({"one": "a", "two": ""}, Gang("one", "ml", "a"), id="the first has no value"),
        pytest.param({"three": "c"}, None, id="none of them"),
        pytest.param(KUEUE | {"two": "b"}, Gang("kueue.x-k8s.io/pod-group-name", "ml", "batch-7"), id="Kueue first"),
    ],
)
def test_labels_of_the_profile_name_gangs_too(labels: dict[str, str], gang: Gang | None) -> None:
    assert gang_of(pod(labels), ("two", "one")) == gang


def test_pods_of_one_owner_are_a_gang_where_the_profile_says_so() -> None:
    assert gang_of(pod(owner=JOB), by_owner=True) == Gang("Job", "ml", "train", "uid-train")
    assert gang_of(pod({"app": "web"}, owner=JOB), by_owner=True) == Gang("Job", "ml", "train", "uid-train")
    assert gang_of(pod({"two": "b"}, owner=JOB), ("two",), by_owner=True) == Gang("two", "ml", "b")
    assert gang_of(pod(), by_owner=True) is None


@pytest.mark.parametrize(
    ("namespace", "mode", "together"),
    [("ml", "all", True), ("ml", "single", False), ("ml", "", True), ("web", "single", True)],
    ids=["all", "single", "says nothing", "not known"],
)
def test_pods_of_a_pod_group_go_together_unless_it_lets_them_go_one_by_one(
    namespace: str, mode: str, *, together: bool
) -> None:
    inventory = Inventory()
    inventory.apply(None, PodGroup(ObjectMeta("crew", namespace=namespace), mode))
    member = pod(JOB_SET, pod_group="crew", owner=JOB)
    assert gang_in(inventory, member, by_owner=True) == (Gang("PodGroup", "ml", "crew") if together else None)
    assert gang_in(inventory, pod(JOB_SET)) == Gang("JobSet", "ml", "train")
    assert gang_in(inventory, pod({"two": "b"}), ("two",)) == Gang("two", "ml", "b")
    assert gang_in(inventory, pod(owner=JOB)) is None


def test_gang_says_what_it_is() -> None:
    assert str(gang_of(pod(owner=JOB), by_owner=True)) == "Job ml/train"


@pytest.mark.parametrize(
    ("member", "root"),
    [
        pytest.param(pod(), None, id="a bare pod"),
        pytest.param(pod({"app": "web"}), None, id="a bare pod with labels"),
        pytest.param(pod(owner=JOB), RootOwner("Job", "train", "ml/uid-train"), id="its controller"),
        pytest.param(
            pod(owner=JOB, pod_group="crew"), RootOwner("Job", "train", "ml/uid-train"), id="before its PodGroup"
        ),
        pytest.param(pod(pod_group="crew"), RootOwner("PodGroup", "crew", "PodGroup/ml/crew"), id="PodGroup"),
        pytest.param(
            pod(JOB_SET | LWS | HASH, owner=JOB), RootOwner("JobSet", "train", "JobSet/ml/train"), id="JobSet by name"
        ),
        pytest.param(
            pod(JOB_SET | {"jobset.sigs.k8s.io/jobset-uid": "uid-js"}, owner=JOB),
            RootOwner("JobSet", "train", "JobSet/ml/train/uid-js"),
            id="JobSet by uid",
        ),
        pytest.param(
            pod(LWS | HASH, owner=Owner("StatefulSet", "serve-1", "u")),
            RootOwner("LeaderWorkerSet", "serve", "LeaderWorkerSet/ml/serve"),
            id="LeaderWorkerSet",
        ),
        pytest.param(
            pod(HASH, owner=Owner("ReplicaSet", "web-6d5f", "u")),
            RootOwner("Deployment", "web", "Deployment/ml/web"),
            id="Deployment",
        ),
        pytest.param(
            pod(HASH, owner=Owner("ReplicaSet", "web", "u")), RootOwner("ReplicaSet", "web", "ml/u"), id="another name"
        ),
        pytest.param(
            pod(HASH, owner=Owner("ReplicaSet", "-6d5f", "u")),
            RootOwner("ReplicaSet", "-6d5f", "ml/u"),
            id="no name left",
        ),
        pytest.param(
            pod(owner=Owner("ReplicaSet", "web-6d5f", "u")), RootOwner("ReplicaSet", "web-6d5f", "ml/u"), id="no hash"
        ),
        pytest.param(
            pod({"pod-template-hash": ""}, owner=Owner("ReplicaSet", "web-", "u")),
            RootOwner("ReplicaSet", "web-", "ml/u"),
            id="an empty hash",
        ),
        pytest.param(
            pod(HASH, owner=Owner("Job", "web-6d5f", "u")), RootOwner("Job", "web-6d5f", "ml/u"), id="another kind"
        ),
        pytest.param(pod(HASH), None, id="a hash without an owner"),
    ],
)
def test_root_owner_is_the_highest_that_the_pod_tells(member: Pod, root: RootOwner | None) -> None:
    assert root_owner(member) == root


def test_root_owner_says_what_it_is() -> None:
    assert str(root_owner(pod(owner=JOB))) == "Job/train"


def test_pods_of_one_deployment_have_one_root_across_its_replica_sets() -> None:
    old = pod({"pod-template-hash": "a1"}, owner=Owner("ReplicaSet", "web-a1", "u1"))
    new = pod({"pod-template-hash": "b2"}, owner=Owner("ReplicaSet", "web-b2", "u2"))
    assert root_owner(old) == root_owner(new)


JOB_SET_NAME = "jobset.sigs.k8s.io/jobset-name"
RING = "example.com/ring"
TRAIN = Gang("JobSet", "ml", "train")


def rank(name: str, *claims: str, **fields: Any) -> Pod:
    return structs.replace(pod_of(name, *(claims or ("c",))), labels=((JOB_SET_NAME, "train"),), **fields)


def test_only_gangs_of_several_pods_break_and_those_that_lose_most_come_first() -> None:
    sizes = {Gang("x", "ml", name): size for name, size in (("a", 2), ("b", 2), ("c", 9), ("d", 1))}
    lost = {Gang("x", "ml", name): number for name, number in (("b", 1), ("a", 1), ("c", 3), ("d", 1))}
    assert broken_gangs(lost, sizes) == (
        BrokenGang(Gang("x", "ml", "c"), 3, 9),
        BrokenGang(Gang("x", "ml", "a"), 1, 2),
        BrokenGang(Gang("x", "ml", "b"), 1, 2),
    )


def test_pods_without_a_gang_and_those_on_their_way_out_do_not_count() -> None:
    pods = [rank("a"), rank("b", deleting=True), rank("c", phase="Failed"), pod_of("d")]
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
    _, sizes = followed(structs.replace(pod_of("a", "c"), owner=job), rank("b", owner=job))
    assert sizes.by_labels(()) == {Gang("Job", "ml", "train", "uid-job"): 1, TRAIN: 1}


def test_labels_of_profiles_count_once_they_are_asked_for() -> None:
    beside = structs.replace(pod_of("a", "c"), labels=((RING, "r"),))
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
        labels = tuple((key, choose.choice("xy")) for key in (RING, JOB_SET_NAME) if choose.random() < 0.5)
        new = None
        if choose.random() < 0.8:
            claims = ("c",) if choose.random() < 0.8 else ()
            owner = Owner("Job", "j", "uid-j") if choose.random() < 0.5 else None
            phase = choose.choice(("Running", "Succeeded"))
            new = structs.replace(pod_of(name, *claims), labels=labels, owner=owner, phase=phase)
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
