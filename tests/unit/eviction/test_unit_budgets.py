"""Pods behind a disruption budget: those that belong together go all or none, and only those wait that it concerns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from tests.costs import calls_of
from tests.unit.eviction.objects import claim, pod, rule, using
from tests.unit.eviction.test_units import JOB_SET, gang, group, sharing
from tests.unit.eviction.world import FREE, NEVER, Budget, World, evicting, gentle
from webhook.api.pods import DisruptionBudget, PodClaim


def test_no_pod_goes_unless_the_budget_allows_all() -> None:
    world = gentle()
    budget = Budget(every_seconds=0.0, allows_at=0.0, status=2)
    world.add_budget(budget)
    world.add(*gang("a", "b", "c"), rule())
    assert world.after(60) == []
    assert len(world.cluster.dry_runs) <= 60 / 5 + 1
    budget.status = 3
    world.worker.observe_budget("ml", "0")
    assert sorted(world.settled()) == ["a", "b", "c"]


def test_single_pods_pass_a_gang_that_needs_more_than_its_budget_allows() -> None:
    world = gentle(budgets=[Budget(allows_at=0.0, status=1)])
    world.add(*gang("a", "b", priority=-1), claim("lone"), pod("lone"), rule())
    assert world.after(1) == ["lone"]


def test_budget_is_compared_with_a_large_gang_and_not_with_each_of_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    world = gentle(budgets=[Budget(every_seconds=0.0, allows_at=0.0, status=2)])
    world.add(*gang(*[f"rank-{number:03}" for number in range(200)]))
    looks, find = list[str](), world.find

    def counted(namespace: str, name: str) -> DisruptionBudget:
        looks.append(name)
        return find(namespace, name)

    monkeypatch.setattr(world, "find", counted)
    world.add(rule())
    assert world.settled() == []
    assert world.sample("pods_waiting", why="blocked") == 200
    assert 0 < len(looks) <= 10


# --- pods that need no disruption ----------------------------------------------------------------

UNREADY: dict[str, Any] = {"ready": False}
STATES: dict[str, dict[str, Any]] = {
    "ready": {},
    "unready": UNREADY,
    "pending": {"phase": "Pending"},
    "ending": {"deleting": True},
}

GANGS: dict[str, dict[str, Any]] = {
    "annotation": {"gang": "ring"},
    "PodGroup": {"pod_group": "ring"},
    "JobSet": {"labels": ((JOB_SET, "ring"),)},
    "LeaderWorkerSet": {
        "labels": (("leaderworkerset.sigs.k8s.io/group-key", "0a"), ("leaderworkerset.sigs.k8s.io/name", "ring"))
    },
    "Kueue": {"labels": (("kueue.x-k8s.io/pod-group-name", "ring"),)},
}


def ring(kind: str, *states: str) -> World:
    """Pods a, b and so on that go together, under a budget that lets pods go that are not ready."""
    world = evicting()
    fields = {name: STATES[state] for name, state in zip("abc", states, strict=False)}
    if kind == "PodGroup":
        world.add(group())
    if kind == "claim":
        sharing(world, "both", *[pod(name, claims=(PodClaim("both-claim"),), **each) for name, each in fields.items()])
        return world
    for name, each in fields.items():
        world.add(claim(name, devices=(f"gpu-{name}",)), pod(name, **GANGS.get(kind, {}), **each))
    return world


def keeping(world: World, allowed: int, **fields: Any) -> Budget:
    """A budget over all pods; the API server grants as many disruptions as its status has."""
    budget = Budget(allows_at=0.0 if allowed else NEVER, every_seconds=0.0, status=allowed, **fields)
    world.add_budget(budget)
    return budget


@pytest.mark.parametrize("kind", [*GANGS, "claim"])
@pytest.mark.parametrize(
    ("states", "allowed", "gone"),
    [
        ("unready unready", 0, "ab"),
        ("pending pending", 0, "ab"),
        ("unready pending ending", 0, "ab"),
        ("unready ready", 0, ""),
        ("unready ready", 1, "ab"),
        ("ready pending unready", 1, "abc"),
        ("ready ready unready", 1, ""),
        ("ready ready unready", 2, "abc"),
    ],
)
def test_unit_needs_what_its_members_need(kind: str, states: str, allowed: int, gone: str) -> None:
    world = ring(kind, *states.split())
    keeping(world, allowed, always=True)
    world.add(rule())
    assert sorted(world.after(30)) == sorted(gone)
    waiting = len(states.split()) - states.split().count("ending") - len(gone)
    assert world.sample("pods_waiting", why="blocked") == waiting


@pytest.mark.parametrize(
    ("healthy", "desired", "gone"), [(1, 2, 0), (2, 2, 12), (3, 2, 12), (0, 0, 0)], ids=["below", "at", "above", "none"]
)
def test_single_pods_that_need_no_disruption_do_not_wait_for_each_other(healthy: int, desired: int, gone: int) -> None:
    """They go at the profile's rate, and pass one that needs a disruption and comes before them."""
    world = evicting(claim("first"), pod("first", priority=-1), rate=10.0, burst=1)
    world.add(*using(*[f"p{number}" for number in range(12)], on="gpu-{}", **UNREADY))
    keeping(world, 0, healthy=healthy, desired=desired)
    world.add(rule())
    assert len(world.after(2)) == gone
    assert "first" not in world.evicted
    assert world.sample("pods_waiting", why="blocked") == 13 - gone


@pytest.mark.parametrize(("other", "gone"), [(0, []), (1, ["a", "b"])])
def test_unit_needs_a_disruption_of_each_budget_that_guards_a_member(other: int, gone: list[str]) -> None:
    world = ring("annotation", "ready", "ready")
    keeping(world, 1, selects="a")
    keeping(world, other, selects="b")
    world.add(rule())
    assert sorted(world.after(30)) == gone


def test_waiting_pods_go_at_once_that_their_budget_does_not_concern_any_more() -> None:
    """Also behind one that it does concern."""
    world = evicting()
    for name, fields in (("a", {}), ("b", UNREADY), ("c", UNREADY)):
        world.add(claim(name, devices=(f"gpu-{name}",)), pod(name, **fields))
    keeping(world, 0, healthy=1, desired=2)
    world.add(rule())
    assert world.settled() == []
    budget_is_met(world)
    assert sorted(world.settled()) == ["b", "c"]
    one_is_unready(world)
    assert sorted(world.settled()) == ["a", "b", "c"]


def one_ends(world: World) -> None:
    world.edit(world.pod("a"), phase="Failed", ready=False)


def one_is_unready(world: World) -> None:
    world.edit(world.pod("a"), ready=False)


def budget_is_met(world: World) -> None:
    world.budgets[0].healthy = 2
    world.worker.observe_budgets("ml", "0")


@pytest.mark.parametrize("kind", [*GANGS, "claim"])
@pytest.mark.parametrize(
    ("states", "allowed", "budget", "change", "gone"),
    [
        (("ready", "ready"), 1, {}, one_ends, ["b"]),
        (("ready", "unready"), 0, {"always": True}, one_is_unready, ["a", "b"]),
        (("ready", "unready"), 1, {"healthy": 1, "desired": 2}, budget_is_met, ["a", "b"]),
    ],
)
def test_waiting_unit_goes_at_once_when_its_budget_does_not_concern_a_member_any_more(
    kind: str,
    states: tuple[str, str],
    allowed: int,
    budget: dict[str, Any],
    change: Callable[[World], None],
    gone: list[str],
) -> None:
    world = ring(kind, *states)
    keeping(world, allowed, **budget)
    world.add(rule())
    assert world.settled() == []
    change(world)
    assert sorted(world.settled()) == gone


def calls_to_let_unready_pods_go(ready: int) -> int:
    """What it costs while this many pods that are ready wait for the budget."""
    world = evicting()
    for name in map(str, range(ready)):
        world.add(claim(name, devices=(f"gpu-{name}",)), pod(name))
    budget = keeping(world, 0, healthy=1, desired=2)
    world.add(rule())
    world.advance(10)
    assert world.sample("pods_waiting", why="blocked") == ready
    budget.healthy = 2

    def flip(flipped: World) -> None:
        flipped.worker.observe_budgets("ml", "0")
        flipped.settle()

    return calls_of(flip, lambda: world)


def test_budget_that_lets_unready_pods_go_costs_next_to_nothing_for_those_that_are_ready() -> None:
    """It may begin to do so every few seconds, and to try a pod that waits takes a hundred calls."""
    assert calls_to_let_unready_pods_go(220) - calls_to_let_unready_pods_go(20) < 5 * 200


def test_unit_past_its_deadline_goes_whole_whoever_needs_a_disruption() -> None:
    world = ring("annotation", "ready", "unready")
    world.change_policy(structs.replace(FREE, deadline_seconds=20.0, delete_after_deadline=True))
    keeping(world, 0, always=True)
    world.add(rule())
    world.advance(60)
    assert sorted((name, verb) for verb, name, _ in world.cluster.calls) == [("ml/a", "delete"), ("ml/b", "evict")]


def test_no_member_goes_if_one_begins_to_need_a_disruption_before_the_requests() -> None:
    world = ring("annotation", "ready", "unready")
    keeping(world, 1, always=True)
    world.cluster.meanwhile.append(lambda: world.edit(world.pod("b"), ready=True))
    world.add(rule())
    world.advance(30)
    assert world.cluster.requests == []


def test_pod_that_needs_no_disruption_is_read_before_it_goes() -> None:
    """The Eviction API ignores the version that a request names if the pod is not ready and a budget selects it."""
    world = evicting(claim("a"), pod("a", **UNREADY))
    keeping(world, 0, always=True)
    world.cluster.ahead["a"] = pod("a", hold="not now", **UNREADY)
    world.add(rule())
    world.settle()
    assert (world.cluster.reads, world.evicted) == (["a"], [])
