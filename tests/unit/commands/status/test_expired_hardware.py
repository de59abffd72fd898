"""Pods on the hardware of a rule that has expired: no rule for that hardware evicts them, as in the worker."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.commands.status.test_states import lines
from tests.unit.eviction.objects import claim, pod
from tests.unit.eviction.test_hardware_expiry import owner, sibling
from webhook.api.rules import DeviceTaintRule
from webhook.eviction.modes import Mode

TAKEN_BACK = structs.replace(owner(-60), taint=structs.replace(owner(-60).taint, effect="None"))


@pytest.mark.parametrize(
    ("known", "shown"),
    [(owner(-60), 0), (TAKEN_BACK, 0), (owner(60), 1)],
    ids=["expired", "taken back", "later"],
)
def test_status_shows_no_pods_of_rules_for_the_hardware_of_an_expired_rule(known: DeviceTaintRule, shown: int) -> None:
    given = [known, sibling(), claim("part", devices=("gpu-0-part-1",)), pod("part")]
    assert sum([len(line.pods) for line in lines(*given, mode=Mode.REPLACEMENT)]) == shown
