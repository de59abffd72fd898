"""What it costs to read a policy."""

from __future__ import annotations

from typing import Any

from tests.costs import calls_of
from tests.unit.policy.documents import (
    AT,
    errors_in,
    make_document,
    make_entry,
    make_exception,
)
from webhook.policy.document import load


def cost(document: Any) -> int:
    """Calls of functions to load it."""
    return calls_of(lambda each: load(each, AT), lambda: document)


def test_ten_times_as_many_rules_cost_ten_times_as_much() -> None:
    """A rule costs the same however many stand beside it, so half of a review's time is enough on a slow machine."""
    rules = [
        make_entry(
            f"rule-{number}",
            match={
                "namespaces": {"names": [f"team-{number}-*"], "except": ["x"]},
                "requesters": {"groups": ["a", "b"], "serviceAccounts": ["ci/runner"]},
                "deviceClasses": ["gpu.example.com"],
                "tolerations": {"keys": ["a/*", "b/*"], "effects": ["NoExecute"], "seconds": {"above": number}},
            },
        )
        for number in range(500)
    ]
    assert cost(make_document(rules=rules)) <= 10.5 * cost(make_document(rules=rules[:50]))


def test_thousands_of_wrong_names_cost_hardly_more_than_the_hundred_that_are_reported() -> None:
    """Each is compared with the right ones, so no more are compared than are reported."""
    rules = [make_entry(f"rule-{number}") for number in range(300)]
    wrong = [f"rul-{number}" for number in range(200)]
    exceptions = [make_exception(f"e{number}", wrong) for number in range(20)]
    assert len(errors_in(rules=rules, exceptions=exceptions)) == 100
    one, all_of_them = (make_document(rules=rules, exceptions=exceptions[:count]) for count in (1, 20))
    assert cost(all_of_them) <= 3 * cost(one)


def test_loading_asks_between_entries() -> None:
    asked: list[str] = []
    load(make_document(rules=[make_entry("a"), make_entry("b")]), AT, asked.append)
    assert len(asked) >= 6  # the schema, the parts and the checks, each
    assert set(asked) == {"policy"}
