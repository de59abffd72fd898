"""Laws of pods that belong together, for gangs, owners, limits, budgets and answers of any kind."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.unit.eviction.objects import claim, owned, rule, tolerates
from tests.unit.eviction.world import Budget, FakeCluster, World
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, EvictionResult
from webhook.policy.model import EvictionProfile

if TYPE_CHECKING:
    import random

    from webhook.api.pods import Pod
    from webhook.eviction.ports import PodRef

OWNER = "leaderworkerset.sigs.k8s.io/name"
GANG = "leaderworkerset.sigs.k8s.io/group-key"


@dataclass(frozen=True)
class Gang:
    """`after`: when each of its pods is due, in seconds."""

    name: str
    owner: str
    after: tuple[int, ...]

    def pods(self) -> dict[str, int]:
        return {f"{self.name}-{rank}": seconds for rank, seconds in enumerate(self.after)}


def gangs_of(owners: list[list[list[int]]]) -> list[Gang]:
    return [
        Gang(f"g{first}{second}", f"owner-{first}", tuple(after))
        for first, gangs in enumerate(owners)
        for second, after in enumerate(gangs)
    ]


GANGS = st.lists(
    st.lists(st.lists(st.sampled_from([0, 0, 10, 30]), min_size=1, max_size=4), min_size=1, max_size=3),
    min_size=1,
    max_size=3,
).map(gangs_of)
PROFILES = st.builds(
    EvictionProfile,
    rate=st.sampled_from([1.0, 50.0]),
    burst=st.sampled_from([1, 100]),
    max_per_minute=st.none() | st.integers(1, 8),
    per_owner_unavailable=st.none() | st.integers(1, 2),
    per_namespace=st.none() | st.integers(1, 2),
    overall=st.none() | st.integers(1, 2),
)
FAILED = EvictionOutcome(EvictionResult.FAILED, "500")
BLOCKED = EvictionOutcome(EvictionResult.BLOCKED, "budget", 2.0)
ANSWERS = st.lists(st.sampled_from([EvictionOutcome(EvictionResult.EVICTED), FAILED, BLOCKED]), max_size=20)


class Witness(FakeCluster):
    """Knows at each eviction which gangs miss a pod."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.gang_of: dict[str, Gang] = {}
        self.missing: dict[str, set[str]] = {}
        """Pods that were evicted and are not ready again, by gang."""
        self.terminating: dict[str, set[str]] = {}
        self.broken_most: Counter[str] = Counter()
        """The most gangs of each owner, and of all (``), that missed a pod at one time."""
        self.rounds: Counter[str] = Counter()
        """How often each gang broke: it missed a pod after it was whole."""

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:
        outcome = await super().evict(pod, grace_period_seconds)
        if outcome.evicted:
            gang = self.gang_of[pod.name]
            missing = self.missing.setdefault(gang.name, set())
            if not missing:
                self.rounds[gang.name] += 1
            missing.add(pod.name)
            self.terminating.setdefault(gang.name, set()).add(pod.name)
            owners = {each.name: each.owner for each in self.gang_of.values()}
            broken = Counter(owners[name] for name, names in self.missing.items() if names)
            self.broken_most[gang.owner] = max(self.broken_most[gang.owner], broken[gang.owner])
            leaving = sum(map(bool, self.terminating.values()))
            self.broken_most[""] = max(self.broken_most[""], leaving)
        return outcome


def _pod(gang: Gang, name: str, uid: str = "", *, ready: bool = True) -> Pod:
    labels = tuple(sorted([(OWNER, gang.owner), (GANG, gang.name)]))
    fields = {"uid": uid} if uid else {}
    return owned(name, by=gang.owner, kind="StatefulSet", labels=labels, ready=ready, **fields)


def _world(profile: EvictionProfile, gangs: list[Gang]) -> tuple[World, Witness]:
    world = World(Mode.REPLACEMENT, profile, cluster=Witness)
    witness = world.cluster
    assert isinstance(witness, Witness)
    witness.lingering = True
    for gang in gangs:
        for name, seconds in gang.pods().items():
            witness.gang_of[name] = gang
            world.add(claim(name, tolerates(seconds), devices=(f"gpu-{name}",)), _pod(gang, name))
    return world, witness


def _live(world: World, witness: Witness, chance: random.Random) -> None:
    """Terminating pods end, and their replacements come and become ready, in any order."""
    while any(witness.missing.values()):
        name = chance.choice(sorted(name for names in witness.missing.values() for name in names))
        gang, pod = witness.gang_of[name], world.inventory.pods.get(f"ml/{name}")
        if pod is not None and pod.deleting:
            world.remove(pod, world.inventory.claims[f"ml/{name}-claim"])
            witness.terminating[gang.name].discard(name)
        elif pod is None:
            world.add(_pod(gang, name, f"uid-{name}-again", ready=False))
        else:
            witness.missing[gang.name].discard(name)
            world.change(pod, structs.replace(pod, ready=True))
        world.advance(chance.choice([0.0, 0.0, 0.1]))


@given(GANGS, PROFILES, st.tuples(ANSWERS, ANSWERS), st.randoms(use_true_random=False))
def test_gangs_are_never_mixed_and_limits_count_gangs(
    gangs: list[Gang],
    profile: EvictionProfile,
    answers: tuple[list[EvictionOutcome], list[EvictionOutcome]],
    chance: random.Random,
) -> None:
    """Whatever fails in between: each gang goes once, and another begins only if the limits let both miss pods."""
    world, witness = _world(profile, gangs)
    witness.answers, witness.dry_answers = map(deque, answers)
    world.add(rule())
    for _ in range(200):
        world.advance(chance.choice([0.5, 7.0, 20.0]))
        _live(world, witness, chance)
        if len(world.evicted) == len(witness.gang_of):
            break
    names = sorted(name for gang in gangs for name in gang.pods())
    assert sorted(world.evicted) == names, "each is evicted once"
    due = {name: seconds for gang in gangs for name, seconds in gang.pods().items()}
    assert all(when >= due[ref.partition("/")[2]] for _, ref, when in witness.calls)
    for gang in gangs:
        if isinstance(profile.per_owner_unavailable, int):
            assert witness.broken_most[gang.owner] <= profile.per_owner_unavailable
        if not any(answers):
            assert witness.rounds[gang.name] == 1
    for most in (profile.overall, profile.per_namespace):
        assert most is None or witness.broken_most[""] <= most


@given(GANGS, st.integers(0, 5), st.randoms(use_true_random=False))
def test_no_gang_is_begun_that_its_budget_does_not_allow_to_end(
    gangs: list[Gang], allowed: int, chance: random.Random
) -> None:
    """The budget's status is all that holds gangs back here: the Eviction API itself would allow every eviction.

    A single pod asks it even so, as a status may be late.
    """
    world, witness = _world(EvictionProfile(rate=10_000, burst=100_000), gangs)
    world.add_budget(Budget(allows_at=0.0, every_seconds=0.0, status=allowed))
    world.add(rule())
    for _ in range(3 * len(gangs)):
        world.advance(40)
        _live(world, witness, chance)
        world.worker.observe_budget("ml", "0")
    gone = Counter(witness.gang_of[name].name for name in world.evicted)
    assert gone == {gang.name: len(gang.after) for gang in gangs if len(gang.after) <= max(allowed, 1)}
