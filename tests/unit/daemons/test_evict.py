"""The eviction worker: by which policy it acts, what it tells, and its ceilings, by confirmations or limits."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs

from tests.unit.eviction.objects import rule
from tests.unit.eviction.patched import part, patch
from webhook.admission.confirmation import ImpactToConfirm, Numbers, digest_of, text_of
from webhook.api.rules import CONFIRM_IMPACT
from webhook.config.workers import parse_evict
from webhook.daemons.evict import Worker
from webhook.eviction.ports import Ceiling
from webhook.policy.decide import BUILTIN_JUDGE, Judge
from webhook.policy.model import Policy

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
                rates.append(world.worker._pods.profiles[0].settings.rate)
        return rates

    assert asyncio.run(test()) == [3, 3, 4]


HIT = ImpactToConfirm(Numbers(30, 20, 10, 3))
BY_LIMITS = Ceiling(50, 10, confirmed=False)
ANOTHER = "it was printed for another object, or for this one before it was changed"


def worker_of(folder: Path) -> Worker:
    """A worker without a cluster, in mode observe."""
    return Worker(parse_evict("evict", [f"--kubeconfig={folder / 'kubeconfig'}", "--mode=observe"], {}))


def confirmed(judged: Any, hit: ImpactToConfirm = HIT) -> Any:
    text = text_of(hit, digest_of(judged, judged.meta.name, None))
    return structs.replace(judged, meta=structs.replace(judged.meta, annotations={CONFIRM_IMPACT: text}))


def test_lease_says_which_policy_is_in_use_and_which_was_the_last(tmp_path: Path) -> None:
    """H2: what is no longer written stays on the Lease, so `doctor` sees that a policy is gone."""
    worker = worker_of(tmp_path)

    def told(policy: Policy) -> dict[str, str]:
        worker._policies.use(Judge(policy))
        return {name: text for name, text in worker._on_lease.items() if "policy" in name}

    assert told(Policy(hash="abc")) == {"devicetaint.io/policy": "abc", "devicetaint.io/last-policy": "abc"}
    worker._policies.reject("it is broken")
    assert worker._on_lease["devicetaint.io/policy"] == "abc"
    assert told(BUILTIN_JUDGE.policy) == {"devicetaint.io/policy": "builtin"}


def test_policy_of_an_earlier_process_leaves_the_lease_with_the_first_one_that_follows_none(tmp_path: Path) -> None:
    words = [
        f"--kubeconfig={tmp_path / 'kubeconfig'}",
        "--mode=observe",
        "--policy-file",
        str(tmp_path / "policy.yaml"),
    ]
    annotations = Worker(parse_evict("evict", words, {}))._on_lease
    assert (annotations["devicetaint.io/policy"], annotations["devicetaint.io/last-policy"]) == ("", "")


def test_confirmation_of_a_patch_is_the_ceiling_of_its_rules(tmp_path: Path) -> None:
    """With the tolerance of the policy, which is 10 % without one, rounded up, and what was done before."""
    worker, whole = worker_of(tmp_path), patch()
    assert worker._patch_ceiling_of(part(0), whole) == BY_LIMITS
    assert worker._patch_ceiling_of(part(0), confirmed(whole)) == Ceiling(11, 4)
    assert worker._patch_ceiling_of(part(0), confirmed(whole, HIT._replace(done=96))) == Ceiling(107, 4)
    assert worker._ceiling_of(part(0)) == BY_LIMITS, "by its own, as any rule"
    assert worker._ceiling_of(confirmed(rule())) == Ceiling(11, 4)


def test_text_that_does_not_count_is_no_ceiling(tmp_path: Path) -> None:
    worker, plain = worker_of(tmp_path), rule()
    other = structs.replace(plain, meta=confirmed(rule("other")).meta)
    assert worker._ceiling_of(structs.replace(other, meta=structs.replace(other.meta, name="rule"))) == (
        BY_LIMITS._replace(text_problem=ANOTHER)
    )
    old = rule(annotations={CONFIRM_IMPACT: "v1.9999999999.8.4.4.1." + "A" * 38})
    assert worker._ceiling_of(old) == BY_LIMITS._replace(text_problem="it cannot be read")
    assert worker._ceiling_of(rule(annotations={CONFIRM_IMPACT: ""})) == BY_LIMITS


def test_patch_that_is_not_known_has_no_text_and_the_ceiling_says_why(tmp_path: Path) -> None:
    found = worker_of(tmp_path)._patch_ceiling_of(part(0), None)
    assert found == BY_LIMITS._replace(text_problem="the patch is not known: resourceslicepatches not read yet")


def test_patches_are_looked_for_and_readiness_does_not_depend_on_them(tmp_path: Path) -> None:
    worker = worker_of(tmp_path)
    worker.stages()
    assert dict(worker._checks.notes())["patches"] == "resourceslicepatches not read yet"
    assert "patches" not in dict(worker._checks.problems())
    assert dict(worker._patches.patches()) == {}
    worker._patches.reflector._store.upsert(patch())
