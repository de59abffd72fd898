"""Which policy the worker acts by, and when it does not act because there is none."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

from webhook import __version__
from webhook.config.evict import parse_evict
from webhook.daemons.evict import EvictionPolicy
from webhook.daemons.policy_loader import PolicyLoader
from webhook.daemons.wiring import policy_stages, read_policy
from webhook.policy.store import PolicyStore
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from webhook.cluster.client.rest import Cluster

HEAD = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
GOOD = f"{HEAD}eviction: [{{rate: 3}}]\n"
OTHER = f"{HEAD}eviction: [{{rate: 4}}]\n"
BROKEN = f"{HEAD}eviction: [{{rate: fast}}]\n"
SECONDS = 20.0
NO_CLUSTER = cast("Cluster", None)
"""Nothing is asked for."""


class World:
    """The policy of a worker, offered as a ConfigMap's data would be."""

    def __init__(self) -> None:
        self.policies = PolicyStore()
        self.metrics = Metrics(version=__version__, resources=())
        self.loader = PolicyLoader(self.policies, self.metrics.policy, read_policy)
        self.replaced: list[str] = []
        self.policy = EvictionPolicy(self.policies, lambda: self.replaced.append(self.policy.policy.hash))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        work = asyncio.create_task(self.loader.run())
        try:
            yield
        finally:
            work.cancel()

    async def offer(self, text: str | None) -> None:
        self.loader.loaded.clear()
        self.loader.offer(None if text is None else {"policy.yaml": text})
        await asyncio.wait_for(self.loader.loaded.wait(), SECONDS)


def acting(*offers: str | None) -> list[bool]:
    """After each offer, whether the worker may act."""

    async def test() -> list[bool]:
        world, found = World(), []
        async with world.running():
            for text in offers:
                await world.offer(text)
                found.append(world.policy.problem is None)
                assert world.policy.usable.is_set() is found[-1]
        return found

    return asyncio.run(test())


def test_b2_the_worker_does_not_act_by_the_built_in_policy_because_a_document_is_broken() -> None:
    assert acting(BROKEN) == [False]
    assert acting(BROKEN, GOOD) == [False, True]
    assert acting(None, BROKEN, None) == [True, False, True], "a cluster without a policy has the built-in one"


def test_b2_a_good_document_stays_in_use_when_the_next_one_is_broken() -> None:
    assert acting(GOOD, BROKEN) == [True, True]
    assert acting(GOOD, None, BROKEN) == [True, True, False]


def test_b2_the_problem_names_the_mistake(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> str | None:
        world = World()
        async with world.running():
            await world.offer(BROKEN)
            await world.offer(f"{BROKEN}# the same mistake\n")
            return world.policy.problem

    problem = asyncio.run(test())
    assert problem is not None
    assert problem.startswith("no policy could be loaded, so nothing is evicted: data[policy.yaml].eviction[0].rate: ")
    waiting = [record for record in caplog.records if record.msg == "waiting for a policy that can be loaded"]
    assert len(waiting) == 1, "logged once for each mistake"


def test_b2_what_follows_the_policy_does_not_start_before_there_is_one(tmp_path: Path) -> None:
    """The lease, the canary and the evictions come after these stages."""
    path = tmp_path / "p.yaml"
    path.write_text(GOOD)
    settings = parse_evict("program", [f"--policy-file={path}"], {})
    path.write_text(BROKEN)  # after the flags were looked at

    async def test() -> None:
        world = World()
        stages = policy_stages(NO_CLUSTER, settings, world.loader, world.metrics)
        async with asyncio.timeout(SECONDS):
            work = [asyncio.create_task(stage.work()) for stage in stages if stage.work is not None]
            for stage in stages:
                await stage.start()
            last = asyncio.ensure_future(world.policy.acquired())
            await world.loader.loaded.wait()
            assert not last.done()
            path.write_text(GOOD)
            await last
            assert world.policy.policy.hash != "builtin"
            for task in work:
                task.cancel()

    asyncio.run(test())


def test_another_policy_is_in_use_as_soon_as_it_was_read() -> None:
    async def test() -> World:
        world = World()
        async with world.running():
            for text in (GOOD, BROKEN, GOOD, None):
                await world.offer(text)
        return world

    world = asyncio.run(test())
    good, builtin = dict.fromkeys(world.replaced)
    assert world.replaced == [good, good, builtin], "a document that is written again is read again"
    assert builtin == world.policy.policy.hash == "builtin"


def test_profiles_are_those_of_the_policy_in_use() -> None:
    async def test() -> list[float]:
        world, rates = World(), []
        async with world.running():
            for text in (GOOD, BROKEN, OTHER):
                await world.offer(text)
                rates.append(world.policy.profiles.all[0].settings.rate)
        return rates

    assert asyncio.run(test()) == [3, 3, 4]
