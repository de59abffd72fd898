"""Kinds of devices: what makes two, how seldom devices are asked, and what is remembered. See properties too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.unit.patches.indexed import drained
from tests.unit.patches.patched import CREATED, DRIVER, class_of, patch_of, slice_of
from webhook.api.taints import DeviceTaint
from webhook.expressions.selectors.selector import Selector, compile_selector
from webhook.inventory.pools import Pool
from webhook.patches import filters
from webhook.patches.filters import DeviceSelectors, DeviceTest, Kinds, SharedSelectors
from webhook.patches.index import PatchIndex
from webhook.patches.published import published_devices
from webhook.patches.status import standing_of

if TYPE_CHECKING:
    from webhook.patches.published import PublishedDevice

OWN: Final = f'device.attributes["{DRIVER}"]'
TAINT: Final = DeviceTaint("k", "", "NoSchedule", CREATED)
N: Final = ("attributes", f"{DRIVER}/n")
A_N: Final = ("attributes", "a/n")


class Counting(SharedSelectors):
    """Counts how often a selector is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def make(self) -> Any:
        compiles = DeviceSelectors(shared=self)

        def compiled(expression: str) -> DeviceTest:
            test = compiles(expression)

            def selects(device: PublishedDevice) -> bool:
                self.asked += 1
                return test.selects(device)

            return test._replace(selects=selects)

        return compiled


def devices(*attributes: dict[str, Any]) -> dict[str, PublishedDevice]:
    pool = Pool()
    pool.put(_slice(*attributes))
    return {each.address.device: each for each in published_devices((DRIVER, "p"), pool)}


def _slice(*attributes: dict[str, Any], pool: str = "p", generation: int = 1) -> Any:
    named = [{"name": f"d{at}", "attributes": each} for at, each in enumerate(attributes)]
    return slice_of(*named, pool=pool, name=f"s-{pool}", generation=generation)


def shape(found: Kinds, reads: Any, entries: dict[str, PublishedDevice]) -> filters.Shape:
    finding = found.shape_of(reads, entries)
    while True:
        try:
            next(finding)
        except StopIteration as end:
            value: filters.Shape = end.value
            return value


def numbered(*numbers: int, pool: str, generation: int = 1) -> Any:
    """Every device has an attribute of its own."""
    entries = [{"n": {"int": n}, "uuid": {"string": f"{pool}-{at}"}} for at, n in enumerate(numbers)]
    return _slice(*entries, pool=pool, generation=generation)


def fleet(selectors: SharedSelectors, cel: str, pools: int = 5) -> PatchIndex:
    index = PatchIndex(selectors)
    for at in range(pools):
        index.apply_slice(None, numbered(0, 1, 1, 2, pool=f"p{at}"))
    index.apply_patch("patch", patch_of(cel=[cel], taints=[TAINT]))
    drained(index)
    return index


@pytest.mark.parametrize(
    ("expression", "reads"),
    [
        ('device.driver == "a" || device.allowMultipleAllocations', set()),
        ('device.attributes["a"]["n"] == 1 || .device.attributes["b"].m', {A_N, ("attributes", "b/m")}),
        ('device.attributes["a"].?n.orValue(1) == 1', {A_N}),
        ('has(device.capacity["a"].m)', {("capacity", "a/m")}),
        ('cel.bind(x, device.attributes["a"].n, x == 1)', {A_N}),
        ('cel.bind(x, device.attributes["a"], x.n == 1)', None),
        ('"n" in device.attributes["a"]', None),
        ("device.attributes[device.driver].n == 1", None),
        ("device.attributes.exists(domain, domain == 'a')", None),
        ("[dyn(device)].size() == 1", None),
    ],
)
def test_what_an_expression_reads(expression: str, reads: set[tuple[str, str]] | None) -> None:
    selector = compile_selector(expression)
    assert isinstance(selector, Selector)
    assert selector.reads == reads


def test_two_names_are_not_mixed_up_in_whatever_order_a_set_has_them() -> None:
    """Sets that are equal may be walked in different orders, which depend on the hash seed of the process."""
    for at in range(100):
        one, other = f"a{at}", f"b{at}"
        index = PatchIndex(SharedSelectors())
        index.apply_slice(None, _slice({one: {"int": 1}, other: {"int": 2}}, pool="p1"))
        index.apply_slice(None, _slice({one: {"int": 2}, other: {"int": 1}}, pool="p2"))
        index.apply_patch("first", patch_of(cel=[f"{OWN}.{other} == 7 && {OWN}.{one} == 7"], pool="p2", taints=[TAINT]))
        index.apply_patch("patch", patch_of(cel=[f"{OWN}.{one} == 1 && {OWN}.{other} == 2"], taints=[TAINT]))
        drained(index)
        assert standing_of(index, "patch", 100).selected == 1, one


def test_attribute_and_capacity_of_one_name_are_two_things_to_read() -> None:
    one = {"name": "d0", "attributes": {"n": {"string": "1"}}, "capacity": {"m": {"value": "2"}}}
    other = {"name": "d0", "attributes": {"m": {"string": "2"}}, "capacity": {"n": {"value": "1"}}}
    found, numbers = Kinds(SharedSelectors()), set()
    for entry in (one, other):
        pool = Pool()
        pool.put(slice_of(entry, pool="p"))
        devices_ = {each.address.device: each for each in published_devices((DRIVER, "p"), pool)}
        reads = tuple(sorted((field, f"{DRIVER}/{name}") for field in ("attributes", "capacity") for name in "mn"))
        numbers.add(shape(found, reads, devices_).number)
    assert len(numbers) == 2


def test_values_that_python_takes_for_one_are_several_kinds() -> None:
    found = devices(*[{"n": {"int": each}} for each in (1, 1.0, True, "1", 1)], {})
    assert [each.names for each in shape(Kinds(SharedSelectors()), (N,), found).groups] == [
        ("d0", "d4"),
        ("d1",),
        ("d2",),
        ("d3",),
        ("d5",),
    ]


def test_attribute_that_cannot_be_read_makes_another_kind_though_no_selector_reads_it() -> None:
    unread = {"v": {"version": "one"}}
    found = devices({}, unread, {"w": {"string": "x"}}, unread)
    assert [each.names for each in shape(Kinds(SharedSelectors()), (N,), found).groups] == [("d0", "d2"), ("d1", "d3")]


def test_pools_that_are_alike_share_a_shape() -> None:
    found, reads = Kinds(SharedSelectors()), (N,)
    one, same = (shape(found, reads, devices({"n": {"int": 1}}, {})) for _ in range(2))
    other = shape(found, reads, devices({"n": {"int": 1}}))
    assert one is same
    assert one.number != other.number
    assert found.forget()
    assert not found.forget()
    again = shape(found, reads, devices({"n": {"int": 1}}, {}))
    assert again.number not in {one.number, other.number}, "an answer about those would be found"


@pytest.mark.parametrize("bound", ["KINDS_MOST", "READS_MOST"])
def test_devices_are_asked_one_by_one_when_enough_is_remembered(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, bound, 1)
    found, entries = Kinds(SharedSelectors()), devices({"n": {"int": 1}}, {"n": {"int": 2}})
    assert shape(found, (), entries).number is not None
    assert shape(found, (N,), entries) == filters.each_alone(entries)
    found.forget()
    assert shape(found, None, entries) == filters.each_alone(entries)


@pytest.mark.parametrize(
    ("bounds", "asked"), [([], 3), (["ANSWERS_MOST"], 3), (["SHAPES_MOST"], 3), (["ANSWERS_MOST", "SHAPES_MOST"], 15)]
)
def test_one_device_of_each_kind_is_asked_once_and_only_so_much_is_remembered(
    bounds: list[str], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With either memory a kind is asked once, here in the first pool; with none, in each."""
    for each in bounds:
        monkeypatch.setattr(filters, each, 0)
    selectors = Counting()
    index = fleet(selectors, f"{OWN}.n > 0")
    assert selectors.asked == asked
    assert standing_of(index, "patch", 100).selected == 15


def test_finding_the_shape_of_a_pool_pauses_every_few_devices() -> None:
    found = devices(*[{"n": {"int": each}} for each in range(40)])
    assert len(list(Kinds(SharedSelectors()).shape_of((N,), found))) == 2


def test_filter_that_reads_what_each_device_has_for_itself_asks_each() -> None:
    selectors = Counting()
    index = fleet(selectors, f'{OWN}.uuid.endsWith("-3")')
    assert selectors.asked == 20
    assert standing_of(index, "patch", 100).selected == 5


def test_device_that_a_filter_names_is_asked_alone() -> None:
    selectors = Counting()
    index = PatchIndex(selectors)
    index.apply_slice(None, numbered(0, 1, 1, 2, pool="p"))
    for name in ("d1", "d9"):
        index.apply_patch(name, patch_of(name, device=name, cel=[f"{OWN}.n > 0"], taints=[TAINT]))
    drained(index)
    assert (selectors.asked, standing_of(index, "d1", 1).selected, standing_of(index, "d9", 1).selected) == (1, 1, 0)


def test_every_device_of_a_kind_that_fails_is_counted_and_the_first_are_named() -> None:
    index = fleet(SharedSelectors(), f"{OWN}.n > 0 && {OWN}.missing")
    [fault] = standing_of(index, "patch", 100).faults
    assert (fault.where, fault.devices) == ("selector #0", 15)
    assert [str(each.device) for each in fault.examples] == [f"{DRIVER}/p0/d{at}" for at in (1, 2, 3)]


def test_class_that_changes_in_the_middle_leaves_no_answer_of_what_it_was() -> None:
    for steps in range(12):
        index = PatchIndex(SharedSelectors())
        for at in range(2):
            index.apply_slice(None, numbered(*range(20), pool=f"p{at}"))
        index.apply_class("c", class_of("c", f"{OWN}.n > 4")["c"])
        index.apply_patch("patch", patch_of(device_class_name="c", taints=[TAINT]))
        for _ in range(steps):
            index.step()
        index.apply_class("c", class_of("c", f"{OWN}.n > 9")["c"])
        drained(index)
        assert standing_of(index, "patch", 100).selected == 20


def test_answers_are_forgotten_when_nothing_is_left_to_do() -> None:
    selectors = Counting()
    index = fleet(selectors, f"{OWN}.n > 0")
    index.apply_slice(None, numbered(0, 0, 1, 2, pool="p0", generation=2))
    drained(index)
    assert selectors.asked == 6
    assert standing_of(index, "patch", 100).selected == 14


def test_driver_and_several_allocations_are_always_told_apart() -> None:
    found: dict[str, PublishedDevice] = {}
    for driver in ("a", "b"):
        pool = Pool()
        pool.put(slice_of(f"{driver}0", {"name": f"{driver}1", "allowMultipleAllocations": True}, driver=driver))
        found |= {each.address.device: each for each in published_devices((driver, "node-0"), pool)}
    assert [each.names for each in shape(Kinds(SharedSelectors()), (), found).groups] == [(each,) for each in found]
