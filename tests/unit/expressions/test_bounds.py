"""The exact sizes of patterns, texts, lists and numbers in expressions."""

from __future__ import annotations

from typing import Any

import pytest
import re2

from tests.unit.expressions.test_engine import refusal_of, value_of


def test_pattern_of_624_letters_is_taken_and_of_one_more_is_not() -> None:
    """A policy that loads today must load tomorrow, so the memory of a pattern does not change by accident."""
    assert refusal_of(f"request.name.matches('{'a' * 624}')") is None
    assert str(refusal_of(f"request.name.matches('{'a' * 625}')")).endswith(
        "pattern too large; use a smaller one, or several"
    )


def test_pattern_that_cannot_be_encoded_is_refused() -> None:
    assert str(refusal_of("request.name.matches('\ud800')")).endswith(": no text")


@pytest.mark.parametrize("pattern", ["a[0-9]+", "a" * 625])
def test_program_of_a_pattern_is_kept_only_by_its_expression(pattern: str) -> None:
    """RE2's module keeps 128 of any size, so that policies that come and go would fill the memory."""
    refusal_of(f"request.name.matches('{pattern}')")
    assert re2._Regexp._make.cache_info().currsize == 0


def test_text_of_256_bytes_is_matched_and_of_257_is_not() -> None:
    matches = "request.name.matches('a$')"
    assert value_of(matches, {"request": {"name": "a" * 256}}) is True
    assert value_of(matches, {"request": {"name": "a" * 257}}) == "matches() takes at most 256 bytes"
    assert value_of(matches, {"request": {"name": "\u00e9" * 128}}) is False
    assert value_of(matches, {"request": {"name": "\u00e9" * 128 + "a"}}) == "matches() takes at most 256 bytes"


@pytest.mark.parametrize(
    ("source", "request_facts", "value"),
    [
        pytest.param("request.name != ''", {"name": "x" * 1024}, True, id="1024 characters"),
        pytest.param(
            "request.name != ''", {"name": "x" * 1025}, "request.name has more than 1024 characters", id="1025"
        ),
        pytest.param("request.count > 0", {"count": 2**63 - 1}, True, id="the largest number"),
        pytest.param("request.count < 0", {"count": -(2**63)}, True, id="the smallest number"),
        pytest.param(
            "request.count < 0", {"count": -(2**63) - 1}, "request.count is of another type", id="a smaller number"
        ),
    ],
)
def test_largest_facts_are_read(source: str, request_facts: dict[str, Any], value: bool | str) -> None:  # noqa: FBT001 -- a table's
    assert value_of(source, {"request": request_facts}) == value


def test_lists_of_32_entries_are_taken() -> None:
    assert refusal_of(f"[{'1,' * 31}1] == []") is None
    assert value_of("drivers.exists(d, d == 'x31')", {"drivers": [f"x{number}" for number in range(32)]}) is True
    halves = {"requester": {"groups": ["g"] * 16}}
    assert value_of("requester.groups + requester.groups != []", halves) is True
    names = {"request": {"name": "n" * 512}}
    assert value_of("request.name + request.name != ''", names) is True


def test_operators_nest_32_deep() -> None:
    assert refusal_of("!" * 31 + "true") is None
    assert refusal_of("!" * 32 + "true") == "compilation failed: nested more than 32 deep"


def test_number_of_32_characters_is_read() -> None:
    assert refusal_of("0" * 31 + "1 == 1") is None
    assert refusal_of("0" * 32 + "1 == 1") == f"compilation failed: {'0' * 32}... has more than 64 bits"


def test_largest_and_smallest_numbers_are_literals() -> None:
    assert value_of("9223372036854775807 > 0 && -9223372036854775808 < 0") is True
    assert refusal_of("-9223372036854775809 < 0") == "compilation failed: -9223372036854775809 has more than 64 bits"


def test_empty_list_takes_the_type_of_the_other() -> None:
    for both in ("[] + drivers", "drivers + []"):
        assert value_of(f"'gpu.example.com' in {both}") is True
        assert refusal_of(f"1 in {both}") == f"compilation failed: 1 in {both}: an int cannot be in a list(string)"
    assert value_of("[] + [] == []") is True
    assert refusal_of("[1] + drivers == []") == (
        "compilation failed: [1] + drivers: there is no + of a list(int) and a list(string)"
    )


def test_refused_pattern_writes_nothing_to_the_log_of_the_process(capfd: pytest.CaptureFixture[str]) -> None:
    assert refusal_of("request.name.matches('(')") is not None
    assert refusal_of("request.name.matches('(a{99}){9}')") is not None
    assert capfd.readouterr() == ("", "")


def test_sum_and_difference_may_be_the_largest_and_smallest_number() -> None:
    assert value_of("9223372036854775806 + 1 == 9223372036854775807") is True
    assert value_of("-9223372036854775807 - 1 == -9223372036854775808") is True
    assert value_of("-9223372036854775808 - 1 < 0") == "-9223372036854775808 - 1 has more than 64 bits"


def test_an_expression_has_at_most_128_opening_brackets() -> None:
    assert refusal_of("(" * 128 + "true" + ")" * 128) is None
    assert refusal_of("(" * 129 + "true" + ")" * 129) == "has 129 opening brackets, must have at most 128"


def test_macros_walk_over_numbers() -> None:
    assert value_of("[1, 2].all(n, n > 0) && [1, 2].filter(n, n > 1) == [2]") is True
