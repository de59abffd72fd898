"""Which devices are parts of the same hardware, and which of them stay in service beside a tainted one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec import structs

from tests.costs import calls_of
from tests.unit.inventory.values import DRIVER, POOL, claim, group, inventory_of, on, pool_slice, rule, taint, used_by
from webhook.api.rules import HARDWARE, SCOPE, DeviceSelector
from webhook.api.slices import Device, ResourceSlice, SliceTaint
from webhook.inventory.hardware import (
    NO_SIBLINGS,
    Sibling,
    Siblings,
    drawing,
    selectors_in_scope,
    siblings_in,
    siblings_of_rule,
    siblings_of_slice,
)
from webhook.inventory.pools import BETWEEN_CHECKS

if TYPE_CHECKING:
    from webhook.api.rules import DeviceTaintRule
    from webhook.inventory.state import Inventory, InventoryObject

FULL: Final = "gpu-0"


def part(name: str, *sets: str, effect: str = "") -> Device:
    """A device that draws on counter sets; without a name for one, on that of the first GPU."""
    return Device(name, (taint(effect),) if effect else (), counter_sets=sets or ("gpu-0",))


GPU: Final = pool_slice(part(FULL), part("mig-0"), part("mig-1"), Device("cpu-0"), part("gpu-1", "gpu-1"))


def only(device: str, *, pool: str | None = POOL, driver: str | None = DRIVER) -> DeviceSelector:
    return DeviceSelector(driver, pool, device)


def found(*objects: InventoryObject, new: DeviceTaintRule | None = None, effect: str = "") -> list[str]:
    """Siblings, by name, of a rule on the full GPU that stay in service."""
    siblings = siblings_of_rule(inventory_of(*objects), new or rule("new", only(FULL)), effect)
    return [each.device for each in siblings.devices]


def ranked(*slices: ResourceSlice, **ranks: int) -> dict[str, int]:
    return dict(siblings_in(slices, {name.replace("_", "-"): rank for name, rank in ranks.items()}))


def test_devices_on_the_same_counter_set_are_siblings() -> None:
    assert ranked(GPU, gpu_0=1) == {FULL: 1, "mig-0": 1, "mig-1": 1}
    assert ranked(GPU, gpu_1=1) == {"gpu-1": 1}
    assert ranked(GPU, cpu_0=1) == ranked(GPU, other=1) == ranked(GPU) == {}


def test_counter_sets_may_be_published_by_another_slice_of_the_pool() -> None:
    counters = structs.replace(pool_slice(name="counters"), counter_sets=("gpu-0",))
    assert ranked(pool_slice(part("a")), counters, pool_slice(part("b"), name="slice-1"), a=1) == {"a": 1, "b": 1}


def test_counter_sets_beside_devices_are_those_of_the_slice() -> None:
    """So it was up to 1.34: two slices of a pool could have sets of one name."""
    one, other = [
        structs.replace(pool_slice(part(name), part(f"{name}-mig"), name=name), counter_sets=("gpu-0",))
        for name in "ab"
    ]
    assert ranked(one, other, a=1) == {"a": 1, "a-mig": 1}
    assert ranked(one, pool_slice(part("c")), a=1) == {"a": 1, "a-mig": 1}


def test_of_two_devices_of_one_name_the_first_counts() -> None:
    first, second = pool_slice(Device("a"), part("b", "x")), pool_slice(part("a"), part("b"), part("c"), name="s")
    assert [name for name, _ in drawing((first, second))] == ["b", "c"]
    assert ranked(first, second, c=1) == {"c": 1}


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(rule("new", only(FULL)), ["mig-0", "mig-1"], id="the full device"),
        pytest.param(rule("new", only(FULL), "NoSchedule"), ["mig-0", "mig-1"], id="NoSchedule"),
        pytest.param(rule("new", only("mig-1")), [FULL, "mig-0"], id="a partition"),
        pytest.param(rule("new", only("mig-1", pool=None, driver=None)), [FULL, "mig-0"], id="its name alone"),
        pytest.param(rule("new", only("gpu-1")), [], id="hardware of one device"),
        pytest.param(rule("new", only("cpu-0")), [], id="a device without counters"),
        pytest.param(rule("new", only("gone")), [], id="no device"),
        pytest.param(rule("new", only(FULL, pool="other")), [], id="another pool"),
        pytest.param(rule("new", only(FULL), "None"), [], id="a rule that does nothing"),
        pytest.param(rule("new", DeviceSelector(DRIVER, POOL)), [], id="the whole pool"),
        pytest.param(rule("new"), [], id="every device"),
        pytest.param(rule("new", None), [], id="no selector"),
    ],
)
def test_siblings_of_what_a_rule_selects(new: DeviceTaintRule, expected: list[str]) -> None:
    assert found(GPU, new=new) == expected


def test_a_rule_that_does_nothing_may_be_judged_as_if_it_did() -> None:
    assert found(GPU, new=rule("new", only(FULL), "None"), effect="NoExecute") == ["mig-0", "mig-1"]


def test_pools_are_apart_and_in_order() -> None:
    other = pool_slice(part(FULL), part("mig-9"), pool="node-1", name="slice-1")
    siblings = siblings_of_rule(inventory_of(other, GPU), rule("new", only(FULL, pool=None)))
    assert [(each.driver, each.pool, each.device) for each in siblings.devices] == [
        (DRIVER, POOL, "mig-0"),
        (DRIVER, POOL, "mig-1"),
        (DRIVER, "node-1", "mig-9"),
    ]


def test_the_newest_generation_counts() -> None:
    older = pool_slice(part(FULL), part("old"), name="old")
    newer = pool_slice(part(FULL), part("new"), name="new", generation=2)
    assert found(older, newer) == ["new"]


USED: Final = claim("c", on("mig-0"), users=["p"])


@pytest.mark.parametrize(
    ("stored", "in_service"),
    [
        pytest.param(rule("r", only("mig-0")), False, id="the same effect"),
        pytest.param(rule("r", DeviceSelector(DRIVER)), False, id="on the driver"),
        pytest.param(rule("r", only("mig-0"), "NoSchedule", evict=True), False, id="one that our worker carries out"),
        pytest.param(rule("r", only("mig-0"), "NoSchedule"), True, id="a weaker effect"),
        pytest.param(rule("r", only("mig-0"), "None"), True, id="no effect"),
        pytest.param(rule("r", only("mig-1")), True, id="on another device"),
        pytest.param(rule("new", only("mig-0")), True, id="its own state before the update"),
        pytest.param(structs.replace(rule("r", only("mig-0")), deleting=True), True, id="one that is being deleted"),
        pytest.param(
            rule("r", DeviceSelector(DRIVER, device_class_name="gpu")), True, id="one whose devices are not known"
        ),
        pytest.param(rule("r", None), True, id="one without selector"),
    ],
)
def test_what_another_rule_closes_is_out_of_service(stored: DeviceTaintRule, *, in_service: bool) -> None:
    assert ("mig-0" in found(GPU, USED, stored)) is in_service


def test_rules_close_devices_one_by_one() -> None:
    first, second = rule("a", only("mig-0")), rule("b", only("mig-1"))
    assert found(GPU, first) == ["mig-1"]
    assert found(GPU, second) == ["mig-0"]
    for passed_over in (rule("new", only(FULL)), structs.replace(rule("0", only(FULL)), deleting=True)):
        assert found(GPU, passed_over, first, second) == []


@pytest.mark.parametrize("weak", [rule("r", only("mig-0"), "NoSchedule"), None])
def test_what_is_closed_and_not_allocated_is_out_of_service(weak: DeviceTaintRule | None) -> None:
    """By a rule, or by a taint of its slice."""
    effect = "" if weak else "NoSchedule"
    published = pool_slice(part(FULL), part("mig-0", effect=effect), part("mig-1"))
    objects: list[InventoryObject] = [published, *([weak] if weak else [])]
    assert found(*objects) == ["mig-1"]
    assert found(*objects, structs.replace(USED, reserved_for=())) == ["mig-0", "mig-1"]


@pytest.mark.parametrize(
    ("effect", "new", "in_service"),
    [
        ("NoExecute", "NoExecute", False),
        ("NoExecute", "NoSchedule", False),
        ("NoSchedule", "NoSchedule", False),
        ("NoSchedule", "NoExecute", True),
        ("None", "NoSchedule", True),
    ],
)
def test_what_a_slice_taints_is_out_of_service(effect: str, new: str, *, in_service: bool) -> None:
    tainted = pool_slice(part(FULL), part("mig-0", effect=effect))
    assert bool(found(tainted, USED, new=rule("new", only(FULL), new))) is in_service
    beside = pool_slice(part(FULL), part("mig-0"), beside=[SliceTaint("mig-0", taint(effect))])
    assert bool(found(beside, USED, new=rule("new", only(FULL), new))) is in_service


def test_of_several_taints_of_a_slice_the_strongest_counts() -> None:
    both = Device("mig-0", (taint("NoExecute"), taint("NoSchedule"), taint("None")), counter_sets=("gpu-0",))
    assert found(pool_slice(part(FULL), both), USED) == []


def test_a_taint_that_does_nothing_closes_nothing() -> None:
    assert found(GPU, rule("r", only("mig-0"), "None")) == ["mig-0", "mig-1"]
    beside = pool_slice(part(FULL), part("mig-0", effect="None"), beside=[SliceTaint("mig-0", taint("None"))])
    assert found(beside) == ["mig-0"]


def test_claims_and_users_are_in_order() -> None:
    names = [f"c{number}" for number in range(20)]
    claims = [claim(name, on("mig-0"), users=[name, group(name)]) for name in reversed(names)]
    sibling = siblings_of_rule(inventory_of(GPU, *claims), rule("new", only(FULL))).devices[0]
    assert list(sibling.claims) == sorted(f"ml/{name}" for name in names)
    assert list(sibling.pods) == sorted(f"ml/pod-{name}" for name in names)
    assert list(sibling.pod_groups) == sorted(f"ml/group-{name}" for name in names)


def test_users_are_named() -> None:
    crowd = claim("b", on("mig-0"), users=[group("g"), *used_by("q", "p")])
    unused, other = claim("a", on("mig-0")), claim("z", on("mig-1", pool="other"), users=["x"])
    siblings = siblings_of_rule(inventory_of(GPU, crowd, unused, other), rule("new", only(FULL)))
    assert siblings.devices == (
        Sibling(DRIVER, POOL, "mig-0", ("ml/a", "ml/b"), ("ml/pod-p", "ml/pod-q"), ("ml/group-g",)),
        Sibling(DRIVER, POOL, "mig-1"),
    )
    assert siblings.in_use == 1
    assert siblings.pods == {"ml/pod-p", "ml/pod-q"}
    assert siblings.pod_groups == {"ml/group-g"}
    assert (bool(siblings), bool(NO_SIBLINGS)) == (True, False)


@pytest.mark.parametrize(
    ("users", "number"),
    [
        pytest.param({}, 0, id="none"),
        pytest.param({"claims": ("ml/c",)}, 0, id="a claim alone"),
        pytest.param({"pods": ("ml/p",)}, 1, id="a pod"),
        pytest.param({"pod_groups": ("ml/g",)}, 1, id="a PodGroup"),
    ],
)
def test_in_use_is_what_pods_use(users: dict[str, Any], number: int) -> None:
    assert Siblings((Sibling(DRIVER, POOL, "a", **users),)).in_use == number


def beside_slice(value: ResourceSlice, *objects: InventoryObject, **ranks: int) -> list[str]:
    named = {name.replace("_", "-"): rank for name, rank in ranks.items()}
    return [each.device for each in siblings_of_slice(inventory_of(*objects), value, named).devices]


TAINTED: Final = part(FULL, effect="NoExecute")
BOTH: Final = pool_slice(TAINTED, part("mig-0"), part("mig-1", effect="NoExecute"))
ONE: Final = pool_slice(TAINTED, part("mig-0"))
WEAK: Final = pool_slice(TAINTED, part("mig-0", effect="NoSchedule"))
CLOSED_MIG: Final = part("mig-0", effect="NoExecute")
OTHERS: Final = pool_slice(part("mig-0"), part("mig-1", effect="NoExecute"), name="slice-1")
PLAIN: Final = pool_slice(part(FULL), part("mig-0"), part("mig-1"), name="slice-1")
BESIDE: Final = pool_slice(beside=[SliceTaint(FULL, taint()), SliceTaint("mig-0", taint())])
NONE_BESIDE: Final = pool_slice(beside=[SliceTaint(FULL, taint()), SliceTaint("mig-0", taint("None"))])
NEWER: Final = pool_slice(TAINTED, generation=2)


@pytest.mark.parametrize(
    ("value", "objects", "ranks", "expected"),
    [
        pytest.param(BOTH, [], {"gpu_0": 2}, ["mig-0"], id="devices of a new slice"),
        pytest.param(BOTH, [GPU], {"gpu_0": 2}, ["mig-0"], id="devices of one that is there"),
        pytest.param(BOTH, [GPU], {}, [], id="none is tainted"),
        pytest.param(ONE, [pool_slice(part(FULL), CLOSED_MIG)], {"gpu_0": 2}, ["mig-0"], id="not as it was"),
        pytest.param(pool_slice(TAINTED), [OTHERS], {"gpu_0": 2}, ["mig-0"], id="other slices with their own taints"),
        pytest.param(NEWER, [OTHERS], {"gpu_0": 2}, ["mig-0"], id="also of an older generation"),
        pytest.param(BESIDE, [PLAIN], {"gpu_0": 2, "mig_0": 2}, ["mig-1"], id="taints beside the devices"),
        pytest.param(BESIDE, [PLAIN], {"gpu_0": 2}, ["mig-1"], id="also of those that are not asked about"),
        pytest.param(NONE_BESIDE, [PLAIN], {"gpu_0": 2}, ["mig-0", "mig-1"], id="one beside that does nothing"),
        pytest.param(
            pool_slice(part(FULL, effect="None"), part("mig-0")),
            [],
            {"gpu_0": 2},
            ["mig-0"],
            id="not itself, simulated",
        ),
        pytest.param(WEAK, [], {"gpu_0": 2, "mig_0": 1}, [], id="a weaker taint closes what nobody has"),
        pytest.param(WEAK, [USED], {"gpu_0": 2, "mig_0": 1}, ["mig-0"], id="a weaker taint beside a stronger one"),
        pytest.param(ONE, [rule("new", only("mig-0"))], {"gpu_0": 2}, [], id="a stored rule closes it"),
        pytest.param(
            ONE, [rule("", only("mig-0"), "NoSchedule"), USED], {"gpu_0": 2}, ["mig-0"], id="a weaker stored rule"
        ),
    ],
)
def test_siblings_of_what_a_slice_taints(
    value: ResourceSlice, objects: list[InventoryObject], ranks: dict[str, int], expected: list[str]
) -> None:
    assert beside_slice(value, *objects, **ranks) == expected


def _crowd(number: int) -> ResourceSlice:
    return pool_slice(*[part(f"gpu-{each}") for each in range(number)])


def _calls_of_a_rule(number: int) -> int:
    def work(inventory: Inventory) -> None:
        siblings_of_rule(inventory, rule("new", only(FULL)))

    return calls_of(work, lambda: inventory_of(_crowd(number)))


def test_cost_grows_with_the_devices_and_not_with_their_square() -> None:
    assert _calls_of_a_rule(10_000) < 11 * _calls_of_a_rule(1_000)


def test_cost_of_a_slice_does_not_grow_with_the_devices_that_it_taints() -> None:
    value, inventory = _crowd(2_000), inventory_of()

    def calls(*tainted: str) -> int:
        def work(ranks: dict[str, int]) -> None:
            siblings_of_slice(inventory, value, ranks)

        return calls_of(work, lambda: dict.fromkeys(tainted, 2))

    assert calls(*[device.name for device in value.devices]) < 2 * calls(FULL)


def test_no_pool_is_searched_for_a_rule_that_names_no_device() -> None:
    def check() -> None:
        pytest.fail("a pool is looked at")

    new = rule("new", DeviceSelector(DRIVER, POOL))
    assert siblings_of_rule(inventory_of(GPU), new, check=check) == NO_SIBLINGS


def test_the_search_can_be_stopped() -> None:
    inventory = inventory_of(_crowd(10 * BETWEEN_CHECKS))
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1

    siblings_of_rule(inventory, rule("new", only(FULL)), check=check)
    assert checks >= 20


@pytest.mark.parametrize(
    ("scope", "selector", "expected"),
    [
        (HARDWARE, only(FULL), ["mig-0", "mig-1"]),
        (HARDWARE, only("mig-1"), [FULL, "mig-0"]),
        (HARDWARE, only("cpu-0"), []),
        (HARDWARE, DeviceSelector(DRIVER, POOL), []),
        (HARDWARE, structs.replace(only(FULL), device_class_name="gpu"), []),
        ("device", only(FULL), []),
    ],
    ids=["the whole GPU", "a part", "hardware of its own", "no device by name", "more than names", "another scope"],
)
def test_scope_hardware_adds_the_other_devices_of_the_same_hardware(
    scope: str, selector: DeviceSelector, expected: list[str]
) -> None:
    asked = rule("new", selector)
    asked = structs.replace(asked, meta=structs.replace(asked.meta, annotations={SCOPE: scope}))
    assert selectors_in_scope(inventory_of(GPU), asked) == tuple([only(each) for each in expected])
