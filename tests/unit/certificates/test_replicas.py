"""Several replicas in any order, paused and killed anywhere: nobody serves what an API server does not trust."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.unit.certificates.world import MINUTE, World

pytestmark = pytest.mark.slow

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)
WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""An example takes half a second, and shrinking would take minutes."""
NUMBERS = st.integers(0, 2)
ACTIONS = st.one_of(
    st.tuples(st.just("step"), NUMBERS),
    st.tuples(st.just("look"), NUMBERS),
    st.tuples(st.just("minutes"), st.integers(1, 12)),
    st.tuples(st.just("restart"), NUMBERS),
)

STARVED = 10 * MINUTE
"""One may be held up for ever; all of them for so long, a little less than a CA that is due has left."""


def act(world: World, action: str, number: int) -> None:
    if action == "step":
        world.replicas[number].step()
    elif action == "look":
        world.replicas[number].look()
    elif action == "restart":
        world.restart(number)
    else:
        world.now += number * MINUTE
    if action == "look":
        world.looked = world.now
    elif world.now - world.looked > STARVED:
        world.pass_minutes(2)
    world.check()


def settle_down(world: World) -> None:
    """For the life of a CA everybody looks each minute: no call fails, and all end in the same state."""
    world.pass_minutes(1)  # the rest of looks that were begun before
    for _ in range(100):
        world.check()
        world.pass_minutes(1)
        assert [replica.source.problem for replica in world.replicas] == [None] * len(world.replicas)
    while world.secret.authorities.next is not None or world.secret.authorities.old:
        world.pass_minutes(1)
        world.check()
    signing = world.secret.authorities.signing
    assert signing is not None
    assert {replica.issuer for replica in world.replicas} == {signing.pair.certificate}
    assert set(world.validating.bundles) == set(world.mutating.bundles) == {signing.pair.certificate}


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=SLOW, phases=WITHOUT_SHRINKING)
@given(st.lists(ACTIONS, min_size=20, max_size=100))
@pytest.mark.whole
def test_in_any_order_no_replica_serves_what_is_not_trusted(actions: list[tuple[str, int]]) -> None:
    world = World.settled(3)
    for action, number in actions:
        act(world, action, number)
    settle_down(world)


def make_ready(minutes: int) -> World:
    """Two replicas, so many minutes after the installation."""
    world = World(2)
    world.pass_minutes(minutes)
    return world


# Made at minute 1 and due at 68, the successor promoted at 73, the old CA dropped at 99.
MOMENTS = {"make": 67, "promote": 72, "drop": 98}


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_between_any_two_requests_of_a_rotation_the_others_go_on(moment: str) -> None:
    """The first replica takes so many steps of the moment's look, and is never seen again."""
    before = make_ready(MOMENTS[moment])
    version = before.secret.version
    before.pass_minutes(2)
    assert before.secret.version > version, "the moment is not where it was thought to be"
    for steps in itertools.count():
        world = make_ready(MOMENTS[moment])
        world.now += MINUTE
        alive = all(world.replicas[0].step() for _ in range(steps))
        world.replicas.pop(0).die()
        world.check()
        settle_down(world)
        if not alive:
            break
    print(f"\n{moment}: {steps} requests")
    assert steps > 5


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("every", [148, pytest.param(37, marks=pytest.mark.whole)], ids=["a few", "more"])
def test_two_that_take_turns_in_any_way_agree(moment: str, every: int) -> None:
    """Some of the ways in which six requests of one and six of the other can follow each other."""
    for turns in list(itertools.combinations(range(12), 6))[::every]:
        world = make_ready(MOMENTS[moment])
        world.now += MINUTE
        for turn in range(12):
            world.replicas[turn in turns].step()
            world.check()
        world.pass_minutes(40)
        world.check()
        signing = world.secret.authorities.signing
        assert signing is not None
        assert {replica.issuer for replica in world.replicas} == {signing.pair.certificate}


def test_emptied_secret_leads_to_a_new_ca_without_a_failed_call() -> None:
    world = World.settled(3)
    before = world.secret.authorities.signing
    world.empty_secret()
    settle_down(world)
    after = world.secret.authorities.signing
    assert before is not None
    assert after is not None
    assert before != after


def test_secret_of_another_time_is_trusted_before_it_signs() -> None:
    """A backup was restored: it holds a CA that nobody trusts any more."""
    elsewhere = World.settled(1)
    world = World.settled(3)
    world.secret.put(elsewhere.secret.data)
    settle_down(world)
