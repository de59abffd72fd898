"""What rules say: conditions with their times, announcements, Events, progress over a restart, expiry."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import asking, claim, pod, rule, slice_of, tolerates
from tests.unit.eviction.world import BLUNT, FREE, World, delegated, evicting
from webhook.api.meta import format_time
from webhook.api.rules import EVICTED_PODS, EXPIRES_AT, Condition, DeviceSelector, DeviceTaintRule, condition_of
from webhook.eviction import rule_status
from webhook.eviction.conditions import (
    CANARY,
    CANARY_DRIVER,
    EVICTION,
    IN_TREE,
    Announcements,
    ImpactForecast,
    announced_at,
)
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Ceiling


def written(world: World, kind: str) -> list[tuple[str, str]]:
    """(reason, message) of each condition of that type, in the order of writing."""
    return [(reason, message) for _, type_, reason, message in world.cluster.writes if type_ == kind]


# --- the in-tree controller's condition ---------------------------------------------------------


def test_in_tree_condition_is_written_at_once_and_then_every_ten_seconds() -> None:
    """E-36, E-37; a pod counts whether it is due or not (E-43)."""
    world = evicting(claim(), pod(), claim("later", tolerates(25)), pod("later"), rule(), base=BLUNT)
    world.settle()
    assert [reason for reason, _ in written(world, IN_TREE)] == ["PodsPendingEviction"]
    assert written(world, IN_TREE)[0][1] == "2 pods need to be evicted in 1 namespace."
    world.advance(9.9)
    assert len(written(world, IN_TREE)) == 1
    world.advance(0.2)
    pending = "1 pod needs to be evicted in 1 namespace. 1 pod evicted since starting the controller."
    assert written(world, IN_TREE)[1:] == [("PodsPendingEviction", pending)]
    world.advance(60)
    assert world.condition("rule", IN_TREE) == ("False", "Completed", "2 pods evicted since starting the controller.")


def test_in_tree_condition_of_effect_none_tells_what_would_be_and_tells_it_once() -> None:
    """E-40."""
    world = evicting(slice_of({"gpu-0": (), "gpu-1": ()}), claim(), pod(), rule(effect="None"), base=BLUNT)
    world.advance(30)
    message = (
        "2 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if the "
        "effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an "
        "update."
    )
    assert written(world, IN_TREE) == [("NoEffect", message)]
    world.add(claim("more"), pod("more"))
    world.advance(30)
    assert len(written(world, IN_TREE)) == 1
    assert world.evicted == []


def test_in_tree_condition_is_written_in_no_other_mode() -> None:
    for mode in (Mode.OBSERVE, Mode.DELEGATED):
        world = evicting(claim(), pod(), rule(), asking(name="asking"), mode=mode)
        world.advance(30)
        assert written(world, IN_TREE) == []


def test_in_tree_condition_is_written_on_no_canary() -> None:
    """There it shows that the in-tree controller runs. A name alone hides nothing of what a rule does."""
    world = evicting()
    nowhere = DeviceSelector(driver=CANARY_DRIVER)
    world.add(
        rule(f"{CANARY}-x", effect="None", selector=nowhere),
        rule("like-a-canary", effect="None", selector=nowhere),
        rule(f"{CANARY}-of-devices", effect="None"),
        rule(f"{CANARY}-of-all", effect="None", selector=None),
        rule(f"{CANARY}-acts", selector=nowhere),
        rule(f"{CANARY}s", effect="None", selector=nowhere),
    )
    world.advance(30)
    silent = [name for name, each in world.inventory.rules.items() if condition_of(each.conditions, IN_TREE) is None]
    assert silent == [f"{CANARY}-x"]


def test_in_tree_condition_has_the_time_of_its_last_change() -> None:
    """E-38: also if only the number of pods has changed."""
    world = evicting(claim("a", tolerates(3600)), pod("a"), claim("b", tolerates(3600)), pod("b"), rule(), base=BLUNT)
    world.advance(20)
    world.remove(world.pod("a"))
    world.advance(20)
    [known] = [each for each in world.inventory.rules["rule"].conditions if each.type == IN_TREE]
    assert known.message == "1 pod needs to be evicted in 1 namespace."
    assert known.last_transition_time is not None
    assert known.last_transition_time >= NOW + timedelta(seconds=20)


@pytest.mark.parametrize(("mode", "asked"), [(Mode.REPLACEMENT, ["none"]), (Mode.DELEGATED, [])])
def test_what_a_rule_would_do_is_counted_only_for_the_condition_that_says_it(
    mode: Mode, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That looks at all of its pods."""
    counted: list[str] = []

    async def forecast_of(_: object, known: DeviceTaintRule) -> ImpactForecast:
        counted.append(known.meta.name)
        return ImpactForecast(1, 0, 0, 0)

    monkeypatch.setattr(rule_status, "forecast_of", forecast_of)
    world = evicting(rule("none", effect="None"), rule("acts"), rule("closes", effect="NoSchedule"), mode=mode)
    world.advance(60)
    assert counted == asked


# --- ours ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "effect"),
    [
        pytest.param(Mode.DELEGATED, "NoExecute", id="the in-tree controller's"),
        pytest.param(Mode.DELEGATED, "NoSchedule", id="it does not ask"),
        pytest.param(Mode.DELEGATED, "None", id="without effect"),
        pytest.param(Mode.REPLACEMENT, "NoSchedule", id="it does not ask either"),
    ],
)
def test_rule_that_is_no_affair_of_the_worker_has_no_condition_about_its_eviction(mode: Mode, effect: str) -> None:
    world = evicting(claim(), pod(), rule(effect=effect), mode=mode)
    world.advance(30)
    assert written(world, EVICTION) == []


def test_new_generation_of_a_rule_is_announced_at_once() -> None:
    """The last condition was written a moment ago."""
    world = delegated(claim("stays", tolerates(effect="")), pod("stays"), asking())
    world.advance(12)
    known = world.inventory.rules["rule"]
    world.edit(known, taint=structs.replace(known.taint, value="more"), generation=2)
    world.settle()
    assert [each.observed_generation for each in world.inventory.rules["rule"].conditions] == [2, 2]


def test_nothing_to_do_is_not_said_before_allocations_can_be_known() -> None:
    """E-44: who waits for False is not told so too soon."""
    world = evicting(rule(), base=BLUNT)
    world.settle()
    assert world.condition("rule")[:2] == ("True", "Waiting")
    world.advance(10.1)
    assert world.condition("rule") == ("False", "NothingToDo", "0 pods evicted")


def test_condition_tells_what_remains_and_when() -> None:
    world = evicting(claim("pod", tolerates(3600)), pod(), rule(), base=BLUNT)
    world.settle()
    due = format_time(NOW + timedelta(seconds=3600))
    assert world.condition("rule") == (
        "True",
        "Waiting",
        f"0 pods evicted; 1 pod pending in 1 namespace; next due {due}",
    )
    assert sorted(world.told("EvictionScheduled")) == ["pod", "rule"]


@pytest.mark.parametrize(("seconds", "names"), [(5, []), (6, ["pod"])])
def test_pod_that_goes_within_five_seconds_is_not_announced_by_an_event(seconds: int, names: list[str]) -> None:
    world = evicting(claim("pod", tolerates(seconds)), pod(), rule(), base=BLUNT)
    world.settle()
    assert [name for name in world.told("EvictionScheduled") if name == "pod"] == names


def test_observe_writes_what_would_be_and_evicts_nobody() -> None:
    world = evicting(claim(), pod(), rule(), mode=Mode.OBSERVE)
    assert world.after(100) == []
    assert world.condition("rule") == ("False", "ObserveOnly", "0 pods evicted; 1 pod would be evicted in 1 namespace")
    assert world.told("EvictionScheduled") == ["pod"]


@pytest.mark.parametrize(
    ("mode", "fields", "words"),
    [
        pytest.param(
            Mode.REPLACEMENT,
            {"selector": DeviceSelector(unknown=(("all", "true"),))},
            "cannot be judged",
            id="selector",
        ),
        pytest.param(Mode.DELEGATED, {"effect": "None", "evict": True}, "", id="effect of a rule that asks"),
    ],
)
def test_rule_that_cannot_act_says_so(mode: Mode, fields: dict[str, Any], words: str) -> None:
    world = evicting(claim(), pod(), rule(**fields), mode=mode)
    assert world.after(20) == []
    status, reason, message = world.condition("rule")
    assert (status, reason) == ("False", "Stopped")
    assert words in message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"meta": rule().meta}, "eviction is no longer requested", id="asks no longer"),
        pytest.param(
            {"deleting": True, "generation": 2},
            "the rule is being deleted, so its /evict has no effect",
            id="is being deleted (R1)",
        ),
    ],
)
def test_rule_that_asks_no_longer_evicts_no_further_pod_and_says_why(fields: dict[str, Any], message: str) -> None:
    """What is pending is dropped as for a taint that is gone."""
    world = delegated(claim("pod", tolerates(3600)), pod(), asking())
    world.advance(1)
    assert set(world.planned) == {"pod"}
    world.edit(world.rule(), **fields)
    assert world.after(4000) == []
    assert (world.planned, world.told("EvictionCancelled")) == ({}, ["pod"])
    assert world.condition("rule") == ("False", "NothingToDo", message)


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.DELEGATED])
def test_rule_that_is_being_deleted_cannot_begin_to_ask_for_eviction(mode: Mode) -> None:
    world = evicting(claim(), pod(), rule(effect="NoSchedule", deleting=True), mode=mode)
    world.advance(10)
    known = world.inventory.rules["rule"]
    world.change(known, asking(deleting=True))
    world.advance(100)
    assert (world.evicted, world.planned) == ([], {})
    assert world.condition("rule")[:2] == ("False", "NothingToDo")


def test_no_execute_acts_until_the_rule_is_gone() -> None:
    """The in-tree controller does not look at a rule's deletionTimestamp either."""
    world = evicting(claim(), pod(), rule(deleting=True), base=BLUNT)
    assert world.after(1) == ["pod"]


def test_expired_rule_that_is_being_deleted_is_not_deleted_again() -> None:
    """FakeCluster would let it go at once; in a cluster its finalizers hold it, and the worker would ask for ever."""
    world = delegated(rule(deleting=True, annotations={EXPIRES_AT: format_time(NOW)}), delete_expired=True)
    world.advance(10)
    assert "rule" in world.inventory.rules


def test_pods_that_tolerate_scheduling_are_left_and_counted() -> None:
    world = delegated(claim("stays", tolerates(effect="NoSchedule")), pod("stays"), claim(), pod(), asking())
    assert world.after(30) == ["pod"]
    assert world.condition("rule")[2] == "1 pod evicted; 1 left alone (ToleratesScheduling)"


# --- announcements ------------------------------------------------------------------------------


def test_eviction_that_is_asked_for_waits_until_it_is_announced() -> None:
    world = World(Mode.DELEGATED, FREE)
    world.cluster.condition_error = "503"
    world.add(claim(), pod(), asking())
    assert world.after(30) == []
    world.cluster.condition_error = ""
    assert world.after(2) == ["pod"]
    assert world.condition("rule")[:2] == ("True", "Waiting")


# --- restart ------------------------------------------------------------------------------------


def test_progress_survives_a_restart() -> None:
    before = Condition(EVICTION, "True", "Evicting", "some pods evicted", 1, NOW)
    counted = Condition(EVICTED_PODS, "True", "PodsEvicted", "7", 1, NOW)
    world = evicting(claim(), pod(), rule(conditions=(before, counted)), base=BLUNT)
    world.advance(20)
    assert world.condition("rule") == ("False", "Completed", "8 pods evicted")
    assert world.condition("rule", EVICTED_PODS)[2] == "8"
    assert world.condition("rule", IN_TREE)[2] == "1 pod evicted since starting the controller."


@pytest.mark.parametrize(("reason", "number"), [("Completed", 7), ("NothingToDo", 0)])
def test_rule_that_is_done_stays_so_over_a_restart(reason: str, number: int) -> None:
    """A rule of effect NoExecute need not announce what it has not done."""
    before = Condition(EVICTION, "False", reason, f"{number} pods evicted", 1, NOW - timedelta(hours=1))
    counted = Condition(EVICTED_PODS, "True", "PodsEvicted", str(number), 1, NOW - timedelta(hours=1))
    world = evicting(rule(conditions=(before, counted)), base=BLUNT)
    world.advance(20)
    assert written(world, EVICTION) == []


@pytest.mark.parametrize(
    ("generation", "reason"),
    [pytest.param(1, "Completed", id="as it is now"), pytest.param(2, "NothingToDo", id="as it was before a change")],
)
def test_completed_stays_completed_where_its_count_is_not_known(generation: int, reason: str) -> None:
    """L14: by an earlier version; `kubectl wait` for the reason returns all the same."""
    before = Condition(EVICTION, "False", "Completed", "7 pods evicted", 1, NOW - timedelta(hours=1))
    world = evicting(rule(conditions=(before,), generation=generation), base=BLUNT)
    world.advance(20)
    assert world.condition("rule") == ("False", reason, "0 pods evicted")


@pytest.mark.parametrize(
    ("status", "generation", "waits"),
    [
        pytest.param("False", 1, False, id="it was done"),
        pytest.param("True", 1, True, id="it was not done"),
        pytest.param("False", 2, True, id="it has changed since"),
    ],
)
def test_new_leader_waits_for_allocations_unless_it_was_reported_that_there_is_none(
    status: str, generation: int, *, waits: bool
) -> None:
    before = Condition(EVICTION, status, "Waiting", "0 pods evicted", 1, NOW - timedelta(hours=1))
    world = evicting(rule(conditions=(before,), generation=generation), base=BLUNT)
    world.settle()
    assert world.condition("rule")[:2] == (("True", "Waiting") if waits else ("False", "NothingToDo"))


# --- which conditions announce an eviction --------------------------------------------------------


LATER = NOW + timedelta(hours=1)


def shows(status: str, reason: str, *, generation: int = 1, uid: str = "") -> DeviceTaintRule:
    """A rule that asks for eviction, with this condition."""
    known = Condition(EVICTION, status, reason, "", generation, NOW)
    return asking(conditions=(known,), uid=uid)


@pytest.mark.parametrize(
    ("status", "reason", "announces"),
    [
        *[("True", reason, True) for reason in ("Waiting", "Evicting", "Blocked", "Held", "Limited")],
        *[("False", reason, True) for reason in ("Completed", "HeldByPodGroup", "ReturnsToDevice")],
        *[("False", reason, False) for reason in ("NothingToDo", "Stopped", "ObserveOnly", "SomethingNew")],
        ("Unknown", "Waiting", False),
    ],
)
def test_conditions_that_announce_an_eviction(status: str, reason: str, announces: bool) -> None:  # noqa: FBT001 -- of a table
    known = shows(status, reason)
    expected = NOW if announces else None
    assert announced_at(known.conditions, 1) == expected
    assert Announcements(acts=True).announced_at(known) == expected
    assert Announcements(acts=False).announced_at(known) == NOW


@pytest.mark.parametrize("acts", [True, False])
def test_condition_of_another_generation_announces_nothing(*, acts: bool) -> None:
    assert Announcements(acts=acts).announced_at(shows("True", "Evicting", generation=2)) is None
    assert Announcements(acts=acts).announced_at(rule(evict=True)) is None


@pytest.mark.parametrize(
    ("between", "lasts"),
    [
        pytest.param(shows("False", "NothingToDo"), True, id="nothing to do"),
        pytest.param(structs.replace(shows("True", "Waiting"), conditions=()), True, id="removed by another writer"),
        pytest.param(shows("False", "Completed", generation=7), True, id="a late event of the watch"),
        pytest.param(shows("False", "Stopped"), False, id="stopped"),
        pytest.param(shows("False", "ObserveOnly"), False, id="another worker"),
        pytest.param(structs.replace(shows("False", "NothingToDo", generation=2), generation=2), False, id="changed"),
    ],
)
def test_announcement_lasts_while_nothing_contradicts_it(between: DeviceTaintRule, lasts: bool) -> None:  # noqa: FBT001 -- of a table
    known = Announcements(acts=True)
    known.announced_at(shows("True", "Waiting"))
    assert known.announced_at(between) == (NOW if lasts else None)
    assert known.announced_at(shows("False", "NothingToDo")) == (NOW if lasts else None)


def test_announcement_is_forgotten_with_its_rule_and_holds_for_no_other() -> None:
    known = Announcements(acts=True)
    known.announced_at(shows("True", "Waiting"))
    assert known.announced_at(shows("False", "NothingToDo", uid="other")) is None
    known.forget("uid-rule")
    assert known.announced_at(shows("False", "NothingToDo")) is None


@pytest.mark.parametrize("reason", ["ObserveOnly", "Stopped", "NothingToDo"])
def test_eviction_begins_once_a_new_condition_announces_it(reason: str) -> None:
    known = Condition(EVICTION, "False", reason, "0 pods evicted", 1, NOW - timedelta(days=30))
    world = delegated(claim("pod"), pod("pod"))
    world.clock.wall = LATER
    world.add(asking(added=known.last_transition_time, conditions=(known,)))
    world.advance(1)
    assert world.cluster.writes[0][2] == "Waiting"
    assert world.inventory.rules["rule"].conditions[0].last_transition_time == LATER
    assert world.evicted == ["pod"]


def test_pod_that_comes_when_there_was_nothing_to_do_is_evicted() -> None:
    world = delegated(asking())
    world.advance(60)
    assert [reason for reason, _ in written(world, EVICTION)] == ["Waiting", "NothingToDo"]
    world.add(claim("pod"), pod("pod"))
    assert world.after(1) == ["pod"]


def test_rule_that_asks_again_is_announced_again() -> None:
    """Annotations do not move the generation, and /mutate may not be installed."""
    world = World(Mode.DELEGATED, FREE)
    asks = asking()
    world.add(asks)
    world.advance(60)
    for given in ({}, asks.meta.annotations):
        known = world.inventory.rules["rule"]
        meta = structs.replace(known.meta, annotations=given)
        world.edit(known, meta=meta)
        world.advance(60)
    told = [reason for _, _, reason, _ in world.cluster.writes]
    assert told[-2:] == ["Waiting", "NothingToDo"]
    assert len(told) >= 5


def test_rule_that_was_stopped_is_announced_before_it_goes_on() -> None:
    most = [0]
    world = World(Mode.DELEGATED, FREE, ceiling_of=lambda _: Ceiling(most[0], None, confirmed=False))
    world.add(claim("pod"), pod("pod"), asking())
    assert world.after(30) == []
    assert world.condition("rule")[:2] == ("False", "Stopped")
    most[0] = 1
    world.cluster.condition_error = "503: the server is away"
    world.worker.replan_all()
    assert world.after(30) == []
    world.cluster.condition_error = ""
    assert world.after(12) == ["pod"]


def test_rule_that_stays_stopped_is_not_written_again() -> None:
    world = World(Mode.DELEGATED, FREE, ceiling_of=lambda _: Ceiling(0, None, confirmed=False))
    world.add(claim("pod"), pod("pod"), asking())
    world.advance(300)
    assert [reason for reason, _ in written(world, EVICTION)] == ["Waiting", "Stopped"]
