"""What `deadline` is measured from, and what a DELETE still has to respect."""

from __future__ import annotations

from collections import deque

from msgspec import structs

from tests.unit.cluster.acting import RULES, acting_cluster
from tests.unit.cluster.peer import Answer, Peer, run, status
from tests.unit.eviction.hurried import by
from tests.unit.eviction.objects import claim, owned, pod, rule, slice_of, taint, tolerates, using
from tests.unit.eviction.world import BLOCKED, FREE, Budget, World, evicting
from webhook.cluster.events import EventWriter
from webhook.cluster.eviction_writer import EvictionWriter
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, PodRef
from webhook.policy.model import EvictionProfile

DELETES = structs.replace(FREE, deadline_seconds=600, delete_after_deadline=True)


def verbs(world: World) -> list[str]:
    return [verb for verb, _, _ in world.cluster.calls]


def deployment(world: World, count: int) -> None:
    world.add(*using(*[f"web-{number:02}" for number in range(count)], on="{}", make=owned))


# --- budgets that make progress -----------------------------------------------------------------


def test_deadline_runs_from_the_last_progress_of_the_budget() -> None:
    """H3: a budget that lets one pod of 30 go each minute makes progress, so no pod is deleted past it."""
    gentle = EvictionProfile(deadline_seconds=600, delete_after_deadline=True)
    world = evicting(base=gentle, budgets=[Budget(every_seconds=60, allows_at=0.0)])
    deployment(world, 30)
    world.add(rule())
    world.advance(700)
    assert "delete" not in verbs(world)


def test_limit_of_the_owner_holds_for_pods_that_are_deleted_past_their_budget() -> None:
    world = World(Mode.REPLACEMENT, EvictionProfile(deadline_seconds=0, delete_after_deadline=True))
    world.add_budget(Budget())
    world.cluster.lingering = True
    deployment(world, 10)
    world.add(rule())
    assert len(world.after(5)) <= 1


def refusal(cause: str) -> Answer:
    """A 429 of the Eviction API; the two differ in the text of the cause."""
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    details = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    return Answer(status(429, message, details=details), 429)


@by(run)
async def test_budget_that_is_still_being_processed_differs_from_a_budget_that_refuses() -> None:
    """H3: `deadline` must not start while the disruption controller is away, so the two outcomes must differ."""
    outcomes: list[EvictionOutcome] = []
    async with Peer() as peer, acting_cluster(peer) as cluster:
        writer = EvictionWriter(cluster, RULES, EventWriter(cluster, instance="evict-0", now=None), None)  # type: ignore[arg-type]
        for cause in (
            "The disruption budget web needs 3 healthy pods and has 3 currently",
            "The disruption budget web is still being processed by the server.",
        ):
            peer.answers.append(refusal(cause))
            outcome = await writer.evict(PodRef("ml", "pod", "u1"), None)
            outcomes.append(outcome._replace(text="", retry_after_seconds=0.0))
    assert outcomes[0] != outcomes[1]


# --- waits that are no progress -----------------------------------------------------------------


def test_pod_is_not_deleted_when_its_budget_has_not_been_asked_for_hours() -> None:
    """M2: after a hold of two hours the Eviction API is asked again before a pod is deleted past its budget."""
    world = World(Mode.REPLACEMENT, DELETES)
    world.cluster.answers = deque([BLOCKED])
    world.add(claim("pod"), pod("pod"), rule())
    world.settle()
    assert world.cluster.requests == [("evict", "ml/pod", 0.0)]
    world.holds["ml"] = "release week"
    world.worker.requeue_waiting("ml")
    world.advance(7200)
    world.holds.clear()
    world.worker.requeue_waiting("ml")
    world.advance(1)
    assert verbs(world) == ["evict"]


# --- pools that are published again -------------------------------------------------------------


def republished(every_seconds: float, times: int) -> World:
    """A pod blocked by its budget, on a pool of two slices that the driver publishes again and again, in turn."""
    world = evicting(base=DELETES, budgets=[Budget()])
    broken = taint()
    world.add(claim("pod"), pod("pod"))
    for generation in range(1, times + 1):
        for name, devices in (("slice-a", {"gpu-9": ()}), ("slice-b", {"gpu-0": (broken,)})):
            fresh = structs.replace(slice_of(devices, name=name, generation=generation), slice_count=2)
            world.change(world.inventory.slices.get(name), fresh)
            world.settle()
        world.advance(every_seconds)
    return world


def test_deadline_survives_that_a_pool_is_published_again() -> None:
    assert verbs(republished(300, 8)) == ["delete"]


def test_eviction_is_not_cancelled_because_a_pool_is_published_again() -> None:
    """M6: while the newest generation is incomplete the last complete one counts, and no eviction is cancelled."""
    world = republished(30, 4)
    assert [note.text for note in world.cluster.events if "Cancel" in note.text] == []


def test_device_that_a_pool_has_lost_evicts_nobody() -> None:
    """M6: not while the generation is incomplete, however long that lasts."""
    world = evicting(slice_of({"gpu-0": (taint(),)}), claim("pod", tolerates(300)), pod("pod"))
    world.settle()
    other = slice_of({"gpu-9": ()}, name="other", generation=2)
    world.add(structs.replace(other, slice_count=2))
    assert world.after(3600) == []
