"""What becomes of a ceiling that several rules have when the patch, its rules or their marks change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.hurried import LoopClock, at_work, hurried
from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.patched import (
    PATCH,
    POOL_0,
    POOL_1,
    TOGETHER,
    counted,
    drop,
    fill,
    for_hardware,
    limited,
    name_of,
    of_patch,
    part,
    patch,
    stopped,
    two_stopped,
)
from tests.unit.eviction.world import FREE, World
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import COUNTED_PODS, EVICTED_PODS, DeviceSelector, RuleOrigin
from webhook.api.taints import DeviceTaint
from webhook.eviction.controller import Controller
from webhook.eviction.modes import InTree, Mode
from webhook.eviction.planner import Planner
from webhook.eviction.ports import Ceiling


def test_rules_that_replace_others_take_over_what_was_counted() -> None:
    """Otherwise a patch would start from zero whenever its expansion changes."""
    world = limited(3, pools=(0, 1))
    world.add(part(0))
    assert len(world.after(20)) == 2
    world.add(part(1, name="other"))
    drop(world, name_of(0))
    assert len(world.after(20)) == 2
    assert stopped(world, "other").startswith(f"{TOGETHER} 4 pods, the limit is 3")
    assert world.condition("other", COUNTED_PODS)[2] == "2"
    assert EVICTED_PODS not in [each.type for each in world.inventory.rules["other"].conditions]


@pytest.mark.parametrize("text", ["", "made up"], ids=["as it was", "changed meanwhile"])
def test_patch_that_has_no_rules_for_a_while_does_not_start_from_zero(text: str) -> None:
    world = limited(3, {"one": 3}, pools=(0, 1))
    world.set_patch(patch())
    world.add(part(0))
    world.advance(20)
    drop(world, name_of(0))
    world.set_patch(patch(text=text))
    world.advance(600)
    world.add(part(1), part(2))
    assert len(world.after(20)) == 2
    assert stopped(world, name_of(2)).startswith(f"{TOGETHER} 4 pods, the limit is 3")
    counts = [each.message for each in world.inventory.rules[name_of(1)].conditions if each.type == COUNTED_PODS]
    assert counts == ["2"]


def nothing(_: World) -> None:
    """The patch need not even be known."""


def all_rules_made_anew(world: World) -> None:
    drop(world, name_of(0), name_of(1))
    world.add(part(0))


def rule_narrowed(world: World) -> None:
    world.edit(world.rule(name_of(1)), selector=DeviceSelector(DRIVER, "node-9"))


def another_rule(world: World) -> None:
    fill(world, 2)
    world.add(part(2))


def marked(*origins: RuleOrigin) -> Callable[[World], None]:
    """The guard does not judge labels, and each rule would have the whole limit for itself."""

    def mark(world: World) -> None:
        for number, origin in enumerate(origins):
            world.edit(world.rule(name_of(number)), origin=origin)

    return mark


def marked_as_of_a_confirmed_patch(world: World) -> None:
    """That would not write such a rule."""
    world.set_patch(patch("other", text="many"))
    known = world.rule(name_of(0))
    world.change(known, of_patch(known, "other"))


STOPPED: dict[str, tuple[Callable[[World], None], int]] = {
    "nothing": (nothing, 0),
    "all of its rules are made anew": (all_rules_made_anew, 2),
    "a rule is narrowed": (rule_narrowed, 2),
    "another rule comes": (another_rule, 0),
    "it gets a text that does not count": (lambda world: world.set_patch(patch(text="made up")), 0),
    "it gets one that does": (lambda world: world.set_patch(patch(text="many")), 4),
    "marks are removed by hand": (marked(RuleOrigin(), RuleOrigin()), 0),
    "marks of a patch that does not exist": (marked(of_patch(rule(), "made-up").origin), 0),
    "marks of a rule that does not exist": (marked(for_hardware(rule(), "made-up").origin), 0),
    "marks of a patch that would not write it": (marked_as_of_a_confirmed_patch, 0),
}


@pytest.mark.parametrize("known", [None, patch()], ids=["not known", "known"])
@pytest.mark.parametrize(("change", "evicted"), STOPPED.values(), ids=STOPPED)
def test_patch_that_is_stopped_goes_on_only_if_it_may_hit_less_or_more_is_confirmed(
    change: Callable[[World], None], evicted: int, known: ResourceSlicePatch | None
) -> None:
    world = two_stopped({"many": 9}, known)
    change(world)
    assert len(world.after(20)) == evicted
    assert any(stopped(world, name) for name in world.inventory.rules) is (evicted == 0)


def test_counts_of_patches_without_rules_are_kept_for_a_thousand_of_them() -> None:
    world = limited(0)
    groups = world.worker._core.ceilings
    for number in range(1003):
        each = part(0, name=f"r-{number}", patch=f"p-{number}", conditions=(counted(1),))
        world.add(each)
        world.remove(world.inventory.rules[each.meta.name])
    assert len(groups._groups) == len(groups._empty) == 1000
    assert next(iter(groups._empty)) == "uid-p-3"
    assert not groups._known


def test_patch_that_has_rules_again_is_not_forgotten_for_others() -> None:
    world = limited(0)
    groups = world.worker._core.ceilings
    for _ in range(2):
        world.add(part(0, conditions=(counted(1),)))
        world.remove(world.inventory.rules[name_of(0)])
    world.add(part(0))
    for number in range(1001):
        world.add(part(1, patch=f"p-{number}"))
        world.remove(world.inventory.rules[name_of(1, patch=f"p-{number}")])
    assert groups._groups["uid-firmware"].counting == 2
    assert "uid-firmware" not in groups._empty


def test_new_leader_adds_up_what_the_rules_have_written() -> None:
    world = limited(6, pools=(0, 1))
    world.add(part(0, conditions=(counted(3), counted(1, COUNTED_PODS))), part(1, conditions=(counted(2),)))
    world.advance(20)
    assert stopped(world, name_of(0)) == f"{TOGETHER} 7 pods, the limit is 6 and nothing was confirmed; 3 pods evicted"


def test_stopped_patch_that_is_narrowed_goes_on_after_its_rules_had_time_to_change() -> None:
    world = limited(3, pools=(0, 1, 2))
    world.add(*[part(number) for number in range(3)])
    world.advance(20)
    drop(world, name_of(2))
    world.advance(1.9)
    drop(world, name_of(1))
    assert world.evicted == []
    assert len(world.after(0.2)) == 2
    assert not stopped(world, name_of(0))


def test_policy_that_changes_nothing_is_one_look_at_a_stopped_patch() -> None:
    world = two_stopped()
    world.worker.replan_all()
    world.settle()
    planned = world.worker._core.planned
    world.advance(20)
    assert world.worker._core.planned == planned
    assert stopped(world, name_of(0))


@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule"])
def test_count_of_a_rule_that_is_gone_is_written_to_another_one_at_once(effect: str) -> None:
    """Also to one that evicts no pod."""
    world, other = limited(9, pools=(0,)), part(1, effect=effect)
    world.add(part(0), other)
    world.advance(60)
    assert not [each for each in world.rule(other.meta.name).conditions if each.type == COUNTED_PODS]
    drop(world, name_of(0))
    world.settle()
    assert world.condition(other.meta.name, COUNTED_PODS)[2] == "2"


def test_changes_of_many_rules_of_a_stopped_patch_are_few_looks_at_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    world, looks, steps = limited(3), list[float](), Planner.steps
    fill(world, *range(20))
    world.add(*[part(number) for number in range(20)])
    world.advance(20)

    def counted_steps(worker: Planner) -> Iterator[None]:
        looks.append(world.clock.elapsed)
        return steps(worker)

    monkeypatch.setattr(Planner, "steps", counted_steps)
    for number in range(20):
        known = world.inventory.rules[name_of(number)]
        meta = structs.replace(known.meta, annotations={"devicetaint.io/description": "changed"})
        world.edit(known, meta=meta)
    assert world.after(5) == []
    assert len(looks) == 2, "one at once, and one when the stop is lifted"
    assert all(stopped(world, name_of(number)) for number in range(20))


def test_limit_that_is_raised_holds_at_once_for_all_rules() -> None:
    most = [3]
    world = World(Mode.REPLACEMENT, FREE, patch_ceiling_of=lambda _, __: Ceiling(most[0], confirmed=False))
    fill(world, 0, 1)
    world.add(part(0), part(1))
    assert world.after(20) == []
    most[0] = 4
    world.worker.replan_all()
    assert len(world.settled()) == 4


def test_rule_that_is_edited_into_one_that_its_patch_would_not_write_counts_for_itself() -> None:
    """Admission judges the edit as that of any account, and no mark of the rule has changed."""
    world = limited(4)
    world.set_patch(patch())
    fill(world, 0, 1, 2)
    world.add(part(0))
    world.advance(20)
    world.edit(world.rule(name_of(0)), selector=POOL_1)
    world.add(part(2))
    assert len(world.after(20)) == 6


OTHER = DeviceTaint("example.com/other", "", "NoExecute")


@pytest.mark.parametrize(
    ("before", "after", "reset"),
    [
        pytest.param(patch(selector=POOL_0), patch(selector=POOL_1), True, id="other names"),
        pytest.param(patch(), patch(selector=POOL_1), False, id="narrower"),
        pytest.param(patch(), patch(priority=3), False, id="priority"),
        pytest.param(patch(), patch(PATCH, POOL_0, OTHER), True, id="other taint and narrower"),
        pytest.param(patch(), patch(PATCH, DeviceSelector(driver=DRIVER), OTHER), True, id="other taint"),
    ],
)
def test_only_a_patch_that_was_judged_as_a_whole_resets_the_count(
    before: ResourceSlicePatch, after: ResourceSlicePatch, *, reset: bool
) -> None:
    world = limited(3)
    world.set_patch(before)
    fill(world, 0, 1)
    world.add(part(0), part(9))
    world.advance(20)
    world.set_patch(after)
    world.advance(20)
    if reset:
        assert world.condition(name_of(0), COUNTED_PODS)[2] == "0"
    world.add(part(1))
    assert len(world.after(20)) == (4 if reset else 2)


def test_worker_that_starts_adds_up_before_it_evicts() -> None:
    world = limited(4)
    gone = part(1, conditions=(counted(3),), effect="NoSchedule")
    for each in (part(0), gone, claim("a", pool="node-0"), pod("a"), claim("b", pool="node-0"), pod("b")):
        world.inventory.apply(None, each)
    world.worker = Controller(world.deps, InTree.ABSENT)
    world.worker.start()
    assert world.after(20) == []
    assert stopped(world, name_of(0)).startswith(f"{TOGETHER} 5 pods, the limit is 4")


def test_rule_that_is_gone_meanwhile_counts_what_it_has_written_and_joins_nothing() -> None:
    """Its conditions may just be being made."""
    ceilings = limited(3).worker._core.ceilings
    gone = part(0, conditions=(counted(2),))
    assert (ceilings.tally_of(gone).total, ceilings.stopped(gone)) == (2, "")
    assert not ceilings._groups
    ceilings.forget(gone)


@pytest.mark.parametrize("confirmed", [True, False], ids=["by a text", "by time, as it is narrower"])
@hurried
async def test_worker_is_woken_when_a_stop_ends(*, confirmed: bool) -> None:
    world = limited(3, {"one": 9}, clock=LoopClock(), pools=(0, 1))
    world.add(part(0), part(1))
    async with at_work(world):
        await asyncio.sleep(20)
        assert stopped(world, name_of(0))
        if confirmed:
            world.set_patch(patch(text="one"))
        else:
            drop(world, name_of(1))
        await asyncio.sleep(0.1 if confirmed else 2.1)
        assert len(world.evicted) == (4 if confirmed else 2)


@pytest.mark.parametrize("confirmed", [True, False], ids=["by a text", "by time, as it is narrower"])
def test_rule_without_pods_says_too_that_its_patch_is_stopped_and_when_that_ends(*, confirmed: bool) -> None:
    world = limited(3, {"one": 9})
    world.set_patch(patch())
    fill(world, 0, 1)
    for number in range(2):
        world.add(part(number))
        world.advance(20)
    assert stopped(world, name_of(0)).startswith(f"{TOGETHER} 4 pods, the limit is 3")
    if confirmed:
        world.set_patch(patch(text="one"))
    else:
        drop(world, name_of(1))
    world.advance(20)
    assert world.condition(name_of(0)) == ("False", "Completed", "2 pods evicted")


def test_condition_of_a_rule_whose_stop_ends_waits_for_the_next_plan() -> None:
    """By the one before it nothing would be left to do."""
    world = two_stopped({"one": 9}, known=patch())
    world.set_patch(patch(text="one"))
    asyncio.run(world.worker.sync(name_of(0)))
    assert stopped(world, name_of(0))
    world.advance(20)
    assert world.condition(name_of(0)) == ("False", "Completed", "2 pods evicted")


def test_stopped_patch_of_one_rule_goes_on_at_once_when_that_is_narrowed() -> None:
    """There are no others that have to change as well."""
    world = limited(1, pools=(0,))
    world.add(part(0))
    world.advance(20)
    assert stopped(world, name_of(0))
    world.edit(world.rule(name_of(0)), selector=DeviceSelector(DRIVER, "node-0", "gpu-1"))
    assert world.settled() == ["pod-0-1"]


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again"])
def test_stop_is_logged_for_a_rule_that_is_there(caplog: pytest.LogCaptureFixture, *, again: bool) -> None:
    """The worker has not heard yet that the first one is gone."""
    world = limited(3, pools=(0, 1))
    world.add(part(0), part(1))
    known = world.inventory.rules[name_of(0)]
    world.inventory.apply(known, None)
    if again:
        world.inventory.apply(None, structs.replace(known, meta=structs.replace(known.meta, uid="another")))
    world.settle()
    assert [vars(each)["rule"] for each in caplog.records if each.message == "eviction stopped"] == [name_of(1)]
