"""How large the results of calls may be. Source: k8s.io/apiserver/pkg/cel/library/cost.go."""

from __future__ import annotations

import pytest

from webhook.expressions.selectors.call_costs import _replaced
from webhook.expressions.selectors.sizes import Range


@pytest.mark.parametrize(
    ("size", "old", "new", "expected"),
    [
        pytest.param(3, 0, 1, (7, 7), id="before, between and after all letters"),
        pytest.param(3, 0, 0, (3, 3), id="nothing in these places"),
        pytest.param(3, 1, 1, (3, 3), id="letter for letter"),
        pytest.param(4, 2, 3, (4, 6), id="longer"),
        pytest.param(4, 2, 1, (2, 4), id="shorter"),
        pytest.param(5, 2, 1, (3, 5), id="shorter, with a letter left"),
        pytest.param(0, 0, 2, (2, 2), id="nothing becomes something"),
    ],
)
def test_size_of_a_text_in_which_a_part_is_replaced(size: int, old: int, new: int, expected: tuple[int, int]) -> None:
    """From none of it being that part to all of it."""
    assert _replaced(*[Range(each, each) for each in (size, old, new)]) == Range(*expected)
