from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import EARLIER_TEXT, KEY, make_taint, make_toleration
from tests.tables import table
from webhook.api import taints as taints_module
from webhook.api.decode import Reader
from webhook.api.meta import parse_time
from webhook.api.remembered import TEXT_MAX, remembered
from webhook.api.taints import DeviceTaint, DeviceToleration, TaintExtras, decode_taints, decode_tolerations
from webhook.validation.releases import NEWEST
from webhook.validation.taints import tolerations_are_fine

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


def taint(value: str = "", effect: str = "NoSchedule", extras: TaintExtras | None = None) -> DeviceTaint:
    return DeviceTaint(KEY, value, effect, EARLIER, extras)


@table(
    "raw, expected",
    {
        "a taint with all usual fields": (make_taint(value="v"), taint("v")),
        "an empty one": ({}, DeviceTaint()),
        "null reads as an empty one": (None, DeviceTaint()),
        "nulls read as missing": (dict.fromkeys(("key", "value", "effect", "timeAdded")), DeviceTaint()),
        "unknown effects survive": (make_taint(effect="Evict"), taint(effect="Evict")),
        "the fields of the 1.35-era revision (N-9 to N-12)": (
            make_taint(data={"a": 1}, description="d", evictionsPerSecond=3),
            taint(extras=TaintExtras({"a": 1}, "d", 3)),
        ),
        "one of them, null": (make_taint() | {"description": None}, taint(extras=TaintExtras())),
        "other fields are left alone": (make_taint(unknown="field"), taint()),
    },
)
def test_taint_is_read(raw: Any, expected: DeviceTaint) -> None:
    assert read(raw) == ((expected,), [])


@table(
    "raw, error",
    {
        "a number as key": (make_taint() | {"key": 7}, ".key: Invalid value: 7: must be a string"),
        "a list as value, beside the three other usual fields": (
            *(make_taint() | {"value": ["v"]}, '.value: Invalid value: "a list of 1 entries": must be a string'),
        ),
        "a text as rate": (
            *(make_taint(evictionsPerSecond="1"), '.evictionsPerSecond: Invalid value: "1": must be a 64-bit integer'),
        ),
        "a text as taint": ("x", ': Invalid value: "x": must be an object'),
        "a text of four characters": ("four", ': Invalid value: "four": must be an object'),
        "a list of four entries": (["a", "b", "c", "d"], ': Invalid value: "a list of 4 entries": must be an object'),
        "a number as taint": (5, ": Invalid value: 5: must be an object"),
    },
)
def test_wrong_types_in_a_taint_are_told(raw: Any, error: str) -> None:
    assert read(raw)[1] == [f"taints[0]{error}"]


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


# --- answers about texts are remembered for short ones only ---------------------------------------


@pytest.mark.parametrize(("length", "kept"), [(2, True), (TEXT_MAX, True), (TEXT_MAX + 1, False)])
@pytest.mark.parametrize("first", [0, 1], ids=["in the last text", "in the first text"])
def test_answers_are_kept_up_to_so_many_characters_of_all_texts(length: int, first: int, kept: bool) -> None:  # noqa: FBT001 -- a table's
    look_up = remembered(4)(lambda one, other: [one, other])
    texts = ("x" * (length - 1), "y") if first else ("x", "y" * (length - 1))
    assert look_up(*texts) == list(texts)
    assert (look_up(*texts) is look_up(*texts)) is kept


def test_the_answers_used_last_are_kept() -> None:
    look_up = remembered(2)(lambda text: [text])
    first = look_up("a")
    look_up("b")
    assert look_up("a") is first
    look_up("c")
    assert look_up("a") is first
    look_up("d")
    look_up("e")
    assert look_up("a") is not first


@pytest.mark.parametrize(("effect", "fine"), [("", True), ("None", True), ("Evict", False)])
def test_toleration_is_fine_only_with_an_effect_that_there_is(effect: str, fine: bool) -> None:  # noqa: FBT001 -- a table's
    for _ in range(2):
        assert tolerations_are_fine([DeviceToleration("k", "Exists", "", effect)], NEWEST) is fine
