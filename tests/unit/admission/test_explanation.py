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
from webhook.admission.audit import Author, explained_at_rest
from webhook.admission.chain import explain
from webhook.admission.claim_view import REQUESTED_BY
from webhook.admission.policy_check import NOTHING
from webhook.policy.model import CLAIM_CONTROLLER, Action

if TYPE_CHECKING:
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
    claim = make_claim(
        [make_toleration()],
        meta=make_meta("claim", namespace="ml", annotations={"resource.kubernetes.io/pod-claim-name": "gpu"}),
    )
    judge = judge_of(NO_KEY, unknownAuthor=word, generatedClaims="enforce")
    return explain(make_admission_request(claim, user=CLAIM_CONTROLLER), make_context(judge=judge))


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
    claim = make_claim(
        [make_toleration()],
        meta=make_meta("claim", namespace="ml", annotations={"resource.kubernetes.io/pod-claim-name": "gpu"}),
    )
    judge = judge_of(NO_KEY, unknownAuthor="warn", generatedClaims=generated_claims, mode=mode)
    request = make_admission_request(claim, user=CLAIM_CONTROLLER)
    notes = explain(request, make_context(judge=judge)).notes
    assert notes[1:] == (() if note is None else (note,))
    assert explained(make_claim([make_toleration()]), mode="warn", generatedClaims=generated_claims).notes == (
        "the policy's mode is warn: refusals are warnings",
    )
