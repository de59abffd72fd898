"""Patches as DeviceTaintRules. `semantics.md` P-11, P-12, P-20, P-22, N-9 to N-12."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import field_errors
from tests.unit.inventory.values import NOW, taint
from tests.unit.patches.patched import DRIVER, class_of, effective, expansions, patch_of, pools_of, slice_of
from webhook.api.meta import ObjectMeta
from webhook.api.rules import DeviceSelector, DeviceTaintRule
from webhook.api.taints import DeviceTaint, TaintExtras
from webhook.inventory.targets import is_named_for, number_of, numbered, rule_name
from webhook.patches.covering import RULES_MAX
from webhook.patches.expansion import ExpandedRule, PatchExpansion, expansion

if TYPE_CHECKING:
    from webhook.api.patches import ResourceSlicePatch

FLEET = pools_of(
    slice_of({"name": "gpu-0", "attributes": {"n": {"int": 0}}}, {"name": "gpu-1", "attributes": {"n": {"int": 1}}}),
    slice_of({"name": "gpu-0", "attributes": {"n": {"int": 1}}}, pool="node-1"),
    slice_of("fpga-0", driver="fpga.example.com"),
)
PLAIN = taint("NoSchedule")
FIRST, SECOND, THIRD = (
    DeviceSelector(DRIVER, *each) for each in (("node-0", "gpu-0"), ("node-0", "gpu-1"), ("node-1", "gpu-0"))
)


def expanded(*patches: ResourceSlicePatch, ceiling: int = RULES_MAX, classes: Any = None) -> dict[str, PatchExpansion]:
    return expansions(FLEET, patches, effective(FLEET, *patches, classes=classes), ceiling)


def rules(*patches: ResourceSlicePatch, of: str = "patch", classes: Any = None) -> tuple[ExpandedRule, ...]:
    found = expanded(*patches, classes=classes)[of]
    assert found.needed == len(found.rules)
    return found.rules


def selectors(*patches: ResourceSlicePatch, of: str = "patch", classes: Any = None) -> list[DeviceSelector]:
    return [rule.selector for rule in rules(*patches, of=of, classes=classes)]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param({}, id="every device"),
        pytest.param({"driver": DRIVER}, id="a driver"),
        pytest.param({"pool": "node-0"}, id="a pool of any driver"),
        pytest.param({"driver": DRIVER, "pool": "node-0", "device": "gpu-1"}, id="a device"),
        pytest.param({"driver": "unknown.example"}, id="a driver that publishes nothing yet"),
    ],
)
def test_filter_of_names_becomes_one_rule_with_that_selector(names: Any) -> None:
    [rule] = rules(patch_of(taints=[PLAIN], **names))
    assert (rule.selector, rule.taint, rule.annotations) == (DeviceSelector(**names), PLAIN, {})


def test_no_filter_is_an_empty_selector() -> None:
    assert selectors(patch_of(taints=[PLAIN], anything=True)) == [DeviceSelector()]


def test_each_taint_has_rules_of_its_own() -> None:
    """Of two of the same key and effect the later one counts."""
    taints = [PLAIN, taint("NoExecute"), taint("NoSchedule", value="v"), taint("None", "b")]
    patch = patch_of(driver=DRIVER, taints=taints)
    found = rules(patch)
    assert [rule.taint for rule in found] == [taint("NoSchedule", value="v"), taint("NoExecute"), taint("None", "b")]
    assert len({rule.name for rule in found}) == 3


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        pytest.param({"cel": ["n > 5"]}, [], id="no device"),
        pytest.param({"cel": ["n > -1"], "driver": DRIVER}, [FIRST, SECOND, THIRD], id="all of a driver"),
        pytest.param({"cel": ["n > 0"], "driver": DRIVER}, [SECOND, THIRD], id="some"),
        pytest.param({"device_class_name": "high", "pool": "node-1"}, [THIRD], id="of a class"),
        pytest.param({"device_class_name": "missing"}, [], id="a class that is missing"),
        pytest.param({"unknown": (("all", "true"),)}, [], id="a filter that cannot be judged"),
        pytest.param({"device_class_name": ""}, [], id="a class without a name, which validation refuses"),
        pytest.param({"cel": ["n"], "driver": DRIVER}, [], id="a selector that does not compile"),
    ],
)
def test_class_and_cel_filters_become_a_rule_for_each_device(filter_: Any, expected: list[DeviceSelector]) -> None:
    assert selectors(patch_of(taints=[PLAIN], **filter_), classes=class_of("high", "n > 0")) == expected


@pytest.mark.parametrize(("ceiling", "selected"), [(5, [DeviceSelector(DRIVER)]), (6, [FIRST, SECOND, THIRD])])
def test_where_these_are_more_than_the_ceiling_there_are_the_fewest_rules(ceiling: int, selected: Any) -> None:
    """They count together, of all taints."""
    patch = patch_of(driver=DRIVER, cel=["n > -1"], taints=[PLAIN, taint("NoExecute")])
    assert [rule.selector for rule in expanded(patch, ceiling=ceiling)["patch"].rules] == selected * 2


@pytest.mark.parametrize("left", [1, 2, 3], ids=["alone", "beside another pool", "beside all"])
def test_rule_for_one_device_selects_no_other_whatever_is_published_no_longer(left: int) -> None:
    """A driver restarts, or a newer generation of the other pools is empty."""
    slices = [
        slice_of({"name": "gpu-0", "attributes": {"n": {"int": at == 0}}}, pool=f"node-{at}") for at in range(left)
    ]
    pools = pools_of(*slices)
    for filter_ in ({"cel": ["n > 0"]}, {"device_class_name": "high"}):
        patch = patch_of(driver=DRIVER, taints=[PLAIN], **filter_)
        found = expansion(pools, patch, effective(pools, patch, classes=class_of("high", "n > 0")))
        assert [rule.selector for rule in found.rules] == [FIRST]


def test_patch_without_taints_needs_no_rule() -> None:
    assert expanded(patch_of(attributes={"a.example/b": 1})) == {"patch": PatchExpansion((), 0)}


def test_patch_that_loses_on_some_devices_has_rules_for_the_others() -> None:
    """P-12, P-22: for the taint that it loses only."""
    low = patch_of("low", driver=DRIVER, taints=[PLAIN, taint("None")])
    high = patch_of("high", driver=DRIVER, pool="node-0", taints=[taint("NoSchedule", value="high")], priority=1)
    found = {(rule.taint.effect, rule.selector.pool) for rule in rules(low, high, of="low")}
    assert found == {("NoSchedule", "node-1"), ("None", None)}
    assert selectors(low, high, of="high") == [DeviceSelector(DRIVER, "node-0")]


def test_name_stays_while_patch_taint_and_selector_are_the_same() -> None:
    [first] = rules(patch_of(driver=DRIVER, taints=[PLAIN]))
    changed = DeviceTaint(PLAIN.key, "other", PLAIN.effect, NOW + timedelta(days=1), TaintExtras({"a": 1}))
    [again] = rules(patch_of(driver=DRIVER, taints=[changed], priority=7))
    assert first.name == again.name
    others = [
        patch_of("other", driver=DRIVER, taints=[PLAIN]),
        patch_of(driver="fpga.example.com", taints=[PLAIN]),
        patch_of(driver=DRIVER, pool="node-0", taints=[PLAIN]),
        patch_of(driver=DRIVER, device="gpu-0", taints=[PLAIN]),
        patch_of(driver=DRIVER, taints=[taint("NoExecute")]),
        patch_of(driver=DRIVER, taints=[taint("NoSchedule", "other")]),
    ]
    names = [rules(patch, of=patch.meta.name)[0].name for patch in others]
    assert len({first.name, *names}) == 7


@pytest.mark.parametrize("name", ["p", "a.b-c", "x" * 253, "x" * 199 + ".y", "x" * 198 + "-.y"])
def test_rule_is_one_that_servers_accept(name: str) -> None:
    [rule] = rules(patch_of(name, driver=DRIVER, taints=[PLAIN]), of=name)
    manifest = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": rule.name},
        "spec": {"deviceSelector": {"driver": DRIVER}, "taint": {"key": rule.taint.key, "effect": rule.taint.effect}},
    }
    assert field_errors(manifest) == []
    assert re.fullmatch(re.escape(name[:200].rstrip("-.")) + "-[0-9a-f]{16}", rule.name)


@pytest.mark.parametrize(
    ("extras", "annotations"),
    [
        pytest.param(None, {}, id="nothing"),
        pytest.param(TaintExtras(), {}, id="nothing that is set"),
        pytest.param(TaintExtras({"b": [1, None], "a": "ü"}), {"data": '{"a":"ü","b":[1,null]}'}, id="data"),
        pytest.param(TaintExtras({}), {"data": "{}"}, id="empty data"),
        pytest.param(TaintExtras(description="hot"), {"description": "hot"}, id="description"),
        pytest.param(TaintExtras(evictions_per_second=5), {"evictions-per-second": "5"}, id="rate"),
        pytest.param(
            TaintExtras({"x": 1}, "", 1), {"data": '{"x":1}', "description": "", "evictions-per-second": "1"}, id="all"
        ),
    ],
)
def test_what_released_servers_drop_is_in_annotations(extras: Any, annotations: dict[str, str]) -> None:
    """N-9 to N-12."""
    [rule] = rules(patch_of(driver=DRIVER, taints=[DeviceTaint("a", "", "NoExecute", NOW, extras)]))
    assert rule.taint == DeviceTaint("a", "", "NoExecute", NOW)
    assert rule.annotations == {f"devicetaint.io/{name}": text for name, text in annotations.items()}
    if "devicetaint.io/data" in rule.annotations:
        assert json.loads(rule.annotations["devicetaint.io/data"]) == extras.data


def test_patch_that_needs_more_rules_than_the_ceiling_has_none() -> None:
    """Half a patch would be worse: the devices that are left out would look as if they were fine."""
    patch = patch_of(driver=DRIVER, cel=["n > 0"], taints=[PLAIN, taint("NoExecute")])
    other = patch_of("other", driver=DRIVER, taints=[taint("None")])
    found = expanded(patch, other, ceiling=3)
    assert (found["patch"], len(found["other"].rules)) == (PatchExpansion((), 4), 1)
    assert len(expanded(patch, other, ceiling=4)["patch"].rules) == 4


def test_default_ceiling_is_reached_by_a_hundred_devices() -> None:
    def needed(count: int) -> PatchExpansion:
        devices = [{"name": f"gpu-{n}", "attributes": {"n": {"int": n % 2}}} for n in range(2 * count)]
        pools = pools_of(slice_of(*devices), slice_of(*[f"gpu-{n}" for n in range(2 * count)], pool="node-1"))
        patch = patch_of(driver=DRIVER, pool="node-0", cel=["n > 0"], taints=[PLAIN])
        return expansion(pools, patch, effective(pools, patch))

    assert (len(needed(100).rules), needed(100).needed) == (100, 100)
    assert (len(needed(101).rules), needed(101).needed) == (0, 101)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("patch-1a2b", 1),
        ("patch-1a2b-2", 2),
        ("patch-1a2b-17", 17),
        ("patch-1a2b-1", 0),
        ("patch-1a2b-0", 0),
        ("patch-1a2b-02", 0),
        ("patch-1a2b-x", 0),
        ("patch-1a2b-999999999", 999_999_999),
        ("patch-1a2b-1000000000", 0),
        ("patch-1a2b-99999999999999999999", 0),
        ("other-2", 0),
        ("other", 0),
    ],
)
def test_rule_may_have_one_of_the_names_of_its_owner(name: str, number: int) -> None:
    assert number_of(name, "patch-1a2b") == number
    if number:
        assert numbered("patch-1a2b", number) == name


def test_name_with_digits_at_its_end_is_the_first_one() -> None:
    assert number_of("patch-123", "patch-123") == 1


@pytest.mark.parametrize(
    ("selector", "named"),
    [
        (FIRST, True),
        (SECOND, False),
        (None, False),
        (DeviceSelector(DRIVER, "node-0", "gpu-0", device_class_name="gpu"), False),
    ],
)
def test_rule_is_named_for_its_owner_by_taint_and_selector(selector: DeviceSelector | None, *, named: bool) -> None:
    meta = ObjectMeta(name=rule_name("patch", PLAIN, FIRST))
    assert is_named_for("patch", DeviceTaintRule(meta, selector, PLAIN)) is named
    assert not is_named_for("other", DeviceTaintRule(meta, selector, PLAIN))
