from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.tables import table
from webhook.files import yaml_documents as yaml_documents_module
from webhook.files.spots import Document, Position, Unreadable, descend
from webhook.files.yaml_documents import (
    EVENTS,
    MAX_ALIASED,
    MAX_DEPTH,
    PythonParser,
    as_json_number,
    key_text,
    plain_value,
    yaml_documents,
)

WORDS = {
    True: ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"],
    False: ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"],
    None: ["", "~", "null", "Null", "NULL"],
}


@pytest.mark.parametrize(("text", "value"), [(each, value) for value, words in WORDS.items() for each in words])
def test_words_of_yaml_1_1_are_true_false_and_null(text: str, value: Any) -> None:
    assert plain_value(text) is value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("+5", 5),
        ("-17", -17),
        ("017", 15),
        ("0o17", 15),
        ("0O17", 15),
        ("-0o17", -15),
        ("0x1F", 31),
        ("0X1f", 31),
        ("0b11", 3),
        ("-0b11", -3),
        ("1_000", 1000),
        ("1__0_", 10),
        ("0x_f_f", 255),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("18446744073709551615", 2**64 - 1),
        pytest.param("08", 8, id="08 is no octal number, but a float that prints as 8"),
        pytest.param("1.0", 1, id="1.0 arrives as the integer 1"),
        pytest.param("1e3", 1000, id="1e3 arrives as the integer 1000"),
        pytest.param("-0.0", 0, id="minus zero"),
        pytest.param("1152921504606846976.0", 1152921504606847000, id="by its shortest digits"),
        pytest.param("100000000000000000000", 10**20, id="too long for 64 bits, so a float"),
    ],
)
def test_whole_numbers_are_integers(text: str, value: int) -> None:
    read = plain_value(text)
    assert read == value
    assert isinstance(read, int)
    assert not isinstance(read, bool)


@pytest.mark.parametrize(
    ("text", "value"),
    [(".5", 0.5), ("-.5", -0.5), ("1.", 1), ("0.1", 0.1), ("1_0.5", 10.5), ("1.5e-7", 1.5e-7), ("1e21", 1e21)],
)
def test_other_numbers_are_floats(text: str, value: float) -> None:
    assert plain_value(text) == value


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("12:30:45", id="sexagesimal is YAML 1.1, but not Go's"),
        pytest.param("2026-06-01", id="a date stays text"),
        pytest.param("2026-06-01T12:00:00Z", id="a time stays text"),
        pytest.param("2026-06-01 12:00:00", id="so does one with a blank"),
        pytest.param("1.2.3", id="a version"),
        pytest.param("0o8", id="8 is no octal digit"),
        pytest.param("0b2", id="2 is no binary digit"),
        pytest.param("0xg", id="g is no hexadecimal digit"),
        pytest.param("_1", id="an underscore first"),
        pytest.param("._5", id="an underscore after the dot"),
        pytest.param("-", id="a dash"),
        pytest.param(".", id="a dot"),
        pytest.param("1e", id="no exponent"),
        pytest.param("1e999", id="out of range"),
        pytest.param(".5e999", id="out of range after a dot"),
        pytest.param("9" * 5000, id="out of range by length"),
        pytest.param("yEs", id="mixed case"),
        pytest.param("none", id="no word of YAML"),
        pytest.param("=", id="the value type of YAML 1.1"),
        pytest.param("<<", id="the merge key as a value"),
        pytest.param("gpu.example.com/x", id="a name"),
        pytest.param("１２", id="digits of another alphabet"),  # noqa: RUF001 -- that is the point
    ],
)
def test_everything_else_stays_text(text: str) -> None:
    assert plain_value(text) == text


@pytest.mark.parametrize("text", [".inf", "+.Inf", "-.INF", ".nan", ".NaN"])
def test_what_json_cannot_say_comes_as_a_float_that_is_not_finite(text: str) -> None:
    read = plain_value(text)
    assert isinstance(read, float)
    assert not math.isfinite(read)


@pytest.mark.parametrize(
    ("number", "value"), [(2.0, 2), (2.5, 2.5), (1e20, 10**20), (1e21, 1e21), (-3.0, -3), (1e-9, 1e-9)]
)
def test_floats_without_fraction_are_printed_as_integers(number: float, value: Any) -> None:
    read = as_json_number(number)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", "a"), (True, "true"), (False, "false"), (16, "16"), (1.5, None), (None, None), (2**63, None)],
)
def test_keys_are_text_numbers_or_booleans(value: Any, text: str | None) -> None:
    assert key_text(value) == text


_TWICE = 'duplicate key "a", already on line 1; the last one counts'


@pytest.fixture(params=[PythonParser, EVENTS], ids=["python", "fastest"])
def parser(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    chosen: Callable[[str], Any] = request.param
    return chosen


def only(text: str, parser: Callable[[str], Any]) -> Document:
    (document,) = yaml_documents(text, parser=parser)
    return document


def refused(text: str, parser: Callable[[str], Any]) -> Unreadable:
    with pytest.raises(Unreadable) as caught:
        list(yaml_documents(text, parser=parser))
    return caught.value


def test_the_c_library_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert EVENTS is not PythonParser
    monkeypatch.setitem(sys.modules, "yaml._yaml", None)
    assert yaml_documents_module._fastest_parser() is PythonParser


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("a: {b: [1, x]}", {"a": {"b": [1, "x"]}}, id="maps and lists"),
        pytest.param("a: yes\nb: 'yes'\nc: \"on\"", {"a": True, "b": "yes", "c": "on"}, id="quotes keep text"),
        pytest.param("a: 2026-06-01T12:00:00Z", {"a": "2026-06-01T12:00:00Z"}, id="times stay text"),
        pytest.param("a:\nb: ~", {"a": None, "b": None}, id="nulls"),
        pytest.param("a: |\n  x\n  y\n", {"a": "x\ny\n"}, id="a block of text"),
        pytest.param("a: >-\r\n  x\r\n  y\r\n", {"a": "x y"}, id="Windows line ends"),
        pytest.param("on: 1\n5: 2\n0x10: 3", {"true": 1, "5": 2, "16": 3}, id="keys as kubectl converts them"),
        pytest.param("a: !!str 5\nb: ! 5\nc: !!int '5'", {"a": "5", "b": "5", "c": 5}, id="tags of JSON's types"),
        pytest.param("a: !!float 5\nb: !!bool no\nc: !!null ''", {"a": 5, "b": False, "c": None}, id="and more"),
        pytest.param("!!map {a: !!seq [1]}", {"a": [1]}, id="tags of containers"),
        pytest.param("a: &x [1]\nb: *x", {"a": [1], "b": [1]}, id="an alias of a list"),
        pytest.param("a: &x k\n*x : v", {"a": "k", "k": "v"}, id="an alias as a key"),
        pytest.param("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}, id="an anchor set anew"),
        pytest.param("m: &m {a: 1}\no: {<<: *m, b: 2}", {"m": {"a": 1}, "o": {"a": 1, "b": 2}}, id="a merge"),
        pytest.param("m: &m {a: 1}\no: {<<: *m, a: 2}", {"m": {"a": 1}, "o": {"a": 2}}, id="a merge, overwritten"),
        pytest.param("o: {<<: [{a: 1}, {a: 2, b: 3}]}", {"o": {"a": 1, "b": 3}}, id="merges: the first wins"),
        pytest.param("o: {'<<': 1}", {"o": {"<<": 1}}, id="a quoted merge key is a key"),
        pytest.param("%YAML 1.1\n---\na: 1", {"a": 1}, id="a directive"),
        pytest.param("a: 1\n...\n", {"a": 1}, id="an end mark"),
        pytest.param("[1, 2]", [1, 2], id="a list"),
        pytest.param("text", "text", id="a text"),
        pytest.param('a: "\\u00e9\\x41"', {"a": "éA"}, id="escapes"),
    ],
)
def test_a_document_is_read_as_kubectl_reads_it(text: str, value: Any, parser: Callable[[str], Any]) -> None:
    document = only(text, parser)
    assert document.value == value
    assert document.problems == ()


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n---\n", "~", "--- null\n...\n", "\n\n"])
def test_empty_documents_are_skipped(text: str, parser: Callable[[str], Any]) -> None:
    assert list(yaml_documents(text, parser=parser)) == []


def test_several_documents_each_have_their_own_anchors(parser: Callable[[str], Any]) -> None:
    assert [document.value for document in yaml_documents("a: 1\n---\nb: 2\n---\n- 3\n", parser=parser)] == [
        {"a": 1},
        {"b": 2},
        [3],
    ]
    assert refused("a: &x 1\n---\nb: *x\n", parser).position == Position(3, 4)


def test_positions_are_those_of_the_file(parser: Callable[[str], Any]) -> None:
    (document,) = yaml_documents("# ü\nä: {b: [x, *]}\n".replace("*", "'ß'"), 41, parser=parser)
    assert descend(document.spot, ("ä",)).key_position == Position(42, 1)
    assert descend(document.spot, ("ä", "b", 1)).position == Position(42, 12)


def test_an_alias_stands_where_it_is_written_and_its_content_at_the_anchor(parser: Callable[[str], Any]) -> None:
    document = only("a: &x\n  k: 1\nb: *x\nc: {<<: *x}\n", parser)
    assert descend(document.spot, ("b",)).position == Position(3, 4)
    assert descend(document.spot, ("b", "k")).position == Position(2, 6)
    assert descend(document.spot, ("c", "k")).position == Position(2, 6)


@table(
    "text, value, problems",
    {
        "a key twice": (
            "a:\n  b: 1\n  c: 2\n  b: 3\n",
            {"a": {"b": 3, "c": 2}},
            [(("a", "b"), (4, 3), 'duplicate key "b", already on line 2; the last one counts')],
        ),
        "a key thrice, with the same value": (
            "- {a: 1, 'a': 1, a: 1}",
            [{"a": 1}],
            [((0, "a"), (1, column), _TWICE) for column in (10, 18)],
        ),
        "keys that become the same": (
            "yes: 1\ntrue: 2\n",
            {"true": 2},
            [(("true",), (2, 1), 'duplicate key "true", already on line 1; the last one counts')],
        ),
        "a merge after a key replaces it, as in Go": (
            "m: &m {a: 1}\no: {a: 2, <<: *m}\n",
            {"m": {"a": 1}, "o": {"a": 1}},
            [(("o", "a"), (2, 11), 'duplicate key "a": << replaces the value before it')],
        ),
    },
)
def test_duplicate_keys_are_problems(text: str, value: Any, problems: list[Any], parser: Callable[[str], Any]) -> None:
    document = only(text, parser)
    assert document.value == value
    assert [tuple(problem) for problem in document.problems] == problems


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("a: !foo x", "a: tag !foo is not allowed in a manifest", (1, 4)),
        ("a: !!python/object:x {}", "a: tag !!python/object:x is not allowed in a manifest", (1, 4)),
        ("a: !!binary aGk=", "a: tag !!binary is not allowed in a manifest", (1, 4)),
        ("a: !!timestamp 2026-06-01", "a: tag !!timestamp is not allowed in a manifest", (1, 4)),
        ("- !!set {a}", "[0]: tag !!set is not allowed in a manifest", (1, 3)),
        ("- !!map [a]", "[0]: tag !!map is not allowed in a manifest", (1, 3)),
        ("a: !!int x", "a: cannot read 'x' as !!int", (1, 4)),
        ("a: !!bool 1", "a: cannot read '1' as !!bool", (1, 4)),
        ("a: .nan", "a: .nan cannot be written in JSON, which the API server reads", (1, 4)),
        ("a: [1, -.inf]", "a[1]: -.inf cannot be written in JSON, which the API server reads", (1, 8)),
        ("a:\n  {b: 1}: 2", "a: a key must be text, not a map or a list", (2, 3)),
        ("[a]: 2", "a key must be text, not a map or a list", (1, 1)),
        ("a: &x {}\n*x : 1", "a key must be text; put it in quotes", (2, 1)),
        ("~: 1", "a key must be text; put it in quotes", (1, 1)),
        ("1.10: 1", "a key must be text; put it in quotes", (1, 1)),
        ("a: *nowhere", "a: alias *nowhere has no anchor before it", (1, 4)),
        ("a: &x [*x]", "a[0]: anchor &x contains itself", (1, 8)),
        ("a: {<<: 1}", "a: << must name a map, or a list of maps", (1, 5)),
        ("a: {<<: [{}, 1]}", "a: << must name a map, or a list of maps", (1, 5)),
    ],
)
def test_what_has_no_place_in_a_manifest_is_refused_where_it_stands(
    text: str, message: str, position: tuple[int, int], parser: Callable[[str], Any]
) -> None:
    error = refused(text, parser)
    assert (error.message, error.position) == (message, position)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a: [1", (2, 1)),
        ("a: b: c", (1, 5)),
        ("a: 'x", (2, 1)),
        ("a:\n\t- b", (2, 1)),
        ("a: 1\n b: 2", (2, 3)),
        ("@a", (1, 1)),
        ("a: é\nb: \x00", (2, 4)),
        ("%YAML 9.9\n---\na: 1", (1, 1)),
    ],
)
def test_broken_yaml_is_told_with_its_position(text: str, position: tuple[int, int]) -> None:
    error = refused(f"{text}\n", EVENTS)
    assert error.message.startswith("not YAML: ")
    assert error.position == position


def test_broken_yaml_is_told_with_its_position_without_the_c_library() -> None:
    error = refused("a: é\nb: \x00\n", PythonParser)
    assert (error.message, error.position) == ("not YAML: special characters are not allowed", (2, 4))
    assert refused('a: "\\ud800"\n', PythonParser).position == Position(1, 4)


def test_billion_laughs_are_refused_at_the_alias_that_goes_too_far(parser: Callable[[str], Any]) -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    error = refused("\n".join(lines), parser)
    # 110 + 1,110 + 11,110 from a1 to a3, and eight times 11,111 in a4
    assert error.message == f"a4[7]: aliases stand for more than {MAX_ALIASED} values"
    assert error.position == Position(5, 10 + 5 * 7)


def test_merges_are_bounded_like_other_aliases(parser: Callable[[str], Any]) -> None:
    wide = ", ".join(f"k{n}: 1" for n in range(1000))
    text = f"w: &w {{{wide}}}\n" + "".join(f"m{n}: {{<<: *w}}\n" for n in range(100))
    # a map, a thousand keys and as many values each time
    assert refused(text, parser).message == f"m49[<<]: aliases stand for more than {MAX_ALIASED} values"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{a: ", "}")])
def test_depth_is_bounded(opening: str, closing: str, parser: Callable[[str], Any]) -> None:
    assert MAX_DEPTH == 100
    assert only(opening * MAX_DEPTH + "1" + closing * MAX_DEPTH, parser).value
    error = refused(opening * (MAX_DEPTH + 1) + "1" + closing * (MAX_DEPTH + 1), parser)
    assert error.message.endswith(f"nested more than {MAX_DEPTH} levels deep")
    assert error.position == Position(1, len(opening) * MAX_DEPTH + 1)


def test_depth_that_ends_other_parsers_is_refused(parser: Callable[[str], Any]) -> None:
    assert refused("[" * 300_000, parser).position == Position(1, MAX_DEPTH + 1)
    assert refused("- " * 300_000, parser).position == Position(1, 2 * MAX_DEPTH + 1)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r", "\x85", "\u2028"])
def test_a_text_with_more_than_16_tag_directives_is_refused_before_it_is_parsed(line_end: str) -> None:
    """Tens of thousands would be compared each with all before it, in one call of the C library."""

    def parsed(_text: str) -> Any:
        pytest.fail("it was parsed")

    error = refused("".join(f"%TAG !{number}! a{line_end}" for number in range(17)) + "---\na: 1\n", parsed)
    assert error.message == "not YAML for a manifest: more than 16 lines begin with %TAG"
    assert error.position == Position(17 if "\n" in line_end else 1, 1)


def test_a_text_with_16_tag_directives_is_read(parser: Callable[[str], Any]) -> None:
    text = "".join(f"%TAG !{number}! a\n" for number in range(16)) + '---\na: "%TAG"\n' + "# %TAG\n" * 9
    assert only(text, parser).value == {"a": "%TAG"}
