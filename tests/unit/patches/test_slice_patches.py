"""The patches that change slices, and what they set on the devices of one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.unit.inventory.values import taint
from tests.unit.patches.patched import CREATED, DRIVER, by_number, class_of, patch_of, slice_of
from webhook.api.meta import ObjectMeta
from webhook.patches.originals import ORIGINALS, Overridden, Setting, annotation_of
from webhook.patches.overriding import Override, arrived
from webhook.patches.patching import Origin
from webhook.patches.slice_patches import SlicePatches

N = f"{DRIVER}/n"
ORIGIN = Origin("attribute", N)


def test_only_patches_that_set_something_matter_and_the_winner_comes_first() -> None:
    later = CREATED + timedelta(days=1)
    patches = SlicePatches.of(
        [
            patch_of("young", attributes={N: 1}, created=later),
            patch_of("taints", taints=[taint()]),
            patch_of("old", capacity={f"{DRIVER}/c": "1"}),
            patch_of("high", attributes={N: 1}, priority=1, created=later),
        ],
        class_of("gpu"),
    )
    assert patches.ranking == ("high", "old", "young")
    assert (patches.classes, patches.known) == (class_of("gpu"), True)


def test_filters_see_what_the_driver_publishes() -> None:
    """P-15: the patch that removes an attribute goes on selecting by it."""
    annotation = annotation_of({"gpu-0": {Setting("attributes", "n"): Overridden({"int": 3}, None)}})
    value = structs.replace(
        slice_of("gpu-0", {"name": "gpu-1", "attributes": {"n": {"int": 1}}}, "gpu-2"),
        meta=ObjectMeta("s", annotations={ORIGINALS: annotation}),
    )
    patch = patch_of(cel=["n > 2"], device_class_name="high", attributes={N: None})
    patches = SlicePatches.of([patch], class_of("high", "n > 0"))
    assert patches.overrides(arrived(value, None), by_number) == {"gpu-0": {ORIGIN: Override(None, "patch")}}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param({"anything": True}, True, id="no filter"),
        pytest.param({}, True, id="no names"),
        pytest.param({"driver": DRIVER, "pool": "node-0"}, True, id="its names"),
        pytest.param({"driver": "other.example.com"}, False, id="another driver"),
        pytest.param({"pool": "node-1"}, False, id="another pool"),
        pytest.param({"driver": DRIVER, "pool": "node-1"}, False, id="another pool of the driver"),
    ],
)
def test_patch_that_names_another_driver_or_pool_is_not_evaluated(names: Any, expected: Any) -> None:
    patch = patch_of(attributes={N: 7}, cel=["n > 0"], **names)
    value = slice_of({"name": "gpu-0", "attributes": {"n": {"int": 1}}})
    compiled: list[str] = []

    def compiles(expression: str) -> Any:
        compiled.append(expression)
        return by_number(expression)

    assert SlicePatches.may_concern(patch, value) == expected
    found = SlicePatches.of([patch], {}).overrides(arrived(value, None), compiles)
    assert (bool(found), bool(compiled)) == (expected, expected and "anything" not in names)


def test_without_patches_nothing_is_set() -> None:
    found = arrived(slice_of("gpu-0"), None)
    assert SlicePatches().overrides(found, by_number) == {}


def test_what_is_set_stays_so_while_patches_are_not_known() -> None:
    annotation = annotation_of({"gpu-0": {Setting("attributes", "n"): Overridden({"int": 3}, {"int": 7})}})
    value = structs.replace(slice_of("gpu-0"), meta=ObjectMeta("s", annotations={ORIGINALS: annotation}))
    patches = SlicePatches(known=False)
    found = arrived(value, None)
    assert patches.overrides(found, by_number) == {"gpu-0": {ORIGIN: Override({"int": 7}, "")}}


def test_long_look_asks_whether_to_go_on() -> None:
    def check() -> None:
        raise TimeoutError

    found = arrived(slice_of(*[f"gpu-{number}" for number in range(128)]), None)
    many = SlicePatches.of([patch_of(f"p{number}", attributes={N: 1}) for number in range(64)], {})
    with pytest.raises(TimeoutError):
        many.overrides(found, by_number, check)
