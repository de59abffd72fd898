"""What calls cost, and how large their results may be. Source: k8s.io/apiserver/pkg/cel/library/cost.go."""

from __future__ import annotations

import pytest

from tests.selectors import corpus
from webhook.expressions.selectors.call_costs import Range
from webhook.expressions.selectors.checker import check
from webhook.expressions.selectors.cost import MAX_COST, worst_cost
from webhook.expressions.selectors.faults import FaultKind, SelectorFault
from webhook.expressions.selectors.functions import functions
from webhook.expressions.selectors.reader import read_selector
from webhook.expressions.selectors.selector import compile_selector
from webhook.expressions.selectors.texts import _replaced

COSTS = corpus.recorded_costs()


def test_no_row_of_the_table_hides_another() -> None:
    rows = [each.id for known in functions().by_name.values() for each in known]
    assert len(rows) == len(functions().by_id) > 300


@pytest.mark.parametrize(
    ("size", "old", "new", "expected"),
    [
        pytest.param(3, 0, 1, (7, 7), id="before, between and after all letters"),
        pytest.param(3, 0, 0, (3, 3), id="nothing in these places"),
        pytest.param(3, 1, 1, (3, 3), id="letter for letter"),
        pytest.param(4, 2, 3, (4, 6), id="longer"),
        pytest.param(4, 2, 1, (2, 4), id="shorter"),
        pytest.param(5, 2, 1, (3, 5), id="shorter, with a letter left"),
        pytest.param(5, 2, 2, (5, 5), id="as long, with a letter left"),
        pytest.param(0, 0, 2, (2, 2), id="nothing becomes something"),
    ],
)
def test_size_of_a_text_in_which_a_part_is_replaced(size: int, old: int, new: int, expected: tuple[int, int]) -> None:
    """From none of it being that part to all of it."""
    assert _replaced(*[Range(each, each) for each in (size, old, new)]) == Range(*expected)


@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        pytest.param("'x' in device.driver.split('.', -9223372036854775808)", 2**63 + 15, id="parts of a text"),
        pytest.param("[1, 2].slice(1, 0) == []", 2**64 - 1, id="entries of a list"),
    ],
)
def test_a_negative_number_counts_as_one_without_a_sign(expression: str, cost: int) -> None:
    """The figures are the API server's."""
    node = read_selector(expression)
    _ = check(node)
    assert worst_cost(node) == cost


def test_there_are_enough_of_unsupported_ones() -> None:
    assert len(COSTS) == len(corpus.expressions("unsupported")) >= 70


@pytest.mark.parametrize("expression", COSTS)
def test_unsupported_one_costs_what_it_costs_the_api_server(expression: str) -> None:
    """Which refuses one that is too expensive, whether we can evaluate it or not."""
    node = read_selector(expression)
    _ = check(node)
    assert worst_cost(node) == COSTS[expression]
    fault = compile_selector(expression)
    assert isinstance(fault, SelectorFault)
    too_expensive = COSTS[expression] > MAX_COST
    assert fault.kind is (FaultKind.TOO_EXPENSIVE if too_expensive else FaultKind.UNSUPPORTED)
