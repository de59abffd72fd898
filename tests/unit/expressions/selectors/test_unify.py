"""Which types fit each other, and which one of two says less."""

from __future__ import annotations

import pytest

from webhook.expressions.selectors.kinds import DYN, INT, STRING, CelType, list_of, most_general

PARAMETER = CelType("parameter", "T")


def map_of(key: CelType, value: CelType) -> CelType:
    return CelType("map", "map", (key, value))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (INT, INT, INT),
        (INT, STRING, STRING),
        (DYN, INT, DYN),
        (INT, DYN, DYN),
        (PARAMETER, INT, PARAMETER),
        (INT, PARAMETER, PARAMETER),
        (list_of(INT), list_of(DYN), list_of(DYN)),
        (list_of(DYN), list_of(INT), list_of(DYN)),
        (list_of(INT), list_of(STRING), list_of(STRING)),
        (list_of(list_of(DYN)), list_of(list_of(INT)), list_of(list_of(DYN))),
        (map_of(STRING, DYN), map_of(STRING, INT), map_of(STRING, DYN)),
        (map_of(STRING, INT), map_of(STRING, DYN), map_of(STRING, DYN)),
        (map_of(DYN, INT), map_of(STRING, DYN), map_of(STRING, DYN)),
        (CelType("opaque", "a", (DYN,)), CelType("opaque", "a", (INT, INT)), CelType("opaque", "a", (INT, INT))),
        (CelType("opaque", "a", (DYN,)), CelType("opaque", "b", (INT,)), CelType("opaque", "b", (INT,))),
    ],
)
def test_the_more_general_of_two_types_is_the_one_that_says_less(
    one: CelType, other: CelType, expected: CelType
) -> None:
    """The other one, if neither does."""
    assert most_general(one, other) == expected
