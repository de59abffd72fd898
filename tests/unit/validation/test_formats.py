from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from webhook.api.field import Path
from webhook.validation.formats import (
    c_identifier,
    condition_reason,
    dns1123_label,
    dns1123_subdomain,
    driver_name,
    go_lower,
    label_key,
    label_value,
    pool_name,
    semantic_version,
)

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


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("a", id="one letter"),
        pytest.param("Z9", id="upper case and digits"),
        pytest.param("9", id="a digit"),
        pytest.param("a-b_c.d", id="marks inside"),
        pytest.param("a--__..b", id="marks beside each other"),
        pytest.param("k" * 63, id="63 bytes"),
        pytest.param("example.com/Name", id="prefix and name"),
        pytest.param("1/2", id="short prefix"),
        pytest.param("d" * 253 + "/" + "k" * 63, id="253 bytes of prefix, in one label, and 63 of name (T-5)"),
    ],
)
def test_label_key_is_right(key: str) -> None:
    assert label_key(key) == ()


@pytest.mark.parametrize(
    ("key", "messages"),
    [
        pytest.param("", (NAME_EMPTY, NAME), id="empty: two messages (T-2)"),
        pytest.param("/x", ("prefix part must be non-empty",), id="empty prefix (T-5)"),
        pytest.param("x/", (NAME_EMPTY, NAME), id="empty name"),
        pytest.param("/", ("prefix part must be non-empty", NAME_EMPTY, NAME), id="neither prefix nor name"),
        pytest.param("a/b/c", (STRUCTURE,), id="two slashes: nothing else is said (T-3)"),
        pytest.param("//", (STRUCTURE,), id="slashes only"),
        pytest.param("-a", (NAME,), id="a dash in front"),
        pytest.param("a.", (NAME,), id="a dot at the end"),
        pytest.param("k" * 64, (NAME_LONG,), id="64 bytes (T-4)"),
        pytest.param("k" * 64 + "-", (NAME_LONG, NAME), id="too long and malformed: both (T-4)"),
        pytest.param("ü" * 32, (NAME_LONG, NAME), id="64 bytes in 32 characters"),
        pytest.param("Example.com/x", (f"prefix part {SUBDOMAIN}",), id="upper case in the prefix (T-5)"),
        pytest.param("d" * 254 + "/x", ("prefix part must be no more than 253 bytes",), id="254 bytes of prefix"),
        pytest.param(
            "D" * 254 + "/x",
            ("prefix part must be no more than 253 bytes", f"prefix part {SUBDOMAIN}"),
            id="long and malformed prefix: both",
        ),
        pytest.param("a..b/x", (f"prefix part {SUBDOMAIN}",), id="an empty label in the prefix"),
        pytest.param("-/-", (f"prefix part {SUBDOMAIN}", NAME), id="prefix and name malformed"),
        pytest.param("x" * 600, (NAME_LONG,), id="longer than what is remembered"),
    ],
)
def test_label_key_is_wrong(key: str, messages: Messages) -> None:
    assert label_key(key) == messages


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        pytest.param("", (), id="empty"),
        pytest.param("v" * 63, (), id="63 bytes"),
        pytest.param("A.b-c_9", (), id="all kinds of characters"),
        pytest.param("v" * 64, ("must be no more than 63 bytes",), id="64 bytes"),
        pytest.param("-", (VALUE,), id="a dash"),
        pytest.param("a/b", (VALUE,), id="a slash"),
        pytest.param("-" * 64, ("must be no more than 63 bytes", VALUE), id="too long and malformed: both"),
    ],
)
def test_label_value(value: str, messages: Messages) -> None:
    assert label_value(value) == messages


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        pytest.param("a", (), id="one letter"),
        pytest.param("a-1.b.c", (), id="labels"),
        pytest.param("a" * 253, (), id="253 bytes in one label"),
        pytest.param("a" * 254, ("must be no more than 253 bytes",), id="254 bytes"),
        pytest.param("A" * 253, (SUBDOMAIN,), id="253 bytes in upper case"),
        pytest.param("", (SUBDOMAIN,), id="empty"),
        pytest.param("A", (SUBDOMAIN,), id="upper case"),
        pytest.param("a.", (SUBDOMAIN,), id="a dot at the end"),
        pytest.param("a-.b", (SUBDOMAIN,), id="a label that ends in a dash"),
        pytest.param("a_b", (SUBDOMAIN,), id="an underscore"),
    ],
)
def test_subdomain(value: str, messages: Messages) -> None:
    assert dns1123_subdomain(value) == messages


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        pytest.param("gpu-0", (), id="a label"),
        pytest.param("a" * 63, (), id="63 bytes"),
        pytest.param("a" * 64, ("must be no more than 63 bytes",), id="64 bytes"),
        pytest.param("A" * 63, (LABEL,), id="63 bytes in upper case"),
        pytest.param("", (LABEL,), id="empty"),
        pytest.param("GPU", (LABEL,), id="upper case"),
        pytest.param("-a", (LABEL,), id="a dash in front"),
        pytest.param("a.b", ("must not contain dots",), id="dots where the rest is right"),
        pytest.param("A.b", (LABEL,), id="dots and more that is wrong"),
    ],
)
def test_label(value: str, messages: Messages) -> None:
    assert dns1123_label(value) == messages


@pytest.mark.parametrize(
    ("value", "errors"),
    [
        pytest.param("gpu.example.com", [], id="a driver"),
        pytest.param("GPU.Example.com", [], id="upper case passes (R-3)"),
        pytest.param("\u212a.example.com", [], id="the Kelvin sign passes, as its lower case is k (R-3)"),
        pytest.param("\u0130.example.com", [], id="a dotted capital I passes, as Go's lower case of it is i"),
        pytest.param("d" * 63, [], id="63 bytes"),
        pytest.param("", ["driver: Required value"], id="empty"),
        pytest.param("d" * 64, ["driver: Too long: may not be more than 63 bytes"], id="64 bytes"),
        pytest.param(
            "\u212a" * 22, ["driver: Too long: may not be more than 63 bytes"], id="66 bytes in 22 characters"
        ),
        pytest.param("a_b", [f'driver: Invalid value: "a_b": {SUBDOMAIN}'], id="malformed"),
        pytest.param(
            "A_" * 32,
            [
                "driver: Too long: may not be more than 63 bytes",
                f'driver: Invalid value: "{"A_" * 32}": {SUBDOMAIN}',
            ],
            id="too long and malformed: both, with the value as written",
        ),
    ],
)
def test_driver_name(value: str, errors: list[str]) -> None:
    assert [str(error) for error in driver_name(AT, value)] == errors


@pytest.mark.parametrize(
    ("value", "errors"),
    [
        pytest.param("node-0", [], id="a subdomain"),
        pytest.param("rack-1/node.0", [], id="parts"),
        pytest.param("p" * 253, [], id="253 bytes"),
        pytest.param("", ["driver: Required value"], id="empty"),
        pytest.param(
            "p" * 254,
            [
                "driver: Too long: may not be more than 253 bytes",
                f'driver: Invalid value: "{"p" * 254}": must be no more than 253 bytes',
            ],
            id="254 bytes, in one part that is too long as well",
        ),
        pytest.param("/a", [f'driver: Invalid value: "": {SUBDOMAIN}'], id="a slash in front"),
        pytest.param("a/", [f'driver: Invalid value: "": {SUBDOMAIN}'], id="a slash at the end"),
        pytest.param("a//b", [f'driver: Invalid value: "": {SUBDOMAIN}'], id="two slashes"),
        pytest.param(
            "A/b/C",
            [f'driver: Invalid value: "A": {SUBDOMAIN}', f'driver: Invalid value: "C": {SUBDOMAIN}'],
            id="each wrong part is told",
        ),
    ],
)
def test_pool_name(value: str, errors: list[str]) -> None:
    assert [str(error) for error in pool_name(AT, value)] == errors


@pytest.mark.parametrize(
    ("value", "right"),
    [
        pytest.param("Completed", True, id="a word"),
        pytest.param("ReasonA,ReasonB:c_", True, id="marks"),
        pytest.param("A", True, id="one letter"),
        pytest.param("", False, id="empty"),
        pytest.param("1st", False, id="a digit in front"),
        pytest.param("A,", False, id="a comma at the end"),
        pytest.param("not-started", False, id="a dash"),
        pytest.param("A\n", False, id="a line break at the end"),
    ],
)
def test_condition_reason(value: str, *, right: bool) -> None:
    message = (
        "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
        "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  "
        "or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
        "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
    )
    assert condition_reason(value) == (() if right else (message,))


@pytest.mark.parametrize(
    ("value", "right"),
    [
        pytest.param("_a9", True, id="an underscore in front"),
        pytest.param("A", True, id="one letter"),
        pytest.param("9a", False, id="a digit in front"),
        pytest.param("a-b", False, id="a dash"),
        pytest.param("", False, id="empty"),
    ],
)
def test_c_identifier(value: str, *, right: bool) -> None:
    message = (
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
        "characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is "
        "'[A-Za-z_][A-Za-z0-9_]*')"
    )
    assert c_identifier(value) == (() if right else (message,))


@pytest.mark.parametrize(
    ("value", "right"),
    [
        pytest.param("1.2.3", True, id="three numbers"),
        pytest.param("0.0.0", True, id="zeros"),
        pytest.param("580.65.6-rc.1+build.007", True, id="pre-release and build"),
        pytest.param("1.2.3--", True, id="dashes as pre-release"),
        pytest.param("1.2.3-0a", True, id="a zero before letters"),
        pytest.param("1.2.3-0", True, id="zero as pre-release"),
        pytest.param("1.2", False, id="two numbers"),
        pytest.param("1.2.3.4", False, id="four numbers"),
        pytest.param("v1.2.3", False, id="a v in front"),
        pytest.param("01.2.3", False, id="a leading zero"),
        pytest.param("1.2.3-01", False, id="a leading zero in the pre-release"),
        pytest.param("1.2.3-", False, id="an empty pre-release"),
        pytest.param("1.2.3+", False, id="an empty build"),
        pytest.param("1.2.3-a..b", False, id="an empty part of the pre-release"),
        pytest.param("", False, id="empty"),
        pytest.param("1.2.3\n", False, id="a line break at the end"),
        pytest.param("1.2.\u0663", False, id="a digit beyond ASCII"),
    ],
)
def test_semantic_version(value: str, *, right: bool) -> None:
    assert semantic_version(value) == (() if right else ("must be a string compatible with semver.org spec 2.0.0",))


@pytest.mark.parametrize(
    ("text", "lower"),
    [
        pytest.param("ABC", "abc", id="ASCII"),
        pytest.param("\u212a", "k", id="the Kelvin sign"),
        pytest.param("\u0130", "i", id="a dotted capital I, without the dot that Python adds"),
        pytest.param("\u0391\u03a3", "\u03b1\u03c3", id="a capital sigma at the end stays the usual one"),
    ],
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


@pytest.mark.parametrize(
    ("check", "text"),
    [
        pytest.param(dns1123_subdomain, "a" + ".a" * 100_000, id="a subdomain"),
        pytest.param(dns1123_label, "a" + ".a" * 100_000, id="a label"),
        pytest.param(label_key, "a" + ".a" * 100_000 + "/a", id="a label key"),
        pytest.param(semantic_version, "1.0.0-a" + ".a" * 100_000, id="a version"),
        pytest.param(semantic_version, "1.0.0+a" + ".a" * 100_000, id="a version with builds"),
    ],
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
