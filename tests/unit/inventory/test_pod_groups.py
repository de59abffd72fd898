"""What a PodGroup means for its pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.unit.inventory.values import claim, group, inventory_of, on, pod, rule
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, SINGLE, PodGroup
from webhook.inventory.evictions import Evictions
from webhook.inventory.gangs import companions_in, goes_with_all, group_key, group_of, keeps_all
from webhook.inventory.pools import Evictor
from webhook.inventory.targets import EvictionScope

if TYPE_CHECKING:
    from webhook.api.claims import ResourceClaim

MEMBER = structs.replace(pod("a", "a"), pod_group="ring")
RING = structs.replace(group("uid-ring"), name="ring")
KEPT = claim("a", on(), users=[RING])
SHARED = claim("b", on(), users=["uid-of-a", RING])
OWN = claim("c", on(), users=["uid-of-a"])
OTHERS = claim("d", on(), users=[group("another")])
UNUSED = claim("e", on())


def ring(mode: str = ALL, namespace: str = "ml") -> PodGroup:
    return PodGroup(ObjectMeta("ring", namespace=namespace, uid="uid-ring"), mode)


def test_group_of_a_pod_is_the_one_of_its_namespace() -> None:
    assert group_of(inventory_of(ring()), MEMBER) == ring()
    assert group_of(inventory_of(ring(namespace="web")), MEMBER) is None
    assert group_of(inventory_of(ring()), pod("a", "a")) is None
    assert (group_key(MEMBER), group_key(pod("a", "a"))) == ("ml/ring", "")


@pytest.mark.parametrize(("mode", "together"), [(ALL, True), (SINGLE, False), ("", False)])
def test_mode_says_whether_its_pods_go_together(mode: str, *, together: bool) -> None:
    assert goes_with_all(inventory_of(ring(mode)), MEMBER) is together
    assert not goes_with_all(inventory_of(), MEMBER)


@pytest.mark.parametrize(
    ("claims", "kept"),
    [([KEPT], True), ([SHARED], True), ([KEPT, OWN], False), ([OWN], False), ([OTHERS], False), ([UNUSED], False)],
)
def test_group_keeps_a_pod_only_if_it_keeps_all_of_its_claims(claims: list[ResourceClaim], *, kept: bool) -> None:
    assert keeps_all(inventory_of(ring()), MEMBER, claims) is kept
    assert not keeps_all(inventory_of(), MEMBER, claims), "the group is gone"


def test_companions_are_the_pods_that_have_a_node_and_stay() -> None:
    changes: dict[str, dict[str, Any]] = {
        "b": {"node_name": ""},
        "c": {"deleting": True},
        "d": {"phase": "Failed"},
        "e": {},
    }
    members = [structs.replace(pod(name, name), pod_group="ring", **fields) for name, fields in changes.items()]
    inventory = inventory_of(ring(), MEMBER, *members, pod("stranger", "s"))
    assert [each.meta.name for each in companions_in(inventory, "ml/ring")] == ["a", "e"]
    assert list(companions_in(inventory, "ml/other")) == []


@pytest.mark.parametrize(
    ("held", "hit", "expected"),
    [(KEPT, True, "ring"), (KEPT, False, ""), (OWN, True, "")],
    ids=["all that is hit is kept", "nothing is hit", "what is hit is the pod's own"],
)
def test_holding_group_is_the_one_that_keeps_what_is_hit(held: ResourceClaim, expected: str, *, hit: bool) -> None:
    member = structs.replace(pod("a", held.meta.name), pod_group="ring")
    inventory = inventory_of(ring(), member, structs.replace(member, pod_group="", meta=pod("z").meta), held)
    evictions = Evictions(inventory, EvictionScope(Evictor.OURS, asked=True), lambda _: None)
    if hit:
        inventory.apply(None, rule())
        evictions.touched(None, rule())
    assert evictions.holding_group(inventory.pods["ml/a"]) == expected
    assert not evictions.holding_group(inventory.pods["ml/z"])
