"""Exceptions in their last week: only requests that rely on one get the warning."""

from __future__ import annotations

from typing import Any

from tests.builders import KEY, make_admission_request, make_claim, make_context, make_toleration
from tests.tables import table
from tests.unit.policy.documents import judge_of, make_entry, make_exception
from webhook.admission.chain import validate

KEYS = {"tolerations": {"keys": [KEY]}}
SOON = {**make_exception("soon", ["r"]), "expiresAt": "2026-06-03T00:00:00Z"}


@table(
    "action, fields, told",
    {
        "a rule that denies": ("deny", {}, True),
        "one that warns": ("warn", {}, False),
        "one that audits": ("audit", {}, False),
        "in mode warn": ("deny", {"mode": "warn"}, False),
        "what the default denies all the same": ("deny", {"default": "deny"}, False),
    },
)
def test_an_exception_that_ends_soon_is_told_where_it_keeps_a_rule_from_refusing(
    action: str, fields: Any, *, told: bool
) -> None:
    judge = judge_of(make_entry("r", action, KEYS), exceptions=[SOON], **fields)
    decision = validate(make_admission_request(make_claim([make_toleration()])), make_context(judge=judge))
    text = "allowed by an exception until 2026-06-03T00:00:00Z only; rule r will refuse it then"
    found = [finding.error.detail for finding in decision.findings if finding.rule == "soon"]
    assert found == ([text] if told else [])
    assert decision.allowed is ("default" not in fields)
