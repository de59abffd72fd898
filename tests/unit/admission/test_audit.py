"""What an audit says of stored claims and templates; the command has tests of its own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import make_claim, make_context, make_meta, make_rule, make_toleration
from tests.unit.policy.documents import judge_of, make_entry
from webhook.admission.audit import AtRest, AuditReason, Author, audited
from webhook.api.claims import FROM_TEMPLATE
from webhook.api.field import Severity

SECRET = b"k" * 32
EMPTY_KEY = make_toleration(key=None, operator="Equal", value="v")
"""No server that keeps to the documents takes it."""


def found(value: Any, *rules: Any, key: bytes | None = SECRET, **policy: Any) -> list[AtRest]:
    return list(audited(value, make_context(judge=judge_of(*rules, **policy), key=key)))


def generated(*tolerations: Any) -> Any:
    """A claim that was made from a template."""
    return make_claim(tolerations, meta=make_meta("c", namespace="ml", annotations={FROM_TEMPLATE: "gpu"}))


@pytest.mark.parametrize(
    "value",
    [None, 7, [], {}, {**make_claim(), "metadata": None}, {**make_claim(), "metadata": []}, make_rule()],
    ids=["null", "number", "list", "nothing", "no metadata", "metadata of another type", "another kind"],
)
def test_what_is_no_claim_or_template_is_passed_over(value: Any) -> None:
    assert found(value, make_entry("no", "deny")) == []


@pytest.mark.parametrize("trusted", [[], ["system:serviceaccount:a:b"], ["system:serviceaccount:a:b", "c"]], ids=len)
def test_claim_from_a_template_is_judged_by_its_author_alone(trusted: list[str]) -> None:
    """Its template was judged by the documents, whichever controller made the claim."""
    policy: dict[str, Any] = {"trustedControllers": trusted} if trusted else {}
    assert [each.reason for each in found(make_claim([EMPTY_KEY]), **policy)] == [AuditReason.REFUSED]
    assert found(generated(EMPTY_KEY), **policy) == []


@pytest.mark.parametrize(("word", "severity"), [("deny", Severity.DENY), ("warn", Severity.WARN)])
def test_claim_of_an_unknown_author_is_as_bad_as_when_it_was_created(word: str, severity: Severity) -> None:
    about_others = make_entry("no", "deny", {"tolerations": {"keys": ["other.example.com/x"]}})
    (at_rest,) = found(generated(make_toleration()), about_others, unknownAuthor=word, generatedClaims="enforce")
    assert (at_rest.reason, at_rest.author) == (AuditReason.UNKNOWN_AUTHOR, Author.UNKNOWN)
    assert at_rest.finding.severity is severity
