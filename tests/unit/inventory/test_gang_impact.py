"""Companions and gangs in the impact of a taint, where pods are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.unit.inventory.values import EMPTY, NOW, claim, group, in_tree, inventory_of, lets_stay, on, ours, pod
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, SINGLE, PodGroup
from webhook.api.rules import DeviceSelector
from webhook.inventory import impact as impacts
from webhook.inventory.gangs import POD_GROUP, BrokenGang, Gang, count_gangs, gang_in
from webhook.inventory.impact import Impact, KnownPods, impact_of, with_companions, with_gangs
from webhook.inventory.pools import Evictor
from webhook.inventory.preview import OutcomeReason

if TYPE_CHECKING:
    from webhook.api.pods import Pod
    from webhook.inventory.state import Inventory, InventoryObject

RING = Gang(POD_GROUP, "ml", "ring")
NODE_0 = DeviceSelector(pool="node-0")


def ring(mode: str = ALL, name: str = "ring") -> PodGroup:
    return PodGroup(ObjectMeta(name, namespace="ml", uid=f"uid-{name}"), mode)


def member(name: str, *, of: str = "ring", **fields: Any) -> Pod:
    return structs.replace(pod(name, name), pod_group=of, **fields)


def used(name: str, *tolerations: Any, pool: str = "node-0") -> InventoryObject:
    return claim(name, on(f"gpu-{name}", *tolerations, pool=pool), users=[f"uid-of-{name}"])


def known(inventory: Inventory) -> KnownPods:
    def gang_of(each: Pod) -> Gang | None:
        return gang_in(inventory, each)

    def exemption_of(each: Pod) -> OutcomeReason | None:
        return OutcomeReason.MIRROR_POD if each.mirror else None

    return KnownPods(gang_of, exemption_of, count_gangs(inventory.pods.values(), gang_of))


def impact(
    *objects: InventoryObject, evictor: Evictor = Evictor.OURS, selector: DeviceSelector = NODE_0, blind: bool = False
) -> Impact:
    """With the devices of node-0 tainted."""
    inventory = inventory_of(*objects)
    pods = None if blind else known(inventory)
    plain = impact_of(inventory, selector, ours() if evictor is Evictor.OURS else in_tree(), NOW)
    return with_gangs(inventory, with_companions(inventory, plain, evictor, pods), pods)


def uids(*names: str) -> frozenset[str]:
    return frozenset({f"uid-of-{name}" for name in names})


CREW = (ring(), used("a"), member("a"), used("b", pool="node-1"), member("b"), member("c"))


def test_pods_of_a_group_of_mode_all_go_along() -> None:
    found = impact(*CREW)
    assert found.pods == uids("a", "b", "c")
    assert found.companions == uids("b", "c")
    assert found.gangs == (BrokenGang(RING, 3, 3),)
    assert found.claims == {"ml/a"}
    assert [wave.seconds for wave in found.waves] == [0]


def test_in_tree_controller_takes_none_along() -> None:
    found = impact(*CREW, evictor=Evictor.IN_TREE)
    assert (found.pods, found.companions) == (uids("a"), frozenset())
    assert found.gangs == (BrokenGang(RING, 1, 3),)


def test_nothing_changes_where_pods_are_not_known() -> None:
    assert impact(*CREW, blind=True) == impact_of(inventory_of(*CREW), NODE_0, ours(), NOW)


def test_pods_of_a_group_of_mode_single_do_not_go_along() -> None:
    found = impact(ring(SINGLE), *CREW[1:])
    assert (found.pods, found.companions, found.gangs) == (uids("a"), frozenset(), ())


@pytest.mark.parametrize(
    "fields", [{"deleting": True}, {"phase": "Succeeded"}, {"mirror": True}], ids=["deleting", "finished", "skipped"]
)
def test_pods_that_leave_or_are_skipped_take_none_along_and_do_not_go_along(fields: Any) -> None:
    assert impact(ring(), used("a"), member("a", **fields), member("b")).companions == frozenset()
    assert impact(ring(), used("a"), member("a"), member("b", **fields), member("c")).companions == uids("c")


def test_pod_without_a_node_does_not_go_along() -> None:
    assert impact(ring(), used("a"), member("a"), member("b", node_name="")).companions == frozenset()


def test_companions_go_with_the_first_of_their_group() -> None:
    objects = (ring(), used("a", lets_stay(300)), member("a"), used("b", lets_stay(60)), member("b"), member("c"))
    found = impact(*objects)
    assert {wave.seconds: wave.pods for wave in found.waves} == {60: uids("b", "c"), 300: uids("a")}


def test_pods_that_are_evicted_themselves_are_no_companions() -> None:
    found = impact(ring(), used("a"), member("a"), used("b"), member("b"))
    assert (found.pods, found.companions) == (uids("a", "b"), frozenset())


def test_companion_that_tolerates_the_taint_counts_once() -> None:
    found = impact(ring(), used("a"), member("a"), used("b", lets_stay()), member("b"), used("z", lets_stay()))
    assert found.pods == uids("a", "b")
    assert found.tolerating == uids("z")


def test_each_group_takes_its_own_along() -> None:
    other = (ring(name="other"), used("x"), member("x", of="other"), member("y", of="other"))
    first = (ring(SINGLE, name="single"), structs.replace(ring(), meta=ObjectMeta("ring", namespace="web", uid="w")))
    found = impact(*first, *CREW, *other, used("alone"), pod("alone", "alone"))
    assert found.companions == uids("b", "c", "y")
    assert found.gangs == (BrokenGang(RING, 3, 3), BrokenGang(Gang(POD_GROUP, "ml", "other"), 2, 2))


def test_pod_with_several_claims_counts_once() -> None:
    both = structs.replace(pod("a", "a", "a2"), pod_group="ring")
    second = claim("a2", on("gpu-a2", lets_stay(60)), users=["uid-of-a"])
    found = impact(ring(), used("a"), second, both, member("b"))
    assert found.gangs == (BrokenGang(RING, 2, 2),)
    assert {wave.seconds: wave.pods for wave in found.waves} == {0: uids("a", "b"), 60: frozenset()}


def test_claims_of_a_group_name_no_pod() -> None:
    reserved = claim("a", on("gpu-a"), users=[group("ring")])
    found = impact(ring(), reserved, member("a"), member("b"))
    assert (found.pods, found.companions, found.gangs) == (frozenset(), frozenset(), ())
    assert found.pod_groups == {"ring"}


def test_pod_that_is_not_known_yet_breaks_no_gang() -> None:
    found = impact(ring(), used("a"), member("b"), selector=EMPTY)
    assert (found.pods, found.gangs) == (uids("a"), ())


def test_gangs_of_too_many_pods_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impacts, "PODS_MOST", 3)
    assert impact(*CREW).gangs == (BrokenGang(RING, 3, 3),)
    found = impact(*CREW, used("e"), pod("e", "e"))
    assert (found.companions, found.gangs) == (uids("b", "c"), ())


def test_looking_for_them_can_be_stopped() -> None:
    def stop() -> None:
        raise TimeoutError

    inventory = inventory_of(*CREW)
    plain = impact_of(inventory, NODE_0, ours(), NOW)
    with pytest.raises(TimeoutError):
        with_companions(inventory, plain, Evictor.OURS, known(inventory), stop)
    with pytest.raises(TimeoutError):
        with_gangs(inventory, plain, known(inventory), stop)
