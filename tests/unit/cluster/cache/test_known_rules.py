"""Rules are written only once it is known which there are."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from webhook.cluster.cache.known_patches import KnownRules
from webhook.cluster.client.errors import NotFound


def test_rules_that_a_server_serves_again_are_not_written_before_they_were_read() -> None:
    """Else all of them would be written as new ones, with other times."""
    forgotten: list[bool] = []

    async def path() -> str:
        return "/rules"

    collection: Any = SimpleNamespace(resource="rules", path=path, forget=lambda: forgotten.append(True))
    reflector: Any = SimpleNamespace(unserved=True)
    rules = KnownRules(collection, reflector)
    with pytest.raises(NotFound, match="rules were not served, and have not been read since"):
        asyncio.run(rules.path())
    reflector.unserved = False
    assert asyncio.run(rules.path()) == "/rules"
    rules.forget()
    assert (rules.resource, forgotten) == ("rules", [True])
