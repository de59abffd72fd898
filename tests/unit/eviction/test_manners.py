"""Rates, numbers, order, holds, budgets and ceilings: who goes when, by a clock that the test moves."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import claim, crowd, owned, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.world import BLUNT, FREE, NO_BREAKER, World, delegated, evicting
from webhook.api.claims import DeviceRequest, ExactRequest
from webhook.api.rules import EVICTIONS_PER_SECOND, DeviceSelector
from webhook.eviction.events import disruption_of
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, EvictionResult
from webhook.eviction.profiles import Profiles, classes_of
from webhook.policy.model import EvictionProfile

GENTLE = EvictionProfile(rate=10_000, burst=100_000)
BLOCKED = EvictionOutcome(EvictionResult.BLOCKED, "Cannot evict pod as it would violate the pod's disruption budget.")
FAILED = EvictionOutcome(EvictionResult.FAILED, "500")


def times(world: World) -> list[float]:
    return [seconds for _, _, seconds in world.cluster.calls]


def rated(name: str, rate: int) -> object:
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
        world.add(rated(f"rate-{rate}", rate))  # type: ignore[arg-type]
    world.advance(60)
    expected = [max(0.0, (number - 10) / max(rates)) for number in range(1, 26)]
    assert times(world) == pytest.approx(expected, abs=0.001)
    assert max(times(world)) == pytest.approx(last, abs=0.001)


def test_pods_under_different_taints_do_not_wait_for_each_other() -> None:
    """N-15."""
    world = evicting(*crowd(20))
    one, other = (DeviceSelector(device=f"pod-{number:03}") for number in (0, 1))
    world.add(rated("slow", 1))  # type: ignore[arg-type]
    assert len(world.settled()) == 10
    for selector, name in ((one, "one"), (other, "other")):
        assert selector.device is not None
        world.add(claim(f"{name}-late", devices=(f"{name}-late",)), pod(f"{name}-late"))
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
    slow = rated("rule", 1)
    world.add(slow)  # type: ignore[arg-type]
    assert len(world.settled()) == 10
    known = world.inventory.rules["rule"]
    faster = structs.replace(known.meta, annotations={EVICTIONS_PER_SECOND: "10"})
    world.edit(known, meta=faster)
    world.advance(1)
    assert 19 <= len(world.evicted) <= 20


def test_deleted_rule_stops_what_is_left() -> None:
    world = evicting(*crowd(15))
    world.add(rated("rule", 1))  # type: ignore[arg-type]
    assert len(world.after(2.5)) == 12
    world.remove(world.inventory.rules["rule"])
    assert len(world.after(60)) == 12
    assert world.planned == {}


def test_pod_scheduled_late_is_evicted_by_the_same_limiter() -> None:
    world = evicting(*crowd(10))
    world.add(rated("rule", 1))  # type: ignore[arg-type]
    world.settle()
    world.add(claim("late"), pod("late"))
    assert "late" not in world.settled()
    assert world.after(1.01)[-1] == "late"


def test_never_more_than_the_limit_in_any_minute() -> None:
    world = evicting(*crowd(35), rule(), max_per_minute=10)
    world.advance(300)
    done = times(world)
    assert len(done) == 35
    assert all(later - earlier >= 60 for earlier, later in zip(done, done[10:], strict=False))
    assert done[34] == pytest.approx(180, abs=1)


# --- numbers ------------------------------------------------------------------------------------


def test_no_more_under_way_than_allowed_in_all_and_in_a_namespace() -> None:
    world = evicting(overall=3, per_namespace=2, lingering=True)
    for namespace in ("ml", "web"):
        for number in range(4):
            name = f"{namespace}-{number}"
            world.add(claim(name, namespace=namespace), pod(name, namespace=namespace))
    world.add(rule())
    while world.planned:
        world.advance(1)
        leaving = [each for each in world.inventory.pods.values() if each.deleting]
        assert len(leaving) <= 3
        assert max(Counter(each.meta.namespace for each in leaving).values()) <= 2
        world.remove(leaving[0])
    assert len(world.evicted) == 8


# --- order --------------------------------------------------------------------------------------


def test_lowest_priority_goes_first_then_the_oldest_due() -> None:
    world = evicting(rate=1, burst=1)
    soon = tolerates(2)
    world.add(claim("high"), pod("high", priority=100))
    world.add(claim("young", soon), pod("young"), claim("old"), pod("old"), claim("low", soon), pod("low", priority=-1))
    world.clock.wall += timedelta(seconds=5)
    world.add(rule())
    assert world.after(10) == ["low", "old", "young", "high"]


def test_profile_can_be_for_the_class_of_an_allocated_device() -> None:
    wanted = (DeviceRequest("gpu", ExactRequest("", "big")), DeviceRequest("other", ExactRequest("", "small")))
    profiles = Profiles((structs.replace(FREE, device_classes=("big*",)), FREE))
    world = World(Mode.REPLACEMENT)
    for name, requests in (("big", wanted), ("small", wanted[1:]), ("unknown", ())):
        world.add(structs.replace(claim(name), requests=requests), pod(name))
    world.add(structs.replace(claim("idle", devices=()), requests=wanted), pod("idle"))
    classes = {name: classes_of(world.inventory, world.pod(name)) for name in ("big", "small", "unknown", "idle")}
    assert classes == {"big": {"big"}, "small": set(), "unknown": set(), "idle": set()}
    found = {name: profiles.of(world.pod(name), None, asked).position for name, asked in classes.items()}
    assert found == {"big": 0, "small": 1, "unknown": 1, "idle": 1}
    assert profiles.ask_for_classes
    assert not Profiles((FREE,)).ask_for_classes


def test_grace_period_is_the_profiles() -> None:
    world = evicting(grace_period_seconds=7)
    asked: list[int | None] = []

    async def evict(pod: object, grace_period_seconds: int | None) -> EvictionOutcome:  # noqa: ARG001
        asked.append(grace_period_seconds)
        return EvictionOutcome(EvictionResult.GONE)

    world.cluster.evict = evict  # type: ignore[method-assign]
    world.add(claim(), pod(), rule())
    world.settle()
    assert asked == [7]


# --- pods that are left alone -------------------------------------------------------------------


def test_daemon_sets_and_mirror_pods_are_skipped_and_counted() -> None:
    world = evicting()
    world.add(claim("agent"), owned("agent", kind="DaemonSet"), claim("static"), pod("static", mirror=True), rule())
    assert world.after(20) == []
    assert world.condition("rule") == (
        "False",
        "NothingToDo",
        "0 pods evicted; 2 skipped (pods of DaemonSets, mirror pods, action: skip)",
    )


# --- budgets and failures -----------------------------------------------------------------------


def test_budget_is_asked_again_until_it_gives_way() -> None:
    world = delegated(claim(), pod(), rule(effect="NoSchedule", evict=True), answers=[BLOCKED] * 3)
    world.advance(60)
    assert [round(seconds) for _, _, seconds in world.cluster.requests] == [0, 5, 10, 15]
    assert world.told("EvictionBlocked") == ["pod", "rule"]
    assert world.condition("rule")[1] == "Completed"


def test_budget_that_never_gives_way_keeps_the_pod() -> None:
    world = World(Mode.DELEGATED, structs.replace(FREE, deadline_seconds=600))
    world.cluster.answers.extend([BLOCKED] * 10_000)
    world.add(claim(), pod(), rule(effect="NoSchedule", evict=True))
    assert world.after(1200) == []
    assert world.condition("rule")[:2] == ("True", "Blocked")


def test_after_the_deadline_a_pod_is_deleted_if_the_policy_says_so() -> None:
    """E-30: a DELETE of ours comes with its reason."""
    world = World(Mode.DELEGATED, structs.replace(FREE, deadline_seconds=100, delete_after_deadline=True))

    async def blocked(pod: object, grace_period_seconds: int | None) -> EvictionOutcome:  # noqa: ARG001
        return BLOCKED

    world.cluster.evict = blocked  # type: ignore[method-assign]
    world.add(claim(), pod(), rule(effect="NoSchedule", evict=True))
    assert world.after(99) == []
    world.advance(12)
    [(verb, _, seconds)] = world.cluster.calls
    assert verb == "delete"
    assert 100 <= seconds <= 111
    assert world.cluster.disruptions == [disruption_of(Mode.DELEGATED)]


def test_failure_is_tried_again_and_counted_once() -> None:
    world = evicting(claim(), pod(), rule(), base=BLUNT, answers=[FAILED, FAILED])
    assert world.after(30) == ["pod"]
    assert world.condition("rule", "EvictionInProgress")[2] == "1 pod evicted since starting the controller."


def its_status_changes(world: World) -> None:
    world.change(world.pod("pod"), pod(ready=False))


def another_namespace_is_held(world: World) -> None:
    world.worker.requeue_waiting("web")


def policy_is_loaded_again(world: World) -> None:
    world.worker.replan_all()


def budgets_of_the_namespace_change(world: World) -> None:
    world.worker.observe_budgets("ml")


NEWS = [its_status_changes, another_namespace_is_held, policy_is_loaded_again, budgets_of_the_namespace_change]


@pytest.mark.parametrize("news", NEWS)
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


def test_failures_do_not_use_up_the_rate() -> None:
    world = evicting(claim(), pod(), rule(), max_per_minute=1, rate=1, burst=1, answers=[FAILED] * 5)
    assert world.after(5) == ["pod"]


def test_pod_that_was_gone_is_not_counted() -> None:
    world = evicting(claim(), pod(), rule(), base=BLUNT, answers=[EvictionOutcome(EvictionResult.GONE)])
    assert world.after(30) == []
    assert world.condition("rule", "EvictionInProgress")[1] == "NotStarted"
    assert world.told("DeviceTaintManagerEviction") == []


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
    world = evicting(claim(), pod(), rule(), answers=[EvictionOutcome(EvictionResult.FAILED, "500", asked)] * 100)
    world.advance(60)
    times = [seconds for _, _, seconds in world.cluster.requests]
    assert times[-1] - times[-2] == pytest.approx(10.0, abs=0.01)
