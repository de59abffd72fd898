"""Every order of five events in a small world: three pods on two nodes, one gang, one budget, one hold, one rule.

At each moment of each of them:

- the pass says what its oracle says;
- no pod is taken that no taint evicts, that is not due, or that is on hold, and none twice;
- of a unit all pods are taken, or none;
- the budget is not asked for more than it allows, but by one unit at a time;
- a pod that does not go waits for something that has a name.

The pass has no memory, so worlds that are alike are looked at once, however they came about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import claim, owned, rule, slice_of, taint, tolerates
from tests.unit.eviction.plan.oracle import plan_of
from tests.unit.eviction.plan.take_oracle import take_of
from tests.unit.eviction.plan.taking import line_in, planned_in
from tests.unit.eviction.plan.test_oracle import plan_text, take_texts
from tests.unit.eviction.plan.worlds import Budgets, World
from webhook.api.claims import Consumer
from webhook.api.meta import ObjectMeta
from webhook.api.pods import DisruptionBudget, PodClaim
from webhook.api.rules import DeviceSelector
from webhook.eviction.ledger import Failure, Ledger, Moment, Taken, View
from webhook.eviction.pod_plan import Unit
from webhook.eviction.profiles import Profile
from webhook.inventory.evictions import Evictions
from webhook.inventory.pools import Evictor
from webhook.inventory.state import Inventory
from webhook.inventory.targets import EvictionScope
from webhook.policy.model import EvictionProfile, Pause

_SETTINGS: Final = EvictionProfile(rate=1.0, burst=3, per_owner_unavailable=2, overall=2, max_hold_seconds=600.0)
_PODS: Final = ("pod-a", "pod-b", "pod-c")
_PAUSE_SECONDS: Final = 60.0
_ALLOWED: Final = (None, 0, 2)


class State(NamedTuple):
    """A small world. `pods`: those that are there, and whether each is terminating."""

    shared: bool
    """The first two pods use one claim; else they are a gang."""
    passed: float = 0.0
    ruled: bool = True
    tainted: bool = False
    """The second node, in slices."""
    held: bool = False
    """The second pod."""
    quiet: bool = False
    """The namespace is on hold."""
    paused: bool = False
    unready: bool = False
    """The first pod."""
    allowed: int | None = None
    """By the budget, which is over the first two pods; None: there is none."""
    pods: tuple[tuple[str, bool], ...] = (("pod-a", False), ("pod-b", False), ("pod-c", False))
    taken: tuple[tuple[str, Taken], ...] = ()
    failed: tuple[str, ...] = ()

    def toggled(self, name: str) -> State:
        """The same with the other value of a field."""
        changed: dict[str, Any] = {name: not getattr(self, name)}
        return self._replace(**changed)


def world_of(state: State) -> World:
    """What the caches and the ledger show of it."""
    inventory = _inventory(state)
    profile = Profile(0, _SETTINGS)
    evictions = Evictions(inventory, EvictionScope(Evictor.OURS, asked=True), lambda _: NOW)
    evictions.everything()
    view = View(
        inventory=inventory,
        evictions=evictions,
        hit=evictions.hits(),
        profile_of=lambda _: profile,
        hold_of=lambda _: "release week" if state.quiet else None,
        group_of=str,
        exceeded=lambda _group, pods, *_: "it hits more than two pods" if pods > len(_PODS) - 1 else "",
    )
    budget = DisruptionBudget(ObjectMeta(name="web", namespace="ml"), None, state.allowed, 2, 2)
    over = {} if state.allowed is None else {f"uid-{name}": (budget,) for name in _PODS[:2]}
    ledger = Ledger(
        taken=dict(state.taken),
        failures={f"uid-{name}": Failure(1, 1000.0 + state.passed + 5.0) for name in state.failed},
    )
    return World(
        seed=0,
        view=view,
        ledger=ledger,
        budgets=Budgets(over, {("ml", "web"): budget}),
        profiles=(profile,),
        pause=Pause(NOW + timedelta(seconds=_PAUSE_SECONDS)) if state.paused else None,
        moment=Moment(NOW + timedelta(seconds=state.passed), 1000.0 + state.passed),
    )


def _inventory(state: State) -> Inventory:
    inventory = Inventory()
    for node in ("node-0", "node-1"):
        tainted = (taint(),) if state.tainted and node == "node-1" else ()
        inventory.apply(None, slice_of({"gpu-0": tainted}, name=node, pool=node))
    if state.ruled:
        inventory.apply(None, rule(selector=DeviceSelector(pool="node-0")))
    there, pods = dict(state.pods), inventory
    users = tuple([Consumer("", "pods", name, f"uid-{name}") for name in _PODS[:2] if name in there])
    pods.apply(None, claim("shared", pool="node-0", consumers=users))
    pods.apply(None, claim("pod-a", pool="node-0"))
    pods.apply(None, claim("pod-b", tolerates(30), pool="node-0"))
    pods.apply(None, claim("pod-c", tolerates(30), pool="node-1"))
    for name, deleting in state.pods:
        fields: dict[str, Any] = {"deleting": deleting, "grace_ends": NOW + timedelta(seconds=30) if deleting else None}
        if name != "pod-c":
            fields |= {"claims": (PodClaim("shared-claim"),)} if state.shared else {"gang": "ring"}
        fields["hold"] = "debugging" if state.held and name == "pod-b" else None
        fields["ready"] = not (state.unready and name == "pod-a")
        pods.apply(None, owned(name, **fields))
    return inventory


# --- events -------------------------------------------------------------------------------------


def _sent(state: State) -> State:
    """All that finds room is taken."""
    world = world_of(state)
    line = line_in(world, planned_in(world))
    line.take()
    taken = {
        uid: structs.replace(each, settings=None, tokens=(), budget=None)
        for uid, each in line.room.ledger.taken.items()
    }
    return state._replace(taken=tuple(sorted(taken.items())))


def _granted(state: State) -> State:
    """The first request is granted, and the watch shows it."""
    asked = [uid for uid, each in state.taken if not each.granted]
    if not asked:
        return state
    known = dict(state.taken)
    known[asked[0]] = structs.replace(known[asked[0]], granted=True)
    pods = tuple([(name, deleting or f"uid-{name}" == asked[0]) for name, deleting in state.pods])
    return state._replace(taken=tuple(sorted(known.items())), pods=pods)


def _refused(state: State) -> State:
    """The last request fails."""
    asked = [uid for uid, each in state.taken if not each.granted]
    if not asked:
        return state
    left = tuple([each for each in state.taken if each[0] != asked[-1]])
    return state._replace(taken=left, failed=(asked[-1].removeprefix("uid-"),))


def _ended(state: State) -> State:
    """Terminating pods are gone."""
    pods = tuple([each for each in state.pods if not each[1]])
    there = {f"uid-{name}" for name, _ in pods}
    return state._replace(pods=pods, taken=tuple([each for each in state.taken if each[0] in there]))


EVENTS: Final[Mapping[str, Callable[[State], State]]] = {
    "time passes": lambda state: state._replace(passed=state.passed + 30.0, failed=()),
    "the rule comes or goes": lambda state: state.toggled("ruled"),
    "the slice is tainted or not": lambda state: state.toggled("tainted"),
    "a pod is held or not": lambda state: state.toggled("held"),
    "the namespace is held or not": lambda state: state.toggled("quiet"),
    "a pause begins or ends": lambda state: state.toggled("paused"),
    "a pod is not ready, or is again": lambda state: state.toggled("unready"),
    "the budget allows more": lambda state: state._replace(
        allowed=_ALLOWED[(_ALLOWED.index(state.allowed) + 1) % len(_ALLOWED)]
    ),
    "requests are sent": _sent,
    "one is granted": _granted,
    "one fails": _refused,
    "pods end": _ended,
}


def reached(depth: int) -> Iterator[State]:
    """Each world that this number of events can lead to, once."""
    front = {State(shared=shared) for shared in (False, True)}
    seen = set(front)
    for _ in range(depth):
        front = {event(state) for state in front for event in EVENTS.values()} - seen
        seen |= front
    return iter(sorted(seen, key=repr))


# --- what holds ---------------------------------------------------------------------------------


def faults(state: State) -> Iterator[str]:
    """Whatever does not hold in a world."""
    world = world_of(state)
    expected, made = plan_of(world), planned_in(world)
    line = line_in(world, made)
    taking = line.take()
    if plan_text(made) != plan_text(expected):
        yield f"the plan: {plan_text(made)}\nis not {plan_text(expected)}"
    else:
        wanted, given = take_texts(take_of(world, expected), taking)
        if wanted != given:
            yield f"what goes: {given}\nis not {wanted}"
    for unit in taking.units:
        yield from _faults_of(unit, state, world)
        if {each.uid for each in made.units.get(unit.members[0].uid, unit).members} != {
            each.uid for each in unit.members
        }:
            yield f"{unit.key} goes in parts"
    asked = [each.in_flight for each in line.room.ledger.budgets.values() if each.in_flight]
    if sum(asked) > (state.allowed or 0) and len(asked) > 1:
        yield f"{asked} disruptions are asked for"
    yield from [f"{uid} waits for nothing" for uid, wait in taking.waits.items() if wait is None]


def _faults_of(unit: Unit, state: State, world: World) -> Iterator[str]:
    """What is wrong with a unit that goes."""
    paused = state.paused and state.passed < _PAUSE_SECONDS
    for each in unit.members:
        if each.uid in world.ledger.taken or each.pod.deleting:
            yield f"{each.key} goes twice"
        if each.key not in world.view.hit or each.due > world.moment.now:
            yield f"{each.key} is not due"
        if each.pod.hold is not None or state.quiet or paused:
            yield f"{each.key} is held"


@pytest.mark.parametrize(
    "depth", [pytest.param(5, id="five"), pytest.param(8, id="eight", marks=[pytest.mark.whole, pytest.mark.slow])]
)
def test_every_order_of_events_keeps_what_holds(depth: int) -> None:
    states = list(reached(depth))
    found = [(state, fault) for state in states for fault in faults(state)]
    assert not found, f"{len(found)} faults in {len(states)} worlds, such as {found[0][0]}:\n{found[0][1]}"
    assert len(states) > 100 * depth
