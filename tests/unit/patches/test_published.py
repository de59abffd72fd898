"""Published devices, and CEL selectors as tests of them. `semantics.md` P-4, P-8, P-16, P-17, N-6."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.unit.patches.patched import DRIVER, at, pools_of, slice_of, slices_read
from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta
from webhook.api.rules import CELSelector
from webhook.api.slices import DeviceClassSelectors, decode_device_class
from webhook.patches.filters import CannotCompileError, CannotMatchError, DeviceSelectors, SharedSelectors
from webhook.patches.published import ORIGINALS, Overridden, PublishedDevice, Setting, annotation_of, published_devices


def published(*slices: Any) -> list[PublishedDevice]:
    pools = pools_of(*slices)
    return [device for identity, pool in pools.items() for device in published_devices(identity, pool)]


def test_names_without_a_domain_are_in_the_domain_of_the_driver() -> None:
    content = {
        "name": "gpu-0",
        "attributes": {"model": {"string": "a"}, "other.example/model": {"string": "b"}},
        "capacity": {"memory": {"value": "40Gi"}, "other.example/cores": {"value": "8"}},
    }
    assert published(slice_of(content)) == [
        PublishedDevice(
            at("gpu-0"),
            {f"{DRIVER}/model": {"string": "a"}, "other.example/model": {"string": "b"}},
            {f"{DRIVER}/memory": {"value": "40Gi"}, "other.example/cores": {"value": "8"}},
        )
    ]


def test_name_that_is_given_twice_counts_as_it_is_written_in_full() -> None:
    content = {"name": "gpu-0", "attributes": {f"{DRIVER}/model": {"int": 1}, "model": {"int": 2}}}
    [device] = published(slice_of(content))
    assert device.attributes == {f"{DRIVER}/model": {"int": 1}}


@pytest.mark.parametrize("below", [lambda content: content, lambda content: {"basic": content}])
def test_content_lies_a_level_deeper_in_v1beta1(below: Any) -> None:
    content = {"attributes": {"n": {"int": 1}}, "allowMultipleAllocations": True}
    [device] = published(slice_of({"name": "gpu-0", **below(content)}))
    assert device == PublishedDevice(at("gpu-0"), {f"{DRIVER}/n": {"int": 1}}, allow_multiple_allocations=True)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"attributes": None, "capacity": None},
        {"attributes": [], "capacity": "1"},
        {"basic": None},
        {"attributes": {"a": 1, "b": None, "c.example/d": "x"}},
    ],
)
def test_what_is_missing_or_of_a_wrong_type_is_nothing(content: Any) -> None:
    assert published(slice_of({"name": "gpu-0", **content})) == [PublishedDevice(at("gpu-0"))]


def test_capacity_may_be_the_quantity_itself_as_in_old_versions() -> None:
    [device] = published(slice_of({"name": "gpu-0", "capacity": {"memory": "1Gi"}}))
    assert device.capacity == {f"{DRIVER}/memory": {"value": "1Gi"}}


@pytest.mark.parametrize("value", [None, False, "yes", 1])
def test_only_true_allows_multiple_allocations(value: Any) -> None:
    [device] = published(slice_of({"name": "gpu-0", "allowMultipleAllocations": value}))
    assert not device.allow_multiple_allocations


@pytest.mark.parametrize("below", [lambda content: content, lambda content: {"basic": content}])
def test_values_of_patches_in_the_slice_are_not_published(below: Any) -> None:
    """P-15: filters see what the driver says."""
    content = {"attributes": {"n": {"int": 7}, "m": {"int": 3}}, "capacity": {"c": {"value": "8Gi"}}}
    value = slice_of({"name": "gpu-0", **below(content)}, {"name": "gpu-1", **below(content)})
    kept = {
        Setting("attributes", "n"): Overridden({"int": 1}, {"int": 7}),
        Setting("attributes", "gone"): Overridden({"int": 2}, None),
        Setting("capacity", "c"): Overridden(None, {"value": "8Gi"}),
    }
    meta = ObjectMeta(annotations={ORIGINALS: annotation_of({"gpu-0": kept})})
    first, second = published(structs.replace(value, meta=meta))
    given = {f"{DRIVER}/n": {"int": 7}, f"{DRIVER}/m": {"int": 3}}
    assert first == PublishedDevice(at("gpu-0"), {**given, f"{DRIVER}/n": {"int": 1}, f"{DRIVER}/gone": {"int": 2}})
    assert second == PublishedDevice(at("gpu-1"), given, {f"{DRIVER}/c": {"value": "8Gi"}})


def test_newest_generation_counts_and_taints_beside_the_devices_are_theirs() -> None:
    taint = {"key": "a", "effect": "None"}
    old = slice_of({"name": "gpu-0", "attributes": {"n": {"int": 1}}}, "gone", generation=1)
    new = slice_of({"name": "gpu-0", "attributes": {"n": {"int": 2}}}, generation=2, taints=[])
    beside = slice_of(generation=2, name="beside", taints=[{"device": "gpu-0", "taint": taint}])
    [device] = published(old, new, beside)
    assert device.attributes == {f"{DRIVER}/n": {"int": 2}}
    assert [each.key for each in device.taints] == ["a"]


def test_devices_of_several_slices_keep_their_own_content() -> None:
    first = slice_of({"name": "a", "attributes": {"n": {"int": 1}}}, name="one")
    second = slice_of({"name": "b", "attributes": {"n": {"int": 2}}}, name="two")
    found = {device.address.device: device.attributes[f"{DRIVER}/n"]["int"] for device in published(first, second)}
    assert found == {"a": 1, "b": 2}


def test_slice_with_more_devices_than_are_read_publishes_those_that_are() -> None:
    value = slice_of(*[{"name": name, "attributes": {"n": {"int": 1}}} for name in ("a", "b")])
    [device] = published(structs.replace(value, devices=value.devices[:1]))
    assert device == PublishedDevice(at("a"), {f"{DRIVER}/n": {"int": 1}})


@pytest.mark.parametrize(
    ("spec", "selectors"),
    [
        ({}, ()),
        ({"selectors": None}, ()),
        ({"selectors": [{"cel": {"expression": "true"}}, {}]}, (CELSelector("true"), CELSelector(None))),
    ],
)
def test_device_class_is_read(spec: Any, selectors: Any) -> None:
    manifest = {"metadata": {"name": "gpu"}, "spec": spec}
    assert decode_device_class(Reader.of(manifest, [])) == DeviceClassSelectors("gpu", selectors)


def test_slices_of_a_pool_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    read = slices_read(monkeypatch)
    [(identity, pool)] = pools_of(*[slice_of(f"gpu-{at}", name=f"s-{at}") for at in range(9)]).items()
    for number, _ in enumerate(published_devices(identity, pool)):
        assert len(read) == number + 1
    assert read == [f"s-{at}" for at in range(9)]


def test_device_that_two_slices_have_is_as_the_last_one_says() -> None:
    one, two = ({"name": "gpu-0", "attributes": {"n": {"int": number}}} for number in (1, 2))
    found = published(slice_of(one, "gpu-1", name="a"), slice_of(two, "gpu-2", name="b"))
    assert {each.address.device: each.attributes for each in found} == {
        "gpu-0": {f"{DRIVER}/n": {"int": 2}},
        "gpu-1": {},
        "gpu-2": {},
    }
    assert len(found) == 3


DEVICE = PublishedDevice(
    at("gpu-0"),
    {f"{DRIVER}/model": {"string": "a100"}, f"{DRIVER}/slots": {"int": 7}, "other.example/healthy": {"bool": False}},
    {f"{DRIVER}/memory": {"value": "40Gi"}},
    allow_multiple_allocations=True,
)
FACTS = f'device.attributes["{DRIVER}"]'


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        (f'device.driver == "{DRIVER}"', True),
        ('device.driver == "other.example"', False),
        (f'{FACTS}.model == "a100" && {FACTS}.slots > 6', True),
        (f"{FACTS}.slots > 7", False),
        ('device.attributes["other.example"].healthy', False),
        (f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("39Gi"))', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) > 0', False),
        ("device.allowMultipleAllocations", True),
        (f'"serial" in {FACTS}', False),
        (f"{FACTS}.?serial.hasValue()", False),
    ],
)
def test_selector_sees_names_attributes_and_capacity(expression: str, *, selected: bool) -> None:
    assert DeviceSelectors()(expression).selects(DEVICE) is selected


@pytest.mark.parametrize(
    ("expression", "detail"),
    [
        pytest.param(f"{FACTS}.serial == 1", "no such key: serial", id="an attribute that is missing"),
        pytest.param(f"{FACTS}.model", "no such overload", id="no truth value"),
        pytest.param(f"1 / ({FACTS}.slots - 7) > 0", "division by zero", id="an error"),
    ],
)
def test_failure_on_a_device_is_told(expression: str, detail: str) -> None:
    test = DeviceSelectors()(expression).selects
    with pytest.raises(CannotMatchError, match=detail):
        test(DEVICE)


@pytest.mark.parametrize(
    "expression", ["", "device.driver ==", "device.name == 'a'", "host == 'a'", "1 + 1", "device.driver > 1"]
)
def test_selector_that_servers_refuse_cannot_be_used(expression: str) -> None:
    with pytest.raises(CannotCompileError, match=r"."):
        DeviceSelectors()(expression)


def test_steps_of_all_evaluations_can_be_limited() -> None:
    """Each of these takes a few; natively evaluated selectors take one."""
    selectors = DeviceSelectors(steps=2)
    test = selectors(f'device.driver == "{DRIVER}"')
    assert (test.selects(DEVICE), test.selects(DEVICE)) == (True, True)
    with pytest.raises(CannotMatchError, match="cost limit exceeded"):
        test.selects(DEVICE)
    with pytest.raises(CannotMatchError, match="cost limit exceeded"):
        selectors("device.allowMultipleAllocations").selects(DEVICE)


def test_each_evaluation_has_steps_of_its_own() -> None:
    """Else a filter would select other devices after a restart, when all of them are evaluated together."""
    hundred = str(list(range(100)))
    dear, cheap = DeviceSelectors()(f"{hundred}.all(x, {hundred}.all(y, x + y >= 0))"), f"{hundred}.all(x, x >= 0)"
    for _ in range(30):
        with pytest.raises(CannotMatchError, match="cost limit exceeded"):
            dear.selects(DEVICE)
    selectors = DeviceSelectors()
    assert all(selectors(cheap).selects(DEVICE) for _ in range(100))


def test_filters_share_what_they_see() -> None:
    shared = SharedSelectors()
    first, second = [shared.make()(f"{FACTS}.slots > 5").selects for _ in range(2)]
    assert (first(DEVICE), second(DEVICE)) == (True, True)
    changed = PublishedDevice(DEVICE.address, {f"{DRIVER}/slots": {"int": 1}})
    assert first(changed), "it was seen already"
    shared.forget()
    assert (first(changed), second(changed)) == (False, False)


def test_devices_of_one_name_in_different_pools_are_told_apart() -> None:
    test = DeviceSelectors()(f"{FACTS}.slots > 5").selects
    other = PublishedDevice(at("gpu-0", "node-1"), {f"{DRIVER}/slots": {"int": 1}})
    assert (test(DEVICE), test(other), test(DEVICE)) == (True, False, True)
