"""Policies that no document made may give two rules one name."""

from __future__ import annotations

from datetime import UTC, datetime

from webhook.api.taints import DeviceTaint
from webhook.policy.decide import Judge
from webhook.policy.match import Placement
from webhook.policy.model import Action, Match, Policy, PolicyException, Rule

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDS = datetime(2026, 9, 1, tzinfo=UTC)


def test_exception_suspends_every_rule_of_a_name() -> None:
    rules = tuple([Rule("twice", Action.DENY, Match(drivers=drivers)) for drivers in (("a",), ("b",))])
    judge = Judge(Policy(taint_rules=rules, exceptions=(PolicyException("excused", ("twice",), ENDS),)))
    for driver in ("a", "b"):
        hits = judge.on_taint(None, Placement(driver, "p"), DeviceTaint("k", "", "None"), NOW, dict)
        assert [hit.exception is not None for hit in hits] == [True]
