"""Decisions of the pass that were found wrong once, one by one; `test_oracle` compares the whole."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import claim, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.plan.test_gates import FREE, Here
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, Pod, PodGroup
from webhook.api.rules import DeviceSelector
from webhook.eviction.ledger import Ledger, Moment, Taken
from webhook.eviction.plan import plan
from webhook.eviction.pod_plan import EvictionPlan, StepReason
from webhook.inventory.state import InventoryObject
from webhook.policy.model import EvictionWindow

RING = PodGroup(ObjectMeta(name="ring", namespace="ml", uid="uid-ring"), ALL)
OPEN = EvictionWindow("0 0 * * *", 13 * 3600.0)


def member(name: str, **fields: Any) -> Pod:
    """A pod of the PodGroup that uses no device."""
    return pod(name, claims=(), pod_group="ring", **fields)


def planned(here: Here, ledger: Ledger | None = None, seconds: float = 0.0, **stops: int) -> EvictionPlan:
    """What the pass makes of it; `stops`: the most pods that rules may hit."""
    view = view_of(here, stops)
    return plan(view, ledger or Ledger(), None, Moment(NOW + timedelta(seconds=seconds), 1000.0 + seconds))


def view_of(here: Here, stops: dict[str, int]) -> Any:
    view = here.view()
    fields = {name: getattr(view, name) for name in type(view).__slots__}
    fields["exceeded"] = lambda group, pods, *_: "too many" if pods > stops.get(group, 1000) else ""
    return type(view)(**fields)


def reasons(made: EvictionPlan) -> dict[str, str]:
    return {uid.removeprefix("uid-"): wait.reason.name for uid, wait in made.waits.items()}


def test_companions_count_for_the_next_rule_once_the_first_is_stopped() -> None:
    """Else a ceiling could be passed through a PodGroup that goes because of two rules."""
    rules: list[InventoryObject] = [
        rule("r1", selector=DeviceSelector(device="gpu-1")),
        rule("r2", selector=DeviceSelector(device="gpu-2")),
    ]
    causes: list[InventoryObject] = [
        *(claim("p1", devices=("gpu-1",)), pod("p1", pod_group="ring")),
        *(claim("p2", tolerates(60), devices=("gpu-2",)), pod("p2", pod_group="ring")),
    ]
    here = Here(RING, *rules, *causes, *[member(f"c{number}") for number in range(20)])
    here.inventory.apply(rule(), None)
    made = planned(here, None, 100.0, **{"uid-r1": 10, "uid-r2": 5})
    assert {uid: bool(figures.stopped) for uid, figures in made.rules.items()} == {"uid-r1": True, "uid-r2": True}
    assert not made.going
    assert not list(made.eligible)


def test_breaker_hides_no_exemption() -> None:
    here = Here(claim("a"), pod("a"), claim("b"), pod("b", mirror=True))
    here.inventory.apply(rule(), None)
    here.inventory.apply(None, slice_of({"gpu-0": (taint(),)}, generation=2))
    assert reasons(planned(here, Ledger(tripped=frozenset({"gpu.example.com"})))) == {"a": "BREAKER", "b": "MIRROR"}


def test_plan_wakes_when_a_pod_counts_as_stuck_and_when_a_window_closes() -> None:
    leaving = pod("a", deleting=True, gone_by=NOW + timedelta(seconds=30))
    here = Here(claim("a"), leaving, claim("b"), pod("b"), stuck_after_seconds=60.0)
    assert planned(here).wake_at == NOW + timedelta(seconds=90)
    assert planned(here, seconds=90.0).wake_at is None
    here.profile = here.profile._replace(settings=structs.replace(FREE, windows=(OPEN,), stuck_after_seconds=1e6))
    assert planned(here).wake_at == NOW + timedelta(hours=1)


def test_hold_that_would_end_after_the_calendar_does_not_end_before() -> None:
    here = Here(claim("a"), pod("a", hold="for ever"), max_hold_seconds=1e15)
    assert planned(here, seconds=1e6).waits["uid-a"].reason is StepReason.HELD


def test_request_under_way_stays_in_the_plan_after_another_pod_of_its_group_was_evicted() -> None:
    here = Here(RING, claim("a"), pod("a", pod_group="ring", deleting=True), member("asked"), member("late"))
    place = "PodGroup ml/ring "
    taken = {"uid-a": Taken("ml/a", "ml", place, 1, granted=True), "uid-asked": Taken("ml/asked", "ml", place, 1)}
    made = planned(here, Ledger(taken=taken))
    assert reasons(made) == {"asked": "TAKEN"}
    assert made.rules["uid-rule"].pods == 1
