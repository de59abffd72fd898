"""The pass, who finds room, and the look at the write beside their naive oracle, in random small worlds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import pytest

from tests.builders import DRIVER
from tests.unit.eviction.plan.inventories import NIC
from tests.unit.eviction.plan.oracle import Planned, Together, leaves, plan_of
from tests.unit.eviction.plan.take_oracle import Took, take_of
from tests.unit.eviction.plan.taking import Taking, line_in, planned_in
from tests.unit.eviction.plan.worlds import World, random_world
from webhook.eviction.ledger import Moment
from webhook.eviction.plan import still_goes
from webhook.eviction.pod_plan import EvictionPlan, StepReason, Unit, Wait
from webhook.eviction.ports import LimitKind
from webhook.policy.model import Pause

SEEDS: Final = 400
ALL_SEEDS: Final = 20_000
OFTEN: Final = 20
"""So often at least everything occurs in the first worlds."""
LATER: Final = (3.0, 7.0, 31.0)
"""When limits are looked at again, in seconds."""


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


def take_texts(expected: Took, taking: Taking) -> tuple[str, str]:
    """The same of the units that go, and of the limits that are named for the others: any that is closed will do."""
    texts = [going_text(expected.units)], [going_text(taking.units)]
    for uid in sorted(expected.waits.keys() | taking.waits.keys()):
        closed, named = expected.waits.get(uid, {}).values(), taking.waits.get(uid)
        said = "nothing" if named is None else limit_text(named)
        right = named is not None and any(_names(named, each) for each in closed)
        texts[0].append(f"{uid} waits for {said if right else ' or '.join(map(limit_text, closed))}")
        texts[1].append(f"{uid} waits for {said}")
    return "\n".join(texts[0]), "\n".join(texts[1])


def _names(named: Wait, closed: Wait) -> bool:
    """Whether it is the same limit, which nobody looks at too late: others may have taken of it meanwhile."""
    same = named.limit == closed.limit
    return same and (named.until == closed.until or bool(named.until and closed.until and named.until < closed.until))


def going_text(units: Sequence[Unit | Together]) -> str:
    return "\n".join([f"goes {number}: {unit_text(unit)}" for number, unit in enumerate(units)])


def limit_text(wait: Wait) -> str:
    return f"{wait.limit} until {time_text(wait.until)}"


def difference(seed: int) -> str:
    """What the product and the oracle say of a world, where that is not the same; empty if it is."""
    for texts in _texts_of(random_world(seed)):
        if texts[0] != texts[1]:
            return _difference(seed, texts)
    return ""


def _texts_of(world: World) -> Iterator[tuple[str, str]]:
    """What the oracle and the product say of a world: who may go, who finds room, and who does so later."""
    expected, made = plan_of(world), planned_in(world)
    yield plan_text(expected), plan_text(made)
    line = line_in(world, made)
    took = take_of(world, expected)
    yield take_texts(took, line.take())
    if any(each.settings.delete_after_deadline for each in world.profiles):
        return  # without answers in the meantime, such pods ask the budget again
    seconds = LATER[world.seed % len(LATER)]
    later = replace(
        world,
        ledger=deepcopy(line.room.ledger),
        moment=Moment(world.moment.now + timedelta(seconds=seconds), world.moment.seconds + seconds),
    )
    line.pass_time(seconds)
    left = replace(expected, eligible=[unit for unit in expected.eligible if unit not in took.units])
    yield going_text(take_of(later, left).units), going_text(line.take().units)


def _difference(seed: int, texts: tuple[str, str]) -> str:
    wanted, given = [set(text.splitlines()) for text in texts]
    short = [f"- {line}" for line in sorted(wanted - given)] + [f"+ {line}" for line in sorted(given - wanted)]
    return "\n".join([f"seed {seed}", *short, "", "the oracle:", texts[0], "", "the product:", texts[1], ""])


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(SEEDS))
def test_product_says_what_the_oracle_says(seed: int) -> None:
    assert not (found := difference(seed)), found


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("first", range(SEEDS, ALL_SEEDS, SEEDS))
def test_product_says_what_the_oracle_says_in_many_more_worlds(first: int) -> None:
    found = {seed: text for seed in range(first, first + SEEDS) if (text := difference(seed))}
    assert not found, f"seeds {list(found)}\n\n" + "\n".join(list(found.values())[:3])


def other_worlds(world: World) -> Iterator[World]:
    """A world in which something has happened, for each thing that can."""
    view, ledger, (now, seconds) = world.view, deepcopy(world.ledger), world.moment
    ledger.tripped = frozenset({DRIVER, NIC}) - ledger.tripped
    yield world
    yield replace(world, ledger=ledger)
    yield replace(world, view=replace(view, hold_of=lambda namespace: "release week" if namespace == "ml" else None))
    yield replace(world, view=replace(view, exceeded=lambda _group, pods, *_: "it hits too many" if pods > 2 else ""))
    yield replace(world, pause=Pause(now + timedelta(seconds=5)))
    yield replace(world, moment=Moment(now - timedelta(seconds=30), seconds - 30))


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(SEEDS // 4))
def test_taken_unit_still_goes_if_the_pass_would_let_it_go_at_this_moment(seed: int) -> None:
    world = random_world(seed)
    made = planned_in(world)
    for unit in line_in(world, made).take().units[:2]:
        uids = frozenset([each.uid for each in unit.members])
        for other in other_worlds(world):
            room = line_in(other, made).room
            room.admit(unit)
            goes = any(uids == {each.uid for each in one.members} for one in plan_of(other).eligible)
            assert still_goes(other.view, room.ledger, other.pause, other.moment, uids) is goes, unit.key


def test_world_follows_from_its_seed() -> None:
    assert plan_text(plan_of(random_world(7))) == plan_text(plan_of(random_world(7)))
    assert len({plan_text(plan_of(random_world(seed))) for seed in range(20)}) > 15


@pytest.mark.slow
@pytest.mark.whole
def test_everything_occurs_often() -> None:
    found = Counter[str]()
    for seed in range(2 * SEEDS):
        world = random_world(seed)
        made = plan_of(world)
        took = take_of(world, made)
        found.update([wait.reason.name for wait in made.waits.values()])
        found.update([limit.kind.name for closed in took.waits.values() for limit in closed])
        found.update(_features(made, took))
        found.update(_begun(world, made))
    wanted = [reason.name for reason in StepReason if reason is not StepReason.LIMITED]  # that comes after the pass
    wanted += [kind.name for kind in LimitKind]
    wanted += ["along", "stopped", "leaving", "unit that goes", "unit that waits", "wave", "unit that is taken"]
    wanted += ["request that the watch outran", "rest of a unit"]
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


def _begun(world: World, made: Planned) -> Iterable[str]:
    """Requests without an answer for pods that are gone or leaving, and units of which others have left."""
    pods = world.view.inventory.pods
    asked = {each.key for uid in world.ledger.in_flight if (each := world.ledger.taken[uid]).rules}
    yield from ["request that the watch outran" for key in asked if key not in pods or leaves(pods[key])]
    begun = {uid for uid, each in world.ledger.failures.items() if each.place and each.unit in world.ledger.begun}
    rest = [unit for unit in made.eligible if any(each.uid in begun for each in unit.members)]
    yield from ["rest of a unit" for _ in rest]


def _waves(made: Planned) -> Iterable[str]:
    """Pods of a gang that are in another unit than the first of it."""
    firsts: Mapping[str, str] = {each.gang: uid for uid, each in sorted(made.going.items(), reverse=True) if each.gang}
    for uid, each in made.going.items():
        first = firsts.get(each.gang, uid)
        if first != uid and (uid not in made.units or made.units[uid] is not made.units.get(first)):
            yield "wave"
