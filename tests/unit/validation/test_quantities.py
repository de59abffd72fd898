from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from webhook.validation.quantities import parse_quantity


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


def test_a_huge_exponent_costs_nothing() -> None:
    large = parse_quantity("1e999999999")
    assert large is not None
    assert large > 2**63
