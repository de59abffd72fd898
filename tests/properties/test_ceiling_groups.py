"""Laws of ceilings that several rules share, over random histories of rules and pods."""

from __future__ import annotations

from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.eviction.objects import claim, pod
from tests.unit.eviction.patched import limited, part

POOLS: Final = 4
LIMIT: Final = 3
steps = st.one_of(
    st.tuples(st.sampled_from(["rule", "again", "drop", "pod", "gone", "pod", "pod"]), st.integers(0, POOLS - 1)),
    st.tuples(st.sampled_from(["wait", "restart"]), st.just(0)),
)


class History:
    """One patch under a limit, whose rules and pods come and go."""

    def __init__(self) -> None:
        self.world = limited(LIMIT)
        self.evicted = 0
        self._pods = 0

    def step(self, what: str, pool: int) -> None:
        world, rules = self.world, self.world.inventory.rules
        if what in ("rule", "again"):
            name, key = (f"part-{pool}", "example.com/a") if what == "rule" else (f"more-{pool}", "example.com/b")
            if name not in rules:
                world.add(part(pool, name=name, key=key))
        elif what == "drop":
            for name in (f"part-{pool}", f"more-{pool}"):
                if name in rules:
                    world.remove(rules[name])
        elif what == "pod":
            self._pods += 1
            name = f"pod-{pool}-{self._pods}"
            world.add(claim(name, pool=f"node-{pool}", devices=(f"gpu-{self._pods}",)), pod(name))
        elif what == "gone":
            for each in [each for key, each in world.inventory.pods.items() if key.startswith(f"ml/pod-{pool}-")][:1]:
                world.remove(each)
        else:
            world.advance(30)
            if what == "restart" and rules:
                self._restart()

    def _restart(self) -> None:
        """Another process begins with what is in the cluster; it has no memory of rules that are gone."""
        self.evicted += len(self.world.evicted)
        before, self.world = self.world.inventory, limited(LIMIT)
        for objects in (before.rules, before.claims, before.pods):
            self.world.add(*objects.values())

    def check(self) -> None:
        """No more went than may, and what is counted as pods come and go is what there is."""
        assert self.evicted + len(self.world.evicted) <= LIMIT
        plans = self.world.worker.plans
        union = {plan.uid for each in self.world.inventory.rules.values() for plan in plans.of_rule(each.meta.uid)}
        assert plans.hits.counts_in("uid-firmware")[0] == len(union)


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=25))
def test_patch_evicts_no_more_than_its_limit_whatever_becomes_of_its_rules(moves: list[tuple[str, int]]) -> None:
    history = History()
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
