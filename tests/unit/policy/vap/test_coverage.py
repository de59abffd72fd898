"""What an export has beside rules: which of it there is for a policy, and what each condition refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.policy.cel import evaluated
from webhook.api.rules import CONFIRM_IMPACT
from webhook.policy.model import ImpactSettings, Policy, PolicyMode, UnknownAuthor
from webhook.policy.vap.export import Coverage, beyond, documented_validations, guard_validations, labels_validation

ONCALL = ImpactSettings(break_glass_groups=("oncall", "sre"))
TWO_STEPS = ImpactSettings(two_step=True)


@pytest.mark.parametrize(
    ("policy", "documented", "names"),
    [
        (Policy(), PolicyMode.ENFORCE, ["documentedRules", "impact"]),
        (Policy(), PolicyMode.WARN, ["documentedRules", "impact"]),
        (Policy(), PolicyMode.OFF, ["impact"]),
        (Policy(mode=PolicyMode.WARN), PolicyMode.ENFORCE, ["documentedRules", "impact"]),
        (Policy(mode=PolicyMode.OFF), PolicyMode.OFF, []),
        (Policy(unknown_author=UnknownAuthor.DENY), PolicyMode.OFF, ["impact", "unknownAuthor"]),
        (Policy(unknown_author=UnknownAuthor.ALLOW), PolicyMode.OFF, ["impact"]),
        (Policy(mode=PolicyMode.OFF, unknown_author=UnknownAuthor.DENY), PolicyMode.OFF, []),
    ],
)
def test_what_is_not_wholly_exported_is_told(policy: Policy, documented: PolicyMode, names: list[str]) -> None:
    told = {each.name: each.coverage for each in beyond(policy, documented)}
    assert sorted(told) == names
    assert told.get("impact", Coverage.PARTIAL) is Coverage.PARTIAL
    assert told.get("unknownAuthor", Coverage.NONE) is Coverage.NONE


def guarded(
    policy: Policy, *, groups: list[str] | None = None, annotations: Any = None, **variables: Any
) -> list[bool]:
    """What the guard's conditions say of a rule that is new and has no selector."""
    found = {"rank": 2, "oldRank": 0, "wide": True, "oldWide": False, **variables}
    request = {"operation": "CREATE", "userInfo": {} if groups is None else {"groups": groups}}
    metadata = {} if annotations is None else {"annotations": annotations}
    return [
        evaluated(each.expression, variables=found, request=request, object={"metadata": metadata})
        for each in guard_validations(policy)
    ]


@pytest.mark.parametrize(
    ("variables", "passes"),
    [
        ({}, False),
        ({"rank": 1}, False),
        ({"rank": 0}, True),
        ({"wide": False}, True),
        ({"oldRank": 2, "oldWide": True}, True),
        ({"oldRank": 1, "oldWide": True}, False),
        ({"oldRank": 2, "oldWide": False}, False),
    ],
)
def test_a_rule_without_selector_is_refused_where_it_begins_to_act(variables: Any, *, passes: bool) -> None:
    assert guarded(Policy(), **variables) == [passes]


@pytest.mark.parametrize(
    ("annotations", "passes"),
    [({}, False), ({"other": "x"}, False), ({CONFIRM_IMPACT: ""}, False), ({CONFIRM_IMPACT: "v1.x"}, True)],
)
def test_a_rule_with_any_code_is_left_to_the_webhook(annotations: Any, *, passes: bool) -> None:
    assert guarded(Policy(), annotations=annotations) == [passes]


@pytest.mark.parametrize(
    ("groups", "passes"), [(None, False), ([], False), (["dev"], False), (["dev", "sre"], True), (["oncall"], True)]
)
def test_who_may_break_the_glass_is_not_refused(groups: list[str] | None, *, passes: bool) -> None:
    assert guarded(Policy(impact=ONCALL), groups=groups) == [passes]
    assert guarded(Policy(), groups=groups) == [False]


@pytest.mark.parametrize(("rank", "passes"), [(0, True), (1, True), (2, False)])
def test_two_steps_refuse_only_what_evicts_from_the_first(rank: int, *, passes: bool) -> None:
    assert guarded(Policy(impact=TWO_STEPS), wide=False, rank=rank) == [True, passes]


def test_one_step_is_enough_unless_the_policy_says_two() -> None:
    assert len(guarded(Policy())) == 1


def test_documented_rules_know_their_numbers() -> None:
    """A list of sixteen passes, one of seventeen does not; the count stands in CEL as the documents have it."""
    many, keyless = documented_validations()
    assert "size(asked.tolerations) > 16" in many.expression
    assert "at most 16 tolerations" in many.message
    assert '"Exists"' in keyless.expression


def test_labels_are_guarded_unless_the_server_does_it() -> None:
    assert labels_validation(Policy()) is None
    made = labels_validation(Policy(trusted_namespace_labels=("kubernetes.io/metadata.name", "tier", "team")))
    assert made is not None
    assert made.expression.startswith('["tier", "team"].all(key,')
    assert made.message.endswith("may change labels tier, team")


def test_trusted_labels_are_compared_with_those_before_unless_the_requester_may_set_them() -> None:
    """The words are spelt out, since celpy has no authorizer and fails on a condition within `all`."""
    made = labels_validation(Policy(trusted_namespace_labels=("tier",)))
    assert made is not None
    assert made.expression == (
        '["tier"].all(key,\n'
        "    (has(object.metadata.labels) && key in object.metadata.labels ? [object.metadata.labels[key]] : [])\n"
        "    == (oldObject != null && has(oldObject.metadata.labels) && key in oldObject.metadata.labels"
        " ? [oldObject.metadata.labels[key]] : []))\n"
        '|| authorizer.group("policy.devicetaint.io").resource("trustednamespacelabels").check("set").allowed()'
    )
