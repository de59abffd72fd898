"""What an audit says of stored claims and templates; the command has tests of its own."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import NOW, make_claim, make_context, make_meta, make_rule, make_template, make_toleration
from tests.unit.policy.documents import judge_of, make_entry
from webhook.admission.audit import AtRest, AuditReason, Author, audited
from webhook.admission.claim_view import REQUESTED_BY
from webhook.api.claims import FROM_TEMPLATE
from webhook.api.field import Severity
from webhook.api.meta import format_time

if TYPE_CHECKING:
    from datetime import datetime

EMPTY_KEY = make_toleration(key=None, operator="Equal", value="v")
"""No server that keeps to the documents takes it."""


def found(value: Any, *rules: Any, since: datetime | None = None, **policy: Any) -> list[AtRest]:
    return list(audited(value, make_context(judge=judge_of(*rules, **policy)), since))


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


NOT_MILA = make_entry("not-mila", "deny", {"requesters": {"users": ["mila"]}})


def created(value: Any, seconds: int, author: str | None = '{"username":"joe"}') -> Any:
    """The object as it was created so many seconds after NOW, with that author."""
    value["metadata"]["creationTimestamp"] = format_time(NOW + timedelta(seconds=seconds))
    meta = value["metadata"] if value["kind"] == "ResourceClaim" else value["spec"].setdefault("metadata", {})
    if author is not None:
        meta["annotations"] = {**meta.get("annotations", {}), REQUESTED_BY: author}
    return value


@pytest.mark.parametrize("made", [make_template, generated], ids=["template", "claim"])
def test_author_is_proved_of_what_was_created_since_then(made: Any) -> None:
    def author_at(seconds: int, since: datetime | None) -> Author:
        value = created(made([EMPTY_KEY] if made is make_template else EMPTY_KEY), seconds, '{"username":"mila"}')
        (first, *_) = found(value, NOT_MILA, since=since, unknownAuthor="deny", generatedClaims="enforce")
        return first.author

    assert author_at(0, None) is Author.CLAIMED
    assert author_at(1, NOW) is (Author.PROVEN if made is make_template else Author.CLAIMED), "claims can be changed"
    assert author_at(0, NOW) is Author.UNKNOWN


@pytest.mark.parametrize(
    ("seconds", "author", "since", "text"),
    [
        (9, None, None, "does not say who wrote this"),
        (9, '{"username":"joe","mac":"m"}', None, "does not say who wrote this"),
        (9, None, NOW, "does not say who wrote this"),
        (0, '{"username":"joe"}', NOW, "may name anyone: API servers did not prove authors when this was created"),
        (9, '{"username":"joe"}', NOW, ""),
        (9, '{"username":"joe"}', None, ""),
    ],
)
def test_templates_whose_author_is_unknown_are_listed_if_the_policy_cares(
    seconds: int, author: str | None, since: datetime | None, text: str
) -> None:
    template = created(make_template([make_toleration()]), seconds, author)
    listed = [each for each in found(template, unknownAuthor="deny", since=since) if each.finding.rule == "requestedBy"]
    assert [(each.reason, each.author) for each in listed] == (
        [(AuditReason.UNKNOWN_AUTHOR, Author.UNKNOWN)] if text else []
    )
    assert all(text in str(each.finding.error) for each in listed)
    assert found(template, since=since) == []
