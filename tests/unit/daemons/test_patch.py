"""The process of the patch controller: what it is made of, and its policy, without which no reaction acts."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.patches.patched import DRIVER, class_of, patch_of, slice_of
from tests.unit.patches.reacting import make_reaction
from webhook.api.meta import ObjectMeta
from webhook.cluster.cache.decoders import StoredClass
from webhook.cluster.client.errors import Refused
from webhook.config.workers import parse_patch
from webhook.daemons import evict, patch
from webhook.daemons.patch import Patcher
from webhook.patches.stored import StoredPatch
from webhook.policy.decide import BUILTIN_JUDGE, Judge
from webhook.policy.model import Policy
from webhook.runtime import Stage, Stages

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from webhook.policy.model import Reaction


HEAD = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
GOOD = f"{HEAD}reactions: [{{when: {{driver: d.example.com, key: d.example.com/k}}, then: {{effect: NoSchedule}}}}]\n"
BROKEN = f"{HEAD}reactions: 3\n"
SECONDS = 60.0


def patcher(folder: Path, *arguments: str) -> Patcher:
    return Patcher(parse_patch("patch", [f"--kubeconfig={folder / 'kubeconfig'}", *arguments], {}))


def ready_lines(patcher: Patcher) -> list[str]:
    lines = patcher._metrics.exposition("")[0].decode().splitlines()
    return [each for each in lines if each.startswith("device_taint_webhook_readiness_check")]


def drivers(patcher: Patcher) -> list[str] | None:
    reactions = patcher._reactions._parts.reactions()
    return None if reactions is None else [each.driver for each in reactions]


def test_patches_do_not_wait_for_the_policy_and_reactions_do(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(BROKEN)
    process = patcher(tmp_path, f"--policy-file={tmp_path / 'policy.yaml'}")

    async def test() -> None:
        stages = [each for each in process.stages()._stages if each.name.startswith("policy")]
        assert len(stages) == 2
        work = [asyncio.create_task(each.work()) for each in stages if each.work is not None]
        async with asyncio.timeout(SECONDS):
            for each in stages:
                await each.start()
        async with asyncio.timeout(SECONDS):
            await process._policy_loader.loaded.wait()
            assert drivers(process) is None
            assert 'device_taint_webhook_readiness_check{check="policy"} 0.0' in ready_lines(process)
            process._reactions._loop._woken.clear()
            (tmp_path / "policy.yaml").write_text(GOOD)
            await process._reactions._loop._woken.wait()
        assert drivers(process) == ["d.example.com"]
        assert 'device_taint_webhook_readiness_check{check="policy"} 1.0' in ready_lines(process)
        for task in work:
            task.cancel()

    asyncio.run(test())


REACTIONS = (make_reaction(),)
JUDGE = Judge(Policy(reactions=REACTIONS))


@pytest.mark.usefixtures("process_settings")
@pytest.mark.parametrize("daemon", [patch, evict])
def test_error_of_the_api_server_ends_it_with_one_line(
    daemon: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """L15: a traceback of ours says nothing about the server."""

    async def refused() -> None:
        raise Refused("POST /apis/x: 403: no", code=403)

    worker = "Patcher" if daemon is patch else "Worker"
    monkeypatch.setattr(f"{daemon.__name__}.{worker}.stages", lambda _: Stages([Stage(name="x", start=refused)]))
    mode = [] if daemon is patch else ["--mode=observe"]
    assert daemon.run([f"--kubeconfig={tmp_path / 'kubeconfig'}", *mode]) == 1
    [line] = [json.loads(each) for each in capfd.readouterr().err.splitlines() if "stopped by an error" in each]
    assert (line["error"], "trace" in line) == ("POST /apis/x: 403: no", False)


def test_slices_are_left_alone_unless_that_is_asked_for(tmp_path: Path) -> None:
    assert patcher(tmp_path)._keeper is None
    assert patcher(tmp_path)._controller._parts.applied(StoredPatch(patch_of())) == (0, None)


def test_what_the_caches_tell_reaches_the_keeper_and_the_controller(tmp_path: Path) -> None:
    process = patcher(tmp_path, "--slice-attributes")
    cache, keeper = process._cache, process._keeper
    assert keeper is not None
    value = slice_of("gpu-0", name="s")
    patch = StoredPatch(patch_of("one", device_class_name="gpu", attributes={f"{DRIVER}/n": 7}))
    [(_, gpu)] = class_of("gpu", "true").items()
    gpus = StoredClass(ObjectMeta("gpu"), gpu)
    cache.slices._store.upsert(value)
    cache.patches._store.upsert(patch)
    cache.classes._store.upsert(gpus)
    ledger = keeper._ledger
    assert ledger.take(9) == [value]
    assert (ledger.patches.patches, ledger.patches.classes) == ((patch.patch,), {"gpu": gpu})
    assert process._controller.index.patches == {"one": patch.patch}
    cache.patches._store.delete(patch)
    cache.classes._store.delete(gpus)
    assert (ledger.patches.patches, ledger.patches.classes) == ((), {})


def test_process_that_has_not_read_everything_writes_no_slice(tmp_path: Path) -> None:
    process = patcher(tmp_path, "--slice-attributes")
    assert process._keeper is not None
    assert not process._keeper._parts.current()
    waiting = process._controller.waiting
    process._controller.observe_patch("one", StoredPatch(patch_of("one")))
    process._keeper._parts.report(["one", "gone"])
    assert process._controller.waiting == waiting + 1


WAIT = "no policy could be loaded, so reactions wait: line 1: no"


@pytest.mark.parametrize(
    ("policies", "problem", "reactions"),
    [
        pytest.param([], "the policy has not been read yet", None, id="none was read"),
        pytest.param(["line 1: no"], WAIT, None, id="it is broken: no reactions would delete all rules"),
        pytest.param(["no", JUDGE], None, REACTIONS, id="the first that can be loaded"),
        pytest.param([JUDGE, "no"], None, REACTIONS, id="one that is broken later changes nothing"),
        pytest.param([JUDGE, BUILTIN_JUDGE], None, (), id="one that is gone has none"),
    ],
)
def test_reactions_are_those_of_the_last_policy_that_could_be_loaded(
    policies: list[Any], problem: str | None, reactions: tuple[Reaction, ...] | None, tmp_path: Path
) -> None:
    process, seen = patcher(tmp_path), list[object]()
    asked = process._reactions._parts.reactions
    process._reactions.observe_policy = lambda: seen.append(asked())  # type: ignore[method-assign]
    for each in policies:
        if isinstance(each, str):
            process._policies.reject(each)
        else:
            process._policies.use(each)
    assert (process._policy_problem, asked()) == (problem, reactions)
    assert reactions is None or seen[-1] == reactions, "changes are passed on"
