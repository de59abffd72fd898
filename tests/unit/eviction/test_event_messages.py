"""Texts of Events about pods."""

from __future__ import annotations

import pytest

from tests.builders import NOW
from tests.unit.eviction.objects import pod, taint
from tests.unit.eviction.world import FREE
from webhook.eviction.events import PodEventKind, pod_event
from webhook.eviction.modes import Mode
from webhook.eviction.pod_plan import PodPlan
from webhook.eviction.profiles import Profile
from webhook.inventory.evictions import Eviction, EvictionReason


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (1, "DeviceTaintRule r0"),
        (3, "DeviceTaintRule r0, DeviceTaintRule r1, DeviceTaintRule r2"),
        (4, "DeviceTaintRule r0, DeviceTaintRule r1, DeviceTaintRule r2 and 1 more"),
        (5, "DeviceTaintRule r0, DeviceTaintRule r1, DeviceTaintRule r2 and 2 more"),
    ],
)
def test_event_names_the_first_three_reasons(rules: int, words: str) -> None:
    reasons = tuple([EvictionReason(taint(), f"r{number}", f"uid-{number}") for number in range(rules)])
    plan = PodPlan("ml/pod", "uid-pod", pod(), Eviction(NOW, reasons), Profile(0, FREE))
    assert pod_event(Mode.DELEGATED, PodEventKind.EVICTED, plan).text == f"evicted because of {words}"
