"""Which pods have a disruption budget."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.unit.cluster.acting import acting_cluster
from tests.unit.cluster.cache.following import no_chance, page, synced
from tests.unit.cluster.peer import Peer
from tests.unit.eviction.objects import owned, pod
from webhook.cluster.cache import pods
from webhook.cluster.cache.pods import DisruptionBudgetCache, _BudgetWire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from webhook.api.pods import Pod

TRAIN: Final = (("app", "train"),)


def budget(name: str, selector: dict[str, Any] | None, where: str = "ml") -> dict[str, Any]:
    meta = {"name": name, "namespace": where, "uid": f"uid-{name}", "resourceVersion": "3"}
    return {"metadata": meta, "spec": {} if selector is None else {"selector": selector}}


@asynccontextmanager
async def following(
    *listed: dict[str, Any], on_selectors: Callable[[str, str], None] = lambda *_: None
) -> AsyncIterator[tuple[Peer, DisruptionBudgetCache]]:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.append(page(10, *listed))
        budgets = DisruptionBudgetCache(cluster, on_selectors, random=no_chance)
        async with synced(budgets.reflector):
            yield peer, budgets


def names(budgets: DisruptionBudgetCache, which: Pod) -> tuple[str, ...]:
    return tuple([each.meta.name for each in budgets.select(which)])


@pytest.mark.parametrize(
    ("selector", "covered"),
    [
        ({"matchLabels": {"app": "train"}}, True),
        ({"matchLabels": {"app": "serve"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["serve", "train"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}, {"key": "x", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["serve"]}]}, True),
        ({"matchLabels": {"app": "train"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False),
        ({}, True),
        (None, False),
    ],
    ids=["label", "other label", "expression", "one of two", "not in", "a label and no other", "empty", "missing"],
)
async def test_budget_covers_whom_it_selects(selector: dict[str, Any] | None, *, covered: bool) -> None:
    async with following(budget("b", selector)) as (_, budgets):
        assert names(budgets, owned("one", labels=TRAIN)) == (("b",) if covered else ())


async def test_pods_of_one_owner_may_have_different_budgets() -> None:
    async with following(
        budget("second", {"matchLabels": {"app": "train"}}), budget("first", {"matchLabels": {"app": "train"}})
    ) as (peer, budgets):
        assert names(budgets, owned("one", labels=TRAIN)) == ("first", "second")
        assert budgets.select(owned("two", labels=(("app", "serve"),))) == ()
        assert budgets.select(owned("three")) == ()
        assert budgets.select(owned("four", labels=TRAIN, namespace="web")) == ()
        assert names(budgets, owned("one", labels=TRAIN)) == ("first", "second")
        assert [each.path for each in peer.lists if "/pods" in each.path] == [], "no request is needed"


async def test_budgets_are_remembered_of_a_bounded_number_of_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "_REMEMBERED_MOST", 3)

    async with following(budget("b", {"matchLabels": {"index": "2"}})) as (_, budgets):
        for _ in range(2):
            found = [names(budgets, pod("p", labels=(("index", str(index)),))) for index in range(5)]
            assert found == [(), (), ("b",), (), ()]
            assert len(budgets._selecting["ml"]) <= 3


async def test_change_of_which_pods_need_a_disruption_is_seen() -> None:
    """Other pods are selected, or those that are not ready begin to go whatever the status allows, by one budget."""
    told: list[tuple[str, str]] = []
    others, freeing = [("ml", "")], [("ml", "b")]
    steps: list[tuple[dict[str, Any], dict[str, Any], tuple[str, ...], list[tuple[str, str]]]] = [
        ({}, {}, (), others),
        ({"selector": {}}, {}, ("b",), others),
        ({"selector": {}}, {"currentHealthy": 1, "desiredHealthy": 2}, ("b",), []),
        ({"selector": {}}, {"currentHealthy": 2, "desiredHealthy": 2}, ("b",), freeing),
        ({"selector": {}}, {"currentHealthy": 3, "desiredHealthy": 2}, ("b",), []),
        ({"selector": {}}, {"currentHealthy": 1, "desiredHealthy": 2}, ("b",), []),
        ({"selector": {}, "unhealthyPodEvictionPolicy": "IfHealthyBudget"}, {}, ("b",), []),
        ({"selector": {}, "unhealthyPodEvictionPolicy": "AlwaysAllow"}, {}, ("b",), freeing),
        ({}, {}, (), others),
    ]

    async with following(
        budget("b", {"matchLabels": {"app": "serve"}}), on_selectors=lambda *news: told.append(news)
    ) as (_, budgets):
        assert budgets.select(owned("one", labels=TRAIN)) == ()
        for version, (spec, status, selected, news) in enumerate(steps, 4):
            told[:] = []
            fresh = budget("b", None) | {"spec": spec, "status": status}
            fresh["metadata"]["resourceVersion"] = str(version)
            budgets.reflector._store.upsert(_BudgetWire(**fresh).to_value())
            assert names(budgets, owned("one", labels=TRAIN)) == selected
            assert told == news
        told[:] = []
        budgets.reflector._store.delete(budgets.reflector.items["ml/b"])
        assert (names(budgets, owned("one", labels=TRAIN)), told) == ((), others)
