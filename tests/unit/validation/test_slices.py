from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.builders import field_errors, make_basic_device, make_device, make_meta, make_slice, make_taint
from webhook.validation.formats import dns1123_label, dns1123_subdomain, label_key

BAD_KEY = label_key("-")[0]
BAD_SUBDOMAIN = dns1123_subdomain("-")[0]
THREE = '"NoExecute", "NoSchedule", "None"'
EVICT = f'Unsupported value: "Evict": supported values: {THREE}'


def crowd(number: int, first: Any = None) -> dict[str, Any]:
    """A slice of so many devices, of which the first is special."""
    plain = [make_device(f"gpu-{each}") for each in range(number)]
    if first is not None:
        plain[0] = first
    return make_slice(plain)


@pytest.mark.parametrize(
    ("manifest", "errors"),
    [
        pytest.param(make_slice(), [], id="a plain one"),
        pytest.param(make_slice([]), [], id="one without devices"),
        pytest.param(make_slice([make_device(taints=[])]), [], id="an empty list of taints"),
        pytest.param(make_slice([make_device(taints=[make_taint(value="v")] * 16)]), [], id="16 equal taints (T-10)"),
        pytest.param(
            make_slice([make_device("a"), make_device("b", [make_taint(), make_taint(key="-", effect="Evict")])]),
            [
                f'spec.devices[1].taints[1].key: Invalid value: "-": {BAD_KEY}',
                f"spec.devices[1].taints[1].effect: {EVICT}",
            ],
            id="a malformed taint is named by its place",
        ),
        pytest.param(
            make_slice([make_basic_device(taints=[make_taint(key="-", effect="Evict")])], version="v1beta1"),
            [
                f'spec.devices[0].taints[0].key: Invalid value: "-": {BAD_KEY}',
                f"spec.devices[0].basic.taints[0].effect: {EVICT}",
            ],
            id="in v1beta1 the key at the normalized place, the effect as written (V-5)",
        ),
        pytest.param(
            make_slice(meta={}), ["metadata.name: Required value: name or generateName is required"], id="no name"
        ),
        pytest.param(
            make_slice(meta=make_meta("-")), [f'metadata.name: Invalid value: "-": {BAD_SUBDOMAIN}'], id="a wrong name"
        ),
        pytest.param(make_slice(driver=None), ["spec.driver: Required value"], id="no driver"),
        pytest.param(
            make_slice(driver="gpu_"), [f'spec.driver: Invalid value: "gpu_": {BAD_SUBDOMAIN}'], id="a wrong driver"
        ),
        pytest.param(
            make_slice(sharedCounters=[{"name": "a"}]),
            ['spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed'],
            id="shared counters and devices (S-4)",
        ),
        pytest.param(
            make_slice([], sharedCounters=[{"name": "a"}]),
            ['spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed'],
            id="shared counters and a literal empty list of devices (S-4)",
        ),
    ],
)
def test_new_slice(manifest: Any, errors: list[str]) -> None:
    assert field_errors(manifest) == errors


def test_old_releases_take_shared_counters_and_devices_together() -> None:
    assert field_errors(make_slice(sharedCounters=[{"name": "a"}]), minor=34) == []
    assert field_errors(make_slice(sharedCounters=[{"name": "a"}]), minor=35) != []


@pytest.mark.parametrize(
    ("manifest", "maximum", "minor"),
    [
        pytest.param(crowd(128), None, 37, id="128 plain devices"),
        pytest.param(crowd(129), 128, 37, id="129 plain devices"),
        pytest.param(crowd(64, make_device(taints=[make_taint()])), None, 37, id="64 with a taint"),
        pytest.param(crowd(65, make_device(taints=[make_taint()])), 64, 37, id="65 with a taint"),
        pytest.param(crowd(65, make_device(taints=[make_taint(effect="None")])), 64, 37, id="a taint of effect None"),
        pytest.param(crowd(65, make_device(taints=[])), None, 37, id="empty lists do not count"),
        pytest.param(crowd(65, make_device(consumesCounters=[{}])), 64, 35, id="counters, since 1.35"),
        pytest.param(crowd(65, make_device(consumesCounters=[])), None, 37, id="no counters"),
        pytest.param(crowd(65, make_device(attributes={"a": {"ints": [1]}})), 64, 36, id="list attributes, since 1.36"),
        pytest.param(crowd(65, make_device(attributes={"a": {"ints": [1]}})), None, 35, id="not in 1.35"),
        pytest.param(crowd(128, make_device(taints=[make_taint()])), None, 34, id="1.34 has one limit for all"),
        pytest.param(crowd(129, make_device(taints=[make_taint()])), 128, 33, id="and it is 128"),
    ],
)
def test_number_of_devices(manifest: Any, maximum: int | None, minor: int) -> None:
    number = len(manifest["spec"]["devices"])
    expected = f"spec.devices: Too many: {number}: must have at most {maximum} items"
    assert field_errors(manifest, minor=minor) == ([] if maximum is None else [expected])


@pytest.mark.parametrize(("minor", "maximum"), [(33, 4), (34, 4), (35, 16), (36, 16), (37, 16)])
def test_number_of_taints(minor: int, maximum: int) -> None:
    allowed = make_slice([make_device(taints=[make_taint()] * maximum)])
    crowded = make_slice([make_device(taints=[make_taint()] * (maximum + 1))])
    expected = f"spec.devices[0].taints: Too many: {maximum + 1}: must have at most {maximum} items"
    assert field_errors(allowed, minor=minor) == []
    assert field_errors(crowded, minor=minor) == [expected]


@pytest.mark.parametrize(
    ("minor", "errors"),
    [
        pytest.param(37, [f"spec.devices[0].taints[0].effect: {EVICT}"], id="1.37: of the taints only the effects"),
        pytest.param(36, [], id="1.36: nothing but the number"),
    ],
)
def test_what_is_told_of_a_slice_with_too_many_devices(minor: int, errors: list[str]) -> None:
    manifest = crowd(65, make_device(taints=[make_taint(key="-", effect="Evict")]))
    assert field_errors(manifest, minor=minor) == [
        "spec.devices: Too many: 65: must have at most 64 items",
        *errors,
    ]


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("driver", "other.example.com", "spec.driver"),
        ("pool", "node-1", "spec.pool.name"),
        ("node_name", "node-1", "spec.nodeName"),
    ],
)
def test_what_an_update_may_not_change(field: str, value: str, path: str) -> None:
    old = make_slice()
    new = make_slice(**{field: value})
    assert field_errors(new, old) == [f'{path}: Invalid value: "{value}": field is immutable']


BROKEN = make_taint(key="-", effect="Evict")
BOTH = ("[0].taints[0].key", "[0].taints[0].effect")


def broken_slice(*, taints: list[Any] | None = None, name: str = "gpu-0", **second: Any) -> dict[str, Any]:
    """A slice whose first device has a taint that is wrong in key and effect."""
    return make_slice([make_device(name, [BROKEN] if taints is None else taints), make_device("gpu-1", **second)])


@pytest.mark.parametrize(
    ("new", "fields"),
    [
        pytest.param(broken_slice(), {}, id="nothing changed: nothing judged again (T-13)"),
        pytest.param(
            broken_slice(attributes={"a": {"int": 1}}),
            {37: ("[0].taints[0].effect",)},
            id="an attribute changed: that counts as well (T-13)",
        ),
        pytest.param(broken_slice(attributes={}), {}, id="an empty list of attributes is none"),
        pytest.param(
            broken_slice(taints=[BROKEN], consumesCounters=[{}]),
            {37: ("[0].taints[0].effect",)},
            id="another device changed: since 1.37 effects are judged again (T-13)",
        ),
        pytest.param(
            broken_slice(taints=[BROKEN, make_taint()]),
            dict.fromkeys((35, 36, 37), BOTH),
            id="a taint was added: the whole list is judged again",
        ),
        pytest.param(
            broken_slice(name="gpu-9"),
            dict.fromkeys((35, 36, 37), BOTH),
            id="a renamed device is new",
        ),
    ],
)
@pytest.mark.parametrize("minor", [35, 36, 37])
def test_update_judges_what_changed(new: Any, fields: dict[int, tuple[str, ...]], minor: int) -> None:
    errors = field_errors(new, broken_slice(), minor=minor)
    assert [error.partition(": ")[0] for error in errors] == [f"spec.devices{field}" for field in fields.get(minor, [])]


@pytest.mark.parametrize("minor", [33, 34])
def test_old_releases_judge_everything_again(minor: int) -> None:
    errors = field_errors(broken_slice(), broken_slice(), minor=minor)
    assert [error.partition(": ")[0] for error in errors] == [
        "spec.devices[0].taints[0].key",
        "spec.devices[0].taints[0].effect",
    ]


def test_moved_device_is_found_by_its_name() -> None:
    old = broken_slice()
    new = copy.deepcopy(old)
    new["spec"]["devices"].reverse()
    assert field_errors(new, old, minor=36) == []


@pytest.mark.parametrize("minor", [35, 36, 37])
def test_number_of_taints_is_not_judged_again_where_the_list_is_unchanged(minor: int) -> None:
    old = make_slice([make_device(taints=[make_taint()] * 17)])
    assert field_errors(old, old, minor=minor) == []


@pytest.mark.parametrize("minor", [35, 36, 37])
def test_number_of_devices_is_judged_on_every_update(minor: int) -> None:
    stored = crowd(65, make_device("gpu-0", [make_taint()]))
    expected = ["spec.devices: Too many: 65: must have at most 64 items"]
    assert field_errors(stored, crowd(65), minor=minor) == expected
    assert field_errors(stored, stored, minor=minor) == expected  # S-3


def test_effects_of_a_crowded_slice_are_not_judged_again_where_all_devices_are_unchanged() -> None:
    stored = crowd(65, make_device("gpu-0", [BROKEN]))
    assert field_errors(stored, stored) == ["spec.devices: Too many: 65: must have at most 64 items"]


@pytest.mark.parametrize(
    ("manifest", "errors"),
    [
        pytest.param(make_slice([], taints=[{"device": "gpu-0", "taint": make_taint()}] * 32), [], id="32 of them"),
        pytest.param(
            make_slice([], taints=[{"device": "gpu-0", "taint": make_taint()}] * 33),
            ["spec.taints: Too many: 33: must have at most 32 items"],
            id="33 of them (N-1)",
        ),
        pytest.param(
            make_slice(taints=[{"device": "gpu-0", "taint": make_taint()}]),
            ['spec: Invalid value: "": only one of `devices` or `taints` is allowed'],
            id="beside devices (N-2)",
        ),
        pytest.param(
            make_slice([], taints=[{"taint": make_taint()}]),
            ["spec.taints[0].device: Required value"],
            id="without device (N-4)",
        ),
        pytest.param(
            make_slice([], taints=[{"device": "GPU", "taint": make_taint()}]),
            [f'spec.taints[0].device: Invalid value: "GPU": {dns1123_label("GPU")[0]}'],
            id="with a malformed device (N-4)",
        ),
        pytest.param(
            make_slice([], taints=[{"device": "a", "taint": make_taint(key="-", effect="", evictionsPerSecond=0)}]),
            [
                f'spec.taints[0].taint.key: Invalid value: "-": {BAD_KEY}',
                "spec.taints[0].taint.effect: Required value",
                "spec.taints[0].taint.evictionsPerSecond: Invalid value: 0: must be greater than zero",
            ],
            id="with a malformed taint (N-7)",
        ),
    ],
)
def test_taints_beside_the_devices(manifest: Any, errors: list[str]) -> None:
    assert field_errors(manifest) == errors


def test_extras_of_a_devices_taint_are_judged() -> None:
    manifest = make_slice([make_device(taints=[make_taint(evictionsPerSecond=0)])])
    expected = "spec.devices[0].taints[0].evictionsPerSecond: Invalid value: 0: must be greater than zero"
    assert field_errors(manifest) == [expected]


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


@pytest.mark.parametrize(
    ("devices", "taints", "error"),
    [
        pytest.param(4096, 1, "spec.devices: Too many: 4096: must have at most 64 items", id="on each of 4096"),
        pytest.param(200, 16, "spec.devices: Too many: 200: must have at most 64 items", id="16 on each of 200"),
        pytest.param(64, 33, "spec.devices[0].taints: Too many: 33: must have at most 16 items", id="33 on each of 64"),
    ],
)
def test_a_slice_with_more_taints_than_are_read_is_refused(devices: int, taints: int, error: str) -> None:
    manifest = make_slice([make_device(f"gpu-{at}", [make_taint()] * taints) for at in range(devices)])
    assert field_errors(manifest)[0] == error
