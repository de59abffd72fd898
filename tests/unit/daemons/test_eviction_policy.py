"""Which policy the worker acts by, and when it does not act because there is none."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

from webhook.config.workers import parse_evict
from webhook.daemons.evict import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from webhook.eviction.controller import Controller

HEAD = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
GOOD = f"{HEAD}eviction: [{{rate: 3}}]\n"
OTHER = f"{HEAD}eviction: [{{rate: 4}}]\n"
BROKEN = f"{HEAD}eviction: [{{rate: fast}}]\n"
SECONDS = 60.0


class World:
    """A worker, whose policy is offered as a ConfigMap's data would be. Nothing is asked of its cluster."""

    def __init__(self, *flags: str) -> None:
        self.worker = Worker(parse_evict("evict", ["--kubeconfig=/nonexistent", *flags], {}))
        self.loader = self.worker._policy_loader
        self.replaced: list[str] = []
        self.worker._controller = cast("Controller", self)

    def replan_all(self) -> None:
        """What the worker asks of its controller."""
        self.replaced.append(self.worker._policy.hash)

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
                found.append(world.worker._policy_problem is None)
                assert world.worker._usable.is_set() is found[-1]
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
            return world.worker._policy_problem

    problem = asyncio.run(test())
    assert problem is not None
    assert problem.startswith("no policy could be loaded, so nothing is evicted: data[policy.yaml].eviction[0].rate: ")
    waiting = [record for record in caplog.records if record.msg == "waiting for a policy that can be loaded"]
    assert len(waiting) == 1, "logged once for each mistake"


def test_b2_what_follows_the_policy_does_not_start_before_there_is_one(tmp_path: Path) -> None:
    """The lease, the canary and the evictions come after these stages."""
    path = tmp_path / "p.yaml"
    path.write_text(GOOD)

    async def test() -> None:
        world = World(f"--policy-file={path}")
        path.write_text(BROKEN)  # after the flags were looked at
        stages = world.worker._policy_stages()
        async with asyncio.timeout(SECONDS):
            work = [asyncio.create_task(stage.work()) for stage in stages if stage.work is not None]
            for stage in stages:
                await stage.start()
            last = asyncio.ensure_future(world.worker._usable.wait())
            await world.loader.loaded.wait()
            assert not last.done()
            path.write_text(GOOD)
            await last
            assert world.worker._policy.hash != "builtin"
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
    assert builtin == world.worker._policy.hash == "builtin"


def test_profiles_are_those_of_the_policy_in_use() -> None:
    async def test() -> list[float]:
        world, rates = World(), []
        async with world.running():
            for text in (GOOD, BROKEN, OTHER):
                await world.offer(text)
                rates.append(world.worker._profiles.all[0].settings.rate)
        return rates

    assert asyncio.run(test()) == [3, 3, 4]
