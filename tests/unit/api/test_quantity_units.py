"""Each unit of a quantity. Source: apimachinery/pkg/api/resource, suffix.go."""

from __future__ import annotations

from fractions import Fraction

import pytest

from webhook.api.quantities import parse_quantity


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
