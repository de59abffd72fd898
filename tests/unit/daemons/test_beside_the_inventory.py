"""What the eviction worker must know besides the inventory: namespaces with their holds, and disruption budgets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.cluster.peer import Answer, Peer, run, status, until
from tests.unit.daemons.test_lease_fence import kubeconfig
from webhook.config.workers import parse_evict
from webhook.daemons.evict import Worker
from webhook.policy.decide import BUILTIN_JUDGE

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.cluster.cache.reflector import Reflector

WATCHES = pytest.mark.parametrize(
    ("check", "resource"), [("namespaces", "namespaces"), ("budgets", "poddisruptionbudgets")]
)


def synced(folder: Path) -> tuple[Worker, dict[str, Reflector[Any]]]:
    """A worker that has read everything, and what it follows besides its inventory, by resource."""
    worker = Worker(parse_evict("evict", [f"--kubeconfig={folder / 'kubeconfig'}"], {}))
    worker._policies.use(BUILTIN_JUDGE)
    worker.stages()
    worker._cache._servers.read.set()
    beside: list[Reflector[Any]] = [worker._namespaces.reflector, worker._budgets.reflector]
    for reflector in (*worker._cache._reflectors, worker._in_tree_writes.reflector, *beside):
        reflector.synced.set()
    return worker, {each.resource: each for each in beside}


@WATCHES
def test_no_pod_is_evicted_while_a_watch_is_broken(tmp_path: Path, check: str, resource: str) -> None:
    worker, beside = synced(tmp_path)
    assert worker._trusted()
    assert dict(worker._checks.problems())[check] is None
    beside[resource]._gap.begin(0.0)
    assert not worker._trusted()
    assert (dict(worker._checks.problems())[check] or "").startswith(f"{resource} not watched for ")


@WATCHES
def test_worker_does_not_begin_before_all_was_read(tmp_path: Path, check: str, resource: str) -> None:
    async def test() -> None:
        worker, beside = synced(tmp_path)
        beside[resource].synced.clear()
        assert dict(worker._checks.problems())[check] == f"{resource} not read yet"
        waiting = asyncio.ensure_future(worker._synced())
        await asyncio.sleep(0)
        assert not waiting.done()
        beside[resource].synced.set()
        await waiting

    asyncio.run(test())


@WATCHES
def test_readiness_and_log_say_what_the_worker_may_not_read(
    tmp_path: Path, check: str, resource: str, caplog: pytest.LogCaptureFixture
) -> None:
    problems: list[str | None] = []

    async def test() -> None:
        async with Peer() as peer:
            peer.otherwise = lambda _: Answer(status(403, f"cannot list {resource}"), 403)
            worker = Worker(parse_evict("evict", [kubeconfig(tmp_path, peer)], {}))
            worker.stages()
            beside = {each.resource: each for each in (worker._namespaces.reflector, worker._budgets.reflector)}
            async with worker._cluster:
                following = asyncio.ensure_future(beside[resource].run())
                await until(lambda: bool(beside[resource].error), "the refusal")
                following.cancel()
            problems.append(dict(worker._checks.problems())[check])

    run(test())
    [problem] = problems
    assert problem is not None
    assert problem.startswith(f"{resource} not read yet (")
    assert f"cannot list {resource}" in problem
    assert any(f"cannot list {resource}" in str(record.__dict__.get("error")) for record in caplog.records)
