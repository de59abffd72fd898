"""Laws of ceilings that several rules share, over histories of rules and pods, also while requests are in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.eviction.objects import claim, pod
from tests.unit.eviction.patched import limited, name_of, part
from tests.unit.eviction.slow import SlowAnswers, slow

if TYPE_CHECKING:
    from tests.unit.eviction.world import World

POOLS: Final = 4
LIMIT: Final = 3
steps = st.one_of(
    st.tuples(st.sampled_from(["rule", "again", "drop", "pod", "gone", "pod", "pod"]), st.integers(0, POOLS - 1)),
    st.tuples(st.sampled_from(["wait", "restart", "lose", "plan"]), st.just(0)),
)
between = st.lists(st.lists(steps.filter(lambda step: step[0] not in ("wait", "restart")), max_size=4), max_size=6)


class History:
    """One patch under a limit, whose rules and pods come and go."""

    def __init__(self, in_flight: list[list[tuple[str, int]]] | None = None) -> None:
        """`in_flight`: what happens before each answer to an eviction."""
        self._in_flight = in_flight or []
        self.evicted = 0
        self._pods = 0
        self.world = self._started()

    def _started(self) -> World:
        world = limited(LIMIT, cluster=SlowAnswers)
        slow(world).before_answer = self._before_answer
        return world

    def _before_answer(self) -> None:
        for what, pool in self._in_flight.pop() if self._in_flight else ():
            self.step(what, pool)
        slow(self.world).before_answer = self._before_answer

    def step(self, what: str, pool: int) -> None:
        world, rules = self.world, self.world.inventory.rules
        if what in ("rule", "again"):
            self._add_rule(pool, again=what == "again")
        elif what == "drop":
            for name in (name_of(pool), f"more-{pool}"):
                if name in rules:
                    world.remove(rules[name])
        elif what == "pod":
            self._pods += 1
            name = f"pod-{pool}-{self._pods}"
            world.add(claim(name, pool=f"node-{pool}", devices=(f"gpu-{self._pods}",)), pod(name))
        elif what == "gone":
            for each in [each for key, each in world.inventory.pods.items() if key.startswith(f"ml/pod-{pool}-")][:1]:
                world.remove(each)
        elif what == "lose":
            slow(world).lost += 1
        elif what == "plan":
            world.catch_up()
        else:
            self._wait(restart=what == "restart")

    def _add_rule(self, pool: int, *, again: bool) -> None:
        name, key = (f"more-{pool}", "example.com/b") if again else (name_of(pool), "example.com/a")
        if name not in self.world.inventory.rules:
            self.world.add(part(pool, name=name, key=key))

    def _wait(self, *, restart: bool) -> None:
        """Another process begins with what is in the cluster; it has no memory of rules that are gone."""
        self.world.advance(30)
        if not (restart and self.world.inventory.rules):
            return
        self.evicted += len(self.world.evicted)
        before, self.world = self.world.inventory, self._started()
        for objects in (before.rules, before.claims, before.pods):
            self.world.add(*objects.values())

    def check(self) -> None:
        """No more went than may, and what the rules hit as pods come and go is what there is."""
        assert self.evicted + len(self.world.evicted) <= LIMIT
        inventory = self.world.inventory
        pools = {each.selector.pool for each in inventory.rules.values() if each.selector is not None}
        hit = {key for key in inventory.pods if f"node-{key.split('-')[1]}" in pools}
        assert self.world.worker._core.affected.hit.keys() == hit


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=25), between)
def test_patch_evicts_no_more_than_its_limit_whatever_becomes_of_its_rules(
    moves: list[tuple[str, int]], in_flight: list[list[tuple[str, int]]]
) -> None:
    history = History(in_flight)
    for what, pool in moves:
        history.step(what, pool)
        history.check()
    history.step("wait", 0)
    history.check()


def test_history_that_stays_below_the_limit_evicts_all_pods() -> None:
    history = History()
    for move in (("rule", 0), ("again", 0), ("pod", 0), ("pod", 0), ("wait", 0), ("restart", 0), ("pod", 0)):
        history.step(*move)
    history.step("wait", 0)
    assert history.evicted + len(history.world.evicted) == LIMIT
