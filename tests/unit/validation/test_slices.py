from __future__ import annotations

from typing import Any

import pytest

from tests.builders import field_errors, make_device, make_slice, make_taint
from tests.tables import table
from webhook.validation.formats import label_key

BAD_KEY = label_key("-")[0]
THREE = '"NoExecute", "NoSchedule", "None"'
EVICT = f'Unsupported value: "Evict": supported values: {THREE}'


def crowd(number: int, first: Any = None) -> dict[str, Any]:
    """A slice of so many devices, of which the first is special."""
    plain = [make_device(f"gpu-{each}") for each in range(number)]
    if first is not None:
        plain[0] = first
    return make_slice(plain)


@table(
    "manifest, errors",
    {
        "a malformed taint is named by its place": (
            make_slice([make_device("a"), make_device("b", [make_taint(), make_taint(key="-", effect="Evict")])]),
            [
                f'spec.devices[1].taints[1].key: Invalid value: "-": {BAD_KEY}',
                f"spec.devices[1].taints[1].effect: {EVICT}",
            ],
        ),
        "no name": (make_slice(meta={}), ["metadata.name: Required value: name or generateName is required"]),
        "no driver": (make_slice(driver=None), ["spec.driver: Required value"]),
        "shared counters and devices (S-4)": (
            make_slice(sharedCounters=[{"name": "a"}]),
            ['spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed'],
        ),
    },
)
def test_new_slice(manifest: Any, errors: list[str]) -> None:
    assert field_errors(manifest) == errors


@table(
    "manifest, maximum, minor",
    {
        "no counters": (crowd(65, make_device(consumesCounters=[])), None, 37),
        "not in 1.35": (crowd(65, make_device(attributes={"a": {"ints": [1]}})), None, 35),
        "1.34 has one limit for all": (crowd(128, make_device(taints=[make_taint()])), None, 34),
        "and it is 128": (crowd(129, make_device(taints=[make_taint()])), 128, 33),
    },
)
def test_number_of_devices(manifest: Any, maximum: int | None, minor: int) -> None:
    number = len(manifest["spec"]["devices"])
    expected = f"spec.devices: Too many: {number}: must have at most {maximum} items"
    assert field_errors(manifest, minor=minor) == ([] if maximum is None else [expected])


@table(
    "minor, errors",
    {
        "1.37: of the taints only the effects": (37, [f"spec.devices[0].taints[0].effect: {EVICT}"]),
        "1.36: nothing but the number": (36, []),
    },
)
def test_what_is_told_of_a_slice_with_too_many_devices(minor: int, errors: list[str]) -> None:
    manifest = crowd(65, make_device(taints=[make_taint(key="-", effect="Evict")]))
    assert field_errors(manifest, minor=minor) == ["spec.devices: Too many: 65: must have at most 64 items", *errors]


def test_what_an_update_may_not_change_is_told_in_the_words_of_the_server() -> None:
    new = make_slice(driver="other.example.com")
    assert field_errors(new, make_slice()) == ['spec.driver: Invalid value: "other.example.com": field is immutable']


BROKEN = make_taint(key="-", effect="Evict")
BOTH = ("[0].taints[0].key", "[0].taints[0].effect")


def broken_slice(*, taints: list[Any] | None = None, name: str = "gpu-0", **second: Any) -> dict[str, Any]:
    """A slice whose first device has a taint that is wrong in key and effect."""
    return make_slice([make_device(name, [BROKEN] if taints is None else taints), make_device("gpu-1", **second)])


@table(
    "new, fields",
    {
        "an empty list of attributes is none": (broken_slice(attributes={}), {}),
        "another device changed: since 1.37 effects are judged again (T-13)": (
            broken_slice(taints=[BROKEN], consumesCounters=[{}]),
            {37: ("[0].taints[0].effect",)},
        ),
        "a taint was added: the whole list is judged again": (
            broken_slice(taints=[BROKEN, make_taint()]),
            dict.fromkeys((35, 36, 37), BOTH),
        ),
    },
)
@pytest.mark.parametrize("minor", [35, 36, 37])
def test_update_judges_what_changed(new: Any, fields: dict[int, tuple[str, ...]], minor: int) -> None:
    errors = field_errors(new, broken_slice(), minor=minor)
    assert [error.partition(": ")[0] for error in errors] == [f"spec.devices{field}" for field in fields.get(minor, [])]


def test_effects_of_a_crowded_slice_are_not_judged_again_where_all_devices_are_unchanged() -> None:
    stored = crowd(65, make_device("gpu-0", [BROKEN]))
    assert field_errors(stored, stored) == ["spec.devices: Too many: 65: must have at most 64 items"]


@table(
    "manifest, errors",
    {
        "beside devices (N-2)": (
            make_slice(taints=[{"device": "gpu-0", "taint": make_taint()}]),
            ['spec: Invalid value: "": only one of `devices` or `taints` is allowed'],
        ),
        "with a malformed taint (N-7)": (
            make_slice([], taints=[{"device": "a", "taint": make_taint(key="-", effect="", evictionsPerSecond=0)}]),
            [
                f'spec.taints[0].taint.key: Invalid value: "-": {BAD_KEY}',
                "spec.taints[0].taint.effect: Required value",
                "spec.taints[0].taint.evictionsPerSecond: Invalid value: 0: must be greater than zero",
            ],
        ),
    },
)
def test_taints_beside_the_devices(manifest: Any, errors: list[str]) -> None:
    assert field_errors(manifest) == errors


def test_first_of_two_devices_with_one_name_is_the_stored_one() -> None:
    old = make_slice([make_device("a", [BROKEN]), make_device("a")])
    new = make_slice([make_device("a", [BROKEN]), make_device("b")])
    assert field_errors(new, old, minor=36) == []


def test_device_with_too_many_taints_is_told_among_others() -> None:
    devices = [make_device("a", [make_taint()]), make_device("b", [make_taint()] * 17), make_device("c")]
    assert field_errors(make_slice(devices)) == ["spec.devices[1].taints: Too many: 17: must have at most 16 items"]


def test_taint_beside_the_devices_is_not_judged_again_while_it_stays() -> None:
    broken = {"device": "", "taint": make_taint(effect="Evict")}
    stored = make_slice([], taints=[broken])
    assert field_errors(stored, stored) == []
    added = make_slice([], taints=[broken, {"device": "", "taint": make_taint()}])
    assert field_errors(added, stored) == ["spec.taints[1].device: Required value"]


@table(
    "devices, taints, error",
    {
        "on each of 4096": (4096, 1, "spec.devices: Too many: 4096: must have at most 64 items"),
        "16 on each of 200": (200, 16, "spec.devices: Too many: 200: must have at most 64 items"),
        "33 on each of 64": (64, 33, "spec.devices[0].taints: Too many: 33: must have at most 16 items"),
    },
)
def test_a_slice_with_more_taints_than_are_read_is_refused(devices: int, taints: int, error: str) -> None:
    manifest = make_slice([make_device(f"gpu-{at}", [make_taint()] * taints) for at in range(devices)])
    assert field_errors(manifest)[0] == error
