"""Rates, numbers, order, holds, budgets and ceilings: who goes when, by a clock that the test moves."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import asking, claim, crowd, owned, pod, rule, slice_of, taint, tolerates, using
from tests.unit.eviction.world import BLUNT, FAILED, FREE, GONE, NO_BREAKER, Budget, World, delegated, evicting
from webhook.api.claims import DeviceRequest, ExactRequest
from webhook.api.rules import EVICTIONS_PER_SECOND, DeviceSelector, DeviceTaintRule
from webhook.eviction.events import disruption_of
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome
from webhook.eviction.profiles import Profiles, classes_of
from webhook.policy.model import EvictionProfile, LabelMatch


def rated(name: str, rate: int) -> DeviceTaintRule:
    return rule(name, key=f"example.com/{name}", annotations={EVICTIONS_PER_SECOND: str(rate)})


# --- rates --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rates", "last"),
    [((1,), 15.0), ((10,), 1.5), ((1, 100), 0.15)],
    ids=["one a second", "ten a second", "of two taints the higher rate wins (N-14)"],
)
def test_ten_go_at_once_and_the_others_at_the_rate(rates: tuple[int, ...], last: float) -> None:
    """N-13, N-14: a burst of ten, then the highest rate of the pod's taints."""
    world = evicting(*crowd(25))
    for rate in rates:
        world.add(rated(f"rate-{rate}", rate))
    world.advance(60)
    expected = [max(0.0, (number - 10) / max(rates)) for number in range(1, 26)]
    assert world.times == pytest.approx(expected, abs=0.001)
    assert max(world.times) == pytest.approx(last, abs=0.001)


def test_pods_under_different_taints_do_not_wait_for_each_other() -> None:
    """N-15."""
    world = evicting(*crowd(20))
    world.add(rated("slow", 1))
    assert len(world.settled()) == 10
    world.add(*using("one-late", "other-late", on="{}"))
    world.add(rule("fast", selector=DeviceSelector(device="one-late"), key="example.com/fast"))
    assert world.settled()[10:] == ["one-late"]


def test_taints_of_a_driver_have_a_bucket_for_each_key() -> None:
    """Whenever they were added, and whatever their values are."""
    slow = EvictionProfile(rate=1, burst=2, per_owner_unavailable=None)
    world = evicting(*crowd(6), base=slow, breaker=NO_BREAKER)
    of_key = [taint(), taint(added=NOW - timedelta(seconds=1)), taint(value="more")]
    other = taint(key="example.com/other")
    devices = {f"pod-{number:03}": ((of_key[number],) if number < 3 else (other,)) for number in range(6)}
    world.add(slice_of(devices))
    world.settle()
    assert Counter(name < "pod-003" for name in world.evicted) == {True: 2, False: 2}


def test_rate_changed_meanwhile_holds_from_now_on_and_gives_no_new_burst() -> None:
    """N-17, N-18."""
    world = evicting(*crowd(30))
    world.add(rated("rule", 1))
    assert len(world.settled()) == 10
    known = world.inventory.rules["rule"]
    faster = structs.replace(known.meta, annotations={EVICTIONS_PER_SECOND: "10"})
    world.edit(known, meta=faster)
    world.advance(1)
    assert 19 <= len(world.evicted) <= 20


def test_deleted_rule_stops_what_is_left() -> None:
    world = evicting(*crowd(15))
    world.add(rated("rule", 1))
    assert len(world.after(2.5)) == 12
    world.remove(world.inventory.rules["rule"])
    assert len(world.after(60)) == 12
    assert world.planned == {}


def test_pod_scheduled_late_is_evicted_by_the_same_limiter() -> None:
    world = evicting(*crowd(10))
    world.add(rated("rule", 1))
    world.settle()
    world.add(claim("late"), pod("late"))
    assert "late" not in world.settled()
    assert world.after(1.01)[-1] == "late"


# --- profiles -----------------------------------------------------------------------------------


def test_classes_of_a_pod_are_those_of_its_allocated_devices() -> None:
    wanted = (DeviceRequest("gpu", ExactRequest("", "big")), DeviceRequest("other", ExactRequest("", "small")))
    world = World(Mode.REPLACEMENT)
    for name, requests in (("big", wanted), ("small", wanted[1:]), ("unknown", ())):
        world.add(structs.replace(claim(name), requests=requests), pod(name))
    world.add(structs.replace(claim("idle", devices=()), requests=wanted), pod("idle"))
    classes = {name: classes_of(world.inventory, world.pod(name)) for name in ("big", "small", "unknown", "idle")}
    assert classes == {"big": {"big"}, "small": set(), "unknown": set(), "idle": set()}
    big = structs.replace(FREE, device_classes=("big*",))
    assert [Profiles(each).ask_for_classes for each in ((big, FREE), (FREE,))] == [True, False]


def test_grace_period_is_the_profiles() -> None:
    world = evicting(grace_period_seconds=7)
    asked: list[int | None] = []

    async def evict(pod: object, grace_period_seconds: int | None) -> EvictionOutcome:  # noqa: ARG001
        asked.append(grace_period_seconds)
        return GONE

    world.cluster.evict = evict  # type: ignore[method-assign]
    world.add(claim(), pod(), rule())
    world.settle()
    assert asked == [7]


# --- pods that are left alone -------------------------------------------------------------------


def test_daemon_sets_and_mirror_pods_are_skipped_and_counted() -> None:
    """As are pods that a profile skips."""
    of_databases = structs.replace(FREE, pod_labels=LabelMatch((("app", "db"),)), skips=True)
    world = World(Mode.REPLACEMENT, of_databases, FREE)
    world.add(claim("agent"), owned("agent", kind="DaemonSet"), claim("static"), pod("static", mirror=True))
    world.add(claim("db"), pod("db", labels=(("app", "db"),)), rule())
    assert world.after(20) == []
    told = "0 pods evicted; 3 skipped (pods of DaemonSets, mirror pods, action: skip)"
    assert world.condition("rule") == ("False", "NothingToDo", told)


# --- budgets and failures -----------------------------------------------------------------------


@pytest.mark.parametrize("deletes", [False, True])
def test_after_the_deadline_a_pod_is_deleted_if_the_policy_says_so(*, deletes: bool) -> None:
    """E-30: a DELETE of ours comes with its reason."""
    world = delegated(claim(), pod(), asking(), deadline_seconds=100, delete_after_deadline=deletes, budgets=[Budget()])
    assert world.after(99) == []
    assert world.condition("rule")[:2] == ("True", "Blocked")
    world.advance(12 if deletes else 1000)
    assert [verb for verb, _, seconds in world.cluster.calls if seconds >= 100] == ["delete"] * deletes
    assert world.cluster.disruptions == [disruption_of(Mode.DELEGATED)] * deletes


@pytest.mark.parametrize(
    ("answers", "evicted", "message"),
    [
        pytest.param([FAILED] * 2, ["pod"], "1 pod evicted since starting the controller.", id="one that failed, once"),
        pytest.param([GONE], [], "", id="one that was gone, not at all"),
    ],
)
def test_evictions_are_counted_and_told(answers: list[EvictionOutcome], evicted: list[str], message: str) -> None:
    world = evicting(claim(), pod(), rule(), base=BLUNT, answers=answers)
    assert world.after(30) == evicted
    assert world.condition("rule", "EvictionInProgress")[2] == message
    assert world.told("DeviceTaintManagerEviction") == evicted


NEWS: dict[str, Callable[[World], None]] = {
    "its status": lambda world: world.change(world.pod("pod"), pod(ready=False)),
    "a hold of another namespace": lambda world: world.worker.requeue_waiting("web"),
    "a policy that is loaded again": lambda world: world.worker.replan_all(),
    "budgets of the namespace": lambda world: world.worker.observe_budgets("ml"),
}


@pytest.mark.parametrize("news", NEWS.values(), ids=NEWS)
def test_pod_that_failed_is_not_tried_sooner_because_of(news: Callable[[World], None]) -> None:
    world = evicting(claim(), pod(), rule(), answers=[FAILED] * 1000)
    world.advance(35)
    before = len(world.cluster.requests)
    news(world)
    world.settle()
    assert len(world.cluster.requests) == before


@pytest.mark.parametrize(("profile", "method"), [(FREE, "evict"), (BLUNT, "delete")])
def test_requests_are_counted_by_how_they_ask(profile: EvictionProfile, method: str) -> None:
    world = evicting(claim(), pod(), rule(), base=profile)
    world.settle()
    found = {each: world.sample("requests_total", method=each, result="evicted") for each in ("evict", "delete")}
    assert found == {"evict": 0.0, "delete": 0.0, method: 1.0}


def delays(caplog: pytest.LogCaptureFixture, message: str) -> list[float]:
    return [record.__dict__["delaySeconds"] for record in caplog.records if record.message == message]


def test_log_says_how_late_a_pod_went_to_the_millisecond(caplog: pytest.LogCaptureFixture) -> None:
    world = evicting()
    world.clock.wall += timedelta(seconds=1.2346)
    with caplog.at_level(logging.INFO):
        world.add(claim(), pod(), rule())
        world.settle()
    assert delays(caplog, "pod evicted") == [1.235]


def test_log_says_when_a_pod_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    world = evicting(claim(), pod(), rule(), answers=[FAILED._replace(retry_after_seconds=1.2346)])
    world.settle()
    assert delays(caplog, "pod not evicted") == [1.235]


def test_log_says_that_a_pod_is_not_tried_again_whose_taint_went_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    world = evicting()

    async def evict(pod: object, grace_period_seconds: int | None) -> EvictionOutcome:  # noqa: ARG001
        world.remove(world.inventory.rules["rule"])
        return FAILED

    world.cluster.evict = evict  # type: ignore[method-assign]
    world.add(claim(), pod(), rule())
    world.settle()
    assert delays(caplog, "pod not evicted") == [0.0]


def test_taint_removed_and_added_again_gives_the_full_grace_anew() -> None:
    world = evicting(claim("pod", tolerates(60)), pod(), rule(), base=BLUNT)
    world.advance(50)
    world.remove(world.inventory.rules["rule"])
    world.advance(5)
    world.add(rule(added=world.clock.wall, uid="another"))
    assert world.after(59) == []
    assert world.after(2) == ["pod"]


@pytest.mark.parametrize("asked", [0.0, 60.0])
def test_pod_that_cannot_be_evicted_is_tried_every_ten_seconds_in_the_end(asked: float) -> None:
    """Whatever the server asks for."""
    world = evicting(claim(), pod(), rule(), answers=[FAILED._replace(retry_after_seconds=asked)] * 100)
    world.advance(60)
    sent = [seconds for _, _, seconds in world.cluster.requests]
    assert sent[-1] - sent[-2] == pytest.approx(10.0, abs=0.01)
