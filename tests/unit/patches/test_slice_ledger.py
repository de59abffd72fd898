"""Which slices are looked at again after a change, and what patches have come to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pytest
from msgspec import structs

from tests.unit.patches.patched import CREATED, DRIVER, class_of, patch_of, slice_of
from webhook.patches.overriding import Refusal
from webhook.patches.slice_patches import PatchInSlices, SliceLedger, SliceWork

N: Final = f"{DRIVER}/n"
OTHER: Final = "other.example.com"
SLICES: Final = {
    name: slice_of("gpu-0", name=name, pool=pool, driver=driver)
    for name, pool, driver in (("a", "p", DRIVER), ("b", "q", DRIVER), ("c", "p", OTHER))
}


def sets(name: str = "patch", **fields: Any) -> Any:
    return patch_of(name, **{"attributes": {N: 7}, **fields})


def ledger(*patches: Any) -> SliceLedger:
    """One with three slices, none of which is left to be looked at."""
    found = SliceLedger()
    for value in SLICES.values():
        found.apply_slice(None, value)
    for each in patches:
        found.apply_patch(each.meta.name, each)
    taken(found)
    found.take_changed()
    return found


def taken(found: SliceLedger) -> list[str]:
    names = [each.meta.name for each in found.take(99)]
    assert not found.open
    return sorted(names)


def worked(found: SliceLedger, name: str, *refused: Refusal, touch: bool = False, **patched: int) -> None:
    found.put(SLICES[name], SliceWork(touch, refused, {patch: number for patch, number in patched.items() if number}))


def test_slices_are_taken_a_few_at_a_time_and_each_once() -> None:
    found = SliceLedger()
    for value in (*SLICES.values(), SLICES["a"]):
        found.apply_slice(None, value)
    assert found.open
    assert [each.meta.name for each in found.take(2)] == ["a", "b"]
    assert taken(found) == ["c"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param({}, ["a", "b", "c"], id="all"),
        pytest.param({"driver": DRIVER}, ["a", "b"], id="driver"),
        pytest.param({"pool": "p"}, ["a", "c"], id="pool"),
        pytest.param({"driver": OTHER, "pool": "q"}, [], id="none"),
    ],
)
def test_patch_has_the_slices_looked_at_that_it_may_concern(names: Any, expected: list[str]) -> None:
    found = ledger()
    found.apply_patch("patch", sets(**names))
    assert taken(found) == expected
    assert list(found.patches.ranking) == ["patch"]
    found.apply_patch("patch", None)
    assert taken(found) == expected
    assert list(found.patches.ranking) == []


@pytest.mark.parametrize(
    ("fields", "again"),
    [
        ({"attributes": {N: 8}}, True),
        ({"capacity": {N: "1"}}, True),
        ({"priority": 1}, True),
        ({"created": CREATED + timedelta(1)}, True),
        ({"cel": ["true"]}, True),
        ({"taints": ()}, False),
        ({"attributes": {}}, True),
    ],
)
def test_only_what_slices_depend_on_counts_as_a_change(fields: Any, again: Any) -> None:
    found = ledger(sets())
    found.apply_patch("patch", sets(**fields))
    assert bool(taken(found)) == again
    assert found.take_changed() == ({"patch"} if again else set())
    assert found.sets("patch") == (fields != {"attributes": {}})


def test_patch_of_taints_alone_is_no_work() -> None:
    found = ledger()
    found.apply_patch("patch", patch_of())
    assert (taken(found), found.take_changed(), found.patches.patches) == ([], set(), ())


def test_class_has_the_slices_of_its_patches_looked_at() -> None:
    found = ledger(sets(device_class_name="gpu", driver=DRIVER), sets("other", device_class_name="x"), sets("none"))
    [(_, gpu)] = class_of("gpu", "true").items()
    found.apply_class("gpu", gpu)
    assert taken(found) == ["a", "b"]
    kept = found.patches
    assert kept.classes == {"gpu": gpu}
    found.apply_class("gpu", gpu)
    assert taken(found) == []
    found.apply_class("gpu", None)
    assert taken(found) == ["a", "b"]
    assert found.patches.classes == {}
    assert kept.classes == {"gpu": gpu}, "a thread may look at it"
    found.apply_class("unused", structs.replace(gpu, name="unused"))
    assert taken(found) == []
    assert "unused" in found.patches.classes


def test_what_a_patch_has_come_to_is_summed_up() -> None:
    found = ledger(sets(), sets("other"))
    invalid = Refusal("patch", "gpu-0", "full")
    worked(found, "a", invalid, Refusal("other", None, "large"), patch=2)
    worked(found, "b", patch=3, other=1)
    worked(found, "c", patch=4, touch=True)
    assert found.of("patch") == PatchInSlices(5, {"a": (invalid,)}, (), ("c",))
    assert found.of("other") == PatchInSlices(1, {}, ("a",), ())
    assert found.of("unknown") == PatchInSlices()
    assert found.touch == {"c"}
    worked(found, "c", patch=4)
    assert (found.of("patch").patched, found.of("patch").pending, found.touch) == (9, (), frozenset())


def test_slice_is_pending_only_for_patches_that_set_something_there() -> None:
    found = ledger(sets(), sets("other"))
    worked(found, "a", Refusal("other", "gpu-0", "full"), patch=1, touch=True)
    assert found.of("other").pending == ()
    assert found.pending(["a", "b", "unknown"]) == {"patch", "other"}
    worked(found, "b", touch=True)
    assert found.pending(["b"]) == set()
    assert found.touch == {"a", "b"}


def test_patches_are_reported_when_something_else_has_become_of_them() -> None:
    found = ledger(sets(), sets("other"))
    assert found.take_changed() == set()
    worked(found, "a", patch=1, other=0)
    assert found.take_changed() == {"patch"}
    worked(found, "a", patch=1)
    assert found.take_changed() == set()
    worked(found, "a", patch=1, touch=True)
    assert found.take_changed() == {"patch"}
    worked(found, "a", patch=2, touch=True)
    assert found.take_changed() == {"patch"}
    worked(found, "a", Refusal("other", None, "large"))
    assert found.take_changed() == {"patch", "other"}
    worked(found, "a")
    assert found.take_changed() == {"other"}
    assert found.of("other") == PatchInSlices()


def test_what_was_worked_out_for_another_state_of_a_slice_is_not_used() -> None:
    found = ledger(sets())
    found.apply_slice(SLICES["a"], slice_of("gpu-0", "gpu-1", name="a", pool="p"))
    worked(found, "a", patch=1, touch=True)
    assert (found.touch, found.of("patch")) == (frozenset(), PatchInSlices())
    assert taken(found) == ["a"]


def test_slice_that_is_gone_is_not_looked_at() -> None:
    found = ledger(sets())
    worked(found, "a", patch=1, touch=True)
    found.apply_slice(None, SLICES["a"])
    found.take_changed()
    found.apply_slice(SLICES["a"], None)
    assert taken(found) == []
    assert (found.touch, found.of("patch"), found.take_changed()) == (frozenset(), PatchInSlices(), {"patch"})


def test_patch_that_comes_back_has_what_its_slices_still_have() -> None:
    found = ledger(sets())
    worked(found, "a", patch=1)
    found.apply_patch("patch", None)
    assert found.take_changed() == {"patch"}
    found.apply_patch("patch", sets())
    worked(found, "a", patch=1)
    assert found.of("patch") == PatchInSlices(1)
