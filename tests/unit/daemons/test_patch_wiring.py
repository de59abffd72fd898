"""How the daemon `patch` gets its policy: patches do not wait for it, and reactions never go without it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from webhook.config.workers import parse_patch
from webhook.daemons.patch import Patcher

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
GOOD = f"{HEAD}reactions: [{{when: {{driver: d.example.com, key: d.example.com/k}}, then: {{effect: NoSchedule}}}}]\n"
BROKEN = f"{HEAD}reactions: 3\n"
SECONDS = 60.0


def patcher_with(folder: Path, text: str) -> Patcher:
    path = folder / "policy.yaml"
    path.write_text(text)
    return Patcher(parse_patch("patch", [f"--kubeconfig={folder / 'kubeconfig'}", f"--policy-file={path}"], {}))


def ready_lines(patcher: Patcher) -> list[str]:
    lines = patcher._metrics.exposition("")[0].decode().splitlines()
    return [each for each in lines if each.startswith("device_taint_webhook_readiness_check")]


def drivers(patcher: Patcher) -> list[str] | None:
    reactions = patcher._reactions._parts.reactions()
    return None if reactions is None else [each.driver for each in reactions]


def test_process_is_not_ready_before_it_has_a_policy(tmp_path: Path) -> None:
    patcher = patcher_with(tmp_path, GOOD)
    patcher.stages()
    assert 'device_taint_webhook_readiness_check{check="policy"} 0.0' in ready_lines(patcher)


def test_patches_do_not_wait_for_the_policy_and_reactions_do(tmp_path: Path) -> None:
    patcher = patcher_with(tmp_path, BROKEN)

    async def test() -> None:
        stages = [each for each in patcher.stages()._stages if each.name.startswith("policy")]
        assert len(stages) == 2
        work = [asyncio.create_task(each.work()) for each in stages if each.work is not None]
        async with asyncio.timeout(SECONDS):
            for each in stages:
                await each.start()
        async with asyncio.timeout(SECONDS):
            await patcher._policy_loader.loaded.wait()
            assert drivers(patcher) is None
            assert 'device_taint_webhook_readiness_check{check="policy"} 0.0' in ready_lines(patcher)
            patcher._reactions._loop._woken.clear()
            (tmp_path / "policy.yaml").write_text(GOOD)
            await patcher._reactions._loop._woken.wait()
        assert drivers(patcher) == ["d.example.com"]
        assert 'device_taint_webhook_readiness_check{check="policy"} 1.0' in ready_lines(patcher)
        for task in work:
            task.cancel()

    asyncio.run(test())
