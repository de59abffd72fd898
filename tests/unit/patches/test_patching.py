"""What patches make of devices. `semantics.md` P-2, P-8 to P-16, P-22, K-9."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.costs import calls_of
from tests.tables import table
from tests.unit.inventory.values import taint
from tests.unit.patches.patched import (
    CREATED,
    DRIVER,
    at,
    by_number,
    class_of,
    effective,
    patch_of,
    pools_of,
    slice_of,
    slices_read,
)
from webhook.api.meta import ObjectMeta
from webhook.api.patches import PatchedAttribute, ResourceSlicePatch
from webhook.patches.filters import DeviceTest
from webhook.patches.patching import (
    EffectiveDevices,
    Origin,
    PatchFault,
    by_precedence,
    effective_devices,
    taints_of_patch,
)

if TYPE_CHECKING:
    from webhook.inventory.pools import Pools
    from webhook.inventory.targets import DeviceId
    from webhook.patches.published import PublishedDevice

N = f"{DRIVER}/n"
LATER = CREATED + timedelta(seconds=1)
FLEET = pools_of(
    slice_of({"name": "gpu-0", "attributes": {"n": {"int": 0}}}, {"name": "gpu-1", "attributes": {"n": {"int": 1}}}),
    slice_of("gpu-0", pool="node-1"),
    slice_of("fpga-0", driver="fpga.example.com"),
)
FPGA = at("fpga-0", driver="fpga.example.com")
ALL = [FPGA, at("gpu-0"), at("gpu-1"), at("gpu-0", "node-1")]


def selected(found: EffectiveDevices, patch: str = "patch") -> list[DeviceId]:
    assert set(found.devices) == {address for each in found.selected.values() for address in each}
    return list(found.selected[patch])


@pytest.mark.parametrize(
    ("filter_", "addresses"),
    [
        pytest.param({"anything": True}, ALL, id="no filter is every device"),
        pytest.param({}, ALL, id="an empty one too"),
        pytest.param({"driver": DRIVER}, ALL[1:], id="a driver"),
        pytest.param({"pool": "node-0"}, ALL[:3], id="a pool of any driver"),
        pytest.param({"device": "gpu-0"}, [ALL[1], ALL[3]], id="a device in any pool"),
        pytest.param({"driver": DRIVER, "pool": "node-1", "device": "gpu-0"}, [ALL[3]], id="all three"),
        pytest.param({"driver": DRIVER, "pool": "node-1", "device": "gpu-1"}, [], id="all must hold"),
        pytest.param({"driver": "other.example.com"}, [], id="a driver that publishes nothing"),
        pytest.param({"pool": "node-0", "driver": DRIVER, "cel": ["n > 0"]}, [ALL[2]], id="names and a selector"),
        pytest.param({"pool": "node-0", "driver": DRIVER, "cel": ["n > -1", "n > 0"]}, [ALL[2]], id="all selectors"),
        pytest.param({"pool": "node-0", "driver": DRIVER, "cel": ["n > 0", "n > 1"]}, [], id="none satisfies both"),
        pytest.param({"device_class_name": "all"}, ALL, id="a class without selectors"),
        pytest.param({"driver": DRIVER, "pool": "node-0", "device_class_name": "high"}, [ALL[2]], id="a class"),
        pytest.param(
            {"driver": DRIVER, "pool": "node-0", "device_class_name": "high", "cel": ["n > 1"]}, [], id="class and CEL"
        ),
    ],
)
def test_all_that_a_filter_names_must_hold(filter_: Any, addresses: list[DeviceId]) -> None:
    """P-2."""
    found = effective(FLEET, patch_of(**filter_), classes=class_of("all") | class_of("high", "n > 0"))
    assert selected(found) == addresses
    assert (found.faults, found.inapplicable) == ((), {})


def test_filter_is_matched_against_the_published_device() -> None:
    """P-15: what one patch sets does not change what another selects."""
    sets = patch_of("sets", driver=DRIVER, pool="node-0", attributes={N: 9}, priority=9)
    removes = patch_of("removes", driver=DRIVER, pool="node-0", attributes={N: None}, priority=10)
    reads = patch_of("reads", driver=DRIVER, pool="node-0", cel=["n > 0"], taints=[taint()])
    found = effective(FLEET, sets, removes, reads)
    assert (selected(found, "reads"), found.faults) == ([at("gpu-1")], ())
    assert [address for address, device in found.devices.items() if device.taints] == [at("gpu-1")]


def test_selector_that_fails_leaves_its_device_out_and_is_reported() -> None:
    """P-16, K-9: the patch applies to the others."""
    patches = [
        patch_of("b", cel=["n > 0"], attributes={N: 5}),
        patch_of("a", cel=["n > -1", "fails > 0"], driver=DRIVER, pool="node-0"),
        patch_of("c", device_class_name="gpu", driver=DRIVER),
    ]
    found = effective(FLEET, *patches, classes=class_of("gpu", "n > -1", "n > 0"))
    assert found.faults == (
        PatchFault("a", at("gpu-0"), "selector #1", "no such key: fails"),
        PatchFault("a", at("gpu-1"), "selector #1", "no such key: fails"),
        PatchFault("b", FPGA, "selector #0", "no such key: n"),
        PatchFault("b", at("gpu-0", "node-1"), "selector #0", "no such key: n"),
        PatchFault("c", at("gpu-0", "node-1"), "selector #0 of device class gpu", "no such key: n"),
    )
    assert {name: list(addresses) for name, addresses in found.selected.items()} == {
        "a": [],
        "b": [at("gpu-1")],
        "c": [at("gpu-1")],
    }
    assert str(found.faults[0]) == "selector #1: device gpu.example.com/node-0/gpu-0: no such key: fails"


def test_selector_that_says_no_ends_the_look() -> None:
    found = effective(FLEET, patch_of(driver=DRIVER, pool="node-0", cel=["n > 5", "fails > 0"]))
    assert (selected(found), found.faults) == ([], ())


@table(
    "filter_, why",
    {
        "a class that is missing": ({"device_class_name": "gpu"}, "device class gpu does not exist"),
        "a class of another kind": (
            {"device_class_name": "odd"},
            "selector #1 of device class odd cannot be used: it has no CEL expression",
        ),
        "a selector of another kind": (
            {"cel": ["n > 0", None]},
            "selector #1 cannot be used: it has no CEL expression",
        ),
        "one that does not compile": ({"cel": ["n > 0", "n"]}, "selector #1 cannot be used: n is no comparison"),
        "a class that does not compile": (
            {"device_class_name": "bad"},
            "selector #0 of device class bad cannot be used: n is no comparison",
        ),
        "unknown": (
            {"unknown": (("all", "true"), ("node", '"a"'))},
            "the filter has fields that are not known: all, node",
        ),
    },
)
def test_filter_that_cannot_be_judged_selects_nothing(filter_: Any, why: str) -> None:
    """K-9; and a field of the future is never "everything"."""
    found = effective(
        FLEET, patch_of(**filter_), patch_of("other"), classes=class_of("odd", "n > 0", None) | class_of("bad", "n")
    )
    assert (list(found.selected["patch"]), list(found.selected["other"])) == ([], ALL)
    assert (found.inapplicable, found.faults) == ({"patch": why}, ())


def test_expression_is_compiled_once() -> None:
    """However many patches and classes have it."""
    compiled: list[str] = []

    def compiles(expression: str) -> DeviceTest:
        compiled.append(expression)
        return by_number(expression)

    patches = [
        patch_of("a", cel=["n > 0"]),
        patch_of("b", cel=["n > 0", "n > 1"]),
        patch_of("c", device_class_name="g"),
    ]
    effective_devices(FLEET, patches, class_of("g", "n > 1"), compiles)
    assert compiled == ["n > 0", "n > 1"]


@pytest.mark.parametrize(
    ("winner", "loser"),
    [
        pytest.param({"priority": 1}, {"priority": 0}, id="the higher priority"),
        pytest.param({"priority": 0}, {"priority": -1}, id="no priority is zero"),
        pytest.param({"priority": 1, "created": LATER}, {"priority": 0}, id="priority before age"),
        pytest.param({"name": "z"}, {"name": "a", "created": LATER}, id="the older one"),
        pytest.param({"name": "z"}, {"name": "a", "created": None}, id="one that is not created yet is the youngest"),
        pytest.param({"name": "a"}, {"name": "b"}, id="else the first by name (P-14)"),
    ],
)
def test_precedence(winner: dict[str, Any], loser: dict[str, Any]) -> None:
    """P-11, for attributes, capacities, and taints of the same key and effect (P-22)."""
    added = CREATED + timedelta(hours=1)
    sets = {"attributes": {N: 1}, "capacity": {N: "1"}, "taints": [taint(value="one", added=added)]}
    other = {"attributes": {N: 2}, "capacity": {N: "2"}, "taints": [taint(value="two")]}
    patches = [patch_of(**({"name": "w"} | winner | sets)), patch_of(**({"name": "x"} | loser | other))]
    for order in (patches, patches[::-1]):
        device = effective(FLEET, *order).devices[at("gpu-1")]
        assert device.attributes == {N: {"int": 1}}
        assert device.capacity == {N: {"value": "1"}}
        assert device.taints == (taint(value="one", added=added),)
        assert set(device.origins.values()) == {patches[0].meta.name}
        assert by_precedence(order) == patches


def test_precedence_is_per_attribute() -> None:
    """P-12: a patch that loses one contributes its others."""
    high = patch_of(
        "high", priority=1, attributes={"a.example/a": 1}, capacity={"a.example/c": "1"}, taints=[taint("None")]
    )
    low = patch_of(
        "low",
        attributes={"a.example/a": 2, "a.example/b": 2},
        capacity={"a.example/c": "2", "a.example/d": "2"},
        taints=[taint("None", value="low"), taint("NoSchedule")],
    )
    device = effective(FLEET, low, high).devices[FPGA]
    assert device.attributes == {"a.example/a": {"int": 1}, "a.example/b": {"int": 2}}
    assert device.capacity == {"a.example/c": {"value": "1"}, "a.example/d": {"value": "2"}}
    assert device.taints == (taint("None"), taint("NoSchedule"))
    assert device.origins == {
        Origin("attribute", "a.example/a"): "high",
        Origin("attribute", "a.example/b"): "low",
        Origin("capacity", "a.example/c"): "high",
        Origin("capacity", "a.example/d"): "low",
        Origin("taint", taint().key, "None"): "high",
        Origin("taint", taint().key, "NoSchedule"): "low",
    }


def test_null_removes_what_the_driver_and_lower_patches_set() -> None:
    """P-8, P-13."""
    removes = patch_of("removes", priority=1, attributes={N: None, "a.example/never": None})
    sets = patch_of("sets", attributes={N: 5})
    device = effective(FLEET, sets, removes).devices[at("gpu-1")]
    assert (device.published.attributes, device.attributes) == ({N: {"int": 1}}, {})
    assert device.origins[Origin("attribute", N)] == "removes"
    lost = patch_of("removes", priority=-1, attributes={N: None})
    assert effective(FLEET, sets, lost).devices[at("gpu-1")].attributes == {N: {"int": 5}}


def test_values_override_the_driver_s() -> None:
    """P-9, P-10; what else the driver says about a capacity stays."""
    content = {
        "name": "gpu-0",
        "attributes": {"n": {"int": 1}, "m": {"int": 1}},
        "capacity": {"memory": {"value": "40Gi", "requestPolicy": {"default": "1Gi"}}, "cores": {"value": "8"}},
    }
    patch = patch_of(attributes={N: 2}, capacity={f"{DRIVER}/memory": "0"})
    device = effective(pools_of(slice_of(content)), patch).devices[at("gpu-0")]
    assert device.attributes == {N: {"int": 2}, f"{DRIVER}/m": {"int": 1}}
    assert device.capacity == {
        f"{DRIVER}/memory": {"value": "0", "requestPolicy": {"default": "1Gi"}},
        f"{DRIVER}/cores": {"value": "8"},
    }


def test_attribute_without_exactly_one_value_sets_nothing() -> None:
    """P-7 refuses it; in a file it must not remove anything."""
    odd = (PatchedAttribute(N, ()), PatchedAttribute(f"{DRIVER}/m", ("int", "bool")))
    patch = ResourceSlicePatch(ObjectMeta("odd"), None, attributes=odd)
    device = effective(FLEET, patch).devices[at("gpu-1")]
    assert (device.attributes, device.origins) == ({N: {"int": 1}}, {})


def test_taints_are_cumulative_unless_key_and_effect_are_the_same() -> None:
    """P-22."""
    own = [
        {"key": "a", "value": "own", "effect": "NoSchedule"},
        {"key": "a", "value": "own", "effect": "NoExecute"},
        {"key": "b", "effect": "NoSchedule"},
    ]
    patch = patch_of(taints=[taint("NoSchedule", "a", "ours"), taint("NoSchedule", "c")])
    device = effective(pools_of(slice_of({"name": "gpu-0", "taints": own})), patch).devices[at("gpu-0")]
    assert [(each.key, each.value, each.effect) for each in device.taints] == [
        ("a", "own", "NoExecute"),
        ("b", "", "NoSchedule"),
        ("a", "ours", "NoSchedule"),
        ("c", "", "NoSchedule"),
    ]
    assert len(device.published.taints) == 3


def test_later_taint_of_a_patch_overwrites_an_earlier_one() -> None:
    patch = patch_of(taints=[taint(value="first"), taint("None"), taint(value="last")])
    assert tuple(taints_of_patch(patch).values()) == (taint(value="last"), taint("None"))
    assert effective(FLEET, patch).devices[FPGA].taints == (taint(value="last"), taint("None"))


def test_of_two_patches_with_one_name_the_last_counts() -> None:
    found = effective(FLEET, patch_of(attributes={N: 1}), patch_of(attributes={N: 2}, device="fpga-0"))
    assert {address: device.attributes for address, device in found.devices.items()} == {FPGA: {N: {"int": 2}}}


def test_device_that_no_patch_selects_is_left_out() -> None:
    assert effective(FLEET).devices == {}
    assert effective(FLEET).selected == {}
    assert list(effective(FLEET, patch_of(device="gpu-1")).devices) == [at("gpu-1")]


def test_device_that_is_selected_by_a_patch_that_sets_nothing_is_as_published() -> None:
    device = effective(FLEET, patch_of()).devices[at("gpu-1")]
    assert device.attributes == device.published.attributes
    assert (device.capacity, device.taints, device.origins) == ({}, (), {})


def test_check_is_called_and_may_end_it() -> None:
    class LateError(Exception):
        pass

    def check() -> None:
        raise LateError

    with pytest.raises(LateError):
        effective_devices(FLEET, [patch_of()], {}, by_number, check)


def test_patches_for_single_devices_cost_no_look_at_the_others() -> None:
    """So hundreds of them on a large cluster are cheap."""

    def calls(pools: int) -> int:
        def fleet() -> Pools:
            return pools_of(*[slice_of(*[f"gpu-{n}" for n in range(8)], pool=f"node-{at}") for at in range(pools)])

        patches = [patch_of(f"p{at}", driver=DRIVER, pool=f"node-{at}", device="gpu-0") for at in range(4)]
        return calls_of(lambda pools: effective(pools, *patches), fleet)

    assert calls(100) == calls(4)


def test_check_is_called_before_each_selector_is_asked() -> None:
    """One alone may take milliseconds, whether it selects the device or not."""
    checks: list[int] = []
    asked: list[int] = []

    def compiles(expression: str) -> DeviceTest:
        assert expression

        def test(_: PublishedDevice) -> bool:
            asked.append(len(checks))
            return len(asked) % 2 == 1

        return DeviceTest(test)

    value = slice_of(*[f"gpu-{number}" for number in range(20)])
    effective_devices(pools_of(value), [patch_of(cel=["a", "b"])], {}, compiles, lambda: checks.append(0))
    assert len(asked) == len(set(asked)) == 40


def test_check_is_called_while_devices_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[int] = []
    read = slices_read(monkeypatch)
    slices = [slice_of(*[f"gpu-{at}-{number}" for number in range(128)], name=f"s-{at}") for at in range(9)]
    effective_devices(pools_of(*slices), [patch_of(device="gpu-0-0")], {}, by_number, lambda: checks.append(len(read)))
    assert len(read) == 9
    assert max(after - before for before, after in pairwise(checks)) == 1
