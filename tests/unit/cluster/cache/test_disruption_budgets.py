"""Which pods have a disruption budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.cluster.acting import acting_cluster
from tests.unit.cluster.cache.following import no_chance, page, synced
from tests.unit.cluster.peer import Answer, Peer, run, status
from tests.unit.eviction.objects import owned, pod
from webhook.cluster.cache.disruption_budgets import DisruptionBudgetCache

if TYPE_CHECKING:
    from webhook.api.pods import Pod


async def selected(budgets: DisruptionBudgetCache, pod: Pod) -> tuple[str, ...] | None:
    await budgets.look_up(pod)
    return budgets.select(pod)


def budget(name: str, selector: dict[str, Any] | None, where: str = "ml") -> dict[str, Any]:
    meta = {"name": name, "namespace": where, "uid": f"uid-{name}", "resourceVersion": "3"}
    return {"metadata": meta, "spec": {} if selector is None else {"selector": selector}}


@pytest.mark.parametrize(
    ("selector", "covered"),
    [
        ({"matchLabels": {"app": "train"}}, True),
        ({"matchLabels": {"app": "serve"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["serve", "train"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}, {"key": "x", "operator": "Exists"}]}, False),
        ({}, True),
        (None, False),
    ],
    ids=["label", "other label", "expression", "one of two expressions", "empty", "missing"],
)
def test_budget_covers_whom_it_selects(selector: dict[str, Any] | None, covered: bool) -> None:  # noqa: FBT001
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.answers.append(page(10, budget("b", selector)))
            peer.otherwise = lambda _: Answer({"metadata": {"name": "x", "labels": {"app": "train"}}})
            budgets = DisruptionBudgetCache(cluster, random=no_chance)
            async with synced(budgets.reflector):
                assert await selected(budgets, owned("one")) == (("b",) if covered else ())

    run(test())


def test_labels_are_asked_for_once_an_owner_and_only_where_there_are_budgets() -> None:
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.answers.append(page(10, budget("b", {"matchLabels": {"app": "train"}})))
            peer.otherwise = lambda _: Answer({"metadata": {"labels": {"app": "train"}}})
            budgets = DisruptionBudgetCache(cluster, random=no_chance)
            async with synced(budgets.reflector):
                assert await selected(budgets, owned("one")) == ("b",)
                assert await selected(budgets, owned("two")) == ("b",)
                assert await selected(budgets, pod("three", namespace="web")) == ()
                assert [each.path for each in peer.lists if "/pods/" in each.path] == ["/api/v1/namespaces/ml/pods/one"]

    run(test())


def test_pod_whose_labels_cannot_be_read_has_no_budget() -> None:
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.answers.append(page(10, budget("b", {})))
            peer.otherwise = lambda _: Answer(status(403, "no"), 403)
            budgets = DisruptionBudgetCache(cluster, random=no_chance)
            async with synced(budgets.reflector):
                assert await selected(budgets, owned("one")) is None

    run(test())
