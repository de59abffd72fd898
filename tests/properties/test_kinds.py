"""One device is asked for all that are alike in what a filter reads: as if each had been asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hypothesis import given
from hypothesis import strategies as st

from tests.properties.patch_histories import Given
from tests.unit.patches.indexed import drained
from tests.unit.patches.patched import CREATED, class_of, patch_of, slice_of
from webhook.api.taints import DeviceTaint
from webhook.expressions.selectors.selector import EvaluationError, Selector, StepBudget, compile_selector
from webhook.inventory.pools import Pool
from webhook.patches.filters import DeviceSelectors, DeviceTest, Kinds, SharedSelectors
from webhook.patches.index import PatchIndex
from webhook.patches.published import published_devices
from webhook.patches.status import standing_of

if TYPE_CHECKING:
    from webhook.patches.published import PublishedDevice

OWN: Final = 'device.attributes["a"]'
EXPRESSIONS: Final = (
    'device.driver == "a"',
    "device.allowMultipleAllocations",
    f"{OWN}.n > 0",
    f'{OWN}["n"] == 1',
    f"1 == {OWN}.n",
    f"has({OWN}.n) && {OWN}.n in [0, 1]",
    f'{OWN}.s != "x" || {OWN}.n == 1',
    f'{OWN}.n == 0 || {OWN}.s == "xx"',
    f'{OWN}.n == 1 && device.capacity["a"].m.compareTo(quantity("1Gi")) > 0 && {OWN}.s != "x"',
    f'{OWN}.s.matches("^x+$")',
    f'{OWN}.l.all(each, each.startsWith("x"))',
    f"cel.bind(v, {OWN}.v, v.isGreaterThan(semver('1.0.0')))",
    f"{OWN}.?n.orValue(1) == 1",
    'device.capacity["a"].m.compareTo(quantity("1Gi")) > 0',
    'device.attributes["b"].n == 1',
    f"!(.{OWN}.b)",
    f'{OWN}.exists(key, key == "n")',
    f'"n" in {OWN}',
    "device.attributes[device.driver].n == 1",
    f'{OWN}.uuid.endsWith("1")',
    f"{list(range(40))}.all(x, {list(range(40))}.all(y, x + y >= 0 && {OWN}.s != 'xx'))",
)
VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "n": ({"int": 0}, {"int": 1}, {"bool": True}, {"string": "1"}),
    "s": ({"string": "x"}, {"string": "xx" * 90}, {"int": 1}),
    "l": ({"strings": ["x"]}, {"strings": ["x", "y"]}, {"ints": [1]}),
    "v": ({"version": "1.2.3"}, {"version": "1.0"}, {"string": "1.2.3"}),
    "b": ({"bool": True}, {"bool": False}),
    "b/n": ({"int": 1},),
    "uuid": ({"string": "u-1"}, {"string": "u-2"}, {}),
}
AMOUNTS: Final = ({"value": "2Gi"}, {"value": "1Gi"}, {"value": "many"}, "2Gi")


@st.composite
def devices(draw: st.DrawFn) -> dict[str, Any]:
    found = {name: draw(st.none() | st.none() | st.sampled_from(values)) for name, values in VALUES.items()}
    amount = draw(st.none() | st.sampled_from(AMOUNTS))
    return {
        "attributes": {name: value for name, value in found.items() if value is not None},
        "capacity": {} if amount is None else {"m": amount},
        "allowMultipleAllocations": draw(st.booleans()),
    }


def published(*entries: dict[str, Any], driver: str = "a") -> dict[str, PublishedDevice]:
    pool = Pool()
    pool.put(slice_of(*[each | {"name": f"d{at}"} for at, each in enumerate(entries)], driver=driver, pool="p"))
    return {each.address.device: each for each in published_devices((driver, "p"), pool)}


def groups(expression: str, found: dict[str, PublishedDevice]) -> list[tuple[str, ...]]:
    selector = compile_selector(expression)
    assert isinstance(selector, Selector)
    reads = None if selector.reads is None else tuple(sorted(selector.reads))
    finding = Kinds(SharedSelectors()).shape_of(reads, found)
    try:
        while True:
            next(finding)
    except StopIteration as end:
        return [each.names for each in end.value.groups]


def answer(expression: str, device: PublishedDevice) -> tuple[object, int]:
    """What the expression says of a device, and in how many steps."""
    selector, budget = compile_selector(expression), StepBudget(2000)
    assert isinstance(selector, Selector)
    try:
        result: object = selector.matches(SharedSelectors().seen(device), budget)
    except EvaluationError as error:
        result = type(error), str(error)
    return result, budget.left


@given(st.sampled_from(EXPRESSIONS), st.sampled_from("ab"), st.lists(devices(), min_size=2, max_size=6), st.data())
def test_devices_of_one_kind_have_one_answer_in_the_same_steps(
    expression: str, driver: str, entries: list[dict[str, Any]], data: st.DataObject
) -> None:
    """Result, text and steps: by the steps an evaluation is ended."""
    for each in entries[1:]:  # some are like the first but for what is drawn
        kept = data.draw(st.sets(st.sampled_from(sorted(VALUES))))
        first = entries[0]["attributes"]
        each["attributes"] = {name: value for name, value in each["attributes"].items() if name not in kept} | {
            name: value for name, value in first.items() if name in kept
        }
    found = published(*entries, driver=driver)
    for alike in groups(expression, found):
        assert len({answer(expression, found[name]) for name in alike}) == 1


class Silent(DeviceSelectors):
    """Selectors that do not say what they read."""

    def __call__(self, expression: str) -> DeviceTest:
        return DeviceTest(super().__call__(expression).selects)


class EachAsked(SharedSelectors):
    """Makes those."""

    def make(self) -> DeviceSelectors:
        return Silent(shared=self)


class World(Given):
    """Two indexes that are given the same: of kinds, and with each device asked."""

    def __init__(self) -> None:
        self.indexes = PatchIndex(SharedSelectors()), PatchIndex(EachAsked())
        super().__init__(self)

    def apply_slice(self, *arguments: Any) -> None:
        for each in self.indexes:
            each.apply_slice(*arguments)

    def apply_class(self, *arguments: Any) -> None:
        for each in self.indexes:
            each.apply_class(*arguments)

    def apply_patch(self, *arguments: Any) -> None:
        for each in self.indexes:
            each.apply_patch(*arguments)


_changes = st.one_of(
    st.tuples(st.just("slice"), st.sampled_from("ab"), st.sampled_from("pqr"), st.lists(devices(), max_size=4)),
    st.tuples(st.just("class"), st.none() | st.sampled_from(EXPRESSIONS)),
    st.tuples(
        st.just("patch"),
        st.sampled_from("xyz"),
        st.lists(st.sampled_from(EXPRESSIONS), max_size=2),
        st.sampled_from([None, "c"]),
        st.sampled_from([None, None, "d0"]),
        st.sampled_from([None, "p", "q"]),
    ),
    st.tuples(st.just("steps"), st.integers(0, 9)),
)


@given(st.lists(_changes, max_size=14))
def test_kinds_find_what_is_found_if_each_device_is_asked(changes: list[Any]) -> None:
    world = World()
    taint = DeviceTaint("k", "", "NoSchedule", CREATED)
    world.apply_class("c", class_of("c", 'device.driver == "a"')["c"])
    for kind, *given_ in changes:
        match kind:
            case "slice":
                driver, pool, entries = given_
                named = [each | {"name": f"d{at}"} for at, each in enumerate(entries)]
                world.put_slice(slice_of(*named, driver=driver, pool=pool))
            case "class":
                world.put_class("c", given_[0])
            case "patch":
                name, cel, of_class, device, pool = given_
                world.put_patch(
                    patch_of(name, cel=cel, device_class_name=of_class, device=device, pool=pool, taints=[taint])
                )
            case _:
                for _ in range(given_[0]):
                    for index in world.indexes:
                        index.step()
    for index in world.indexes:
        drained(index)
    by_kind, each_asked = world.indexes
    for name in world.patches:
        assert standing_of(by_kind, name, 3) == standing_of(each_asked, name, 3)
