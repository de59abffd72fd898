"""The inventory as a value: changes of all kinds, effective taints, who names a claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from tests.unit.inventory.values import DRIVER, POOL, claim, inventory_of, on, pod, pool_slice, rule, taint, taints_on
from webhook.api.meta import ObjectMeta
from webhook.api.pods import Pod, PodClaim
from webhook.api.rules import DeviceSelector
from webhook.api.slices import Device
from webhook.inventory.state import Inventory, add_name, remove_name

if TYPE_CHECKING:
    from webhook.inventory.state import Several


def test_nothing_changes_nothing() -> None:
    inventory = Inventory()
    inventory.apply(None, None)
    assert (inventory.slices, inventory.rules, inventory.claims, inventory.pods) == ({}, {}, {}, {})


def test_objects_are_found_by_name() -> None:
    inventory = inventory_of(pool_slice(), rule(), claim("a"), pod("p", "a"))
    assert list(inventory.slices) == ["slice-0"]
    assert list(inventory.rules) == ["rule-0"]
    assert list(inventory.claims) == ["ml/a"]
    assert list(inventory.pods) == ["ml/p"]


def test_namesakes_in_other_namespaces_are_others() -> None:
    inventory = inventory_of(claim("a", on("gpu-0")), claim("a", on("gpu-1"), namespace="web"))
    assert inventory.usage.claims_on(DRIVER, POOL, None) == {"ml/a", "web/a"}


def test_object_of_the_same_name_takes_the_place_whatever_old_says() -> None:
    inventory = inventory_of(claim("a", on("gpu-0"), users=["p"]))
    inventory.apply(None, structs.replace(claim("a", on("gpu-1")), meta=ObjectMeta("a", "", "ml", "another uid")))
    assert inventory.usage.claims_on(DRIVER, POOL, "gpu-0") == set()
    assert inventory.usage.claims_on(DRIVER, POOL, "gpu-1") == {"ml/a"}


def test_what_is_gone_is_forgotten_whatever_it_looked_like() -> None:
    inventory = inventory_of(claim("a", on("gpu-0"), users=["p"]), rule())
    inventory.apply(claim("a"), None)
    inventory.apply(rule(effect="None"), None)
    assert (inventory.claims, inventory.rules, inventory.usage.groups) == ({}, {}, {})


def test_pods_are_found_by_the_claims_they_name() -> None:
    generated = Pod(ObjectMeta("g", "", "ml"), claims=(PodClaim("g-gpu", generated=True), PodClaim(None)))
    inventory = inventory_of(pod("p", "shared"), pod("o", "shared", "own"), generated, pod("x", extended_claim="ext"))
    assert inventory.pods_of("ml/shared") == ("ml/o", "ml/p")
    assert inventory.pods_of("ml/own") == ("ml/o",)
    assert inventory.pods_of("ml/g-gpu") == ("ml/g",)
    assert inventory.pods_of("ml/ext") == ("ml/x",)
    assert inventory.pods_of("web/shared") == ()
    assert [inventory.is_shared(f"ml/{name}") for name in ("shared", "own", "unknown")] == [True, False, False]


def test_pods_that_share_a_claim_are_known() -> None:
    first, second, third, other = pod("p", "a", "b"), pod("q", "a", "b"), pod("r", "b"), pod("x", "c")

    def sharing() -> str:
        return "".join(name for name in "pqrx" if inventory.shares(f"ml/{name}"))

    inventory = inventory_of(first, other)
    assert sharing() == ""
    inventory.apply(None, second)
    assert sharing() == "pq"
    inventory.apply(None, third)
    assert sharing() == "pqr"
    inventory.apply(second, pod("q", "a"))
    assert sharing() == "pqr"
    inventory.apply(first, None)
    assert sharing() == ""
    inventory.apply(None, first)
    inventory.apply(third, pod("r", "c"))
    assert sharing() == "pqrx"


def test_claim_of_many_pods_is_not_copied_with_each_change() -> None:
    many = [pod(f"p{number:02}", "a") for number in range(20)]
    inventory = inventory_of(*many)
    users = inventory._claim_pods["ml/a"]
    inventory.apply(many[3], structs.replace(many[3], node_name="node-7"))
    inventory.apply(many[4], None)
    assert inventory._claim_pods["ml/a"] is users
    assert inventory.pods_of("ml/a") == tuple([f"ml/p{number:02}" for number in range(20) if number != 4])
    assert all(inventory.shares(name) for name in inventory.pods)
    for each in many[1:]:
        inventory.apply(each, None)
    assert (inventory.pods_of("ml/a"), inventory.shares("ml/p00"), inventory.is_shared("ml/a")) == (
        ("ml/p00",),
        False,
        False,
    )


def test_pod_that_names_a_claim_twice_is_found_once_and_goes_for_good() -> None:
    twice = pod("p", "a", "a")
    inventory = inventory_of(twice)
    assert inventory.pods_of("ml/a") == ("ml/p",)
    inventory.apply(twice, None)
    assert inventory.pods_of("ml/a") == ()


def test_claim_that_a_generated_name_turns_up_for_is_found() -> None:
    waiting = Pod(ObjectMeta("p", "", "ml"), claims=(PodClaim(None, generated=True),))
    inventory = inventory_of(waiting)
    inventory.apply(waiting, structs.replace(waiting, claims=(PodClaim("p-gpu", generated=True),)))
    assert inventory.pods_of("ml/p-gpu") == ("ml/p",)


def test_pod_without_claims_is_not_kept() -> None:
    inventory = inventory_of(pod("p", "a"), pod("q"))
    inventory.apply(pod("p", "a"), pod("p"))
    assert inventory.pods == {}
    assert inventory.pods_of("ml/a") == ()


def member(name: str, *claims: str, group: str = "crew") -> Pod:
    return structs.replace(pod(name, *claims), pod_group=group)


def test_members_of_a_pod_group_are_known_with_and_without_claims() -> None:
    inventory = inventory_of(member("b", "a"), member("a"), member("c", "a", group="other"), pod("d", "a"))
    assert inventory.members_of("ml/crew") == ("ml/a", "ml/b")
    assert inventory.members_of("web/crew") == ()
    assert inventory.pods_of("ml/a") == ("ml/b", "ml/c", "ml/d")
    inventory.apply(member("b", "a"), None)
    assert (inventory.members_of("ml/crew"), inventory.pods_of("ml/a")) == (("ml/a",), ("ml/c", "ml/d"))
    inventory.apply(member("a"), structs.replace(member("a"), node_name="node-7"))
    assert inventory.members_of("ml/crew") == ("ml/a",)
    inventory.apply(member("a"), None)
    assert (inventory.members_of("ml/crew"), "ml/crew" in inventory._members) == ((), False)


def test_taints_of_slices_come_first_and_all_rules_count_though_they_repeat() -> None:
    """Source: `semantics.md` K-1 to K-4, E-6."""
    own = taint("NoSchedule", key="own")
    inventory = inventory_of(
        rule("z", key="z"),
        rule("b", DeviceSelector(DRIVER), "None", key="b"),
        rule("again", DeviceSelector(DRIVER), "None", key="b"),
        rule("a", DeviceSelector(device="gpu-1"), key="a"),
        rule("missing", None, key="missing"),
        pool_slice(Device("gpu-0", (own,))),
    )
    assert taints_on(inventory, DRIVER, POOL, "gpu-0") == (
        own,
        taint("None", key="b"),
        taint("None", key="b"),
        taint(key="z"),
    )
    assert taints_on(inventory, DRIVER, POOL, "gpu-1") == (
        taint(key="a"),
        taint("None", key="b"),
        taint("None", key="b"),
        taint(key="z"),
    )


def test_keys_of_taints_are_those_of_current_slices_and_of_rules() -> None:
    tainted = pool_slice(Device("gpu-0", (taint(key="in-slice"),)), name="old")
    inventory = inventory_of(tainted, rule(key="in-rule"))
    assert inventory.taint_keys() == {"in-slice", "in-rule"}
    assert (inventory.publishes("in-slice"), inventory.publishes("in-rule")) == (True, True)
    inventory.apply(None, pool_slice("gpu-0", name="new", generation=2))
    inventory.apply(rule(key="in-rule"), None)
    assert inventory.taint_keys() == frozenset()
    assert (inventory.publishes("in-slice"), inventory.publishes("in-rule")) == (False, False)


def test_key_is_published_while_any_rule_or_slice_has_it() -> None:
    """Rules come, change their key and go, each as often as it likes."""
    inventory = Inventory()
    one, two = (structs.replace(rule(), meta=ObjectMeta(name), taint=taint(key="k")) for name in "ab")
    for each in (one, two, one):
        inventory.apply(None, each)
    inventory.apply(one, None)
    inventory.apply(one, None)
    assert inventory.publishes("k")
    moved = structs.replace(two, taint=structs.replace(two.taint, key="other"))
    inventory.apply(two, moved)
    assert (inventory.publishes("k"), inventory.taint_keys()) == (False, frozenset({"other"}))
    inventory.apply(moved, None)
    assert inventory.taint_keys() == frozenset()


def with_names(number: int) -> dict[str, Several]:
    index: dict[str, Several] = {}
    for each in range(number):
        add_name(index, "key", f"n{each}")
    return index


def test_names_come_in_order_and_go() -> None:
    for number in (1, 2, 8, 9, 20):
        index = with_names(number)
        names = [f"n{each}" for each in range(number)]
        assert list(index["key"]) == names
        while names:
            assert list(remove_name(index, "key", names.pop(len(names) // 2))) == names
            assert list(index.get("key", ())) == names
        assert index == {}


def test_all_names_of_the_key_are_returned() -> None:
    index: dict[str, Several] = {}
    for number in range(20):
        assert list(add_name(index, "key", f"n{number}")) == [f"n{each}" for each in range(number + 1)]
    assert add_name(index, "other", "n0") == ("n0",)


def test_few_names_take_little_memory_and_many_are_not_copied() -> None:
    assert isinstance(with_names(8)["key"], tuple)
    index = with_names(9)
    names = index["key"]
    assert isinstance(names, dict)
    add_name(index, "key", "more")
    assert index["key"] is names
    assert remove_name(index, "key", "n0") is names
    assert list(names) == [*(f"n{each}" for each in range(1, 9)), "more"]


def test_names_that_are_few_again_are_a_tuple_again() -> None:
    index = with_names(100)
    names = index["key"]
    for number in range(95):
        assert remove_name(index, "key", f"n{number}") is names
    assert remove_name(index, "key", "n95") == ("n96", "n97", "n98", "n99")
    assert index == {"key": ("n96", "n97", "n98", "n99")}
