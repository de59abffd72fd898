"""Holds and labels of namespaces, disruption budgets, who else writes status, and the canary."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.cluster.acting import RULES, RULES_PATH, acting_cluster
from tests.unit.cluster.cache.following import event
from tests.unit.cluster.peer import Answer, Drop, Peer, Reply, Request, Silence, run, status, until
from tests.unit.eviction.objects import owned, pod
from webhook.api.pods import HOLD
from webhook.cluster.cache.discovery import ServedCollection
from webhook.cluster.cache.surveys import IN_TREE_MANAGER, Budgets, InTreeWrites, Namespaces
from webhook.cluster.client.errors import Refused, Unavailable
from webhook.cluster.in_tree_probe import find_in_tree
from webhook.eviction.modes import InTree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from webhook.cluster.cache.reflector import Reflector


def no_chance() -> float:
    return 0.0


def listed(*items: dict[str, Any]) -> Answer:
    return Answer({"metadata": {"resourceVersion": "10"}, "items": [*items]})


@contextlib.asynccontextmanager
async def followed(reflector: Reflector[Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(reflector.run())
    try:
        await reflector.synced.wait()
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def namespace(name: str, version: int = 3, hold: str | None = None, **labels: str) -> dict[str, Any]:
    annotations = {"other": "x"} | ({} if hold is None else {HOLD: hold})
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": {**meta, "labels": labels, "annotations": annotations}}


def test_holds_and_labels_of_namespaces_are_known_and_changes_of_holds_told() -> None:
    async def test() -> None:
        told: list[str] = []
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.answers.append(listed(namespace("ml", tier="prod"), namespace("web", hold="release")))
            namespaces = Namespaces(cluster, random=no_chance, on_hold=told.append)
            async with followed(namespaces.reflector):
                facts = namespaces.facts_of("ml")
                assert facts is not None
                assert facts.labels == {"tier": "prod"}
                assert [namespaces.hold_of(name) for name in ("ml", "web", "none")] == [None, "release", None]
                assert told == ["web"]
                await peer.say(event("MODIFIED", namespace("ml", 11, hold="stop")))
                await peer.say(event("MODIFIED", namespace("web", 12, hold="release", tier="x")))
                await peer.say(event("DELETED", namespace("web", 13)))
                await until(lambda: namespaces.facts_of("web") is None, "deleted")
                assert told == ["web", "ml", "web"]
                assert namespaces.hold_of("ml") == "stop"

    run(test())


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
            peer.answers.append(listed(budget("b", selector)))
            peer.otherwise = lambda _: Answer({"metadata": {"name": "x", "labels": {"app": "train"}}})
            budgets = Budgets(cluster, random=no_chance)
            async with followed(budgets.reflector):
                assert await budgets.covers(owned("one")) is covered

    run(test())


def test_labels_are_asked_for_once_an_owner_and_only_where_there_are_budgets() -> None:
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.answers.append(listed(budget("b", {"matchLabels": {"app": "train"}})))
            peer.otherwise = lambda _: Answer({"metadata": {"labels": {"app": "train"}}})
            budgets = Budgets(cluster, random=no_chance)
            async with followed(budgets.reflector):
                assert await budgets.covers(owned("one"))
                assert await budgets.covers(owned("two"))
                assert not await budgets.covers(pod("three", namespace="web"))
                assert [each.path for each in peer.lists if "/pods/" in each.path] == ["/api/v1/namespaces/ml/pods/one"]

    run(test())


def test_pod_whose_labels_cannot_be_read_has_no_budget() -> None:
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.answers.append(listed(budget("b", {})))
            peer.otherwise = lambda _: Answer(status(403, "no"), 403)
            budgets = Budgets(cluster, random=no_chance)
            async with followed(budgets.reflector):
                assert not await budgets.covers(owned("one"))

    run(test())


# --- rules --------------------------------------------------------------------------------------


def facts(version: int, written: str = "") -> dict[str, Any]:
    managed = [{"manager": "kubectl", "time": "2026-01-01T00:00:00Z"}]
    if written:
        managed.append({"manager": IN_TREE_MANAGER, "subresource": "status", "time": written})
    meta = {"name": "rule", "uid": "uid-rule", "resourceVersion": str(version)}
    return {"metadata": {**meta, "managedFields": managed}}


def test_in_tree_controller_is_noticed_when_it_writes_and_not_for_what_it_wrote_before() -> None:
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.answers.append(listed(facts(3, "2026-01-01T00:00:00Z")))
            writes = InTreeWrites(cluster, RULES, random=no_chance)
            async with followed(writes.reflector):
                await peer.say(event("MODIFIED", facts(11, "2026-01-01T00:00:00Z")))
                await until(lambda: writes.reflector.items["rule"].metadata.resource_version == "11", "told")
                assert not writes.seen.is_set()
                await peer.say(event("MODIFIED", facts(12, "2026-01-01T00:10:00Z")))
                await until(writes.seen.is_set, "noticed")

    run(test())


# --- canary -------------------------------------------------------------------------------------


class Rules:
    """Answers about one rule, with a status or without; `troubles` come first of all that a DELETE is answered."""

    def __init__(self, *managers: str, refusal: int = 0, troubles: Sequence[Reply] = ()) -> None:
        self.managers = managers
        self.refusal = refusal
        self.troubles = deque(troubles)
        self.tried = 0
        self.deleted = False

    def __call__(self, request: Request) -> Reply:
        if request.method == "POST" and self.refusal:
            return Answer(status(self.refusal, "no"), self.refusal)
        if request.method == "DELETE":
            self.tried += 1
            if self.troubles:
                return self.troubles.popleft()
            self.deleted = True
        managed = [{"manager": manager} for manager in self.managers]
        return Answer({"metadata": {"name": "canary", "managedFields": managed}})


@pytest.mark.parametrize(
    ("rules", "expected", "deleted"),
    [
        (Rules("device-taint-webhook", IN_TREE_MANAGER), InTree.ACTIVE, True),
        (Rules("device-taint-webhook"), InTree.ABSENT, True),
        (Rules(refusal=422), InTree.UNKNOWN, False),
    ],
    ids=["answered", "not answered", "effect None not known"],
)
def test_canary(rules: Rules, expected: InTree, deleted: bool) -> None:  # noqa: FBT001
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.otherwise = rules
            assert await find_in_tree(cluster, RULES, "x", wait_seconds=0.0) is expected
            assert rules.deleted is deleted
            created = peer.requests[0]
            assert (created.method, created.path) == ("POST", RULES_PATH)
            assert created.json["spec"]["taint"]["effect"] == "None"
            assert created.json["spec"]["deviceSelector"] == {"driver": "canary.devicetaint.io"}

    run(test())


@pytest.mark.parametrize(
    ("troubles", "tries"),
    [
        ([Drop(), Answer(b"", 500), Answer(status(403, "not yet"), 403)], 4),
        ([Answer(status(429, "busy"), 429), Answer(status(404, "gone"), 404)], 2),
    ],
    ids=["none of the answers is final", "gone meanwhile"],
)
def test_canary_is_deleted_however_often_that_goes_wrong(
    troubles: list[Reply], tries: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.otherwise = rules = Rules(troubles=troubles)
            assert await find_in_tree(cluster, RULES, "x", wait_seconds=0.0) is InTree.ABSENT
            assert rules.tried == tries
            assert [record for record in caplog.records if record.levelname == "WARNING"] == []

    run(test())


@pytest.mark.parametrize("trouble", [Answer(b"", 500), Silence()], ids=["refused", "not answered"])
def test_canary_that_cannot_be_deleted_is_told_by_name(trouble: Reply, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.otherwise = Rules(troubles=[trouble] * 100)
            found = await find_in_tree(cluster, RULES, "x", wait_seconds=0.0, removal_seconds=0.3)
            assert found is InTree.ABSENT
            [record] = [record for record in caplog.records if record.levelname == "WARNING"]
            assert record.__dict__["rule"] == "device-taint-webhook-canary-x"

    run(test())


def test_canary_is_deleted_though_whoever_looks_is_cancelled_again_and_again() -> None:
    """What the canary shows ends `replacement`, in the middle of the deletion or before."""

    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.otherwise = rules = Rules(IN_TREE_MANAGER, troubles=[Drop(), Drop()])
            looking = asyncio.create_task(find_in_tree(cluster, RULES, "x"))
            for tries in (1, 2):
                await until(lambda: rules.tried >= tries, "a try")  # noqa: B023 -- called here
                looking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await looking
            assert rules.deleted

    run(test())


@pytest.mark.parametrize("cancelled", [False, True])
def test_canary_that_may_have_been_made_is_deleted(cancelled: bool) -> None:  # noqa: FBT001
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.otherwise = rules = Rules()
            peer.answers.append(Silence() if cancelled else Drop())
            looking = asyncio.create_task(find_in_tree(cluster, RULES, "x"))
            if cancelled:
                await until(lambda: len(peer.requests) == 1, "it is to be created")
                looking.cancel()
            with pytest.raises(asyncio.CancelledError if cancelled else Unavailable):
                await looking
            assert rules.deleted

    run(test())


def test_canary_that_the_server_did_not_take_is_not_deleted() -> None:
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.otherwise = rules = Rules(refusal=403)
            with pytest.raises(Refused):
                await find_in_tree(cluster, RULES, "x")
            assert rules.tried == 0

    run(test())


def test_without_rules_nothing_can_be_told() -> None:
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            collection = ServedCollection(cluster, "resource.k8s.io", ("v1",), "devicetaintrules")
            assert await find_in_tree(cluster, collection, "x") is InTree.UNKNOWN

    run(test())
