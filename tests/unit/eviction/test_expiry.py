"""Expiry as a table, and what looks forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest
from msgspec import structs

from tests.builders import DRIVER, KEY, NOW
from tests.costs import calls_of
from tests.unit.eviction.objects import POOL, claim, pod, rule, slice_of, taint
from tests.unit.eviction.world import FREE, World, evicting
from webhook.api.rules import EXPIRES_AT, Condition, DeviceSelector, DeviceTaintRule
from webhook.api.taints import DeviceTaint
from webhook.eviction import expiry
from webhook.eviction.expiry import CONTESTED, Expiry, ForgottenReporter, ForgottenTaints, expiry_of, forgotten_steps
from webhook.eviction.modes import Mode
from webhook.flowcontrol.workqueue import TimeSlice
from webhook.inventory.state import Inventory


def find_stale(inventory: Inventory, idle_since: Mapping[str, datetime], now: datetime) -> ForgottenTaints:
    """What `forgotten_steps` returns, without a pause."""
    steps = forgotten_steps(inventory, idle_since, now)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: ForgottenTaints = end.value
            return found


def look(reporter: ForgottenReporter) -> None:
    """One look, without a pause."""
    for _ in reporter._steps():
        pass


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
    world = evicting(slice_of({"gpu-0": ()}), rule(), mode=Mode.OBSERVE, report_every_seconds=7200)
    reporter = ForgottenReporter(world.deps)
    for _ in range(14 * 24 + 6):  # hours
        look(reporter)
        world._move(3600)
    lines = [record.__dict__ for record in caplog.records if record.message == "taints that look forgotten"]
    assert [line["idleRules"] for line in lines] == [["rule"]] * 3
    assert find_stale(world.inventory, {"uid-rule": NOW}, NOW) == ForgottenTaints()


@pytest.mark.parametrize(("early", "named"), [(timedelta(), True), (timedelta(seconds=1), False)])
def test_two_weeks_without_use_and_three_days_in_a_slice_look_forgotten(early: timedelta, *, named: bool) -> None:
    added = NOW - timedelta(hours=72) + early
    inventory = held(slice_of({"gpu-0": (taint(added=added),), "gpu-1": (taint(added=None),)}), rule())
    found = find_stale(inventory, {"uid-rule": NOW - timedelta(days=14) + early}, NOW)
    assert (found.idle_rules, [each[2] for each in found.old_slice_taints]) == (
        (("rule",), ["gpu-0"]) if named else ((), [])
    )


def test_report_names_the_first_twenty_and_counts_all(caplog: pytest.LogCaptureFixture) -> None:
    world = World(Mode.OBSERVE, FREE)
    world.add(*[rule(f"rule-{number:02}", selector=DeviceSelector(device="gone")) for number in range(21)])
    look(ForgottenReporter(world.deps))
    [line] = [record.__dict__ for record in caplog.records if record.message == "taints that look forgotten"]
    assert line["rulesWithoutDevices"] == [f"rule-{number:02}" for number in range(20)]
    assert line["rules_without_devices"] == 21


# --- what the report costs ------------------------------------------------------------------------


def cluster_of(devices_each: int) -> Inventory:
    """Rules that name devices which are gone, in a cluster of ten pools with this number of devices each."""
    inventory = Inventory()
    for number in range(10):
        devices: dict[str, tuple[DeviceTaint, ...]] = {f"gpu-{device}": () for device in range(devices_each)}
        inventory.apply(None, slice_of(devices, name=f"slice-{number}", pool=f"node-{number}"))
    for number in range(5):
        inventory.apply(None, rule(f"gone-{number}", selector=DeviceSelector(device=f"gone-{number}")))
    return inventory


def test_rules_that_name_a_device_do_not_look_at_all_devices() -> None:
    """L3: a rule that names a device is looked up by that name, so its cost does not grow with the cluster."""

    def look(inventory: Inventory) -> None:
        assert len(find_stale(inventory, {}, NOW).rules_without_devices) == 5

    small, large = calls_of(look, lambda: cluster_of(4)), calls_of(look, lambda: cluster_of(64))
    assert large < 2 * small


def test_rules_are_looked_up_by_each_of_their_names() -> None:
    """A rule has devices if a pool of its driver and name has the device, or has any where it names none."""
    inventory = cluster_of(2)
    inventory.apply(None, slice_of({}, name="empty", pool="empty"))
    there = {
        "all": DeviceSelector(),
        "driver": DeviceSelector(driver=DRIVER),
        "pool": DeviceSelector(pool="node-3"),
        "device": DeviceSelector(device="gpu-1"),
        "each": DeviceSelector(driver=DRIVER, pool="node-3", device="gpu-1"),
    }
    gone = {
        "no driver": DeviceSelector(driver="another.example.com"),
        "no pool": DeviceSelector(pool="node-10"),
        "no device": DeviceSelector(driver=DRIVER, pool="node-3", device="gpu-2"),
        "elsewhere": DeviceSelector(driver="another.example.com", device="gpu-1"),
        "empty pool": DeviceSelector(pool="empty"),
        "nothing": None,
    }
    for name, selector in {**there, **gone}.items():
        inventory.apply(None, rule(name, selector=selector))
    found = find_stale(inventory, {}, NOW).rules_without_devices
    assert sorted(found) == sorted([*gone, *[f"gone-{number}" for number in range(5)]])


def test_report_yields_to_other_tasks_after_each_rule_and_each_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """L3: the lease and probes wait for a time slice, and not for the whole report."""
    monkeypatch.setattr(expiry, "TimeSlice", lambda: TimeSlice(0.0))
    world = World()
    for number in range(10):
        world.add(slice_of({"gpu-0": ()}, name=f"slice-{number}", pool=f"node-{number}"))
        world.add(rule(f"gone-{number}", selector=DeviceSelector(device="gone")))
    reported: list[dict[str, int]] = []
    monkeypatch.setattr(world.deps.metrics, "set_forgotten", reported.append)

    async def turns() -> int:
        reporting = asyncio.create_task(ForgottenReporter(world.deps).run())
        count = 0
        while not reported:
            await asyncio.sleep(0)
            count += 1
        reporting.cancel()
        return count

    assert asyncio.run(turns()) > 30  # each rule twice: whether it is in use, and whether it has devices
    assert reported[0]["rules_without_devices"] == 10
