"""The windows of the policy beside the figures of a rule."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import KEY, NOW
from tests.tables import table
from tests.unit.admission.guarding import ask, fleet, tainting, told
from tests.unit.inventory.values import claim, inventory_of, lets_stay, on, pool_slice
from webhook.api.claims import DeviceRequest, ExactRequest
from webhook.api.meta import format_time
from webhook.api.rules import NOT_BEFORE
from webhook.policy.model import (
    EvictionProfile,
    EvictionWindow,
    ImpactLimits,
    ImpactSettings,
    InTreeEvictor,
    NamespaceMatch,
)

NIGHTLY = EvictionWindow("0 22 * * *", 30 * 60.0, "Europe/Berlin")
WAIT = "wait for the window that opens at 2026-06-01T22:00:00+02:00 (Europe/Berlin)"
SLOW = EvictionProfile(windows=(NIGHTLY,), max_per_minute=10)
MANY = ImpactSettings(limits=(ImpactLimits(),))


def asked(**annotations: str) -> Any:
    return tainting(effect="NoSchedule", evict=True, annotations=annotations)


def said(rule: Any, *profiles: EvictionProfile, nodes: int = 4, apart: bool = False, **options: Any) -> list[str]:
    """What the guard says beside the figures."""
    cluster = inventory_of(*fleet(nodes, (lambda number: f"ns-{number}") if apart else (lambda _: "ml")))
    decision = ask(rule, cluster=cluster, eviction=profiles, impact=MANY, **options)
    assert decision.allowed
    return [text for _, text in told(decision)][1:]


def test_rule_that_asks_our_worker_gets_the_window() -> None:
    assert said(asked(), SLOW) == [f"4 pods {WAIT}"]


def test_rule_that_begins_at_the_end_of_the_calendar_gets_no_window() -> None:
    assert said(asked(**{NOT_BEFORE: "9999-12-31T00:00:00Z"}), SLOW) == []


def test_window_is_looked_for_from_when_the_rule_begins() -> None:
    later = format_time(NOW + timedelta(days=1))
    [text] = said(asked(**{NOT_BEFORE: later}), SLOW)
    assert text == "4 pods wait for the window that opens at 2026-06-02T22:00:00+02:00 (Europe/Berlin)"
    past = format_time(NOW - timedelta(days=1))
    assert said(asked(**{NOT_BEFORE: past}), SLOW) == [f"4 pods {WAIT}"]


def test_window_is_looked_for_from_when_pods_are_due() -> None:
    """A pod that tolerates the taint for nine hours is due after tonight's window."""
    patient = [
        claim(
            f"patient-{number}", on("gpu-1", lets_stay(9 * 3600, key=KEY), pool=f"node-{number}"), users=[f"p-{number}"]
        )
        for number in range(3)
    ]
    decision = ask(asked(), cluster=inventory_of(*fleet(4), *patient), eviction=(SLOW,), impact=MANY)
    assert [text for _, text in told(decision)][1:] == [
        f"4 pods {WAIT}",
        "3 pods wait for the window that opens at 2026-06-02T22:00:00+02:00 (Europe/Berlin)",
    ]
    slow = EvictionProfile(windows=(NIGHTLY,), grace_seconds=9 * 3600.0)
    assert said(asked(), slow) == ["4 pods wait for the window that opens at 2026-06-02T22:00:00+02:00 (Europe/Berlin)"]


@table(
    "rule",
    {
        "the in-tree controller knows no windows": tainting(),
        "evicts no pod": tainting(effect="NoSchedule"),
        "does nothing": tainting(effect="None"),
    },
)
def test_other_rules_get_none(rule: Any) -> None:
    assert said(rule, SLOW) == []


def test_every_rule_gets_it_where_there_is_no_in_tree_controller() -> None:
    assert said(tainting(), SLOW, in_tree_evictor=InTreeEvictor.ABSENT) == [f"4 pods {WAIT}"]


def test_policy_without_windows_has_none() -> None:
    assert said(asked(), EvictionProfile()) == []


def test_pods_are_counted_by_the_profile_of_their_namespace() -> None:
    first = EvictionProfile(namespaces=NamespaceMatch(("ns-1", "ns-2")), skips=True)
    assert said(asked(), first, SLOW, apart=True) == ["the worker leaves 2 pods alone (action: skip)", f"2 pods {WAIT}"]


@pytest.mark.parametrize("device_class", ["large.example.com", "small.example.com"])
def test_pods_are_counted_by_the_profile_of_any_class_that_they_use(device_class: str) -> None:
    claims = [
        structs.replace(
            claim(f"claim-{name}", on(device), users=["u"]),
            requests=(DeviceRequest("gpu", ExactRequest(device_class_name=f"{name}.example.com")),),
        )
        for name, device in (("large", "gpu-0"), ("small", "gpu-1"))
    ]
    of_class = EvictionProfile(device_classes=(device_class,), skips=True)
    cluster = inventory_of(pool_slice("gpu-0", "gpu-1"), *claims)
    decision = ask(asked(), cluster=cluster, eviction=(of_class, SLOW), impact=MANY)
    assert [text for _, text in told(decision)][1:] == ["the worker leaves 1 pod alone (action: skip)"]


def test_pods_of_a_profile_that_is_not_known_are_not_counted() -> None:
    """`serve` reads no pods, so it knows neither priorities nor labels."""
    unknown = EvictionProfile(namespaces=NamespaceMatch(("ns-1",)), priority_at_most=0)
    assert said(asked(), unknown, SLOW, nodes=5, apart=True) == [f"4 pods {WAIT}"]


def test_rule_that_is_refused_gets_no_figures() -> None:
    decision = ask(asked(), eviction=(SLOW,), impact=ImpactSettings(limits=(ImpactLimits(pods=1),)))
    assert not any("window that opens" in text for _, text in told(decision))
