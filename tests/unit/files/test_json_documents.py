from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.files.json_documents import JsonSpot, Lines, NotJSON, json_documents
from webhook.files.read import parse
from webhook.files.spots import Document, Position, Unreadable, descend
from webhook.files.yaml_documents import MAX_DEPTH, as_json_number

FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(as_json_number)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | st.text(),
    lambda below: st.lists(below) | st.dictionaries(st.text(), below),
    max_leaves=30,
)


def documents(text: str) -> list[Document]:
    return list(json_documents(text, Lines(text), 0, len(text)))


def refused(text: str) -> Unreadable:
    with pytest.raises(Unreadable) as caught:
        documents(text)
    return caught.value


@pytest.mark.untraced
@given(ANY_JSON.filter(lambda value: value is not None), st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_reading_what_json_wrote_gives_the_same(value: Any, ascii_only: bool, indent: Any) -> None:  # noqa: FBT001
    (document,) = documents(json.dumps(value, ensure_ascii=ascii_only, indent=indent))
    assert document.value == value
    assert json.dumps(document.value) == json.dumps(value)  # 1 and true are different
    assert document.problems == ()


@pytest.mark.untraced
@given(st.dictionaries(st.text(), ANY_JSON) | st.lists(ANY_JSON, min_size=1), st.booleans())
def test_files_with_json_are_read_as_json(value: Any, ascii_only: bool) -> None:  # noqa: FBT001
    file = parse("x.json", json.dumps(value, ensure_ascii=ascii_only).encode())
    assert file.unreadable == []
    assert [json.dumps(manifest.value) for manifest in file.manifests] == [json.dumps(value)]


@pytest.mark.untraced
@given(ANY_JSON.filter(lambda value: value is not None))
def test_every_value_stands_where_its_text_starts(value: Any) -> None:
    text = json.dumps(value, indent=1)
    (document,) = documents(text)
    assert isinstance(document.spot, JsonSpot)

    def check(value: Any, spot: JsonSpot) -> None:
        line, column = spot.position
        rest = "\n".join([text.split("\n")[line - 1][column - 1 :], *text.split("\n")[line:]])
        assert json.JSONDecoder().raw_decode(rest)[0] == value
        below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        steps = []
        for step, entry in below:
            child = spot.child(step)
            assert child is not None
            check(entry, child)
            steps.append(step)
        assert list(spot.steps()) == steps

    check(value, document.spot)


def test_values_one_after_another_are_documents() -> None:
    assert [document.value for document in documents('{"a": 1}\n{"b": 2}[3] null "x"\n')] == [
        {"a": 1},
        {"b": 2},
        [3],
        "x",
    ]
    assert documents(" \r\n\t") == []


def test_duplicate_keys_are_problems_where_they_stand() -> None:
    (document,) = documents('{"a": [{"b": 1,\n "b": 2}],\n "a": 3, "\\u0061": 4}')
    assert document.value == {"a": 4}
    assert [tuple(problem) for problem in document.problems] == [
        (("a", 0, "b"), (2, 2), 'duplicate key "b", already on line 1; the last one counts'),
        (("a",), (3, 2), 'duplicate key "a", already on line 1; the last one counts'),
        (("a",), (3, 10), 'duplicate key "a", already on line 1; the last one counts'),
    ]


def test_of_duplicate_keys_the_last_is_found() -> None:
    (document,) = documents('{"a": 1,\n"a": 2}')
    assert descend(document.spot, ("a",)).position == Position(2, 6)


def test_the_text_is_searched_for_duplicates_only_after_the_decoder_saw_some() -> None:
    first, second = documents('{"a": 1, "a": 2} {"a": 1}')
    assert len(first.problems) == 1
    assert second.problems == ()


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ('{"a": 1,}', "not JSON: illegal trailing comma before end of object", (1, 8)),
        ('{"a": [1,\n 2 ,\n]}', "not JSON: illegal trailing comma before end of array", (2, 4)),
        ('{"a": }', "not JSON: expecting value", (1, 7)),
        ('{"a": [,]}', "not JSON: expecting value", (1, 8)),
        ('{\n"a": tru}', "not JSON: expecting value", (2, 6)),
        ('{"a": "x', "not JSON: unterminated string starting at", (1, 7)),
        ('{"a": "x\ny"}', "not JSON: invalid control character at", (1, 9)),
        ("{a: 1}", "not JSON: expecting property name enclosed in double quotes", (1, 2)),
    ],
)
def test_other_syntax_is_told_with_its_position(text: str, message: str, position: tuple[int, int]) -> None:
    error = refused(text)
    assert isinstance(error, NotJSON)
    assert (error.message, error.position) == (message, position)


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ('{"NaN": "NaN",\n"a": NaN}', "not JSON: NaN is not a JSON value", (2, 6)),
        ("[1, -Infinity]", "not JSON: -Infinity is not a JSON value", (1, 5)),
        (' {"a": 1e999}', "not JSON: number 1e999 is out of range", (1, 2)),
    ],
)
def test_numbers_that_json_has_not_are_refused(text: str, message: str, position: tuple[int, int]) -> None:
    error = refused(text)
    assert not isinstance(error, NotJSON)
    assert (error.message, error.position) == (message, position)


def test_numbers_of_thousands_of_digits_are_refused() -> None:
    assert refused(f"[{'9' * 5000}]").message.startswith("not JSON: Exceeds the limit")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param(r'"\ud83d\ude00"', "😀", id="a pair"),
        pytest.param(r'"\ud83dx\ude00"', "\ufffdx\ufffd", id="two halves"),
        pytest.param(r'"\uDEAD\\ud83d"', "\ufffd\\ud83d", id="an escaped backslash before u"),
        pytest.param(r'{"\ud83d": 1}', {"\ufffd": 1}, id="a key"),
    ],
)
def test_half_a_surrogate_pair_reads_as_in_go(text: str, value: Any) -> None:
    (document,) = documents(text)
    assert document.value == value


def test_positions_after_half_a_surrogate_pair_are_right() -> None:
    (document,) = documents(r'{"\ud83d": "\ud83d", "b": 1}')
    assert descend(document.spot, ("b",)).position == Position(1, 26 + 1)
    assert descend(document.spot, ("\ufffd",)).position == Position(1, 12)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_depth_is_bounded(opening: str, closing: str) -> None:
    assert MAX_DEPTH == 100
    assert documents(opening * MAX_DEPTH + "1" + closing * MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, sys.getrecursionlimit() + 1, 100_000):
        error = refused(opening * depth + "1" + closing * depth)
        assert error.message == f"nested more than {MAX_DEPTH} levels deep"
        assert error.position == (1, 1)
