"""The fallback beside the evictions: off unless asked for, and nothing that fails there reaches them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

from prometheus_client import CollectorRegistry, generate_latest

from tests.unit.cluster.peer import Fixed
from webhook.cluster.cache.admission_policies import AdmissionPolicyCache
from webhook.cluster.client.credentials import Access
from webhook.config.evict import parse_evict
from webhook.daemons import fallback
from webhook.daemons.fallback import FallbackSync, fallback_sync
from webhook.policy.store import PolicyStore

if TYPE_CHECKING:
    import pytest


def made(registry: CollectorRegistry, *arguments: str) -> FallbackSync | None:
    settings = parse_evict("program", arguments, {})
    return fallback_sync(Fixed(Access("http://127.0.0.1:1")), settings, PolicyStore(), registry, lambda: True)


def test_without_the_flag_there_is_none_and_no_series() -> None:
    registry = CollectorRegistry()
    assert made(registry) is None
    assert b"fallback" not in generate_latest(registry)
    assert made(registry, "--sync-admission-policies=report") is not None
    assert b'fallback_objects{state="missing"} 0.0' in generate_latest(registry)


def test_internal_error_is_logged_and_it_begins_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[int] = []
    third = asyncio.Event()

    async def failing(_: AdmissionPolicyCache) -> NoReturn:
        begun.append(len(begun))
        if len(begun) > 2:
            third.set()
        raise RuntimeError("a bug")

    monkeypatch.setattr(AdmissionPolicyCache, "run", failing)
    monkeypatch.setattr(fallback, "_AGAIN_SECONDS", 0.0)

    async def test() -> None:
        sync = made(CollectorRegistry(), "--sync-admission-policies=apply")
        assert sync is not None
        work = asyncio.create_task(sync.run())
        async with asyncio.timeout(30):
            await third.wait()
        assert not work.done()
        work.cancel()

    asyncio.run(test())
    assert "admission policies not in sync because of an internal error" in caplog.text
