"""How long a slice waits for its next touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.cluster.peer import Answer, status, until
from tests.unit.cluster.test_slice_toucher import Server, touching
from webhook.cluster.patch_writer import MOST_SECONDS

if TYPE_CHECKING:
    import pytest


async def test_server_may_not_put_off_a_touch_for_longer_than_failures_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server()
    server.replies = [Answer(status(429, "busy"), 429, {"Retry-After": "86400"})]
    async with touching(server) as (toucher, _):
        asked: list[float] = []
        monkeypatch.setattr(toucher._queue, "add_rate_limited", lambda _, seconds: asked.append(seconds))
        toucher.want(["a"])
        await until(lambda: bool(asked), "the answer")
        assert asked == [MOST_SECONDS]
