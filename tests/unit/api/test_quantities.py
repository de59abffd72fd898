from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from webhook.api.quantities import parse_quantity


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("1", 1),
        ("-1", -1),
        ("+1.", 1),
        (".5", Fraction(1, 2)),
        (".", 0),
        ("-Gi", 0),
        (".e3", 0),
        ("0e99999999999", 0),
        ("500m", Fraction(1, 2)),
        ("1.5Gi", 3 * 2**29),
        ("2E", 2 * 10**18),
        ("2e3", 2000),
        ("2E-3", Fraction(2, 1000)),
        (4, 4),
        (1.5, Fraction(3, 2)),
        (None, 0),
    ],
)
def test_a_quantity_has_its_value(value: Any, number: Fraction) -> None:
    assert parse_quantity(value) == number


@pytest.mark.parametrize(
    "value", ["", "1 Gi", "1gi", "e", "1e", "1KI", "1.2.3", "--1", "0x1", "1_0", "\u0661", True, [], "1Gi\n"]
)
def test_anything_else_is_none(value: Any) -> None:
    assert parse_quantity(value) is None


@pytest.mark.parametrize(
    "value",
    [
        "1e999999999",
        "1e999999999999999999",
        "9" * 5_000,
        "0" * 5_000 + "9" * 5_000,
        pytest.param(10**5_000, id="a number"),
    ],
)
def test_a_huge_number_is_larger_than_every_limit(value: Any) -> None:
    """F12: Python refuses to convert more than 4,300 digits, and takes time by the square of fewer."""
    number = parse_quantity(value)
    assert number is not None
    assert number > 2**64


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("0" * 5_000 + "7", 7),
        ("0." + "0" * 5_000 + "7e5001", 7),
        ("-7" + "0" * 5_000 + "e-5000", -7),
        ("1." + "0" * 5_000 + "Ki", 1024),
        ("1" * 5_000 + "Ki", 2**63 - 1),
        ("-9Ei", 1 - 2**63),
        ("9.5E", 95 * 10**17),
        ("0.1n", Fraction(1, 10**9)),
        ("-1e-999999999", Fraction(-1, 10**9)),
        ("0.00000000001Ki", Fraction(11, 10**9)),
        ("1." + "0" * 5_000 + "1", 1 + Fraction(1, 10**9)),
    ],
)
def test_a_quantity_is_rounded_and_capped_as_in_go(value: str, number: Fraction) -> None:
    assert parse_quantity(value) == number


@pytest.mark.parametrize(
    ("value", "number"),
    [
        pytest.param("1e1000", 10**1000, id="the largest number"),
        pytest.param("1e1001", 10**1000, id="a larger one"),
        pytest.param("-1e1001", -(10**1000), id="a larger one below zero"),
        pytest.param(10**1000, 10**1000, id="the largest JSON number"),
        pytest.param(10**1001, 10**1000, id="a larger JSON number"),
        pytest.param(-(10**1001), -(10**1000), id="a larger JSON number below zero"),
    ],
)
def test_numbers_of_more_than_a_thousand_digits_are_taken_for_the_largest(value: Any, number: int) -> None:
    assert parse_quantity(value) == number


@pytest.mark.parametrize("value", ["9" * 5_000 + "x", "9" * 5_000 + ".9.9", "1e" + "9" * 5_000])
def test_many_digits_do_not_make_a_quantity_of_a_wrong_text(value: str) -> None:
    assert parse_quantity(value) is None


def test_a_million_digits_are_read() -> None:
    """F12: with a conversion of digits to binary this takes half an hour."""
    digits = "9" * 1_000_000
    assert parse_quantity(f"{digits}e-1000000") == 1
    assert parse_quantity(f"{digits}x") is None


@pytest.mark.parametrize(
    ("unit", "number"),
    [
        ("n", Fraction(1, 10**9)),
        ("u", Fraction(1, 10**6)),
        ("m", Fraction(1, 1000)),
        ("", 1),
        ("k", 1000),
        ("M", 10**6),
        ("G", 10**9),
        ("T", 10**12),
        ("P", 10**15),
        ("E", 10**18),
        ("Ki", 1024),
        ("Mi", 1024**2),
        ("Gi", 1024**3),
        ("Ti", 1024**4),
        ("Pi", 1024**5),
        ("Ei", 1024**6),
    ],
)
def test_unit_is_worth_its_number(unit: str, number: Fraction) -> None:
    """Whole multiples, so that nothing is rounded, and below 8 Ei, which binary units are capped at."""
    many = 7 if unit.endswith("i") else 5 * 10**9
    assert parse_quantity(f"{many}{unit}") == many * number
