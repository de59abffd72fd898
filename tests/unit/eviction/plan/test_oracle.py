"""The pass and the taking of places beside their naive oracle, in random small worlds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from datetime import datetime
from typing import Final

import pytest

from tests.unit.eviction.plan.oracle import Planned, Together, plan_of
from tests.unit.eviction.plan.take_oracle import Took, take_of
from tests.unit.eviction.plan.worlds import World, random_world
from webhook.eviction.gates import Room, Taking, take
from webhook.eviction.plan import EvictionPlan, plan
from webhook.eviction.pod_plan import StepReason, Unit, Wait
from webhook.eviction.ports import LimitKind

SEEDS: Final = 400
ALL_SEEDS: Final = 20_000
OFTEN: Final = 20
"""So often at least everything occurs in the first worlds."""
NO_WAITS: Final = frozenset(
    {StepReason.SAFE, StepReason.GONE, StepReason.DONE, StepReason.OBSERVED, StepReason.ALONE, StepReason.LIMITED}
)
"""What a pass says of no pod: such pods are not in it, or it is not about this mode; `take` sets the last."""


def time_text(time: datetime | None) -> str:
    return "never" if time is None else time.isoformat()


def plan_text(made: EvictionPlan | Planned) -> str:
    """All that the two have to agree on, one line for each thing."""
    leaving = made.terminating.values() if isinstance(made, Planned) else made.terminating
    eligible: list[Unit | Together] = [*made.eligible]
    units: dict[str, Unit | Together] = {**made.units}
    return "\n".join(
        [
            *[f"eligible {number}: {unit_text(unit)}" for number, unit in enumerate(eligible)],
            *[f"wait {uid}: {wait_text(wait)}" for uid, wait in sorted(made.waits.items())],
            *[f"unit of {uid}: {[each.key for each in unit.members]}" for uid, unit in sorted(units.items())],
            *[f"rule {uid}: {tuple(figures)}" for uid, figures in sorted(made.rules.items())],
            *[f"leaving {key}" for key in sorted([each.key for each in leaving])],
            *[
                f"going {uid}: {time_text(each.due)} {each.gang or '-'}{' along' if each.along else ''}"
                for uid, each in sorted(made.going.items())
            ],
            f"wakes {time_text(made.wake_at)}",
        ]
    )


def unit_text(unit: Unit | Together) -> str:
    return f"{unit.key} {[each.key for each in unit.members]}"


def wait_text(wait: Wait) -> str:
    cause = "" if wait.cause is None else wait.cause.name
    return f"{wait.reason.name} until {time_text(wait.until)} {wait.other} {cause} {wait.because!r}"


def take_text(made: Taking | Took) -> str:
    """The same of the units that go."""
    units: list[Unit | Together] = [*made.units]
    return "\n".join(
        [
            *[f"goes {number}: {unit_text(unit)}" for number, unit in enumerate(units)],
            *[
                f"wait {uid}: {wait.reason.name} until {time_text(wait.until)} {wait.limit}"
                for uid, wait in sorted(made.waits.items())
            ],
        ]
    )


def plan_by_product(world: World) -> EvictionPlan:
    return plan(world.view, world.ledger, world.pause, world.moment)


def take_by_product(world: World, made: EvictionPlan) -> Taking:
    ledger = deepcopy(world.ledger)
    room = Room(
        world.view,
        ledger,
        made,
        world.moment,
        budgets=world.budgets,
        profiles=world.profiles,
        owned=world.owned,
    )
    return take(made.eligible, room)


def difference(seed: int) -> str:
    """What the product and the oracle say of a world, where that is not the same; empty if it is."""
    world = random_world(seed)
    expected, made = plan_of(world), plan_by_product(world)
    texts = plan_text(expected), plan_text(made)
    if texts[0] == texts[1]:
        texts = take_text(take_of(world, expected)), take_text(take_by_product(world, made))
    if texts[0] == texts[1]:
        return ""
    wanted, given = [set(text.splitlines()) for text in texts]
    short = [f"- {line}" for line in sorted(wanted - given)] + [f"+ {line}" for line in sorted(given - wanted)]
    return "\n".join([f"seed {seed}", *short, "", "the oracle:", texts[0], "", "the product:", texts[1], ""])


@pytest.mark.parametrize("seed", range(SEEDS))
def test_product_says_what_the_oracle_says(seed: int) -> None:
    assert not (found := difference(seed)), found


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("first", range(SEEDS, ALL_SEEDS, SEEDS))
def test_product_says_what_the_oracle_says_in_many_more_worlds(first: int) -> None:
    found = {seed: text for seed in range(first, first + SEEDS) if (text := difference(seed))}
    assert not found, f"seeds {list(found)}\n\n" + "\n".join(list(found.values())[:3])


def test_world_follows_from_its_seed() -> None:
    assert plan_text(plan_of(random_world(7))) == plan_text(plan_of(random_world(7)))
    assert len({plan_text(plan_of(random_world(seed))) for seed in range(20)}) > 15


def test_everything_occurs_often() -> None:
    found = Counter[str]()
    for seed in range(2 * SEEDS):
        world = random_world(seed)
        made = plan_of(world)
        took = take_of(world, made)
        found.update([wait.reason.name for wait in made.waits.values()])
        found.update([wait.limit.kind.name for wait in took.waits.values() if wait.limit is not None])
        found.update(_features(made, took))
    wanted = [reason.name for reason in StepReason if reason not in NO_WAITS]
    wanted += [kind.name for kind in LimitKind if kind is not LimitKind.BREAKER]
    wanted += ["along", "stopped", "leaving", "unit that goes", "unit that waits", "wave", "unit that is taken"]
    assert not {name: found[name] for name in wanted if found[name] < OFTEN}, found


def _features(made: Planned, took: Took) -> Iterable[str]:
    """What else should occur, once for each time that it does."""
    yield from ["along" for each in made.going.values() if each.along]
    yield from ["stopped" for figures in made.rules.values() if figures.stopped]
    yield from ["leaving" for _ in made.terminating]
    eligible = {unit.members[0].uid for unit in made.eligible if len(unit.members) > 1}
    yield from ["unit that goes" for _ in eligible]
    yield from ["unit that waits" for _ in {unit.members[0].uid for unit in made.units.values()} - eligible]
    yield from ["unit that is taken" for unit in took.units if len(unit.members) > 1]
    yield from _waves(made)


def _waves(made: Planned) -> Iterable[str]:
    """Pods of a gang that are in another unit than the first of it."""
    firsts: Mapping[str, str] = {each.gang: uid for uid, each in sorted(made.going.items(), reverse=True) if each.gang}
    for uid, each in made.going.items():
        first = firsts.get(each.gang, uid)
        if first != uid and (uid not in made.units or made.units[uid] is not made.units.get(first)):
            yield "wave"
