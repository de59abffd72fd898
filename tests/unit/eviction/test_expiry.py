"""Expiry as a table, and what looks forgotten."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from tests.builders import DRIVER, KEY, NOW
from tests.unit.eviction.objects import POOL, claim, pod, rule, slice_of, taint
from tests.unit.eviction.stale import find_stale, look
from tests.unit.eviction.world import FREE, World, evicting
from webhook.api.rules import EXPIRES_AT, Condition, DeviceSelector, DeviceTaintRule
from webhook.eviction.expiry import CONTESTED, Expiry, StaleReporter, StaleTaints, expiry_of
from webhook.eviction.modes import Mode
from webhook.inventory.state import Inventory

AT = "2026-06-01T12:00:00Z"
TAKEN_BACK = Condition(CONTESTED, "False", "TakenBack", "in any words", last_transition_time=NOW)
OTHER_EXPIRY = Condition(
    CONTESTED, "False", "TakenBack", "in any words", last_transition_time=NOW - timedelta(seconds=1)
)
BEGUN = Condition(CONTESTED, "Unknown", "TakingBack", "in any words", 1, NOW)
NO_TIME = Condition(CONTESTED, "False", "TakenBack", "in any words")


@pytest.mark.parametrize(
    ("text", "effect", "conditions", "expected"),
    [
        ("", "NoExecute", (), Expiry.NONE),
        ("soon", "NoExecute", (), Expiry.NONE),
        (AT, "None", (), Expiry.NONE),
        (AT, "NoExecute", (), Expiry.TAKE_BACK),
        (AT, "NoSchedule", (), Expiry.TAKE_BACK),
        (AT, "NoExecute", (TAKEN_BACK,), Expiry.CONTESTED),
        (AT, "NoExecute", (OTHER_EXPIRY,), Expiry.TAKE_BACK),
        (AT, "NoExecute", (NO_TIME,), Expiry.TAKE_BACK),
        (AT, "NoExecute", (BEGUN,), Expiry.TAKE_BACK),
        (AT, "None", (BEGUN,), Expiry.NONE),
        (AT, "NoExecute", (structs.replace(BEGUN, observed_generation=2),), Expiry.CONTESTED),
        (AT, "NoExecute", (structs.replace(BEGUN, status="True"),), Expiry.CONTESTED),
        (AT, "NoExecute", (structs.replace(BEGUN, last_transition_time=None),), Expiry.TAKE_BACK),
        ("2026-06-01T12:00:00.9Z", "NoExecute", (TAKEN_BACK,), Expiry.CONTESTED),
        ("2026-05-01T12:00:00Z", "NoExecute", (TAKEN_BACK,), Expiry.CONTESTED),
        ("2026-06-01T12:00:30Z", "NoExecute", (TAKEN_BACK,), Expiry.LATER),
    ],
)
def test_expiry(text: str, effect: str, conditions: tuple[Condition, ...], expected: Expiry) -> None:
    found = expiry_of(rule(effect=effect, conditions=conditions, annotations={EXPIRES_AT: text}), NOW)
    assert found == (expected, 30.0 if expected is Expiry.LATER else 0.0)


def held(*objects: object) -> Inventory:
    world = World(Mode.OBSERVE, FREE)
    world.add(*objects)  # type: ignore[arg-type]
    return world.inventory


def names(selector: DeviceSelector | None) -> DeviceTaintRule:
    return rule(selector=selector)


def test_rules_whose_devices_are_gone_are_named() -> None:
    inventory = held(
        slice_of({"gpu-0": ()}),
        claim(devices=("old",)),
        pod(),
        rule("published", selector=DeviceSelector(device="gpu-0")),
        rule("allocated", selector=DeviceSelector(device="old")),
        rule("gone", selector=DeviceSelector(device="gpu-9")),
        rule("harmless", effect="None", selector=DeviceSelector(device="gpu-9")),
        rule("judged by others", selector=DeviceSelector(unknown=(("all", "true"),))),
    )
    assert find_stale(inventory, {}, NOW).rules_without_devices == ("gone",)


def test_old_taints_of_slices_are_named() -> None:
    old, young = taint(added=NOW - timedelta(hours=73)), taint(added=NOW - timedelta(hours=1))
    harmless = taint("None", added=old.time_added)
    devices = {"gpu-0": (old,), "gpu-1": (young,), "gpu-2": (harmless,), "gpu-3": (young, harmless)}
    inventory = held(slice_of(devices))
    found = find_stale(inventory, {}, NOW).old_slice_taints
    assert found == ((DRIVER, POOL, "gpu-0", KEY),)


def test_rule_that_nobody_meets_for_days_is_reported_once_a_period(caplog: pytest.LogCaptureFixture) -> None:
    world = evicting(slice_of({"gpu-0": ()}), rule(), mode=Mode.OBSERVE, report_seconds=7200)
    reporter = StaleReporter(world.deps)
    for _ in range(14 * 24 + 6):  # hours
        look(reporter)
        world._move(3600)
    lines = [record.__dict__ for record in caplog.records if record.message == "taints that look forgotten"]
    assert [line["idleRules"] for line in lines] == [["rule"]] * 3
    assert find_stale(world.inventory, {"uid-rule": NOW}, NOW) == StaleTaints()


@pytest.mark.parametrize(("early", "named"), [(timedelta(), True), (timedelta(seconds=1), False)])
def test_two_weeks_without_use_and_three_days_in_a_slice_look_forgotten(early: timedelta, *, named: bool) -> None:
    added = NOW - timedelta(hours=72) + early
    inventory = held(slice_of({"gpu-0": (taint(added=added),), "gpu-1": (taint(added=None),)}), rule())
    found = find_stale(inventory, {"uid-rule": NOW - timedelta(days=14) + early}, NOW)
    assert (found.idle_rules, [each[2] for each in found.old_slice_taints]) == (
        (("rule",), ["gpu-0"]) if named else ((), [])
    )


def test_rule_that_selects_nothing_has_no_devices_and_of_one_that_cannot_be_judged_that_is_not_known() -> None:
    unknown = rule("unknown", selector=DeviceSelector(unknown=(("all", "true"),)))
    assert find_stale(held(rule("nothing", selector=None), unknown), {}, NOW).rules_without_devices == ("nothing",)


def test_report_names_the_first_twenty_and_counts_all(caplog: pytest.LogCaptureFixture) -> None:
    world = World(Mode.OBSERVE, FREE)
    world.add(*[rule(f"rule-{number:02}", selector=DeviceSelector(device="gone")) for number in range(21)])
    look(StaleReporter(world.deps))
    [line] = [record.__dict__ for record in caplog.records if record.message == "taints that look forgotten"]
    assert line["rulesWithoutDevices"] == [f"rule-{number:02}" for number in range(20)]
    assert line["rules_without_devices"] == 21
