"""The canary that shows whether the in-tree controller is at work."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.builders import NOW
from tests.unit.cluster.acting import RULES, RULES_PATH, acting_cluster
from tests.unit.cluster.peer import Answer, Drop, Peer, Reply, Request, Silence, status, until
from webhook.api.meta import format_time
from webhook.cluster.cache.discovery import ServedCollection
from webhook.cluster.client.errors import Refused, Unavailable
from webhook.cluster.in_tree_probe import IN_TREE_MANAGER, find_in_tree
from webhook.eviction.conditions import CANARY
from webhook.eviction.modes import InTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.cluster.client.rest import ThrottledCluster


OWN: Final = f"{CANARY}-x"
OLD: Final = format_time(NOW - timedelta(seconds=61))
SPEC: Final = {"deviceSelector": {"driver": "canary.devicetaint.io"}, "taint": {"effect": "None"}}


class Rules:
    """Answers about the canary, with these conditions, and about other rules beside it.

    `troubles` come first of all that a DELETE is answered.
    """

    def __init__(
        self,
        manager: str = "",
        subresource: str = "",
        conditions: Sequence[str] = (),
        *,
        refusal: int = 0,
        troubles: Sequence[Reply] = (),
        others: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.managed = [{"manager": "device-taint-webhook"}, {"manager": manager, "subresource": subresource}]
        self.conditions = [{"type": each} for each in conditions]
        self.refusal = refusal
        self.troubles = deque(troubles)
        self.others = others
        self.tried = 0
        self.deleted = False
        self.removed: list[tuple[str, object]] = []
        """Of the others."""

    def __call__(self, request: Request) -> Reply:
        if request.method == "POST" and self.refusal:
            return Answer(status(self.refusal, "no"), self.refusal)
        if request.method == "GET" and request.path == RULES_PATH:
            items = [
                {"spec": each.get("spec", SPEC), "metadata": {"uid": f"uid-{each['name']}", **each}}
                for each in self.others
            ]
            return Answer({"metadata": {"resourceVersion": "1"}, "items": items})
        if request.method == "DELETE":
            own = request.path.endswith(OWN)
            if own:
                self.tried += 1
            else:
                self.removed.append((request.path, request.json.get("preconditions")))
            if self.troubles:
                return self.troubles.popleft()
            self.deleted |= own
        metadata = {"name": "canary", "managedFields": self.managed}
        return Answer({"metadata": metadata, "status": {"conditions": self.conditions}})


WRITTEN: Final = (IN_TREE_MANAGER, "status", ["EvictionInProgress"])


@pytest.mark.parametrize(
    ("rules", "expected", "deleted"),
    [
        pytest.param(Rules(*WRITTEN), InTree.ACTIVE, True, id="answered"),
        pytest.param(Rules(), InTree.ABSENT, True, id="not answered"),
        pytest.param(Rules(refusal=422), InTree.UNKNOWN, False, id="effect None not known"),
        pytest.param(Rules(IN_TREE_MANAGER), InTree.ABSENT, True, id="a field manager made up"),
        pytest.param(Rules(IN_TREE_MANAGER, "status"), InTree.ABSENT, True, id="managedFields made up"),
        pytest.param(Rules(IN_TREE_MANAGER, "", WRITTEN[2]), InTree.ABSENT, True, id="a condition of another one"),
        pytest.param(Rules(*WRITTEN[:2], ["Ready"]), InTree.ABSENT, True, id="another condition"),
    ],
)
async def test_canary(rules: Rules, expected: InTree, *, deleted: bool) -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.otherwise = rules
        assert await find_in_tree(cluster, RULES, "x", wait_seconds=0.0) is expected
        assert rules.deleted is deleted
        created = peer.requests[0]
        assert (created.method, created.path) == ("POST", RULES_PATH)
        assert created.json["spec"]["taint"]["effect"] == "None"
        assert created.json["spec"]["deviceSelector"] == {"driver": "canary.devicetaint.io"}


@pytest.mark.parametrize(
    ("troubles", "tries"),
    [
        ([Drop(), Answer(b"", 500), Answer(status(403, "not yet"), 403)], 4),
        ([Answer(status(429, "busy"), 429), Answer(status(404, "gone"), 404)], 2),
    ],
    ids=["none of the answers is final", "gone meanwhile"],
)
async def test_canary_is_deleted_however_often_that_goes_wrong(
    troubles: list[Reply], tries: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.otherwise = rules = Rules(troubles=troubles)
        assert await find_in_tree(cluster, RULES, "x", wait_seconds=0.0) is InTree.ABSENT
        assert rules.tried == tries
        assert [record for record in caplog.records if record.levelname == "WARNING"] == []


@pytest.mark.parametrize("trouble", [Answer(b"", 500), Silence()], ids=["refused", "not answered"])
async def test_canary_that_cannot_be_deleted_is_told_by_name(trouble: Reply, caplog: pytest.LogCaptureFixture) -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.otherwise = Rules(troubles=[trouble] * 100)
        found = await find_in_tree(cluster, RULES, "x", wait_seconds=0.0, removal_seconds=0.3)
        assert found is InTree.ABSENT
        [record] = [record for record in caplog.records if record.levelname == "WARNING"]
        assert record.__dict__["rule"] == "device-taint-webhook-canary-x"


async def test_canary_is_deleted_though_whoever_looks_is_cancelled_again_and_again() -> None:
    """What the canary shows ends `replacement`, in the middle of the deletion or before."""
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.otherwise = rules = Rules(*WRITTEN, troubles=[Drop(), Drop()])
        looking = asyncio.create_task(find_in_tree(cluster, RULES, "x"))
        for tries in (1, 2):
            await until(lambda: rules.tried >= tries, "a try")  # noqa: B023 -- called here
            looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking
        assert rules.deleted


@pytest.mark.parametrize("cancelled", [False, True])
async def test_canary_that_may_have_been_made_is_deleted(*, cancelled: bool) -> None:
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


async def test_canary_that_the_server_did_not_take_is_not_deleted() -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.otherwise = rules = Rules(refusal=403)
        with pytest.raises(Refused):
            await find_in_tree(cluster, RULES, "x")
        assert rules.tried == 0


async def test_without_rules_nothing_can_be_told() -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        collection = ServedCollection(cluster, "resource.k8s.io", ("v1",), "devicetaintrules")
        assert await find_in_tree(cluster, collection, "x") is InTree.UNKNOWN


async def probed(cluster: ThrottledCluster) -> InTree:
    return await find_in_tree(cluster, RULES, "x", wait_seconds=0.0, removal_seconds=0.3, now=lambda: NOW)


async def test_only_canaries_of_processes_that_ended_are_cleared_away() -> None:
    """L5: of another process that still looks, and of people, none is touched."""
    others = (
        {"name": f"{CANARY}-1", "creationTimestamp": OLD},
        {"name": f"{CANARY}-2", "creationTimestamp": format_time(NOW - timedelta(seconds=59))},
        {"name": f"{CANARY}-3"},
        {"name": f"{CANARY}s", "creationTimestamp": OLD},
        {"name": "by-hand", "creationTimestamp": OLD},
        {"name": f"{CANARY}-4", "creationTimestamp": OLD, "spec": SPEC | {"deviceSelector": {"driver": "gpu"}}},
        {"name": f"{CANARY}-5", "creationTimestamp": OLD, "spec": SPEC | {"deviceSelector": None}},
        {"name": f"{CANARY}-6", "creationTimestamp": OLD, "spec": SPEC | {"taint": {"effect": "NoExecute"}}},
    )
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.otherwise = rules = Rules(others=others)
        assert await probed(cluster) is InTree.ABSENT
        assert rules.removed == [(f"{RULES_PATH}/{CANARY}-1", {"uid": f"uid-{CANARY}-1"})]


@pytest.mark.parametrize("trouble", [Answer(status(403, "no"), 403), Answer(status(404, "gone"), 404)])
async def test_left_over_that_cannot_be_deleted_changes_nothing(trouble: Reply) -> None:
    others = [{"name": f"{CANARY}-{number}", "creationTimestamp": OLD} for number in range(2)]
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.otherwise = rules = Rules(others=others, troubles=[Answer({}), trouble])  # the first is the own one
        assert await probed(cluster) is InTree.ABSENT
        assert len(rules.removed) == 2


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (403, 'admission webhook "x.example.com" denied the request: no'),
        (503, 'admission webhook "x.example.com" denied the request: later'),
        (403, "ValidatingAdmissionPolicy 'owners' with binding 'all' denied request: no owner"),
    ],
)
async def test_canary_that_admission_refuses_shows_nothing(code: int, text: str) -> None:
    """L5: without the permission it is an error, see above; what admission says of this one rule is none."""
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.otherwise = rules = Rules(others=[{"name": f"{CANARY}-1", "creationTimestamp": OLD}])
        peer.answers.append(Answer(status(code, text), code))
        assert await probed(cluster) is InTree.UNKNOWN
        assert rules.tried == 0
        assert len(rules.removed) == 1
