"""What an exported expression is taken to cost, and how policies are divided to stay within CEL's limit of it."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.policy.model import Policy, PolicyMode
from webhook.policy.vap.objects import Made, Maker, PolicyTopic, Validation

CALL_MOST = 900_000
POLICY_MOST = 8_000_000
TOLERATIONS_MOST = 16 * 32 * 8


def made(*validations: Validation, documented: PolicyMode = PolicyMode.ENFORCE) -> Made:
    maker = Maker(Policy(documented_rules=documented), {}, with_generated=False)
    return maker.made(PolicyTopic.TOLERATIONS, validations, PolicyMode.ENFORCE)


def sizes(found: Made) -> list[int]:
    """How many validations each policy has."""
    return [len(each["spec"]["validations"]) for each in found.objects if not each["kind"].endswith("Binding")]


def policies(found: Made) -> dict[str, Any]:
    prefix = "device-taint-webhook-tolerations"
    return {
        each["metadata"]["name"].removeprefix(prefix): each["spec"]
        for each in found.objects
        if not each["kind"].endswith("Binding")
    }


def costing(cost: int) -> str:
    """An expression that costs so much: three words, a long pattern that is the last of them, and some more words."""
    quarters, words = divmod(cost - 3, 32)
    return f'a.matches("{"bbbb" * (quarters - 1)}")' + " a" * words


@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        ("a", 1),
        ("a && !b", 4),
        ('a == "b && c (d"', 3),
        ("(a || b)", 3),
        ("f(a, b)", 3),
        ('["a", "b"]', 12),
        ('a in ["a"] && b in ["b"]', 27),
        ('a.startsWith("b")', 9),
        ('a.endsWith("b") || a.contains("c")', 19),
        ("size(a) >= 3", 10),
        ('a.matches("b")', 35),
        ('a.matches("bbb")', 35),
        ('a.matches("bbbb")', 67),
        ('a.matches("b") && a.matches("bbbbbbbb")', 135),
    ],
)
def test_expression_is_divided_from_its_cost_on(expression: str, cost: int) -> None:
    times = CALL_MOST // cost
    assert sizes(made(Validation("r", expression, "no", times))) == [1]
    assert sizes(made(Validation("r", expression, "no", times + 1))) == [2]


@pytest.mark.parametrize(
    ("cost", "shares"),
    [
        (CALL_MOST, 1),
        (CALL_MOST + 1, 2),
        (2 * CALL_MOST, 2),
        (2 * CALL_MOST + 1, 4),
        (4 * CALL_MOST, 4),
        (4 * CALL_MOST + 1, 8),
        (8 * CALL_MOST, 8),
        (8 * CALL_MOST + 1, 16),
        (16 * CALL_MOST, 16),
        (16 * CALL_MOST + 1, 32),
        (32 * CALL_MOST, 32),
    ],
)
def test_expression_is_divided_into_a_power_of_two_of_shares(cost: int, shares: int) -> None:
    found = made(Validation("r", "a", "no", cost))
    assert found.unbounded == frozenset()
    assert sum(sizes(found)) == shares


def test_expression_that_says_nothing_else_is_asked_once() -> None:
    assert sizes(made(Validation("r", "a", "no"))) == [1]
    assert sizes(made(Validation("r", costing(CALL_MOST), "no"))) == [1]
    assert sizes(made(Validation("r", costing(CALL_MOST + 1), "no"))) == [2]


def test_shares_fill_policies_as_whole_expressions_do() -> None:
    assert sizes(made(Validation("r", "a", "no", 32 * CALL_MOST))) == [8, 8, 8, 8]


def test_each_share_looks_at_requests_of_its_own() -> None:
    (spec,) = policies(made(Validation("r", "variables.asked", "no", 2 * CALL_MOST))).values()
    assert [each["expression"] for each in spec["validations"]] == [
        "variables.asked1of4",
        "variables.asked2of4",
        "variables.asked3of4",
        "variables.asked4of4",
    ]
    variables = {each["name"]: each["expression"] for each in spec["variables"]}
    assert [variables[f"asked{number}of4"].partition(", i ")[2] for number in (1, 2, 3, 4)] == [
        "% 4 == 0, options)",
        "% 4 == 1, options)",
        "% 4 == 2, options)",
        "% 4 == 3, options)",
    ]


def test_what_32_shares_cannot_hold_is_ignored_where_it_costs_too_much() -> None:
    within, beyond = (Validation("r", "a", "no", 32 * CALL_MOST + more) for more in (0, 1))
    assert made(within).unbounded == frozenset()
    found = made(beyond)
    assert found.unbounded == {"r"}
    assert {name: spec["failurePolicy"] for name, spec in policies(found).items()} == {"-unbounded": "Ignore"}


def test_what_costs_too_much_does_not_hide_what_follows() -> None:
    found = made(Validation("r", "a", "no", 32 * CALL_MOST + 1), Validation("s", "a", "no"))
    assert {name: spec["failurePolicy"] for name, spec in policies(found).items()} == {
        "": "Fail",
        "-unbounded": "Ignore",
    }


@pytest.mark.parametrize(("times", "unbounded"), [(TOLERATIONS_MOST, True), (TOLERATIONS_MOST - 1, False)])
def test_tolerations_are_unbounded_where_their_lists_are(times: int, *, unbounded: bool) -> None:
    asked = Validation("r", "a", "no", times)
    assert made(asked).unbounded == frozenset()
    assert (made(asked, documented=PolicyMode.WARN).unbounded == {"r"}) is unbounded
    assert (made(asked, documented=PolicyMode.OFF).unbounded == {"r"}) is unbounded


def test_policy_is_filled_up_to_its_limit_and_then_followed_by_another() -> None:
    exact = [Validation(f"r{number}", "a", "no", POLICY_MOST // 10) for number in range(21)]
    assert sizes(made(*exact)) == [10, 10, 1]
    last = Validation("last", "a", "no", POLICY_MOST // 10 + 1)
    assert sizes(made(*exact[:9], last)) == [9, 1]
    above = [Validation(f"r{number}", "a", "no", POLICY_MOST // 10 + 1) for number in range(10)]
    found = made(*above)
    assert sizes(found) == [9, 1]
    assert list(policies(found)) == ["", "-2"]
