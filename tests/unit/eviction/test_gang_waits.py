"""A pod that could go and waits for another one of its unit is visible, with that one and what it waits for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import claim, pod, rule, tolerates, using
from tests.unit.eviction.test_progress import progress
from tests.unit.eviction.world import EVICTED, FAILED, FREE, Budget, FakeCluster, World, evicting
from webhook.api.claims import ResourceClaim
from webhook.api.pods import Pod
from webhook.api.rules import DeviceSelector
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, PodRef
from webhook.policy.model import EvictionWindow, Pause

HOUR = 3600.0
WHY = "because of DeviceTaintRule rule"


def gang(*names: str, **fields: Any) -> list[ResourceClaim | Pod]:
    """Members of one gang."""
    return using(*names, on="gpu-{}", gang="train", **fields)


def causes(world: World) -> dict[str, float]:
    """How many pods wait, by cause; without those that none waits for."""
    world.clock.elapsed += 1.0
    found = {
        sample.labels["why"]: sample.value
        for metric in world.registry.collect()
        if metric.name == "device_taint_webhook_eviction_pods_waiting"
        for sample in metric.samples
    }
    return {why: pods for why, pods in found.items() if pods}


def said(world: World, rule_name: str = "rule") -> tuple[str, str]:
    """The reason of the condition, and its message without the count of evicted pods."""
    _, reason, message = world.condition(rule_name)
    return reason, message.partition("; ")[2]


def events(world: World) -> dict[str, list[str]]:
    """Texts of Events about pods, with their reasons, by pod."""
    found: dict[str, list[str]] = {}
    for event in world.cluster.events:
        if isinstance(event.about, PodRef):
            found.setdefault(event.about.name, []).append(f"{event.reason}: {event.text}")
    return found


def hold(each: Pod, text: str | None) -> Pod:
    return structs.replace(each, hold=text)


# --- holds --------------------------------------------------------------------------------------


def test_pods_that_wait_for_one_on_hold_are_counted_named_and_told() -> None:
    world = evicting(*gang("a", hold="debugging"), *gang("b", "c", "d"), rule())
    world.advance(20)
    assert said(world) == ("Held", "4 pods pending in 1 namespace; 1 held; 3 waiting for ml/a, which is on hold")
    assert causes(world) == {"held": 1, "gang": 3}
    text = f"EvictionHeld: due for eviction {WHY}, but held: "
    assert events(world) == {
        "a": [f"{text}debugging"],
        **{name: [f"{text}ml/a, which it goes together with, is on hold: debugging"] for name in "bcd"},
    }
    assert world.sample("oldest_due_seconds") == 0.0
    waits = world.worker._core.plan.waits
    assert {waits[f"uid-{name}"].because for name in "abcd"} == {"debugging"}, "also if a new pod takes the name"
    world.change(world.pod("a"), hold(world.pod("a"), None))
    assert sorted(world.settled()) == ["a", "b", "c", "d"]
    assert causes(world) == {}


def test_hold_without_a_text_and_event_that_is_renewed_each_hour() -> None:
    world = evicting(*gang("a", hold=""), *gang("b"), rule())
    world.advance(2 * HOUR + 60)
    text = f"EvictionHeld: due for eviction {WHY}, but held: ml/a, which it goes together with, is on hold: "
    assert events(world)["b"] == [text] * 3


def test_rule_all_of_whose_pods_wait_for_one_on_hold_is_held() -> None:
    """The pod on hold is evicted for another rule."""
    world = evicting(*gang("a", hold="x"), *gang("b"))
    world.add(rule("other", selector=DeviceSelector(driver="gpu.example.com", device="gpu-a")))
    world.add(rule(selector=DeviceSelector(driver="gpu.example.com", device="gpu-b")))
    world.advance(20)
    assert said(world) == ("Held", "1 pod pending in 1 namespace; 1 waiting for ml/a, which is on hold")
    world.pause = Pause(NOW + timedelta(hours=1))
    world.advance(20)
    assert said(world)[0] == "Held", "the pause keeps no pod back that could go"


def test_rule_counts_its_own_pod_that_waits_for_one_of_another_rule() -> None:
    """As due while that one is on hold, and with the due time of the unit while that one is not due."""
    world = evicting()
    world.add(*gang("a", hold="x"), *gang("b"), claim("c", tolerates(50), devices=("gpu-c",)), pod("c", gang="other"))
    world.add(claim("d", devices=("gpu-d",)), pod("d", gang="other"))
    for name in "abcd":
        selector = DeviceSelector(driver="gpu.example.com", device=f"gpu-{name}")
        world.add(rule("rule" if name == "b" else f"rule-{name}", selector=selector))
    found = progress(world)
    assert (found.pending, found.due, found.held, found.held_back, found.next_due) == (1, 1, 0, 1, None)
    found = progress(world, "rule-d")
    assert (found.pending, found.due, found.held_back) == (1, 0, 0)
    assert found.next_due == NOW + timedelta(seconds=50)


# --- due times ----------------------------------------------------------------------------------


def test_pod_that_is_due_before_the_others_waits_for_the_last_and_its_event_says_until_when() -> None:
    world = evicting(*gang("a", after=10), *gang("b", after=50), *gang("c", after=30), rule())
    world.advance(1)
    at = f"EvictionScheduled: to be evicted at 2026-06-01T12:00:50Z {WHY}"
    assert events(world) == {name: [at] for name in "abc"}
    assert causes(world) == {}
    world.advance(40)
    assert said(world) == (
        "Waiting",
        "3 pods pending in 1 namespace; 2 waiting for ml/b, which is not due yet; next due 2026-06-01T12:00:50Z",
    )
    assert causes(world) == {"gang": 2}
    assert events(world) == {name: [at] for name in "abc"}
    assert sorted(world.after(20)) == ["a", "b", "c"]


def test_grace_of_the_profile_counts_in_the_event() -> None:
    world = evicting(claim("a"), pod("a"), rule(), grace_seconds=20.0)
    world.advance(1)
    assert events(world) == {"a": [f"EvictionScheduled: to be evicted at 2026-06-01T12:00:20Z {WHY}"]}
    assert said(world)[1].endswith("next due 2026-06-01T12:00:20Z")


def test_mode_observe_says_when_the_unit_would_go() -> None:
    world = evicting(*gang("a", after=10), *gang("b", after=50), rule(), mode=Mode.OBSERVE)
    world.advance(1)
    text = f"EvictionScheduled: would be evicted at 2026-06-01T12:00:50Z {WHY}"
    assert events(world) == {"a": [text], "b": [text]}


# --- completion and windows ---------------------------------------------------------------------


def test_pods_that_wait_for_one_that_may_complete() -> None:
    world = evicting(*gang("a", completes=True), *gang("b", "c"), rule(), wait_for_completion_seconds=600.0)
    world.advance(20)
    assert said(world) == (
        "Waiting",
        "3 pods pending in 1 namespace; 1 left to complete; 2 waiting for ml/a, which is left to complete",
    )
    assert causes(world) == {"completion": 1, "gang": 2}
    assert events(world)["a"] == [
        f"EvictionScheduled: to be evicted unless it completes before 2026-06-01T12:10:00Z {WHY}"
    ]
    end = "2026-06-01T12:10:00Z"
    assert events(world)["b"] == [
        f"EvictionScheduled: to be evicted together with ml/a, once that has completed, at {end} at the latest, {WHY}"
    ]


def test_pod_that_waits_for_the_window_of_another_one_counts_for_the_window() -> None:
    at_night = structs.replace(FREE, priority_at_most=-1, windows=(EvictionWindow("0 22 * * *", HOUR),))
    world = World(Mode.REPLACEMENT, at_night, FREE)
    world.add(*gang("a", priority=-1), *gang("b", hold="x"), *gang("c"), rule())
    world.advance(20)
    assert said(world)[1] == (
        "3 pods pending in 1 namespace; 1 held; 2 waiting for a window that opens at 2026-06-01T22:00:00+00:00 (UTC)"
    )
    assert causes(world) == {"held": 1, "window": 2}


# --- budgets ------------------------------------------------------------------------------------


def test_all_pods_of_a_unit_hear_of_the_budget_that_keeps_one_of_them() -> None:
    world = evicting(*gang("a", "b", "c"), rule(), budgets=[Budget("b")])
    world.advance(20)
    assert said(world) == ("Blocked", "3 pods pending in 1 namespace; 3 blocked")
    assert causes(world) == {"blocked": 3}
    assert world.cluster.requests == []
    refusal = "Cannot evict pod as it would violate the pod's disruption budget."
    text = f"EvictionBlocked: due for eviction {WHY}, but blocked: "
    assert events(world) == {
        "a": [f"{text}ml/b, which it goes together with: {refusal}"],
        "b": [f"{text}{refusal}"],
        "c": [f"{text}ml/b, which it goes together with: {refusal}"],
    }


# --- errors -------------------------------------------------------------------------------------


class Refusing(FakeCluster):
    """A webhook answers every dry run for these pods with an error."""

    pods: tuple[str, ...] = ("a",)

    async def may_evict(self, pod: PodRef) -> EvictionOutcome:
        answer = await super().may_evict(pod)
        return FAILED if pod.name in self.pods else answer


def test_unit_one_of_whose_pods_is_refused_is_retried_with_a_backoff() -> None:
    """Not at once and again and again, because the others could go."""
    world = evicting(*gang("a", "b", "c"), rule(), cluster=Refusing)
    assert world.after(60) == []
    assert 5 <= len(world.cluster.dry_runs) <= 20
    assert said(world) == (
        "Evicting",
        "3 pods pending in 1 namespace; 2 waiting for ml/a, which is retried after an error",
    )
    assert causes(world) == {"failed": 1, "gang": 2}
    assert progress(world).due == 3
    text = f"EvictionScheduled: to be evicted together with ml/a, once that can be evicted, {WHY}"
    assert events(world) == {"b": [text], "c": [text]}, "once, as the retry is far off"
    world.cluster.pods = ()  # type: ignore[attr-defined]
    assert sorted(world.after(10)) == ["a", "b", "c"]


def test_pod_that_is_retried_is_not_tried_sooner_because_of_other_news() -> None:
    world = evicting(*gang("a", "b"), rule(), cluster=Refusing)
    world.advance(60)
    asked = len(world.cluster.dry_runs)
    for _ in range(10):
        world.relabel("ml", team="a")
        world.relabel("ml", team="b")
    assert len(world.cluster.dry_runs) <= asked + 1
    assert "a" not in events(world), "the log says it"
    world.advance(30)
    assert len(world.cluster.dry_runs) <= asked + 4


@pytest.mark.parametrize("refused", [("a", "b"), ("b",), ("c",)])
def test_unit_goes_once_the_last_of_its_pods_is_not_refused(refused: tuple[str, ...]) -> None:
    world = evicting(cluster=Refusing)
    world.cluster.pods = refused  # type: ignore[attr-defined]
    world.add(*gang("a", "b", "c"), rule())
    assert world.after(100) == []
    world.cluster.pods = ()  # type: ignore[attr-defined]
    assert sorted(world.after(11)) == ["a", "b", "c"]


def test_members_that_fail_after_others_went_wait_for_their_own_retry_and_go_together() -> None:
    world = evicting(*gang("a", "b", "c"), rule(), answers=[EVICTED, FAILED, FAILED])
    world.settle()
    found = progress(world)
    assert (found.due, found.waiting_for) == (2, {})
    assert causes(world) == {"failed": 2}
    assert world.after(5) == ["a", "b", "c"]
    assert len({at for _, _, at in world.cluster.calls[1:]}) == 1


@pytest.mark.parametrize(("seconds", "waits"), [(-0.001, True), (0.0, False)])
def test_unit_goes_at_the_very_time_of_its_retry(seconds: float, *, waits: bool) -> None:
    world = evicting(*gang("a", "b"), rule(), cluster=Refusing)
    world.advance(30)
    world._move(world.worker._core.ledger.failures["uid-a"].retry_at + seconds - world.clock.elapsed)
    world.catch_up()
    assert ("uid-b" in world.worker._core.plan.waits) is waits
