"""What is exported of rules for claims made from templates, whose authors CEL cannot see."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.unit.policy.documents import make_entry, make_exception
from tests.unit.policy.vap.test_export import ACTING, KEYS, coverage, exported, policies


@pytest.mark.parametrize(
    ("fields", "left_out"),
    [({}, True), ({"generatedClaims": "enforce"}, False)],
)
def test_claims_from_templates_are_judged_only_if_the_policy_says_so(fields: Any, left_out: bool) -> None:  # noqa: FBT001 -- a parameter
    made = exported(make_entry(match=KEYS), **fields)
    names = [each["name"] for each in policies(made)["tolerations"]["matchConditions"]]
    assert ("not-made-from-a-template" in names) is left_out
    assert coverage(made) == {"example": "full"}


@pytest.mark.parametrize("action", ["allow", "deny"])
def test_authors_of_claims_from_templates_are_not_to_be_seen(action: str) -> None:
    who = {"requesters": {"users": ["jane"]}}
    made = exported(make_entry("who", action, match=who), make_entry("no", match=KEYS), generatedClaims="enforce")
    assert (
        coverage(made)
        == {
            "allow": {"who": "full", "no": "partial"},
            "deny": {"who": "partial", "no": "full"},
        }[action]
    )
    text = str(policies(made)["tolerations"])
    assert ("variables.generated ||" in text, "!variables.generated &&" in text) == (
        action == "allow",
        action == "deny",
    )


WHO: Final = {"requesters": {"users": ["jane"]}}
EXCEPTION: Final = [make_exception("excused", ["no"], match=WHO)]
ANYONE: Final = [make_exception("excused", ["no"], match={"namespaces": {"names": ["ml"]}})]


@pytest.mark.parametrize(
    ("generated", "before", "fields", "found"),
    [
        pytest.param("warn", WHO, {}, "full", id="an allowance, and claims from templates are left out"),
        pytest.param("enforce", WHO, {}, "partial", id="an allowance for some authors"),
        pytest.param("enforce", KEYS, {}, "full", id="an allowance for any author"),
        pytest.param("warn", KEYS, {"exceptions": EXCEPTION}, "full", id="an exception, and they are left out"),
        pytest.param("enforce", KEYS, {"exceptions": EXCEPTION}, "partial", id="an exception for some authors"),
        pytest.param("enforce", KEYS, {"exceptions": ANYONE}, "full", id="an exception for any author"),
    ],
)
def test_refusal_is_exported_in_full_unless_it_depends_on_authors_of_claims_from_templates(
    generated: str, before: Any, fields: Any, found: str
) -> None:
    rules = [make_entry("before", "allow", before), make_entry("no", match={"tolerations": {"effects": ["NoExecute"]}})]
    made = exported(*rules, generatedClaims=generated, **fields)
    assert coverage(made)["no"] == found


def test_taint_rules_do_not_depend_on_authors_of_claims() -> None:
    rules = [make_entry("may", "allow", WHO), make_entry("no", match={**ACTING, **WHO})]
    made = exported(taintRules=[*rules, make_entry("rest", match=ACTING)], generatedClaims="enforce")
    assert coverage(made) == {"may": "full", "no": "full", "rest": "full"}


def test_unknown_authors_that_are_allowed_leave_nothing_to_say_about_claims_from_templates() -> None:
    made = exported(make_entry(match=KEYS), generatedClaims="enforce", unknownAuthor="allow")
    assert coverage(made) == {"example": "partial"}
    names = [each["name"] for each in policies(made)["tolerations"]["matchConditions"]]
    assert "not-made-from-a-template" in names
