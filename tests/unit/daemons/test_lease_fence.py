"""What leaders write goes through clients that ask for the lease at the last moment; what anyone may write does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.cluster.client.test_credentials import written
from tests.unit.cluster.peer import Answer, Peer, run
from webhook.cluster.client.errors import ClusterError
from webhook.config.workers import parse_evict, parse_patch
from webhook.daemons.evict import Worker
from webhook.daemons.patch import Patcher
from webhook.eviction.ports import Disruption, EvictionResult, PodRef

if TYPE_CHECKING:
    from pathlib import Path

POD = PodRef("ml", "pod", "u1")
DISRUPTION = Disruption("DeletionByDeviceTaintWebhook", "because")


def kubeconfig(folder: Path, peer: Peer) -> str:
    return f"--kubeconfig={written(folder / 'kubeconfig', {'k': {'server': peer.url}}, {'c': 'k'}, {}, 'c')}"


class Lease:
    """The lease as far as a fence asks for it."""

    holds = False


def test_worker_sends_no_eviction_and_no_condition_once_its_lease_is_lost(tmp_path: Path) -> None:
    async def test() -> None:
        async with Peer() as peer:
            worker = Worker(parse_evict("evict", [kubeconfig(tmp_path, peer), "--leader-elect"], {}))
            lease = Lease()
            worker._leader = lease  # type: ignore[assignment]
            writer = worker._dependencies().writer
            async with worker._acting, worker._cluster:
                for outcome in (await writer.evict(POD, None), await writer.delete(POD, None, DISRUPTION)):
                    assert outcome.result is EvictionResult.FAILED
                    assert "no longer holds the lease" in outcome.text
                assert peer.requests == []
                peer.answers.append(Answer({"kind": "Status", "status": "Success"}))
                lease.holds = True
                assert (await writer.evict(POD, None)).evicted
                lease.holds = False
                peer.answers.append(Answer({}))
                _ = await worker._cluster.create("/x", {})  # an Event of what it did before
                assert [request.path for request in peer.requests][1:] == ["/x"]

    run(test())


def test_controller_of_patches_writes_no_rule_once_its_lease_is_lost(tmp_path: Path) -> None:
    async def test() -> None:
        async with Peer() as peer:
            patcher = Patcher(parse_patch("patch", [kubeconfig(tmp_path, peer), "--leader-elect"], {}))
            patcher._leader = Lease()  # type: ignore[assignment]
            async with patcher._acting:
                with pytest.raises(ClusterError, match="no longer holds the lease"):
                    await patcher._acting.create("/x", {})
            assert peer.requests == []
            assert patcher._controller._parts.writer._cluster is patcher._acting

    run(test())
