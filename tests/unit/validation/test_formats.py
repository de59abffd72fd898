from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from tests.tables import table
from tests.unit.validation.whole_objects import assert_reported
from webhook.api.field import Path
from webhook.validation.formats import (
    c_identifier,
    condition_reason,
    dns1123_label,
    dns1123_subdomain,
    driver_name,
    fully_qualified_name,
    go_lower,
    identifier,
    label_key,
    label_value,
    opaque_driver,
    pool_name,
    qualified_name,
    semantic_version,
)
from webhook.validation.releases import RELEASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.api.field import FieldError
    from webhook.validation.formats import Messages

AT = Path.root().child("driver")

# The API server's words, spelt out here once so that a slip in the code cannot hide in a shared constant (T-2 to T-7).
NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
STRUCTURE = (
    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' "
    "(e.g. 'example.com/MyName')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
NAME_LONG = "name part must be no more than 63 bytes"
NAME_EMPTY = "name part must be non-empty"

# What every format that is made of ASCII letters, digits and marks has to refuse (T-6).
NEVER = [
    pytest.param("a\n", id="a line break at the end"),
    pytest.param("\na", id="a line break at the start"),
    pytest.param(" a", id="a blank in front"),
    pytest.param("a b", id="a blank inside"),
    pytest.param("ä", id="a letter beyond ASCII"),
    pytest.param("\u0663", id="a digit beyond ASCII"),
    pytest.param("a\u0000b", id="a zero byte"),
    pytest.param("\ufeffa", id="a byte order mark"),
    pytest.param("\ud800", id="half a surrogate pair"),
    pytest.param("\u212a", id="the Kelvin sign"),
]


@pytest.mark.parametrize("text", NEVER)
@pytest.mark.parametrize("check", [label_key, label_value, dns1123_label, dns1123_subdomain, c_identifier])
def test_formats_are_ascii_and_anchored(check: Callable[[str], Messages], text: str) -> None:
    assert len(check(text)) == 1


@table(
    "key",
    {
        "one letter": "a",
        "upper case and digits": "Z9",
        "a digit": "9",
        "marks inside": "a-b_c.d",
        "marks beside each other": "a--__..b",
        "63 bytes": "k" * 63,
        "prefix and name": "example.com/Name",
        "short prefix": "1/2",
        "253 bytes of prefix, in one label, and 63 of name (T-5)": "d" * 253 + "/" + "k" * 63,
    },
)
def test_label_key_is_right(key: str) -> None:
    assert label_key(key) == ()


@table(
    "key, messages",
    {
        "empty: two messages (T-2)": ("", (NAME_EMPTY, NAME)),
        "empty prefix (T-5)": ("/x", ("prefix part must be non-empty",)),
        "empty name": ("x/", (NAME_EMPTY, NAME)),
        "neither prefix nor name": ("/", ("prefix part must be non-empty", NAME_EMPTY, NAME)),
        "two slashes: nothing else is said (T-3)": ("a/b/c", (STRUCTURE,)),
        "slashes only": ("//", (STRUCTURE,)),
        "a dash in front": ("-a", (NAME,)),
        "a dot at the end": ("a.", (NAME,)),
        "64 bytes (T-4)": ("k" * 64, (NAME_LONG,)),
        "too long and malformed: both (T-4)": ("k" * 64 + "-", (NAME_LONG, NAME)),
        "64 bytes in 32 characters": ("ü" * 32, (NAME_LONG, NAME)),
        "upper case in the prefix (T-5)": ("Example.com/x", (f"prefix part {SUBDOMAIN}",)),
        "254 bytes of prefix": ("d" * 254 + "/x", ("prefix part must be no more than 253 bytes",)),
        "long and malformed prefix: both": (
            "D" * 254 + "/x",
            ("prefix part must be no more than 253 bytes", f"prefix part {SUBDOMAIN}"),
        ),
        "an empty label in the prefix": ("a..b/x", (f"prefix part {SUBDOMAIN}",)),
        "prefix and name malformed": ("-/-", (f"prefix part {SUBDOMAIN}", NAME)),
        "longer than what is remembered": ("x" * 600, (NAME_LONG,)),
    },
)
def test_label_key_is_wrong(key: str, messages: Messages) -> None:
    assert label_key(key) == messages


@table(
    "value, messages",
    {
        "empty": ("", ()),
        "63 bytes": ("v" * 63, ()),
        "all kinds of characters": ("A.b-c_9", ()),
        "64 bytes": ("v" * 64, ("must be no more than 63 bytes",)),
        "a dash": ("-", (VALUE,)),
        "a slash": ("a/b", (VALUE,)),
        "too long and malformed: both": ("-" * 64, ("must be no more than 63 bytes", VALUE)),
    },
)
def test_label_value(value: str, messages: Messages) -> None:
    assert label_value(value) == messages


@table(
    "value, messages",
    {
        "one letter": ("a", ()),
        "labels": ("a-1.b.c", ()),
        "253 bytes in one label": ("a" * 253, ()),
        "254 bytes": ("a" * 254, ("must be no more than 253 bytes",)),
        "253 bytes in upper case": ("A" * 253, (SUBDOMAIN,)),
        "empty": ("", (SUBDOMAIN,)),
        "upper case": ("A", (SUBDOMAIN,)),
        "a dot at the end": ("a.", (SUBDOMAIN,)),
        "a label that ends in a dash": ("a-.b", (SUBDOMAIN,)),
        "an underscore": ("a_b", (SUBDOMAIN,)),
    },
)
def test_subdomain(value: str, messages: Messages) -> None:
    assert dns1123_subdomain(value) == messages


@table(
    "value, messages",
    {
        "a label": ("gpu-0", ()),
        "63 bytes": ("a" * 63, ()),
        "64 bytes": ("a" * 64, ("must be no more than 63 bytes",)),
        "63 bytes in upper case": ("A" * 63, (LABEL,)),
        "empty": ("", (LABEL,)),
        "upper case": ("GPU", (LABEL,)),
        "a dash in front": ("-a", (LABEL,)),
        "dots where the rest is right": ("a.b", ("must not contain dots",)),
        "dots and more that is wrong": ("A.b", (LABEL,)),
    },
)
def test_label(value: str, messages: Messages) -> None:
    assert dns1123_label(value) == messages


@table(
    "value, errors",
    {
        "a driver": ("gpu.example.com", []),
        "upper case passes (R-3)": ("GPU.Example.com", []),
        "the Kelvin sign passes, as its lower case is k (R-3)": ("\u212a.example.com", []),
        "a dotted capital I passes, as Go's lower case of it is i": ("\u0130.example.com", []),
        "63 bytes": ("d" * 63, []),
        "empty": ("", ["driver: Required value"]),
        "64 bytes": ("d" * 64, ["driver: Too long: may not be more than 63 bytes"]),
        "66 bytes in 22 characters": ("\u212a" * 22, ["driver: Too long: may not be more than 63 bytes"]),
        "malformed": ("a_b", [f'driver: Invalid value: "a_b": {SUBDOMAIN}']),
        "too long and malformed: both, with the value as written": (
            "A_" * 32,
            ["driver: Too long: may not be more than 63 bytes", f'driver: Invalid value: "{"A_" * 32}": {SUBDOMAIN}'],
        ),
    },
)
def test_driver_name(value: str, errors: list[str]) -> None:
    assert [str(error) for error in driver_name(AT, value)] == errors


@table(
    "value, errors",
    {
        "a subdomain": ("node-0", []),
        "parts": ("rack-1/node.0", []),
        "253 bytes": ("p" * 253, []),
        "empty": ("", ["driver: Required value"]),
        "254 bytes, in one part that is too long as well": (
            "p" * 254,
            [
                "driver: Too long: may not be more than 253 bytes",
                f'driver: Invalid value: "{"p" * 254}": must be no more than 253 bytes',
            ],
        ),
        "a slash in front": ("/a", [f'driver: Invalid value: "": {SUBDOMAIN}']),
        "a slash at the end": ("a/", [f'driver: Invalid value: "": {SUBDOMAIN}']),
        "two slashes": ("a//b", [f'driver: Invalid value: "": {SUBDOMAIN}']),
        "each wrong part is told": (
            "A/b/C",
            [f'driver: Invalid value: "A": {SUBDOMAIN}', f'driver: Invalid value: "C": {SUBDOMAIN}'],
        ),
    },
)
def test_pool_name(value: str, errors: list[str]) -> None:
    assert [str(error) for error in pool_name(AT, value)] == errors


@table(
    "value, right",
    {
        "a word": ("Completed", True),
        "marks": ("ReasonA,ReasonB:c_", True),
        "one letter": ("A", True),
        "empty": ("", False),
        "a digit in front": ("1st", False),
        "a comma at the end": ("A,", False),
        "a dash": ("not-started", False),
        "a line break at the end": ("A\n", False),
    },
)
def test_condition_reason(value: str, *, right: bool) -> None:
    message = (
        "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
        "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  "
        "or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
        "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
    )
    assert condition_reason(value) == (() if right else (message,))


@table(
    "value, right",
    {
        "an underscore in front": ("_a9", True),
        "one letter": ("A", True),
        "a digit in front": ("9a", False),
        "a dash": ("a-b", False),
        "empty": ("", False),
    },
)
def test_c_identifier(value: str, *, right: bool) -> None:
    message = (
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
        "characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is "
        "'[A-Za-z_][A-Za-z0-9_]*')"
    )
    assert c_identifier(value) == (() if right else (message,))


@table(
    "value, right",
    {
        "three numbers": ("1.2.3", True),
        "zeros": ("0.0.0", True),
        "pre-release and build": ("580.65.6-rc.1+build.007", True),
        "dashes as pre-release": ("1.2.3--", True),
        "a zero before letters": ("1.2.3-0a", True),
        "zero as pre-release": ("1.2.3-0", True),
        "two numbers": ("1.2", False),
        "four numbers": ("1.2.3.4", False),
        "a v in front": ("v1.2.3", False),
        "a leading zero": ("01.2.3", False),
        "a leading zero in the pre-release": ("1.2.3-01", False),
        "an empty pre-release": ("1.2.3-", False),
        "an empty build": ("1.2.3+", False),
        "an empty part of the pre-release": ("1.2.3-a..b", False),
        "empty": ("", False),
        "a line break at the end": ("1.2.3\n", False),
        "a digit beyond ASCII": ("1.2.\u0663", False),
    },
)
def test_semantic_version(value: str, *, right: bool) -> None:
    assert semantic_version(value) == (() if right else ("must be a string compatible with semver.org spec 2.0.0",))


@table(
    "text, lower",
    {
        "ASCII": ("ABC", "abc"),
        "the Kelvin sign": ("\u212a", "k"),
        "a dotted capital I, without the dot that Python adds": ("\u0130", "i"),
        "a capital sigma at the end stays the usual one": ("\u0391\u03a3", "\u03b1\u03c3"),
    },
)
def test_lower_case_is_gos(text: str, lower: str) -> None:
    assert go_lower(text) == lower


@pytest.mark.parametrize("judge", [driver_name, pool_name])
def test_4096_characters_of_a_name_are_looked_at(judge: Callable[[Path, str], Iterator[FieldError]]) -> None:
    """A longer name is too long, and costs no more than that."""
    too_long, wrong = "Too long", "a lowercase RFC 1123 subdomain"
    within = [str(error) for error in judge(Path.root(), "d" * 4095 + "_")]
    beyond = [str(error) for error in judge(Path.root(), "d" * 4096 + "_")]
    assert any(too_long in error for error in within)
    assert any(too_long in error for error in beyond)
    assert any(wrong in error for error in within)
    assert not any(wrong in error for error in beyond)


@table(
    "check, text",
    {
        "a subdomain": (dns1123_subdomain, "a" + ".a" * 100_000),
        "a label": (dns1123_label, "a" + ".a" * 100_000),
        "a label key": (label_key, "a" + ".a" * 100_000 + "/a"),
        "a version": (semantic_version, "1.0.0-a" + ".a" * 100_000),
        "a version with builds": (semantic_version, "1.0.0+a" + ".a" * 100_000),
    },
)
def test_a_long_text_takes_no_more_memory_than_what_is_looked_at(check: Callable[[str], Messages], text: str) -> None:
    """Matching takes more than a hundred bytes for each part of a name."""
    tracemalloc.start()
    try:
        check(text)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2_000_000


@pytest.mark.parametrize("check", [dns1123_subdomain, dns1123_label, label_key, label_value])
def test_a_text_that_is_wrong_past_what_is_looked_at_is_too_long(check: Callable[[str], Messages]) -> None:
    (message,) = check("a" * 4096 + "!")
    assert "must be no more than" in message


# --- names of attributes and capacities, and drivers of configurations ----------------------------


HERE = Path.root().child("at")
NOW, BEFORE = RELEASES[37], RELEASES[36]
IDENTIFIER = "a valid C identifier must start with alphabetic character or '_'"
A_SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of"


@table(
    "name, errors, declarative",
    {
        "a name": ("model", [], []),
        "a domain and a name": ("gpu.example.com/model", [], []),
        "a domain in upper case": (
            "GPU.example.com/model",
            [],
            [f'at: Invalid value: "GPU.example.com": prefix: {A_SUBDOMAIN}'],
        ),
        "a wrong domain": (
            "a_b/model",
            [f'at: Invalid value: "a_b": {A_SUBDOMAIN}'],
            [f'at: Invalid value: "a_b": prefix: {A_SUBDOMAIN}'],
        ),
        "a domain of 63 bytes": ("d" * 63 + "/model", [], []),
        "a longer domain": ("d" * 64 + "/model", ["at: Too long: may not be more than 63 bytes"], None),
        "a wrong name": ("example.com/a-b", [f'at: Invalid value: "a-b": {IDENTIFIER}'], None),
        "a wrong name alone": ("a-b", [f'at: Invalid value: "a-b": {IDENTIFIER}'], None),
        "an empty domain": (
            "/model",
            ['at: Invalid value: "": the domain must not be empty'],
            ['at: Invalid value: "": prefix must not be empty'],
        ),
        "an empty name": (
            "example.com/",
            ['at: Invalid value: "": the name must not be empty'],
            ['at: Invalid value: "": name must not be empty'],
        ),
        "two slashes": ("a/b/c-d", [], []),
    },
)
def test_qualified_name_is_judged_part_by_part(name: str, errors: list[str], declarative: list[str] | None) -> None:
    """`declarative`: in other words from 1.37 on, where the name must be fully qualified."""
    bare = [] if "/" in name else [f'at: Invalid value: "{name}": a fully qualified name must be']
    for judge, release, expected in (
        (qualified_name, NOW, errors),
        (fully_qualified_name, BEFORE, bare + errors),
        (fully_qualified_name, NOW, bare + (errors if declarative is None else declarative)),
    ):
        assert_reported([str(error) for error in judge(HERE, name, release)], expected)


def test_second_slash_is_refused_since_1_38() -> None:
    """k/k 141644: in names with and without a domain alike."""
    for judge in (qualified_name, fully_qualified_name):
        found = [str(error) for error in judge(HERE, "a/b/c-d", RELEASES[38])]
        assert found == ['at: Invalid value: "a/b/c-d": must not contain more than one slash']


def test_identifier_has_at_most_32_bytes() -> None:
    assert list(identifier(HERE, "x" * 32)) == []
    assert [str(error) for error in identifier(HERE, "x" * 33)] == ["at: Too long: may not be more than 32 bytes"]


def test_driver_of_a_configuration_has_at_most_63_bytes_and_may_be_in_upper_case() -> None:
    for release in (NOW, BEFORE):
        assert list(opaque_driver(HERE, "GPU.example.com", release)) == []
        assert list(opaque_driver(HERE, "d" * 63, release)) == []
        assert [str(error) for error in opaque_driver(HERE, "d" * 64, release)] == [
            "at: Too long: may not be more than 63 bytes"
        ]
        assert len(list(opaque_driver(HERE, "a_b", release))) == 1
    assert [str(error) for error in opaque_driver(HERE, "", NOW)] == ["at: Required value"]
    # Only ASCII letters are put in lower case from 1.37 on.
    assert len(list(opaque_driver(HERE, "\u0130.example.com", NOW))) == 1
