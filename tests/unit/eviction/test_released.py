"""Whether the devices of a rule are released: by every allocation, not too soon, and not for longer than it is true."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.costs import calls_of
from tests.unit.eviction.objects import POOL, claim, pod, rule, slice_of, tolerates
from tests.unit.eviction.world import FREE, World, delegated
from webhook.api.claims import Consumer
from webhook.api.rules import Condition, DeviceSelector, DeviceTaintRule
from webhook.api.slices import Device
from webhook.eviction.conditions import EVICTION, RELEASED
from webhook.eviction.modes import Mode
from webhook.eviction.released import DOUBT_SECONDS, TURN_SECONDS, ReleasedOutlook, in_use_message
from webhook.inventory.hardware import Holder, Holders
from webhook.inventory.state import InventoryObject

FREED = "no allocation holds a selected device"
WAITS = ("Unknown", "Waiting", "waiting until all allocations made before the taint are known")
OUTDATED = ("Unknown", "Outdated", "it is not certain that all changes of the cluster are known")
ONE = DeviceSelector(DRIVER, POOL, "gpu-0")
SLICE = slice_of({"gpu-0": (), "gpu-1": ()})


def world_of(*objects: InventoryObject, mode: Mode = Mode.DELEGATED, seconds: float = 20.0) -> World:
    """After some time, with a slice, where nothing is evicted unless a rule asks for it."""
    world = World(mode, FREE)
    world.add(SLICE, *objects)
    if seconds:
        world.advance(seconds)
    return world


def closing(name: str = "rule", selector: DeviceSelector | None = ONE, **fields: Any) -> DeviceTaintRule:
    return rule(name, "NoSchedule", selector=selector, **fields)


def released(world: World, name: str = "rule") -> tuple[str, str, str]:
    return world.condition(name, RELEASED)


def statuses(world: World, name: str = "rule") -> list[str]:
    """Reasons in the order of writing."""
    return [reason for written, kind, reason, _ in world.cluster.writes if (written, kind) == (name, RELEASED)]


def known(status: str, reason: str = "Released", generation: int = 1) -> Condition:
    return Condition(RELEASED, status, reason, FREED, generation, NOW - timedelta(hours=1))


# --- which rules ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_every_rule_that_closes_devices_has_it_in_every_mode(mode: Mode, effect: str) -> None:
    world = world_of(rule(effect=effect), mode=mode)
    assert released(world) == ("True", "Released", FREED)


@pytest.mark.parametrize("evict", [False, True])
def test_rule_that_closes_no_devices_never_gets_it(*, evict: bool) -> None:
    world = world_of(rule(effect="None", evict=evict))
    assert statuses(world) == []
    outlook = world.worker.rules.released.outlook(rule(effect="None"), 0.0, ())
    assert outlook == ReleasedOutlook(None, None)


def test_rule_that_closes_no_devices_any_more_says_so() -> None:
    world = world_of(closing(generation=1))
    old = world.inventory.rules["rule"]
    world.edit(old, taint=structs.replace(old.taint, effect="None"), generation=2)
    world.advance(20)
    expected = ("False", "DevicesOpen", "the effect of the taint is None, so the devices may be allocated at any time")
    assert released(world) == expected
    assert world.inventory.rules["rule"].conditions[0].observed_generation == 2


def test_rule_that_is_being_deleted_keeps_it() -> None:
    world = world_of(closing(deleting=True))
    assert released(world)[:2] == ("True", "Released")


NONE_PUBLISHED = "no allocation holds a selected device, but none is published either: check the selector"


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param(DeviceSelector(unknown=(("all", "true"),)), ("Unknown", "SelectorNotJudged"), id="unknown field"),
        pytest.param(DeviceSelector(device_class_name="gpu"), ("Unknown", "SelectorNotJudged"), id="class"),
        pytest.param(None, ("False", "InUse"), id="none, which means every device"),
        pytest.param(DeviceSelector(DRIVER, "typo"), ("True", "NoDevices", NONE_PUBLISHED), id="none published"),
    ],
)
def test_selector_decides_which_devices_count(selector: DeviceSelector | None, expected: tuple[str, ...]) -> None:
    world = world_of(closing(selector=selector), claim("other", devices=("any",), pool="elsewhere"))
    assert released(world)[: len(expected)] == expected


def test_devices_that_are_published_later_are_noticed() -> None:
    world = delegated(closing())
    world.advance(20)
    assert released(world)[1] == "NoDevices"
    world.add(slice_of({"gpu-0": ()}, name="other", pool="other"))
    world.advance(20)
    assert released(world)[1] == "NoDevices"
    world.add(SLICE)
    world.advance(1.1)
    assert released(world)[1] == "Released"


# --- who holds them -------------------------------------------------------------------------------


def test_holders_are_named_and_the_last_one_frees_the_devices() -> None:
    tolerating = claim("b", tolerates(effect="NoSchedule"))
    unused = claim("c", consumers=())
    world = world_of(closing(), claim("a"), pod("a"), tolerating, unused)
    named = "ml/a-claim (pod a), ml/b-claim (pod b), ml/c-claim (no pod)"
    assert released(world) == ("False", "InUse", f"3 claims hold devices: {named}")
    world.remove(claim("a"), pod("a"), tolerating)
    world.advance(10.1)
    assert released(world) == ("False", "InUse", "1 claim holds devices: ml/c-claim (no pod)")
    world.advance(1)
    world.remove(unused)
    world.settle()
    assert released(world) == ("True", "Released", FREED)


def test_eviction_that_is_complete_is_no_release() -> None:
    """M5: a pod with admin access or a toleration stays, and a claim stays reserved, or is kept by a finalizer."""
    staying = claim("staying", tolerates(effect=""), devices=("gpu-0",))
    world = world_of(rule(effect="NoSchedule", evict=True), staying, pod("staying"), claim("going"), pod("going"))
    assert world.evicted == ["going"]
    assert world.condition("rule")[:2] == ("False", "Completed")
    named = "ml/going-claim (pod going), ml/staying-claim (pod staying)"
    assert released(world) == ("False", "InUse", f"2 claims hold devices: {named}")
    world.change(claim("going"), claim("going", consumers=()))
    world.advance(10.1)
    assert released(world)[2].startswith("2 claims hold devices: ml/going-claim (no pod)")
    world.change(claim("going", consumers=()), claim("going", devices=(), consumers=()))
    world.advance(10.1)
    assert released(world)[2] == "1 claim holds devices: ml/staying-claim (pod staying)"


def test_allocation_that_sneaks_in_unsets_it_at_once_and_it_is_set_only_once_a_second() -> None:
    world = world_of(closing())
    for _ in range(3):
        world.add(claim("a"))
        world.advance(1.0001)
        assert released(world)[0] == "False"
        world.remove(claim("a"))
        world.advance(1.0001)
        assert released(world)[0] == "True"
    assert statuses(world) == ["Waiting", "Released", *["InUse", "Released"] * 3]
    for _ in range(2):
        world.add(claim("a"))
        world.settle()
        assert released(world)[0] == "False", "without a wait"
        world.remove(claim("a"))
        world.advance(0.9)
        assert released(world)[0] == "False", "a second has not passed"
        world.advance(0.2)
        assert released(world)[0] == "True"


def test_changed_list_of_holders_waits_like_all_conditions() -> None:
    world = world_of(closing(), claim("a"))
    world.add(claim("b"))
    world.advance(5)
    world.remove(claim("a"))
    world.advance(4.9)
    assert statuses(world) == ["InUse"]
    world.advance(0.2)
    assert released(world)[2] == "1 claim holds devices: ml/b-claim (pod b)"
    assert statuses(world) == ["InUse", "InUse"]


def test_change_of_a_claim_that_means_nothing_wakes_no_rule() -> None:
    world = world_of(closing(), claim("a"))
    world.edit(claim("a"), controller_uid="another")
    world.change(None, claim("elsewhere", devices=("gpu-1",)))
    rules = world.worker._core.rules
    rules._promote()
    assert len(rules) == 0
    assert "rule" not in rules._ready_at


def test_other_rules_are_not_looked_at() -> None:
    """Only those whose devices have changed hands are queued."""
    world = world_of(
        *[closing(f"rule-{number}", DeviceSelector(DRIVER, POOL, f"gpu-{number}")) for number in range(3)],
        closing("pool", DeviceSelector(pool=POOL)),
        closing("device", DeviceSelector(device="gpu-1")),
        closing("driver", DeviceSelector(DRIVER)),
        closing("other", DeviceSelector("other")),
    )
    world.change(None, claim("a", devices=("gpu-1",)))
    rules = world.worker._core.rules
    rules._promote()
    assert set(rules._ready) == {"rule-1", "pool", "device", "driver"}


def test_change_costs_the_same_whatever_the_number_of_other_rules_and_claims() -> None:
    def large(size: int) -> World:
        pools = [f"pool-{number}" for number in range(size)]
        rules = [closing(pool, DeviceSelector(DRIVER, pool)) for pool in pools]
        return world_of(closing(), *rules, *[claim(pool, pool=pool) for pool in pools])

    def come(world: World) -> None:
        world.inventory.apply(None, claim("a"))
        world.worker.rules.released.observe(None, claim("a"))

    assert calls_of(come, lambda: large(3)) == calls_of(come, lambda: large(60))


def test_rule_is_followed_to_other_devices() -> None:
    world = world_of(closing(generation=1), claim("a"))
    old = world.inventory.rules["rule"]
    selector = DeviceSelector(DRIVER, POOL, "gpu-1")
    world.edit(old, selector=selector, generation=2)
    world.advance(20)
    assert released(world)[0] == "True"
    world.add(claim("b"))
    world.advance(2)
    assert released(world)[0] == "True"
    world.add(claim("c", devices=("gpu-1",)))
    world.advance(2)
    assert released(world)[2] == "1 claim holds devices: ml/c-claim (pod c)"


def test_partitions_count_for_the_full_device_as_slices_show_them() -> None:
    parts = tuple([Device(name, (), counter_sets=("a",)) for name in ("gpu-0", "mig-0", "mig-1")])
    world = world_of(closing(), claim("x", devices=("mig-1",)))
    assert released(world)[0] == "True"
    world.edit(SLICE, devices=parts)
    world.advance(1.1)
    assert released(world)[2] == "1 claim holds devices: ml/x-claim (pod x)"
    world.remove(claim("x", devices=("mig-1",)))
    world.advance(1.1)
    assert released(world)[0] == "True"
    world.add(claim("y", devices=("mig-0",)))
    world.settle()
    assert released(world)[0] == "False"
    assert world.worker.rules.released.held_count == 1
    world.change(world.inventory.slices["slice"], SLICE)
    world.advance(1.1)
    assert released(world)[0] == "True"
    world.remove(closing())
    assert not world.worker.rules.released._at


def test_nothing_is_kept_of_rules_that_are_gone() -> None:
    rules = [closing("a"), closing("b", DeviceSelector()), closing("c", ONE)]
    world = world_of(*rules, claim("x"))
    kept = world.worker.rules.released
    assert kept.held_count == 3
    world.remove(*rules)
    assert kept.held_count == 0
    assert kept.outlook(rules[0], 0.0, ()).period_seconds == 1.0, "one was being handled when it went"
    assert not any((kept._places, kept._at, kept._pools))


def test_rules_in_use_are_counted() -> None:
    world = world_of(closing("a"), closing("b"), closing("c", DeviceSelector(DRIVER, POOL, "gpu-1")), claim("x"))
    assert world.sample("rules_in_use") == 2
    world.remove(claim("x"))
    world.advance(2)
    assert world.sample("rules_in_use") == 0


# --- not too soon ---------------------------------------------------------------------------------


def test_it_is_not_true_before_schedulers_have_seen_the_taint() -> None:
    world = world_of(closing(), seconds=0)
    kept, seen_at = world.worker.rules.released, world.clock.elapsed
    world.settle()
    assert kept.outlook(closing(), seen_at, ()) == ReleasedOutlook(1.0, 5.0)
    world.claims_known_until = -1.0
    for since in (5.0, 6.0):
        assert kept.outlook(closing(), seen_at - since, ()).recheck_seconds == 0.5
    assert kept.outlook(closing(), seen_at - 4.75, ()).recheck_seconds == 0.25
    world.claims_known_until = math.inf
    assert kept.outlook(closing(), seen_at - 5.0, ()).recheck_seconds == DOUBT_SECONDS
    world.advance(4.9)
    assert released(world) == WAITS
    world.advance(0.2)
    assert released(world) == ("True", "Released", FREED)


def test_it_is_not_true_before_the_changes_of_claims_are_known_up_to_then() -> None:
    world = world_of(closing(), seconds=0)
    began = world.clock.elapsed
    world.claims_known_until = began + 4.9
    world.advance(30)
    assert released(world) == WAITS
    world.claims_known_until = began + 5.1
    world.advance(0.6)
    assert released(world)[0] == "True"


def test_changes_of_claims_are_asked_for_while_devices_are_held() -> None:
    """So that nothing has to be waited for when they are free."""
    world = world_of(closing(), claim("x"), seconds=0)
    began = world.clock.elapsed
    world.advance(4.9)
    assert world.asked_known == []
    world.advance(0.2)
    assert set(world.asked_known) == {began + 5.0}
    world.advance(60)
    assert len(world.asked_known) < 5, "and then not again and again"


def test_new_generation_waits_again() -> None:
    world = world_of(closing(generation=1))
    world.edit(world.rule(), selector=DeviceSelector(DRIVER), generation=2)
    world.advance(4.9)
    assert released(world) == WAITS
    world.advance(0.2)
    assert released(world)[0] == "True"


def test_new_leader_believes_its_predecessor_and_no_older_generation() -> None:
    world = world_of(seconds=0)
    world.claims_known_until = -1.0
    world.add(closing("same", conditions=(known("True"),)), closing("old", conditions=(known("True"),), generation=2))
    world.add(closing("unset", conditions=(known("False", "InUse"),)))
    world.advance(20)
    assert released(world, "same") == ("True", "Released", FREED)
    assert statuses(world, "same") == []
    assert released(world, "old") == WAITS
    assert released(world, "unset") == WAITS


def test_eviction_that_was_reported_before_a_restart_needs_no_second_wait() -> None:
    reported = Condition(EVICTION, "False", "Completed", "1 pod evicted", 1, NOW)
    world = world_of(rule(effect="NoSchedule", evict=True, selector=ONE, conditions=(reported,)), seconds=0)
    world.settle()
    assert released(world)[0] == "True"


# --- texts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("holders", "message"),
    [
        (Holders(1, more=False, first=(Holder("a/x"),)), "1 claim holds devices: a/x (no pod)"),
        (Holders(5, more=False, first=(Holder("a/x", ("pod p",)),)), "5 claims hold devices: a/x (pod p) and 4 more"),
        (
            Holders(1000, more=True, first=(Holder("a/x", ("pod p", "pod q", "pod r")),)),
            "more than 1000 claims hold devices: a/x (pod p, pod q, pod r) and at least 999 more",
        ),
        (
            Holders(1, more=False, first=(Holder("a/x", ("pod p", "pod q", "pod r", "pod s")),)),
            "1 claim holds devices: a/x (pod p, pod q, pod r and 1 more)",
        ),
    ],
)
def test_message_names_the_first_and_counts_the_rest(holders: Holders, message: str) -> None:
    assert in_use_message(holders) == message


def test_user_that_is_no_pod_is_named_by_its_resource() -> None:
    group = Consumer("scheduling.k8s.io", "podgroups", "train", "uid")
    world = world_of(closing(), claim("a", consumers=(group,)))
    assert released(world)[2] == "1 claim holds devices: ml/a-claim (podgroups/train)"


# --- while changes may have been missed: it is never set, and not kept for long -------------------


def test_worker_in_doubt_says_nothing_new() -> None:
    world = world_of(seconds=0)
    world.trusted = False
    world.add(closing(), closing("known", conditions=(known("False", "InUse"),)), closing("held"), claim("x"))
    world.remove(claim("x"))
    world.advance(0)
    assert statuses(world) == []
    assert released(world, "known") == OUTDATED
    world.trusted = True
    world.advance(6)
    assert [released(world, name)[0] for name in ("rule", "known", "held")] == ["True"] * 3


def test_allocation_that_is_seen_counts_also_in_doubt() -> None:
    world = world_of(rule(effect="NoSchedule", evict=True, selector=ONE))
    assert released(world)[0] == "True"
    world.trusted = False
    world.add(claim("x"))
    world.advance(1)
    assert released(world)[:2] == ("False", "InUse")
    assert world.condition("rule")[:2] == ("False", "NothingToDo")
    world.remove(claim("x"))
    world.advance(20)
    assert released(world)[0] == "False"
    world.trusted = True
    world.advance(2)
    assert released(world)[0] == "True"


def test_short_doubt_changes_nothing_and_a_long_one_ends_what_was_true() -> None:
    assert (TURN_SECONDS, DOUBT_SECONDS) == (1.0, 30.0)
    world = world_of(closing())
    world.trusted = False
    world.advance(29)
    world.trusted = True
    world.advance(31)
    assert statuses(world) == ["Waiting", "Released"]
    world.trusted = False
    world.advance(61)
    assert released(world) == OUTDATED
    world.trusted = True
    world.advance(2)
    assert released(world)[0] == "True"


@pytest.mark.parametrize("trusted", [True, False])
def test_withdrawal_that_fails_is_tried_again(*, trusted: bool) -> None:
    world = world_of(closing())
    world.trusted = trusted
    world.cluster.condition_error = "500"
    world.add(claim("x"))
    world.advance(1)
    assert released(world)[0] == "True"
    world.cluster.condition_error = ""
    world.advance(2)
    assert released(world)[:2] == ("False", "InUse")
    assert statuses(world) == ["Waiting", "Released", "InUse"]


def test_process_without_the_lease_withdraws_nothing() -> None:
    world = world_of(closing())
    world.leads = False
    world.add(claim("x"))
    world.advance(100)
    assert statuses(world) == ["Waiting", "Released"]


def test_doubt_of_half_a_minute_ends_what_was_true() -> None:
    world = world_of(closing())
    world.trusted = False
    known, kept = world.inventory.rules["rule"], world.worker.rules.released
    began, found = world.clock.elapsed, list[bool]()
    for seconds in (0.0, 29.0, 30.0):
        world.clock.elapsed = began + seconds
        found.append(kept.withdrawn(known, 0.0, list(known.conditions)) is not None)
    assert found == [False, False, True]
