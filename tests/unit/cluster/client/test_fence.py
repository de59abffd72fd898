"""Requests of a process that may have lost its lease: nothing of them is sent, however late that shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.cluster.peer import Answer, Fixed, Peer
from webhook.cluster.client.credentials import Access
from webhook.cluster.client.errors import ClusterError, NotSent
from webhook.cluster.client.rest import STRATEGIC, ThrottledCluster
from webhook.flowcontrol.loop import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

WRITES: dict[str, Callable[[ThrottledCluster], Coroutine[Any, Any, bytes]]] = {
    "create": lambda cluster: cluster.create("/x", {"a": 1}),
    "update": lambda cluster: cluster.update("/x", {"a": 1}),
    "patch": lambda cluster: cluster.patch("/x", {"a": 1}, content_type=STRATEGIC),
    "apply": lambda cluster: cluster.apply("/x", {"a": 1}),
    "delete": lambda cluster: cluster.delete("/x"),
}


def fenced(peer: Peer, permitted: Callable[[], bool]) -> ThrottledCluster:
    return ThrottledCluster(Fixed(Access(peer.url)), Throttle(0, 1), permitted=permitted)


def connected(cluster: ThrottledCluster) -> bool:
    """Whether a connection stands."""
    [each] = cluster._connections._sockets
    try:
        each.getpeername()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("write", WRITES)
async def test_lease_is_asked_for_once_the_connection_stands_and_nothing_is_sent_without_it(write: str) -> None:
    """So a process that was stopped while it connected, and lost the lease meanwhile, sends nothing."""
    asked: list[int] = []

    def permitted() -> bool:
        asked.append(len(peer.requests))
        return not connected(cluster)

    async with Peer() as peer, fenced(peer, permitted) as cluster:
        with pytest.raises(ClusterError, match=r"/x.*: not sent, because this process no longer holds the lease"):
            await WRITES[write](cluster)
        assert (asked, peer.requests) == ([0], [])
        peer.answers.append(Answer({"read": True}))
        assert b"read" in await cluster.get("/x")


@pytest.mark.parametrize("write", WRITES)
async def test_with_the_lease_a_request_is_as_it_would_be_without_a_fence(write: str) -> None:
    async with (
        Peer() as peer,
        fenced(peer, lambda: True) as one,
        ThrottledCluster(Fixed(Access(peer.url)), Throttle(0, 1)) as other,
    ):
        peer.answers.extend([Answer({}), Answer({})])
        for cluster in (one, other):
            await WRITES[write](cluster)
        first, second = peer.requests
        assert first == second


@pytest.mark.parametrize("write", ["create", "patch", "delete"])
async def test_request_that_is_not_wanted_any_more_is_not_sent_although_the_lease_is_held(write: str) -> None:
    answers, asked = [True, False], list[int]()

    def wanted() -> bool:
        asked.append(len(peer.requests))
        return answers.pop(0)

    sends: dict[str, Callable[[ThrottledCluster], Coroutine[Any, Any, bytes]]] = {
        "create": lambda cluster: cluster.create("/x", {"a": 1}, wanted=wanted),
        "patch": lambda cluster: cluster.patch("/x", {"a": 1}, wanted=wanted),
        "delete": lambda cluster: cluster.delete("/x", wanted=wanted),
    }
    async with Peer() as peer, fenced(peer, lambda: True) as cluster:
        peer.answers.append(Answer({}))
        await sends[write](cluster)
        with pytest.raises(NotSent, match=r"/x.*: not sent, because it is not wanted any more"):
            await sends[write](cluster)
        assert (asked, len(peer.requests)) == ([0, 1], 1)
