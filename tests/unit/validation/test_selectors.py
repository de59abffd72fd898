from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import field_errors, make_patch, make_rule
from tests.tables import table
from tests.unit.validation.whole_objects import CLAIM, edited, reported, whole
from webhook.api.field import ErrorType, FieldError, Path
from webhook.expressions.selectors.cost import MAX_COST
from webhook.validation.rules import COMPILED_MAX_BYTES, EXPRESSION_MAX_BYTES, ExpressionBudget

if TYPE_CHECKING:
    from collections.abc import Sequence

AT = Path.root().child("spec", "expression")
EXPENSIVE = "lists.range(10000000).all(x, x > 0)"
UNSUPPORTED = "isIP('10.0.0.1')"


def judged(expression: str, *, evaluated: bool = False) -> list[tuple[ErrorType, str]]:
    errors = ExpressionBudget().selector_errors(AT, expression, evaluated=evaluated)
    return [(error.type, error.detail) for error in errors]


@pytest.mark.parametrize(
    ("expression", "kind", "detail"),
    [
        ("device.driver ==", ErrorType.INVALID, "compilation failed: Syntax error"),
        ("device.vendor == 'x'", ErrorType.INVALID, "compilation failed: undefined field 'vendor'"),
        ("device.driver", ErrorType.INVALID, "must evaluate to bool or the unknown type, not string"),
        ("int('x') == 1", ErrorType.INTERNAL, "program instantiation failed"),
        (EXPENSIVE, ErrorType.FORBIDDEN, "too complex, exceeds cost limit"),
    ],
)
def test_a_fault_is_reported_as_the_server_does(expression: str, kind: ErrorType, detail: str) -> None:
    [(found, text)] = judged(expression)
    assert found is kind
    assert text.startswith(detail)


def test_what_is_right_is_no_error() -> None:
    assert judged("device.driver == 'x'") == []
    assert judged("device.attributes['a'].?b[?0].orValue(1) == 1") == []


def test_what_only_we_cannot_evaluate_is_refused_only_where_we_evaluate_it() -> None:
    assert judged(UNSUPPORTED) == []
    assert judged(UNSUPPORTED, evaluated=True) == [(ErrorType.INVALID, "not supported here: isIP()")]


def test_expressions_are_compiled_up_to_a_size_together() -> None:
    budget = ExpressionBudget()
    assert EXPRESSION_MAX_BYTES < COMPILED_MAX_BYTES
    assert list(budget.selector_errors(AT, "true".ljust(COMPILED_MAX_BYTES - EXPRESSION_MAX_BYTES))) == []
    assert len(list(budget.selector_errors(AT, "x".ljust(EXPRESSION_MAX_BYTES)))) == 1
    assert list(budget.selector_errors(AT, "x")) == []
    assert list(budget.selector_errors(AT, "x".ljust(EXPRESSION_MAX_BYTES))) == []
    assert list(budget.derived_costs(AT, "x")) == []
    for judge in (budget.selector_errors, budget.derived_costs):
        [error] = judge(AT, "x" * (EXPRESSION_MAX_BYTES + 1))
        assert isinstance(error, FieldError)
        assert error.type is ErrorType.TOO_LONG


def test_a_patch_is_refused_for_what_cannot_be_evaluated_and_a_rule_is_not() -> None:
    selectors = [{"cel": {"expression": UNSUPPORTED}}]
    [error] = field_errors(make_patch(filter_={"selectors": selectors}))
    assert error.startswith("spec.devices.filter.selectors[0].cel.expression: Invalid value: ")
    assert error.endswith(": not supported here: isIP()")
    assert field_errors(make_rule(selector={"selectors": selectors})) == []


REQUEST = "spec/devices/requests/0/exactly"


def test_a_claim_is_not_refused_for_what_only_we_cannot_evaluate() -> None:
    selectors = [{"cel": {"expression": UNSUPPORTED}}]
    assert reported(edited(whole(CLAIM), (f"{REQUEST}/selectors", selectors))) == []


DERIVED = f"{REQUEST}/derivedAttributes"


def derived(*expressions: str) -> list[dict[str, Any]]:
    return [{"name": "example.com/model", "expression": text} for text in expressions]


def errors_of_derived(entries: Sequence[dict[str, Any]]) -> list[str]:
    at = "spec.devices.requests[0].exactly.derivedAttributes"
    found = reported(edited(whole(CLAIM), (DERIVED, list(entries))))
    return [text.replace(at, "DERIVED") for text in found if "name: Duplicate" not in text]


@pytest.mark.parametrize(
    "expression",
    [
        "'a'",
        "1",
        "true",
        "semver('1.0.0')",
        "device.attributes['a'].b",
        "['a']",
        "[1]",
        "device.attributes['a'].?b.orValue('')",
    ],
)
def test_a_derived_attribute_is_a_scalar_or_a_list_of_them(expression: str) -> None:
    assert errors_of_derived(derived(expression)) == []


@pytest.mark.parametrize("expression", ["1.5", "quantity('1')", "{'a': 1}", "[[1]]", "device", "null", "1u"])
def test_a_derived_attribute_is_nothing_else(expression: str) -> None:
    [error] = errors_of_derived(derived(expression))
    assert error.startswith("DERIVED[0].expression: Invalid value: ")
    assert "must evaluate to a primitive scalar" in error


def costing(cost: int) -> str:
    """A derived attribute that costs so much at worst."""
    return f"lists.range({cost - 12}).size()"


def test_derived_attribute_may_cost_as_much_as_a_claim_may() -> None:
    too_much = "DERIVED[0].expression: Forbidden: too complex, exceeds cost limit"
    assert errors_of_derived(derived(costing(MAX_COST))) == []
    assert too_much in errors_of_derived(derived(costing(MAX_COST + 1)))


BEYOND_HALF = "lists.range(9223372036854775807).size()"
"""Costs 2**63 and a bit."""


@table(
    "first, second, refused",
    {
        "the limit": (costing(MAX_COST // 2), costing(MAX_COST // 2), False),
        "one more": (costing(MAX_COST // 2), costing(MAX_COST // 2 + 1), True),
        "as much as 64 bits hold": (BEYOND_HALF, "1", True),
        "more than 64 bits hold, as in the server": (BEYOND_HALF, BEYOND_HALF, False),
    },
)
def test_costs_of_a_claim_are_added_in_64_bits(first: str, second: str, *, refused: bool) -> None:
    found = errors_of_derived([*derived(first), {"name": "other.example.com/model", "expression": second}])
    assert any(error.startswith("spec.devices: Forbidden: too complex, total cost") for error in found) is refused


def test_what_is_unsupported_in_a_derived_attribute_is_the_servers_affair() -> None:
    assert errors_of_derived(derived("string(ip('10.0.0.1'))")) == []
