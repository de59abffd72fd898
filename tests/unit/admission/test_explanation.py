"""Why a review came out as it did; laws are in tests/properties/test_explain.py, the words in those of `explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import (
    KEY,
    make_admission_request,
    make_claim,
    make_context,
    make_meta,
    make_rule,
    make_taint,
    make_toleration,
)
from tests.unit.policy.documents import judge_of, make_entry
from webhook.admission.chain import explain

if TYPE_CHECKING:
    from webhook.admission.explanation import Explanation

NO_KEY = make_entry("no-key", "deny", {"tolerations": {"keys": [KEY]}})
NO_TAINT = make_entry("no-taint", "deny", {"taints": {"effects": ["NoSchedule", "NoExecute"]}})


def explained(manifest: Any, old: Any = None, **fields: Any) -> Explanation:
    judge = judge_of(NO_KEY, taintRules=[NO_TAINT], **fields)
    return explain(make_admission_request(manifest, old), make_context(judge=judge))


def rules_of(found: Explanation) -> list[str]:
    return [considered.rule.name for walk in found.walks for considered in walk.considered]


def test_update_of_a_claim_says_that_refusals_are_warnings_and_a_creation_does_not() -> None:
    claim = make_claim([make_toleration()])
    assert explained(claim).notes == ()
    labelled = make_claim([make_toleration()], meta=make_meta("claim", namespace="ml", labels={"a": "b"}))
    assert explained(labelled, old=claim).notes == ("an update changes no toleration: refusals are warnings",)


@pytest.mark.parametrize("mode", ["enforce", "warn"])
def test_rules_on_taints_are_asked_unless_the_mode_is_off(mode: str) -> None:
    rule = make_rule(taint=make_taint())
    assert "no-taint" in rules_of(explained(rule, mode=mode))
    assert explained(rule, mode="off")[1:] == (("the policy's mode is off: no rule is asked",), ())


def test_mode_of_the_policy_is_noted_where_refused_taints_are_warnings() -> None:
    rule = make_rule(taint=make_taint())
    assert explained(rule).notes == ()
    assert explained(rule, mode="warn").notes == ("the policy's mode is warn: refusals are warnings",)
