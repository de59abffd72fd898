"""What holds where a document says nothing: the documentation has these numbers, so they are written out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NOW
from tests.unit.policy.documents import policy_of
from webhook.policy.model import (
    Action,
    BreakerSettings,
    EvictionProfile,
    ImpactLimits,
    ImpactSettings,
    NamespaceMatch,
    Policy,
    Reaction,
    Share,
    Softening,
)

MINUTE = 60.0
HOUR = 3600.0


@pytest.mark.parametrize("fields", [{}, {"breaker": {}}, {"breaker": {"acknowledged": []}}], ids=str)
def test_breaker_opens_at_a_fifth_of_the_devices_in_five_minutes_and_closes_after_ten(fields: Any) -> None:
    assert policy_of(**fields).breaker == BreakerSettings(Share(20.0), 5 * MINUTE, 10 * MINUTE, ())


@pytest.mark.parametrize("fields", [{}, {"impact": {}}], ids=str)
def test_impact_is_confirmed_by_anybody_and_may_grow_by_a_tenth(fields: Any) -> None:
    assert policy_of(**fields).impact == ImpactSettings(
        (ImpactLimits(pods=50, namespaces=10, soften=Softening.NEVER, confirmable=True),),
        NamespaceMatch(names=("kube-system",)),
        window_seconds=10 * MINUTE,
        tolerance_percent=10.0,
        confirmers=None,
        break_glass_groups=(),
        two_step=False,
        unknown_impact=Action.DENY,
    )


@pytest.mark.parametrize("fields", [{}, {"eviction": [{}]}], ids=str)
def test_evictions_go_on_for_ten_minutes_and_are_stuck_after_five(fields: Any) -> None:
    (profile,) = policy_of(**fields).eviction
    assert profile == EvictionProfile(
        rate=10.0,
        burst=10,
        max_per_minute=None,
        per_namespace=None,
        per_owner_unavailable=1,
        overall=None,
        deadline_seconds=10 * MINUTE,
        delete_after_deadline=False,
        grace_period_seconds=None,
        grace_seconds=0.0,
        max_hold_seconds=24 * HOUR,
        evict_daemon_sets=False,
        stuck_after_seconds=5 * MINUTE,
        gang_by_owner=False,
        gang_window_seconds=MINUTE,
        skips=False,
        wait_for_completion_seconds=0.0,
    )


def test_reaction_waits_for_five_minutes_and_closes_the_device() -> None:
    taint = {"driver": "gpu.example.com", "key": "gpu.example.com/xid"}
    assert policy_of(reactions=[{"when": taint}]).reactions == (
        Reaction(
            taint["key"],
            taint["driver"],
            taint["key"],
            value=None,
            signal_effect="None",
            for_seconds=5 * MINUTE,
            effect="NoSchedule",
            evict=False,
            max_devices=None,
        ),
    )


def test_slices_are_left_to_their_drivers() -> None:
    for policy in (Policy(), policy_of()):
        assert (policy.bump_slice_time_added, policy.taint_rules_on_slices, policy.pause) == (False, False, None)


def test_drivers_are_acknowledged_one_by_one() -> None:
    until = "2026-06-01T12:00:00Z"
    entries = [{"driver": name, "until": until} for name in ("a.example.com", "b.example.com")]
    breaker = policy_of(breaker={"acknowledged": entries}).breaker
    found = [breaker.acknowledged_of(f"{name}.example.com") for name in "abc"]
    assert found == [NOW, NOW, None]
