"""Why a review came out as it did; laws are in tests/properties/test_explain.py, the words in those of `explain`.

And what an audit says of stored claims and templates; the command has tests of its own.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import (
    KEY,
    NOW,
    make_admission_request,
    make_claim,
    make_context,
    make_meta,
    make_rule,
    make_taint,
    make_template,
    make_toleration,
)
from tests.unit.policy.documents import judge_of, make_entry
from webhook.admission.audit import AtRest, AuditReason, Author, audited, explained_at_rest
from webhook.admission.chain import explain
from webhook.admission.claim_view import REQUESTED_BY
from webhook.admission.policy_check import NOTHING
from webhook.api.claims import FROM_TEMPLATE
from webhook.api.field import Severity
from webhook.api.meta import format_time
from webhook.policy.model import CLAIM_CONTROLLER, Action

if TYPE_CHECKING:
    from datetime import datetime

    from webhook.admission.policy_check import Explanation

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


def test_claim_beyond_a_documented_limit_is_explained_only_to_a_controller() -> None:
    """It is refused to all others before any rule is asked."""
    crowded = make_claim([make_toleration(f"k{number}") for number in range(17)])
    context = make_context(judge=judge_of(NO_KEY, unknownAuthor="deny", generatedClaims="enforce"))
    assert explain(make_admission_request(crowded), context) is NOTHING
    assert len(explain(make_admission_request(crowded, user=CLAIM_CONTROLLER), context).walks) == 17


def explained_of_unknown_author(word: str) -> Explanation:
    judge = judge_of(NO_KEY, unknownAuthor=word, generatedClaims="enforce")
    request = make_admission_request(generated(make_toleration()), user=CLAIM_CONTROLLER)
    return explain(request, make_context(judge=judge))


@pytest.mark.parametrize("word", ["warn", "deny"])
def test_rules_are_asked_about_a_generated_claim_of_an_unknown_author(word: str) -> None:
    found = explained_of_unknown_author(word)
    assert rules_of(found) == ["no-key", "default"]
    assert found.notes == ("made from a template: judged as the template's author",)


def test_rules_are_not_asked_about_an_unknown_author_where_the_policy_allows_it() -> None:
    found = explained_of_unknown_author("allow")
    assert found.walks == ()
    assert found.notes[-1] == "its author is not known, and unknownAuthor is allow: no rule is asked"


def at_rest(claim: Any, **fields: Any) -> tuple[Author, Explanation]:
    judge = judge_of(NO_KEY, **fields)
    found = explained_at_rest(claim, make_context(judge=judge))
    assert found is not None
    return found


def test_stored_claim_that_was_created_directly_is_judged_with_an_unknown_requester() -> None:
    author, found = at_rest(make_claim([make_toleration()]), unknownAuthor="allow")
    assert (author, rules_of(found)) == (Author.UNKNOWN, ["no-key", "default"])
    assert found.walks[0].action is Action.DENY


def test_stored_claim_from_a_template_is_judged_as_the_author_that_it_names() -> None:
    annotations = {"resource.kubernetes.io/pod-claim-name": "gpu", REQUESTED_BY: '{"username":"mila"}'}
    claim = make_claim([make_toleration()], meta=make_meta("claim", namespace="ml", annotations=annotations))
    author, found = at_rest(claim, unknownAuthor="allow", generatedClaims="enforce")
    assert (author, rules_of(found)) == (Author.CLAIMED, ["no-key", "default"])
    assert "mila" in found.who
    del claim["metadata"]["annotations"][REQUESTED_BY]
    author, found = at_rest(claim, unknownAuthor="allow", generatedClaims="enforce")
    assert (author, found.walks) == (Author.UNKNOWN, ())


def test_what_is_no_claim_or_cannot_be_read_is_not_explained() -> None:
    context = make_context(judge=judge_of(NO_KEY))
    assert explained_at_rest(make_rule(), context) is None
    assert explained_at_rest({**make_claim(), "spec": []}, context) is None


@pytest.mark.parametrize(
    ("mode", "generated_claims", "note"),
    [
        ("enforce", "warn", "generatedClaims is warn: refusals are warnings"),
        ("warn", "warn", "the policy's mode is warn: refusals are warnings"),
        ("warn", "enforce", "the policy's mode is warn: refusals are warnings"),
        ("enforce", "enforce", None),
    ],
)
def test_reason_for_warnings_is_the_setting_that_makes_them(mode: str, generated_claims: str, note: str | None) -> None:
    judge = judge_of(NO_KEY, unknownAuthor="warn", generatedClaims=generated_claims, mode=mode)
    request = make_admission_request(generated(make_toleration()), user=CLAIM_CONTROLLER)
    notes = explain(request, make_context(judge=judge)).notes
    assert notes[1:] == (() if note is None else (note,))
    assert explained(make_claim([make_toleration()]), mode="warn", generatedClaims=generated_claims).notes == (
        "the policy's mode is warn: refusals are warnings",
    )


# --- audits of what is stored ---------------------------------------------------------------------


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
