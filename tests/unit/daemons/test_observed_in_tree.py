"""Mode observe believes the policy about the in-tree controller, also when it changes."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.daemons.test_evict import HEAD, World
from webhook.daemons.evict import Unsafe

ACTIVE, ABSENT = f"{HEAD}inTreeEvictor: active\n", f"{HEAD}inTreeEvictor: absent\n"


def ending(*offers: str | None, flags: tuple[str, ...] = ()) -> str:
    """Why the worker ends after these policies, of which it started with the first; empty if it goes on."""

    async def test() -> str:
        world = World("--mode=observe", *flags)
        async with world.running():
            watching = asyncio.create_task(world.worker._watch_in_tree())
            await world.offer(offers[0])
            await world.worker._find_in_tree()
            for text in offers[1:]:
                await world.offer(text)
            for _ in range(5):
                await asyncio.sleep(0)
            if not watching.done():
                watching.cancel()
                return ""
            with pytest.raises(Unsafe) as caught:
                await watching
            return str(caught.value)

    return asyncio.run(test())


@pytest.mark.parametrize("offers", [(ACTIVE, ABSENT), (ABSENT, ACTIVE), (None, ABSENT)])
def test_worker_that_observes_starts_again_when_the_policy_says_otherwise(offers: tuple[str | None, ...]) -> None:
    assert ending(*offers) == "inTreeEvictor in the policy has changed: mode observe has to start again"


@pytest.mark.parametrize(
    ("offers", "flags"),
    [
        ((ACTIVE, f"{ACTIVE}eviction: [{{rate: 7}}]\n", None), ()),
        ((ABSENT, None, ABSENT), ()),
        ((ACTIVE, ABSENT), ("--in-tree=active",)),
    ],
    ids=["something else changed", "the policy was deleted for a time", "the flag says it"],
)
def test_worker_that_observes_goes_on_otherwise(offers: tuple[str | None, ...], flags: tuple[str, ...]) -> None:
    assert ending(*offers, flags=flags) == ""
