from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import EARLIER_TEXT, KEY, make_taint, make_toleration
from webhook.api import taints as taints_module
from webhook.api.decode import Reader
from webhook.api.meta import parse_time
from webhook.api.taints import DeviceTaint, DeviceToleration, TaintExtras, decode_taints, decode_tolerations

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.field import FieldError

EARLIER = parse_time(EARLIER_TEXT)


@pytest.fixture(autouse=True)
def _own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taints_module, "_taints", {})
    monkeypatch.setattr(taints_module, "_tolerations", {})


def read(*raw: Any) -> tuple[tuple[DeviceTaint, ...], list[str]]:
    errors: list[FieldError] = []
    return decode_taints(Reader({"taints": list(raw)}, errors)), [str(error) for error in errors]


@pytest.mark.parametrize(
    ("raw", "taint"),
    [
        pytest.param(
            make_taint(value="v"), DeviceTaint(KEY, "v", "NoSchedule", EARLIER), id="a taint with all usual fields"
        ),
        pytest.param({}, DeviceTaint(), id="an empty one"),
        pytest.param(None, DeviceTaint(), id="null reads as an empty one"),
        pytest.param(
            {"key": None, "value": None, "effect": None, "timeAdded": None}, DeviceTaint(), id="nulls read as missing"
        ),
        pytest.param(make_taint(effect="Evict"), DeviceTaint(KEY, "", "Evict", EARLIER), id="unknown effects survive"),
        pytest.param(
            make_taint(data={"a": 1}, description="d", evictionsPerSecond=3),
            DeviceTaint(KEY, "", "NoSchedule", EARLIER, TaintExtras({"a": 1}, "d", 3)),
            id="the fields of the 1.35-era revision (N-9 to N-12)",
        ),
        pytest.param(
            make_taint() | {"description": None},
            DeviceTaint(KEY, "", "NoSchedule", EARLIER, TaintExtras()),
            id="one of them, null",
        ),
        pytest.param(
            make_taint(unknown="field"), DeviceTaint(KEY, "", "NoSchedule", EARLIER), id="other fields are left alone"
        ),
    ],
)
def test_taint_is_read(raw: Any, taint: DeviceTaint) -> None:
    assert read(raw) == ((taint,), [])


@pytest.mark.parametrize(
    ("raw", "errors"),
    [
        pytest.param(
            make_taint() | {"key": 7}, ["taints[0].key: Invalid value: 7: must be a string"], id="a number as key"
        ),
        pytest.param(
            make_taint() | {"value": ["v"]},
            ['taints[0].value: Invalid value: "a list of 1 entries": must be a string'],
            id="a list as value, beside the three other usual fields",
        ),
        pytest.param(
            make_taint(evictionsPerSecond="10"),
            ['taints[0].evictionsPerSecond: Invalid value: "10": must be a 64-bit integer'],
            id="a text as rate",
        ),
        pytest.param("x", ['taints[0]: Invalid value: "x": must be an object'], id="a text as taint"),
        pytest.param("four", ['taints[0]: Invalid value: "four": must be an object'], id="a text of four characters"),
        pytest.param(
            ["a", "b", "c", "d"],
            ['taints[0]: Invalid value: "a list of 4 entries": must be an object'],
            id="a list of four entries",
        ),
        pytest.param(5, ["taints[0]: Invalid value: 5: must be an object"], id="a number as taint"),
    ],
)
def test_wrong_types_in_a_taint_are_told(raw: Any, errors: list[str]) -> None:
    assert read(raw)[1] == errors


def test_equal_taints_are_one_value_in_memory() -> None:
    taint = make_taint(value="v")
    (first, second), _ = read(taint, dict(taint))
    (third,), _ = read(dict(taint))
    assert first is second is third


def test_taint_with_a_wrong_type_is_told_every_time() -> None:
    broken = make_taint(value="v") | {"key": 7}
    assert len(read(broken, broken)[1]) == 2
    assert len(read(broken)[1]) == 1


def test_taint_is_not_taken_for_a_remembered_one_with_other_fields() -> None:
    read(make_taint(value="v"))
    raw = {"key": KEY, "value": "v", "effect": "NoSchedule", "data": {}}
    assert read(raw) == ((DeviceTaint(KEY, "v", "NoSchedule", None, TaintExtras({})),), [])


@pytest.mark.parametrize(
    ("raw", "toleration"),
    [
        pytest.param(
            make_toleration(operator="Equal", value="v", effect="NoExecute", seconds=-3),
            DeviceToleration(KEY, "Equal", "v", "NoExecute", -3),
            id="one with all fields",
        ),
        pytest.param({}, DeviceToleration(), id="an empty one"),
        pytest.param(None, DeviceToleration(), id="null reads as an empty one"),
    ],
)
def test_toleration_is_read(raw: Any, toleration: DeviceToleration) -> None:
    errors: list[FieldError] = []
    assert decode_tolerations(Reader({"tolerations": [raw]}, errors)) == (toleration,)
    assert errors == []


def test_wrong_types_in_a_toleration_are_told() -> None:
    errors: list[FieldError] = []
    raw = {"key": 1, "operator": 2, "value": 3, "effect": 4, "tolerationSeconds": "5"}
    assert decode_tolerations(Reader({"tolerations": [raw]}, errors)) == (DeviceToleration(),)
    assert [error.field for error in errors] == [f"tolerations[0].{name}" for name in raw]


def read_tolerations(*raw: Any) -> tuple[tuple[DeviceToleration, ...], list[str]]:
    errors: list[FieldError] = []
    return decode_tolerations(Reader({"tolerations": list(raw)}, errors)), [error.field for error in errors]


def test_equal_tolerations_are_one_value_in_memory() -> None:
    (first, second), _ = read_tolerations(make_toleration(seconds=1), make_toleration(seconds=1))
    assert first is second


@pytest.mark.parametrize("seconds", [True, 1.0, "1", [], 2**63], ids=["true", "1.0", "text", "list", "beyond 64 bits"])
def test_toleration_is_not_taken_for_a_remembered_one_of_other_types(seconds: Any) -> None:
    read_tolerations(make_toleration(seconds=1))
    odd = make_toleration() | {"tolerationSeconds": seconds}
    for _ in range(2):
        (toleration,), fields = read_tolerations(odd)
        assert (toleration.toleration_seconds, fields) == (None, ["tolerations[0].tolerationSeconds"])


@pytest.mark.parametrize("value", [["v"], {}, 7], ids=["list", "object", "number"])
def test_toleration_with_a_wrong_type_is_told_every_time(value: Any) -> None:
    odd = make_toleration() | {"value": value}
    for _ in range(2):
        assert read_tolerations(odd)[1] == ["tolerations[0].value"]


# --- what is remembered ----------------------------------------------------------------------------

MEMORIES = [
    pytest.param(read, "_taints", make_taint(value="v"), id="taints"),
    pytest.param(read_tolerations, "_tolerations", make_toleration(seconds=5), id="tolerations"),
]


@pytest.mark.parametrize(("read_all", "memory", "entry"), MEMORIES)
def test_entry_of_512_characters_is_remembered_and_a_longer_one_is_not(
    read_all: Callable[..., object], memory: str, entry: dict[str, Any]
) -> None:
    rest = sum(len(text) for name, text in entry.items() if name != "key" and isinstance(text, str))
    for length in (512, 513):
        read_all(entry | {"key": "k" * (length - rest)})
        assert [len(each.key) + rest for each in getattr(taints_module, memory).values()] == [512]


@pytest.mark.parametrize(("read_all", "memory", "entry"), MEMORIES)
def test_full_memory_of_4096_entries_begins_again(
    read_all: Callable[..., object], memory: str, entry: dict[str, Any]
) -> None:
    for start in range(0, 4096, 64):
        read_all(*(entry | {"key": f"k{start + number}"} for number in range(64)))
    assert len(getattr(taints_module, memory)) == 4096
    read_all(entry | {"key": "one-more"})
    assert len(getattr(taints_module, memory)) == 1


@pytest.mark.parametrize("field", ["key", "value", "effect", "timeAdded"])
def test_taint_that_leaves_a_field_out_is_remembered_as_another(field: str) -> None:
    whole = make_taint(value="v")
    shorter = {name: value for name, value in whole.items() if name != field}
    (first,), _ = read(whole)
    (short,), _ = read(shorter)
    assert first != short
    assert read(shorter)[0][0] is short
