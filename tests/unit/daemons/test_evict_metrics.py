"""What a worker tells about itself from its start, before it has reached any cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from webhook.config.workers import parse_evict
from webhook.daemons.evict import Worker

if TYPE_CHECKING:
    from pathlib import Path


def exposed(folder: Path, *arguments: str) -> list[str]:
    """The lines of its metrics."""
    worker = Worker(parse_evict("evict", [f"--kubeconfig={folder / 'kubeconfig'}", *arguments], {}))
    worker.stages()
    return worker._metrics.exposition("")[0].decode().splitlines()


@pytest.mark.parametrize("mode", ["observe", "delegated", "replacement"])
def test_worker_tells_its_mode_and_that_it_is_not_ready(tmp_path: Path, mode: str) -> None:
    """H1, M0: alerts ask in which mode the last one ran."""
    lines = exposed(tmp_path, f"--mode={mode}", "--audit-interval=20m")
    assert f'device_taint_webhook_eviction_mode{{mode="{mode}"}} 1.0' in lines
    assert "device_taint_webhook_ready 0.0" in lines
    assert 'device_taint_webhook_readiness_check{check="policy"} 0.0' in lines
    assert "device_taint_webhook_audit_interval_seconds 1200.0" in lines
