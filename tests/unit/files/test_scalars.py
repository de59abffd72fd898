"""What kubectl makes of the same text is asked in tests/apiserver/test_kubectl_reading.py."""

from __future__ import annotations

import math
from typing import Any

import pytest

from webhook.files.scalars import as_json_number, key_text, plain_value


@pytest.mark.parametrize("text", ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
def test_words_of_yaml_1_1_for_true_are_true(text: str) -> None:
    assert plain_value(text) is True


@pytest.mark.parametrize("text", ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
def test_words_of_yaml_1_1_for_false_are_false(text: str) -> None:
    assert plain_value(text) is False


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_words_for_nothing_are_null(text: str) -> None:
    assert plain_value(text) is None


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
