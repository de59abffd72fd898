"""How many files a daemon may have open: each connection is one."""

from __future__ import annotations

import os
import resource
import signal

import pytest

from webhook import runtime
from webhook.runtime import Stage, Stages

HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


@pytest.mark.parametrize(
    ("given", "in_use"),
    [
        pytest.param(min(HARD, 1024), min(HARD, 65536), id="containerd's is raised"),
        pytest.param(min(HARD, 100_000), min(HARD, 100_000), id="a higher one stays"),
    ],
)
def test_process_may_open_more_files_than_a_container_starts_with(given: int, in_use: int) -> None:
    """Go raises the limit by itself; with 1024, as many idle connections kept probes from being answered."""
    seen: list[tuple[int, int]] = []

    async def look() -> None:
        seen.append(resource.getrlimit(resource.RLIMIT_NOFILE))
        os.kill(os.getpid(), signal.SIGTERM)

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (given, HARD))
        runtime.run(Stages([Stage(name="look", start=look)]))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert seen == [(in_use, HARD)]
