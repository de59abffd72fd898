"""Rules of a patch were judged as one impact: they share a ceiling, count together and stop together."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import pytest
from msgspec import structs

from tests.builders import DRIVER, KEY
from tests.costs import calls_of
from tests.unit.eviction.objects import claim, pod, rule, slice_of, tolerates
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
    owner_of_siblings,
    part,
    patch,
    sibling,
    stopped,
    two_stopped,
)
from tests.unit.eviction.world import FREE, World, evicting
from webhook.api.rules import (
    CONFIRM_IMPACT,
    COUNTED_PODS,
    EVICTED_PODS,
    HARDWARE,
    SCOPE,
    DeviceSelector,
    DeviceTaintRule,
    RuleOrigin,
)
from webhook.api.slices import Device
from webhook.api.taints import DeviceTaint
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Ceiling
from webhook.inventory.targets import rule_name

# --- together -------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [5, 6])
def test_rules_of_a_patch_that_exceed_the_limit_together_stop_before_the_first_eviction(limit: int) -> None:
    world = limited(limit, pools=(0, 1, 2))
    world.add(*[part(number) for number in range(3)])
    assert len(world.after(60)) == (6 if limit == 6 else 0)
    told = f"{TOGETHER} 6 pods, the limit is 5 and nothing was confirmed; 0 pods evicted" if limit < 6 else ""
    assert [stopped(world, name_of(number)) for number in range(3)] == [told] * 3
    assert world.told("EvictionStopped") == ([name_of(0), name_of(1), name_of(2)] if told else [])


def test_rules_that_were_judged_one_by_one_do_not_count_together() -> None:
    """Those of two patches, and those of other authors."""
    world = limited(2, pools=(0, 1, 2, 3))
    half = RuleOrigin(PATCH, "uid-firmware", patch=True)
    label_of_another = structs.replace(half, of_patch="uid-other")
    marks = (RuleOrigin(of_patch="uid-firmware"), half, label_of_another)
    rules = [structs.replace(part(number), origin=origin) for number, origin in enumerate(marks)]
    world.add(*rules, part(3, patch="other"))
    assert len(world.after(60)) == 8


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_softened_patch_whose_rules_come_one_by_one_stops_after_at_most_the_limit(order: tuple[int, ...]) -> None:
    world = limited(5, mode=Mode.DELEGATED, pools=(0, 1, 2, 3))
    for number in order:
        world.add(part(number, softened=True))
        world.advance(20)
    assert len(world.evicted) == 4
    message = stopped(world, name_of(0, softened=True))
    assert message.startswith(f"{TOGETHER} 6 pods, the limit is 5 and nothing was confirmed; its devices stay closed")
    where = f"pods stay until {CONFIRM_IMPACT} on ResourceSlicePatch {PATCH} confirms them: set to any text"
    assert where in message
    assert all(stopped(world, name_of(number, softened=True)) for number in range(4))


def test_pod_that_two_rules_of_a_patch_hit_counts_once() -> None:
    """While it is pending, and once it is evicted."""
    world = limited(4, pools=(0,))
    world.add(part(0), part(0, name="again", key="example.com/other"))
    assert len(world.after(60)) == 2
    assert [world.condition(name, EVICTED_PODS)[2] for name in (name_of(0), "again")] == ["2", "2"]
    assert world.condition(name_of(0), COUNTED_PODS)[2] == "0", "the sum over the rules is the number of pods"
    fill(world, 0, start=2)
    assert len(world.after(60)) == 4
    fill(world, 0, start=4, pods=1)
    assert len(world.after(60)) == 4
    assert stopped(world, "again").startswith(f"{TOGETHER} 5 pods, the limit is 4 and nothing was confirmed")


def test_namespaces_of_all_rules_count_together() -> None:
    world = World(Mode.REPLACEMENT, FREE, patch_ceiling_of=lambda _, __: Ceiling(None, 1, confirmed=False))
    world.add(claim("a", pool="node-0"), pod("a"), claim("b", pool="node-1", namespace="web"))
    world.add(pod("b", namespace="web"), part(0), part(1))
    assert world.after(20) == []
    assert stopped(world, name_of(1)).startswith(f"{TOGETHER} pods in 2 namespaces, the limit is 1")


@pytest.mark.parametrize(
    ("limit", "other", "evicted"),
    [
        pytest.param(lambda each: 9 if each.taint.key == KEY else 3, part(1, key="example.com/b"), 0, id="of a taint"),
        pytest.param(lambda each: 3 if each.softened else 9, part(1, softened=True), 0, id="of softened rules"),
        pytest.param(
            lambda each: 9 if each.taint.key == KEY else 0,
            part(9, key="example.com/b"),
            2,
            id="but not of a taint that evicts no pod",
        ),
    ],
)
def test_lowest_limit_of_the_rules_of_a_patch_is_that_of_the_whole_patch(
    limit: Callable[[DeviceTaintRule], int], other: DeviceTaintRule, evicted: int
) -> None:
    world = evicting(patch_ceiling_of=lambda each, _: Ceiling(limit(each), confirmed=False))
    fill(world, 0, 1)
    world.add(other, part(0))
    assert len(world.after(20)) == evicted
    assert stopped(world, name_of(0)).startswith("" if evicted else f"{TOGETHER} 4 pods, the limit is 3")


def test_pod_under_another_rule_goes_although_its_patch_is_stopped(caplog: pytest.LogCaptureFixture) -> None:
    world = limited(3, pools=(0, 1))
    world.add(part(0), part(1), rule("narrow", selector=DeviceSelector(DRIVER, "node-0", "gpu-0")))
    with caplog.at_level(logging.ERROR):
        world.advance(20)
    assert world.evicted == ["pod-0-0"]
    assert [record.getMessage() for record in caplog.records] == ["eviction stopped"], "once for all rules"


# --- the text of a patch --------------------------------------------------------------------------


def test_confirmed_patch_is_evicted_in_full_and_not_beyond_what_was_confirmed() -> None:
    world = limited(1, {"one": 6})
    world.set_patch(patch(text="one"))
    fill(world, 0, 1, 2)
    world.add(*[part(number) for number in range(3)])
    assert len(world.after(20)) == 6
    fill(world, 1, start=2, pods=1)
    assert len(world.after(20)) == 6
    assert stopped(world, name_of(1)).startswith(f"{TOGETHER} 7 pods, at most 6 were confirmed")


def test_patch_that_is_known_late_lets_its_rules_go_on_and_resets_no_count() -> None:
    world = limited(3, {"one": 4}, pools=(0, 1))
    world.add(part(0, conditions=(counted(1),)), part(1))
    world.advance(20)
    assert stopped(world, name_of(0))
    world.set_patch(patch(text="one"))
    world.advance(20)
    assert stopped(world, name_of(0)).startswith(f"{TOGETHER} 5 pods, at most 4 were confirmed")


def test_texts_of_a_patch_that_take_turns_allow_no_more_than_the_largest_of_them() -> None:
    world = limited(0, {"one": 2, "two": 4})
    fill(world, 0, 1, 2, pods=5)
    world.set_patch(patch(text="one"))
    for text, number in (("one", 0), ("two", 1), ("one", 2), ("two", 2)):
        world.set_patch(patch(text=text))
        narrow = DeviceSelector(DRIVER, f"node-{number}")
        two = [structs.replace(narrow, device=f"gpu-{at}") for at in range(2)]
        made = [of_patch(rule(rule_name(PATCH, rule().taint, each), selector=each)) for each in two]
        for each in made:
            if each.meta.name not in world.inventory.rules:
                world.add(each)
        world.advance(20)
    assert len(world.evicted) == 4


def test_text_of_another_patch_of_the_same_name_does_not_count() -> None:
    world = limited(3, {"one": 9}, pools=(0, 1))
    made_again = patch(text="one")
    made_again = structs.replace(made_again, meta=structs.replace(made_again.meta, uid="another"))
    world.set_patch(made_again)
    world.add(part(0), part(1))
    world.advance(20)
    assert stopped(world, name_of(0)).startswith(f"{TOGETHER} 4 pods, the limit is 3 and nothing was confirmed")


def test_status_of_a_patch_changes_nothing() -> None:
    world = two_stopped(known=patch())
    before, revision = len(world.cluster.writes), world.worker._core.affected.revision
    world.set_patch(structs.replace(patch(), meta=structs.replace(patch().meta, resource_version="7")))
    world.advance(20)
    assert (len(world.cluster.writes), world.worker._core.affected.revision) == (before, revision)


def test_patch_without_rules_and_one_that_is_gone_are_no_affair_of_the_worker() -> None:
    world = limited(3)
    world.set_patch(patch("other"))
    world.worker.observe_patch(patch("other"), None)
    assert world.worker.started


def test_rule_with_a_text_of_its_own_counts_for_itself() -> None:
    """It was confirmed as it stands, and its pods are not those that the limit of the patch is for."""
    world = limited(2, {"mine": 4})
    fill(world, 0, pods=4)
    fill(world, 1, 2)
    annotations = {CONFIRM_IMPACT: "mine"}
    world.add(part(1), part(2))
    world.advance(20)
    world.add(part(0, annotations=annotations))
    assert len(world.after(20)) == 4
    assert stopped(world, name_of(1))


def test_rule_that_is_confirmed_later_leaves_its_patch_and_comes_back_without_the_text() -> None:
    world = limited(3, {"mine": 2}, pools=(0, 1))
    world.add(part(0), part(1))
    assert world.after(20) == []
    known = world.inventory.rules[name_of(0)]
    world.edit(known, meta=part(0, annotations={CONFIRM_IMPACT: "mine"}).meta)
    assert len(world.after(20)) == 4, "it by its text, and the other one by the limit"
    world.edit(world.rule(name_of(0)), meta=part(0).meta)
    fill(world, 1, start=2, pods=1)
    assert len(world.after(20)) == 4
    assert stopped(world, name_of(1)).startswith(f"{TOGETHER} 5 pods, the limit is 3")


# --- hardware -------------------------------------------------------------------------------------


def test_rule_and_those_for_its_hardware_are_one_impact() -> None:
    world = limited(3, pools=(0, 1))
    world.add(sibling(0), sibling(1), owner_of_siblings())
    assert world.after(20) == []
    expected = "DeviceTaintRule rule, with the rules for its hardware, hits 4 pods, the limit is 3 and nothing was"
    assert stopped(world, "rule").startswith(expected)
    assert stopped(world, sibling(0).meta.name).startswith(expected)


def test_text_of_a_rule_counts_for_its_hardware() -> None:
    world = limited(3, {"one": 4}, pools=(0, 1))
    world.add(owner_of_siblings(annotations={CONFIRM_IMPACT: "one"}), sibling(0), sibling(1))
    assert len(world.after(20)) == 4
    world.add(sibling(2), sibling(3))
    fill(world, 1, start=2)
    assert len(world.after(20)) == 4


def test_rule_that_is_judged_again_resets_the_count_of_its_hardware() -> None:
    world = limited(4, pools=(0, 1))
    world.add(owner_of_siblings(), sibling(0), sibling(1))
    assert len(world.after(20)) == 4
    known = world.inventory.rules["rule"]
    world.edit(known, taint=structs.replace(known.taint, key="example.com/new"))
    world.add(*[sibling(at, key="example.com/new") for at in (2, 3)])
    fill(world, 1, start=2)
    assert len(world.after(20)) == 6
    assert world.worker._core.ceilings._groups["uid-rule"].counting == 2


def test_rules_for_the_hardware_of_a_rule_that_is_gone_still_count_together() -> None:
    world = limited(3, pools=(0, 1))
    world.add(*[for_hardware(rule(f"s-{number}", selector=each)) for number, each in enumerate((POOL_0, POOL_1))])
    assert world.after(20) == []
    assert stopped(world, "s-0").startswith("DeviceTaintRule rule, with the rules for its hardware, hits 4 pods")
    drop(world, "s-0", "s-1")
    assert not world.worker._core.ceilings._groups


def test_rule_for_hardware_that_a_slice_shows_later_counts_with_the_one_that_it_is_for() -> None:
    """Rules and slices come by different watches; the pods are planned by then."""
    world, names = limited(3), ("gpu-0", "mig-0")
    shown = structs.replace(slice_of({}), pool="node-0", devices=(Device("gpu-0", (), counter_sets=("a",)),))
    world.add(shown)
    for number in range(4):
        name = f"pod-{number}"
        world.add(claim(name, tolerates(30), pool="node-0", devices=(names[number % 2],)), pod(name))
    gpu, mig = (DeviceSelector(DRIVER, "node-0", name) for name in names)
    late = rule(rule_name("rule", rule().taint, mig), selector=mig)
    world.add(rule(selector=gpu, annotations={SCOPE: HARDWARE}), for_hardware(late))
    world.settle()
    devices = tuple([Device(name, (), counter_sets=("a",)) for name in names])
    world.edit(shown, devices=devices)
    assert world.after(60) == []
    assert stopped(world, late.meta.name).startswith("DeviceTaintRule rule, with the rules for its hardware, hits 4")


def test_rules_that_turn_out_to_be_of_one_patch_are_checked_together() -> None:
    world = limited(3)
    world.set_patch(patch(PATCH, DeviceSelector(DRIVER), DeviceTaint(KEY, "", "None")))
    for number in range(4):
        name = f"pod-{number}"
        world.add(claim(name, tolerates(30), pool=f"node-{number % 2}"), pod(name))
    world.add(part(0), part(1))
    world.settle()
    world.set_patch(patch(PATCH, DeviceSelector(DRIVER)))
    assert world.after(60) == []
    assert stopped(world, name_of(0)).startswith(f"{TOGETHER} 4 pods, the limit is 3")


# --- costs ----------------------------------------------------------------------------------------


def test_cost_of_a_change_does_not_grow_with_the_pods_of_the_patch() -> None:
    """Until the next plan, and that costs the same for each pod."""

    def world_of(pods: int) -> World:
        world = limited(100_000)
        for number in range(10):
            name = f"late-{number}"
            late = tolerates(3600)
            world.add(part(number))
            for at in range(pods // 10):
                name = f"pod-{number}-{at}"
                world.add(claim(name, late, pool=f"node-{number}", devices=(f"gpu-{at}",)), pod(name))
        return world

    def one_more(world: World) -> None:
        world.add(claim("more", tolerates(3600), pool="node-0", devices=("gpu-0",)), pod("more"))

    few, many = (calls_of(one_more, partial(world_of, pods)) for pods in (20, 400))
    assert many < few * 1.5
    for_few, for_many = (calls_of(World.catch_up, partial(world_of, pods)) / pods for pods in (20, 400))
    assert for_many < for_few * 1.5


def test_rules_of_a_patch_are_checked_once_for_a_change_that_hits_all_of_them() -> None:
    asked: list[str] = []

    def ceiling(each: DeviceTaintRule, _: object) -> Ceiling:
        asked.append(each.meta.name)
        return Ceiling(1000, confirmed=False)

    world = evicting(patch_ceiling_of=ceiling)
    fill(world, *range(50), pods=1)
    world.add(*[part(number) for number in range(50)])
    world.advance(20)
    asked.clear()
    world.worker.replan_all()
    world.catch_up()
    assert len(asked) == 0, "no pod is left"
    fill(world, *range(50), pods=1, start=1)
    asked.clear()
    world.worker.replan_all()
    world.catch_up()
    assert len(asked) == 1


# --- more texts -----------------------------------------------------------------------------------


def test_text_of_its_own_that_a_rule_gets_again_allows_no_more() -> None:
    world = limited(2, {"mine": 4}, pools=(0,))
    world.add(part(0), part(1))
    assert len(world.after(20)) == 2
    for text, pods, expected in (("mine", 2, 4), ("", 0, 4), ("mine", 1, 4)):
        world.edit(world.rule(name_of(0)), meta=part(0, annotations={CONFIRM_IMPACT: text}).meta)
        fill(world, 0, start=len(world.evicted) + len(world.inventory.pods), pods=pods)
        assert len(world.after(20)) == expected, text
    drop(world, name_of(0))
    ceilings = world.worker._core.ceilings
    assert (list(ceilings._groups), list(ceilings._empty)) == (["uid-firmware"], [])


def test_pods_of_a_text_of_its_own_go_on_to_count_for_the_patch() -> None:
    """The text says how many were evicted before, so those are in its ceiling as well."""
    world = limited(3, {"mine": 4})
    fill(world, 0, pods=1)
    world.add(part(0, conditions=(counted(3),)), part(1))
    world.advance(20)
    assert stopped(world, name_of(0)).startswith(f"{TOGETHER} 4 pods, the limit is 3")
    known = world.inventory.rules[name_of(0)]
    mine = part(0, annotations={CONFIRM_IMPACT: "mine"}).meta
    world.edit(known, meta=mine)
    assert len(world.after(20)) == 1
    fill(world, 1, pods=1)
    world.advance(20)
    assert stopped(world, name_of(1)).startswith(f"{TOGETHER} 4 pods, the limit is 3")


def test_text_of_a_rule_with_hardware_counts_at_once() -> None:
    world = limited(3, {"one": 4}, pools=(0, 1))
    world.add(owner_of_siblings(), sibling(0), sibling(1))
    assert world.after(20) == []
    known = world.inventory.rules["rule"]
    confirmed = owner_of_siblings(annotations={CONFIRM_IMPACT: "one"}).meta
    world.edit(known, meta=confirmed)
    assert len(world.settled()) == 4


def test_first_text_of_a_rule_that_is_taken_away_and_set_again_allows_the_rest() -> None:
    world = limited(9, {"mine": 4}, pools=(0,))
    confirmed = part(0, annotations={CONFIRM_IMPACT: "mine"})
    world.add(confirmed)
    world.advance(20)
    for each in (part(0), confirmed):
        world.edit(world.rule(name_of(0)), meta=each.meta)
    fill(world, 0, start=2)
    assert len(world.after(20)) == 4
    fill(world, 0, start=4, pods=1)
    world.advance(20)
    assert stopped(world, name_of(0)).startswith("hits 5 pods, at most 4 were confirmed")


def test_text_of_a_patch_that_does_not_count_resets_no_count() -> None:
    world = limited(3)
    world.set_patch(patch())
    fill(world, 0)
    world.add(part(0))
    world.advance(20)
    world.set_patch(patch(text="made up"))
    fill(world, 0, start=2)
    assert len(world.after(20)) == 2
    assert stopped(world, name_of(0)).startswith(f"{TOGETHER} 4 pods, the limit is 3")
