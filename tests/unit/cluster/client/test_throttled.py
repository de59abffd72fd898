"""Requests that wait together when the server is busy."""

from __future__ import annotations

import pytest

from tests.unit.cluster.acting import acting_cluster
from tests.unit.cluster.peer import Answer, Peer, status
from webhook.cluster.client.errors import ClusterError

BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
REFUSAL = 'admission webhook "x.example.com" denied the request: '


async def test_busy_server_is_left_alone_by_every_request_and_a_budget_by_none() -> None:
    async with Peer() as peer, acting_cluster(peer, clock=lambda: 50.0) as cluster:
        for text, pause in ((BUDGET, 0.0), (f"{REFUSAL}slowly", 0.0), ("too many requests", 2.0)):
            peer.answers.append(Answer(status(429, text), 429, {"Retry-After": "2"}))
            with pytest.raises(ClusterError):
                await cluster.get("/x")
            assert cluster._throttle.delay_seconds() == pytest.approx(pause)
