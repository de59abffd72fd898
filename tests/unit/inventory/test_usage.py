"""Who uses which device: by device, and in groups of equal tolerations."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.inventory.values import DRIVER, POOL, claim, group, inventory_of, lets_stay, on
from webhook.api.claims import Consumer
from webhook.api.meta import ObjectMeta
from webhook.api.pods import Pod
from webhook.inventory.state import GroupKey, Inventory, is_pod, uses

NIC = "nic.example.com"
CLAIMS = (
    claim("a", on("gpu-0"), users=["p"]),
    claim("b", on("gpu-1"), on("gpu-0", pool="node-1"), users=["q"]),
    claim("n", on("nic-0", driver=NIC), on("gpu-0"), users=["p"]),
    claim("waiting"),
)


def test_device_in_use_is_counted_once_however_many_claims_use_it() -> None:
    inventory = inventory_of()
    for number in range(3):
        inventory.apply(None, claim(f"c-{number}", on("gpu-0")))
    assert (inventory.usage.count_on(None), inventory.usage.count_on(NIC)) == (1, 0)


@pytest.mark.parametrize(
    ("consumer", "pod"),
    [
        (Consumer("", "pods", "p", "1"), True),
        (Consumer("scheduling.k8s.io", "podgroups", "g", "1"), False),
        (Consumer("example.com", "pods", "p", "1"), False),
        (Consumer("", "jobs", "j", "1"), False),
    ],
)
def test_consumer_is_a_pod_only_by_resource_and_group(consumer: Consumer, *, pod: bool) -> None:
    assert is_pod(consumer) is pod


def test_claims_come_once_for_each_of_their_devices() -> None:
    usage = inventory_of(*CLAIMS).usage
    assert sorted(usage.users_on(DRIVER, None, None)) == ["ml/a", "ml/b", "ml/b", "ml/n"]
    assert list(usage.users_on(DRIVER, POOL, "gpu-1")) == ["ml/b"]


def test_claims_are_grouped_by_driver_tolerations_and_kind() -> None:
    usage = inventory_of(
        claim("a", on("gpu-0"), on("gpu-1"), users=["p"]),
        claim("b", on("gpu-0", lets_stay(5)), users=["q"], namespace="web"),
        claim("c", on("gpu-2"), users=["p", "r"]),
        claim("x", on("gpu-3"), users=["s"], extended=True),
        claim("idle", on("gpu-4")),
    ).usage
    plain = usage.groups[GroupKey(DRIVER, (), extended=False)]
    assert (plain.claims, plain.pods, plain.results) == ({"ml/a": 1, "ml/c": 1}, {"p": 2, "r": 1}, 4)
    lenient = usage.groups[GroupKey(DRIVER, (lets_stay(5),), extended=False)]
    assert (lenient.claims, lenient.namespaces, lenient.results) == ({"web/b": 1}, {"web": 1}, 1)
    extended = usage.groups[GroupKey(DRIVER, (), extended=True)]
    assert (extended.pods, extended.results) == ({"s": 1}, 1)


def test_groups_of_pods_are_counted_apart() -> None:
    usage = inventory_of(claim("a", on(), users=["p", group("g")])).usage
    (found,) = usage.groups.values()
    assert (found.pods, found.pod_groups) == ({"p": 1}, {"g": 1})


def test_claim_with_one_device_twice_is_found_once_and_leaves_nothing() -> None:
    """Shares of a device are results of their own."""
    twice = claim("a", on("gpu-0"), on("gpu-0"), users=["p"])
    inventory = inventory_of(twice)
    assert inventory.usage.claims_on(DRIVER, POOL, "gpu-0") == {"ml/a"}
    assert [found.results for found in inventory.usage.groups.values()] == [2]
    inventory.apply(twice, None)
    assert inventory.usage.__dict__ == Inventory().usage.__dict__


def test_device_of_many_claims_is_not_copied_with_each_change() -> None:
    many = [claim(f"c{number}", on("gpu-0"), users=[f"p{number}"]) for number in range(20)]
    inventory = inventory_of(*many)
    users = inventory.usage._users[DRIVER, POOL]["gpu-0"]
    inventory.apply(many[3], structs.replace(many[3], reserved_for=()))
    inventory.apply(many[4], None)
    assert inventory.usage._users[DRIVER, POOL]["gpu-0"] is users
    assert list(inventory.usage.users_on(DRIVER, POOL, "gpu-0")) == [
        f"ml/c{number}" for number in (*range(3), *range(5, 20), 3)
    ]


OF_GROUP = Pod(ObjectMeta("p", "", "ml", "uid-of-p"), pod_group="train")
ALONE = Pod(ObjectMeta("p", "", "ml", "uid-of-p"))
TRAIN = Consumer("scheduling.k8s.io", "podgroups", "train", "uid-of-train")


@pytest.mark.parametrize(
    ("pod", "consumers", "expected"),
    [
        pytest.param(ALONE, [Consumer("", "pods", "p", "uid-of-p")], True, id="itself"),
        pytest.param(ALONE, [Consumer("", "pods", "p", "uid-of-another")], False, id="an earlier pod of the name"),
        pytest.param(ALONE, [], False, id="not reserved"),
        pytest.param(OF_GROUP, [TRAIN], True, id="its group"),
        pytest.param(OF_GROUP, [Consumer("", "pods", "q", "uid-of-q"), TRAIN], True, id="its group after another pod"),
        pytest.param(ALONE, [TRAIN], False, id="a group that it does not belong to"),
        pytest.param(ALONE, [Consumer("scheduling.k8s.io", "podgroups", "", "g")], False, id="a group without a name"),
        pytest.param(
            OF_GROUP, [Consumer("scheduling.k8s.io", "podgroups", "infer", "g")], False, id="a group of another name"
        ),
        pytest.param(OF_GROUP, [Consumer("example.com", "podgroups", "train", "g")], False, id="another kind of group"),
        pytest.param(OF_GROUP, [Consumer("scheduling.k8s.io", "pods", "train", "g")], False, id="no group"),
    ],
)
def test_pod_uses_claims_that_are_reserved_for_it_or_its_group(
    pod: Pod, consumers: list[Consumer], *, expected: bool
) -> None:
    assert uses(pod, claim("a", on("gpu-0"), users=consumers), generated=False) is expected


@pytest.mark.parametrize(
    ("pod", "controller", "group_of_claim", "expected"),
    [
        pytest.param(OF_GROUP, "uid-of-p", "", True, id="made for the pod"),
        pytest.param(OF_GROUP, "", "train", True, id="made for its group"),
        pytest.param(OF_GROUP, "uid-of-another", "infer", False, id="made for another pod and group"),
        pytest.param(ALONE, "uid-of-another", "", False, id="made for another pod"),
        pytest.param(ALONE, "", "", False, id="made for no pod"),
    ],
)
def test_pod_uses_a_generated_claim_only_if_it_was_made_for_it(
    pod: Pod, controller: str, group_of_claim: str, *, expected: bool
) -> None:
    reserved = claim("a", on("gpu-0"), users=["uid-of-p"])
    made = structs.replace(reserved, controller_uid=controller, pod_group=group_of_claim)
    assert uses(pod, made, generated=True) is expected
    assert uses(pod, made, generated=False)
