"""PodDisruptionBudgets: whose status counts, and which pods they select."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta
from webhook.api.pods import DisruptionBudget, Pod, decode_budget, needs_disruption


def decoded(generation: int | None = 2, selector: Any = None, **status: Any) -> DisruptionBudget:
    errors: list[Any] = []
    spec = {} if selector is None else {"selector": selector}
    value = {"metadata": {"name": "web", "generation": generation}, "spec": spec, "status": status}
    budget = decode_budget(Reader.of(value, errors))
    assert errors == []
    return budget


@pytest.mark.parametrize(
    ("generation", "observed", "allowed"),
    [(2, 1, None), (2, 2, 3), (2, 3, 3), (2, None, None), (1, None, None), (None, None, 3)],
)
def test_only_a_status_of_the_newest_generation_counts(
    generation: int | None, observed: int | None, allowed: int | None
) -> None:
    assert decoded(generation, observedGeneration=observed, disruptionsAllowed=3).allowed == allowed


def test_value_with_nothing_given_is_a_budget_that_says_nothing() -> None:
    assert decode_budget(Reader.of({"metadata": {"name": "web"}}, [])) == DisruptionBudget(ObjectMeta("web"))


def test_figures_and_time_of_the_status() -> None:
    conditions = [
        {"type": "Other", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "DisruptionAllowed", "lastTransitionTime": "2026-02-01T00:00:00Z"},
        {"type": "DisruptionAllowed", "lastTransitionTime": "2026-03-01T00:00:00Z"},
    ]
    budget = decoded(currentHealthy=4, desiredHealthy=5, conditions=conditions)
    assert (budget.healthy, budget.desired, budget.since) == (4, 5, datetime(2026, 2, 1, tzinfo=UTC))
    assert decoded().since is None


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ({}, {}, True),
        ({"matchLabels": {"app": "web"}}, {"app": "web"}, True),
        ({"matchLabels": {"app": "web"}}, {"app": "db"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}, {"app": "web"}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {}, False),
        (
            {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]},
            {"app": "web"},
            False,
        ),
    ],
)
def test_selector_matches_labels(selector: Any, labels: dict[str, str], selected: bool) -> None:  # noqa: FBT001 -- a parameter
    found = decoded(selector=selector).selector
    assert found is not None
    assert found.matches(labels) is selected


def test_without_a_selector_there_is_none() -> None:
    assert decoded().selector is None


@pytest.mark.parametrize(
    ("policy", "healthy", "desired", "frees"),
    [
        (None, 1, 2, False),
        (None, 2, 2, True),
        ("IfHealthyBudget", 3, 2, True),
        (None, 1, 0, False),
        ("AlwaysAllow", 0, 0, True),
    ],
)
@pytest.mark.parametrize("observed", [1, 2], ids=["late", "in time"])
def test_budget_frees_pods_that_are_not_ready(
    policy: str | None,
    healthy: int,
    desired: int,
    frees: bool,  # noqa: FBT001 -- a table's
    observed: int,
) -> None:
    """Also by a status of an older generation, as the Eviction API has it."""
    status = {"observedGeneration": observed, "currentHealthy": healthy, "desiredHealthy": desired}
    value = {"metadata": {"name": "web", "generation": 2}, "spec": {"unhealthyPodEvictionPolicy": policy}}
    budget = decode_budget(Reader.of({**value, "status": status}, []))
    assert needs_disruption(Pod(ObjectMeta("a"), phase="Running"), [budget]) is not frees


@pytest.mark.parametrize(
    ("fields", "budgets", "needs"),
    [
        ({"ready": True}, 0, False),
        ({"ready": True}, 1, True),
        ({}, 1, False),
        ({}, 2, True),
        ({"phase": "Unknown", "ready": True}, 1, True),
        ({"phase": "", "ready": True}, 1, True),
        ({"phase": "Pending", "ready": True}, 2, False),
        ({"phase": "Succeeded", "ready": True}, 2, False),
        ({"phase": "Failed", "ready": True}, 2, False),
        ({"deleting": True, "ready": True}, 2, False),
    ],
)
def test_pod_needs_a_disruption(fields: dict[str, Any], budgets: int, needs: bool) -> None:  # noqa: FBT001
    pod = Pod(ObjectMeta("a"), **{"phase": "Running", **fields})
    assert needs_disruption(pod, [DisruptionBudget(ObjectMeta("web"), always=True)] * budgets) is needs
