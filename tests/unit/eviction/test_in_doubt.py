"""What changes between the decision and the request, and requests of which nobody knows what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import claim, pod, rule, sharers
from tests.unit.eviction.slow import UNSURE
from tests.unit.eviction.world import BLUNT, FakeCluster, World, evicting
from webhook.api.rules import DeviceSelector
from webhook.eviction import controller
from webhook.eviction.pod_plan import Unit
from webhook.eviction.ports import EvictionOutcome, EvictionResult, PodRef
from webhook.policy.model import Pause

REFUSED = EvictionOutcome(EvictionResult.FAILED, "POST /api/v1/...: 403: not now")
NAMESAKE = structs.replace(pod("one"), meta=structs.replace(pod("one").meta, uid="uid-namesake"))


def take(world: World) -> Unit:
    """The next unit in line, once all is planned."""
    world.catch_up()
    taken = world.worker.take()
    assert taken is not None
    return taken


def taint_goes(world: World) -> None:
    world.remove(world.inventory.rules["rule"])


def pause_begins(world: World) -> None:
    world.pause = Pause(NOW + timedelta(hours=1))


def pause_ends(world: World) -> None:
    world.pause = None


MAY_NOT_ACT: dict[str, tuple[Callable[[World], None], Callable[[World], None]]] = {
    "in doubt": (lambda world: setattr(world, "trusted", False), lambda world: setattr(world, "trusted", True)),
    "paused": (pause_begins, pause_ends),
    "behind": (lambda world: world.worker._core.affected.mark(["ml/one"]), lambda _: None),
}
CHANGES: dict[str, tuple[Callable[[World], None], Callable[[World], None] | None]] = {
    "taint": (taint_goes, None),
    "allocation": (lambda world: world.edit(claim("one"), allocation=None, reserved_for=()), None),
    "namesake": (lambda world: world.change(world.pod("one"), NAMESAKE), None),
    "hold": (lambda world: world.holds.update(ml="not now"), None),
    **MAY_NOT_ACT,
}


@pytest.mark.parametrize(("change", "back"), CHANGES.values(), ids=CHANGES)
def test_what_happens_while_an_eviction_waits_for_its_turn_is_heeded(
    change: Callable[[World], None], back: Callable[[World], None] | None
) -> None:
    world = evicting(claim("one"), pod("one"), rule(), base=BLUNT)
    taken = take(world)
    world.cluster.meanwhile.append(lambda: change(world))
    asyncio.run(world.worker.evict(taken))
    assert (world.evicted, world.sample("pods_under_way")) == ([], 0)
    if back is not None:
        back(world)
    assert world.after(60) == ([] if back is None else ["one"])


def test_taint_that_comes_back_while_an_eviction_waits_begins_anew() -> None:
    world = evicting(claim("one"), pod("one"), rule(), base=BLUNT)

    def again() -> None:
        taint_goes(world)
        world.add(rule())

    world.cluster.meanwhile.append(again)
    assert world.after(60) == ["one"]


@pytest.mark.parametrize("why", [*MAY_NOT_ACT, "stopping"])
def test_no_pod_is_taken_while_the_worker_may_not_act(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is taken uses up its rate and its place in the limits."""
    monkeypatch.setattr(controller, "_UNTRUSTED_POLL_SECONDS", 0.0)
    world = evicting(claim("one"), pod("one"), rule(), base=BLUNT)
    world.catch_up()
    if why == "stopping":
        world.worker._sender.stop()
    else:
        MAY_NOT_ACT[why][0](world)

    async def taken() -> Unit | None:
        try:
            async with asyncio.timeout(0.1):
                return await world.worker._next_unit()
        except TimeoutError:
            return None

    assert asyncio.run(taken()) is None
    assert take(world).members[0].uid == "uid-one"


@pytest.mark.parametrize(
    ("failure", "done", "looked_at", "evicted"),
    [(UNSURE, True, ["one"], []), (UNSURE, False, ["one"], ["one"]), (REFUSED, True, [], ["one"])],
    ids=["no answer, and done", "no answer, and not done", "refused, so surely not done"],
)
def test_pod_is_looked_at_where_nobody_knows_whether_it_was_evicted(
    failure: EvictionOutcome,
    done: bool,  # noqa: FBT001
    looked_at: list[str],
    evicted: list[str],
) -> None:
    world = evicting(base=BLUNT, answers=[failure])
    world.cluster.done_all_the_same = done
    world.add(claim("one"), pod("one"), rule())
    world.advance(60)
    assert (world.cluster.looked_at, world.evicted) == (looked_at, evicted)
    for each in [*world.inventory.pods.values()]:
        world.edit(each, deleting=True)
        world.remove(world.pod("one"))
    world.advance(700)
    assert not world.worker._core.ledger.doubts


def test_doubt_ends_with_the_next_clear_answer() -> None:
    world = evicting(claim("one"), pod("one"), rule(), base=BLUNT, answers=[UNSURE, REFUSED])
    world.advance(60)
    assert (world.cluster.looked_at, world.evicted) == (["one"], ["one"])


class Doubting(FakeCluster):
    """Every eviction fails, and brings the inventory into doubt."""

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:  # noqa: ARG002 -- any
        if not pod.wanted():
            return EvictionOutcome(EvictionResult.FAILED, withdrawn=True)
        self.world.trusted = False
        self.requests.append(("evict", str(pod), self.world.clock.passed()))
        return REFUSED


def test_request_that_is_not_sent_after_others_of_its_unit_counts_for_nothing() -> None:
    world = evicting(*sharers("a", "b"), rule(), cluster=Doubting, workers=1)
    asyncio.run(world.worker.evict(take(world)))
    assert len(world.cluster.requests) == 1
    assert not world.worker._core.ledger.rounds, "no round of evictions has begun"


def test_pod_that_turns_out_to_have_gone_takes_a_place_although_no_taint_hits_it() -> None:
    world = evicting(overall=1, lingering=True, answers=[UNSURE])
    world.add(claim("a"), pod("a"), claim("b", devices=("gpu-1",)), pod("b"))
    world.add(rule("first", selector=DeviceSelector(device="gpu-0")))
    world.settle()
    world.remove(world.inventory.rules["first"])
    world.settle()
    world.edit(world.pod("a"), deleting=True)
    world.add(rule("second", uid="uid-second", selector=DeviceSelector(device="gpu-1")))
    assert world.after(60) == []
    world.remove(world.pod("a"))
    assert world.after(60) == ["b"]
