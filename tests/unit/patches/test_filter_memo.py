"""What filters select is remembered, and worked out a little at a time."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import structs

from tests.caches import held
from tests.unit.patches.patched import DRIVER, class_of, pools_of, slice_of, slices_read
from webhook.api.rules import CELSelector, DeviceSelector
from webhook.patches import filter_memo
from webhook.patches.filter_memo import DEVICES_AT_ONCE, FilterMemo
from webhook.patches.filters import CannotFilterError

if TYPE_CHECKING:
    from webhook.inventory.pools import Pools

FIRST = f'device.attributes["{DRIVER}"].n == 0'


def rack(pool: str = "node-0", devices: int = 2, first: int = 0, driver: str = DRIVER) -> Any:
    entries = [{"name": f"gpu-{number}", "attributes": {"n": {"int": number + first}}} for number in range(devices)]
    return slice_of(*entries, pool=pool, driver=driver)


def select(*cel: str, **names: Any) -> DeviceSelector:
    return DeviceSelector(selectors=tuple([CELSelector(each) for each in cel]), **names)


def found(memo: FilterMemo, selector: DeviceSelector, pools: Pools, classes: Any = None) -> dict[str, list[str]] | None:
    names = memo.selected(selector, classes or {}, pools, lambda: True)
    return None if names is None else {pool: sorted(each) for (_, pool), each in names.items()}


def known(memo: FilterMemo, selector: DeviceSelector, pools: Pools) -> bool:
    """Whether nothing is left to do for it."""
    once = iter([True, False])
    return memo.selected(selector, {}, pools, lambda: next(once)) is not None


def steps(memo: FilterMemo, pools: Pools) -> int:
    """How many it takes until nothing is left."""
    number = 0
    while memo.step(pools):
        number += 1
    return number


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param(select(FIRST), {"node-0": ["gpu-0"], "node-1": ["gpu-0"]}, id="CEL"),
        pytest.param(select(FIRST, pool="node-1"), {"node-1": ["gpu-0"]}, id="a pool"),
        pytest.param(select(FIRST, driver="other.example.com"), {}, id="another driver"),
        pytest.param(select("true", device="gpu-1"), {"node-0": ["gpu-1"], "node-1": ["gpu-1"]}, id="a device"),
        pytest.param(select("true", device="gpu-9"), {}, id="no such device"),
        pytest.param(select("true", FIRST), {"node-0": ["gpu-0"], "node-1": ["gpu-0"]}, id="two selectors"),
        pytest.param(select(f'device.attributes["{DRIVER}"].gone == 0'), {}, id="a selector that fails"),
        pytest.param(select(f'device.driver == "{DRIVER}"', FIRST, pool="node-1"), {"node-1": ["gpu-0"]}, id="driver"),
        pytest.param(select('device.driver == "other.example.com"'), {}, id="another driver in CEL"),
        pytest.param(select(device_class_name="first"), {"node-0": ["gpu-0"], "node-1": ["gpu-0"]}, id="class"),
    ],
)
def test_devices_are_found(selector: DeviceSelector, expected: Any) -> None:
    pools, memo = pools_of(rack(), rack("node-1")), FilterMemo()
    classes = class_of("first", FIRST)
    assert found(memo, selector, pools, classes) == expected
    assert found(memo, selector, pools, classes) == expected


def test_filter_that_cannot_be_judged() -> None:
    with pytest.raises(CannotFilterError, match="gone does not exist"):
        FilterMemo().selected(select(device_class_name="gone"), {}, pools_of(), lambda: True)


def test_class_that_changes_is_another_filter() -> None:
    pools, memo, selector = pools_of(rack()), FilterMemo(), select(device_class_name="c")
    assert found(memo, selector, pools, class_of("c", FIRST)) == {"node-0": ["gpu-0"]}
    assert found(memo, selector, pools, class_of("c", "false")) == {}


def test_pool_is_asked_again_only_when_it_changed() -> None:
    pools, memo = pools_of(rack(), rack("node-1")), FilterMemo()
    assert found(memo, select(FIRST), pools) == {"node-0": ["gpu-0"], "node-1": ["gpu-0"]}
    quick = iter([True])
    assert memo.selected(select(FIRST), {}, pools, lambda: next(quick)) is not None, "nothing was left to do"
    other = rack("node-1", first=5)
    pools.apply(rack("node-1"), other)
    some = iter([True, False])
    assert memo.selected(select(FIRST), {}, pools, lambda: next(some)) is None
    assert found(memo, select(FIRST), pools) == {"node-0": ["gpu-0"]}
    pools.apply(rack(), None)
    assert found(memo, select(FIRST), pools) == {}


def test_what_was_left_is_gone_on_with_step_by_step() -> None:
    pools, memo = pools_of(*[rack(f"node-{number}", DEVICES_AT_ONCE * 2) for number in range(3)]), FilterMemo()
    assert steps(memo, pools) == 0
    assert memo.selected(select(FIRST), {}, pools, lambda: False) is None
    assert steps(memo, pools) == 3 * 3 + 1, "a step for each pool and each batch, and one to see that it is done"
    assert steps(memo, pools) == 0
    once = iter([True])
    assert memo.selected(select(FIRST), {}, pools, lambda: next(once)) is not None


def test_selector_that_costs_too_much_selects_nothing() -> None:
    """As the patch controller leaves such devices out."""
    hundred, memo = str(list(range(100))), FilterMemo()
    dear = select(f"{hundred}.all(x, {hundred}.all(y, x + y >= 0))")
    assert found(memo, dear, pools_of(rack(devices=50))) == {}


def test_only_so_many_filters_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_memo, "FILTERS_MOST", 2)
    pools, memo = pools_of(rack()), FilterMemo()
    a, b, c = (select(f"{FIRST} && {number} == {number}") for number in range(3))
    for each in (a, b, a, c):
        assert found(memo, each, pools) is not None

    assert [known(memo, each, pools) for each in (a, c, b)] == [True, True, False]


def test_only_so_many_pools_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_memo, "POOLS_MOST", 4)
    pools, memo = pools_of(rack(), rack("node-1")), FilterMemo()
    a, b, c = (select(f"{FIRST} && {number} == {number}") for number in range(3))

    assert memo.selected(a, {}, pools, lambda: False) is None
    steps(memo, pools)
    found(memo, b, pools)
    assert known(memo, a, pools)
    pools.apply(rack("node-1"), None)
    for each in (a, b, c):
        found(memo, each, pools)
    assert all(known(memo, each, pools) for each in (a, b, c)), "three pools by now"
    pools.apply(None, rack("node-2"))
    found(memo, a, pools)
    found(memo, b, pools)
    assert [known(memo, each, pools) for each in (a, b, c)] == [True, True, False]
    monkeypatch.setattr(filter_memo, "POOLS_MOST", 1)
    found(memo, c, pools)
    assert known(memo, c, pools), "what was asked last"


def test_only_so_many_characters_of_expressions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    pools, memo = pools_of(rack()), FilterMemo()
    a, b, c = (select(f"{FIRST} && {number} == {number}") for number in range(3))
    monkeypatch.setattr(filter_memo, "CHARACTERS_MOST", 2 * len(f"{FIRST} && 0 == 0"))
    for each in (a, b, c, b, c):
        found(memo, each, pools)
        assert len(memo._filters) <= 2
    assert [key[0] for key in memo._filters] == [b, c]
    monkeypatch.setattr(filter_memo, "CHARACTERS_MOST", 1)
    found(memo, a, pools)
    assert [key[0] for key in memo._filters] == [a], "what was asked last"


def test_only_pools_in_question_are_asked() -> None:
    pools, memo = pools_of(rack(), rack("node-1"), rack("node-2"), rack(driver="other.example.com")), FilterMemo()
    here = {(DRIVER, "node-1"), (DRIVER, "gone"), ("other.example.com", "node-0")}
    few = iter([True] * 4)
    for selector, wanted in (
        (select("true"), {(DRIVER, "node-1"), ("other.example.com", "node-0")}),
        (select("true", driver=DRIVER), {(DRIVER, "node-1")}),
        (select("true", pool="node-0"), {("other.example.com", "node-0")}),
        (select("true", pool="node-2"), set()),
    ):
        names = memo.selected(selector, {}, pools, lambda: True, here)
        assert names is not None
        assert names.keys() == wanted
    assert memo.selected(select(FIRST), {}, pools, lambda: next(few), {(DRIVER, "node-2")}) is not None
    assert found(memo, select(FIRST, driver=DRIVER), pools) == {f"node-{at}": ["gpu-0"] for at in range(3)}
    assert memo.selected(select(FIRST, driver=DRIVER), {}, pools, lambda: True, {(DRIVER, "node-2")}) == {
        (DRIVER, "node-2"): frozenset({"gpu-0"})
    }


def test_slices_that_were_replaced_are_not_kept() -> None:
    """Anyone who may ask about filters could keep each version of the slices that a node publishes."""
    pools, memo, old = pools_of(rack()), FilterMemo(), rack()
    for number in range(3):
        found(memo, select(f"{number} < 0"), pools)
    tracemalloc.start()
    try:
        for number in range(20):
            new = structs.replace(rack(), raw_devices=b"[%99999d]" % number)
            pools.apply(old, new)
            assert found(memo, select(f"{number} >= 0"), pools) is not None
            old = new
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(memo._filters) == 23
    assert kept < 5 * 100_000


def test_devices_of_a_pool_that_was_left_halfway_are_asked_as_they_are_now() -> None:
    pools, memo, few = pools_of(rack(devices=20)), FilterMemo(), iter([True] * 3)
    assert memo.selected(select(FIRST), {}, pools, lambda: next(few, False)) is None
    pools.apply(rack(), rack(devices=20, first=-1))
    assert found(memo, select(FIRST), pools) == {"node-0": ["gpu-1"]}
    few = iter([True] * 3)
    pools.apply(rack(), rack(devices=20, first=-2))
    assert memo.selected(select(FIRST), {}, pools, lambda: next(few, False)) is None
    assert memo.step(pools)
    assert memo.step(pools)
    pools.apply(rack(), rack(devices=20, first=-3))
    assert found(memo, select(FIRST), pools) == {"node-0": ["gpu-3"]}


def test_what_selectors_saw_of_devices_is_not_kept_for_filters_that_were_left_halfway() -> None:
    long = [{"name": f"gpu-{number}", "attributes": {"n": {"string": f"{number}" * 9000}}} for number in range(9)]
    value = slice_of(*long)
    pools, memo = pools_of(structs.replace(value, raw_devices=msgspec.json.encode(long))), FilterMemo()
    few: list[bool] = []
    for number in range(20):
        few.extend([True] * 3)
        wide = select(f'device.attributes["{DRIVER}"].n == "{number}"')
        assert memo.selected(wide, {}, pools, lambda: bool(few) and few.pop()) is None
        memo.step(pools)
        memo.step(pools)
    held_text = {id(each): len(each) for each in held(memo) if each.__class__ is str and len(each) > 8000}
    assert sum(held_text.values()) <= 9 * 9000 * 2


def test_pool_of_many_devices_is_remembered_for_fewer_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of its devices are kept by each filter that selects them."""
    monkeypatch.setattr(filter_memo, "POOLS_MOST", 8)
    small, large = FilterMemo(), FilterMemo()
    for number in range(10):
        found(small, select(f"{number} >= 0"), pools_of(rack()))
        found(large, select(f"{number} >= 0"), pools_of(rack(devices=100)))
    assert (len(small._filters), len(large._filters)) == (8, 1)


@pytest.mark.parametrize(
    "selector",
    [
        pytest.param(select(FIRST), id="each device is asked"),
        pytest.param(select("true", device="gpu-0"), id="one device is asked"),
        pytest.param(select(device_class_name="every"), id="none is asked"),
    ],
)
def test_no_step_reads_more_than_a_slice(selector: DeviceSelector, monkeypatch: pytest.MonkeyPatch) -> None:
    read = slices_read(monkeypatch)
    pools, memo, most = pools_of(*[slice_of(f"gpu-{at}", name=f"s-{at}") for at in range(9)]), FilterMemo(), [0]

    def go_on() -> bool:
        most.append(len(read))
        return True

    assert memo.selected(selector, class_of("every"), pools, go_on) is not None
    assert len(read) == 9
    assert max(after - before for before, after in pairwise(most)) == 1


def test_device_that_is_gone_is_forgotten_where_only_its_pool_is_asked_about() -> None:
    selector, memo = select(FIRST, device="gpu-0"), FilterMemo()
    before, after = rack(), slice_of({"name": "gpu-1", "attributes": {"n": {"int": 0}}})
    pools = pools_of(before)
    assert found(memo, selector, pools) == {"node-0": ["gpu-0"]}
    pools.apply(before, after)
    assert memo.selected(selector, {}, pools, lambda: True, [(DRIVER, "node-0")]) == {}
