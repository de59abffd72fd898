from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import make_admission_request, make_claim, make_context, make_toleration
from tests.unit.policy.documents import judge_of, make_entry
from webhook.admission.chain import validate
from webhook.admission.claim_view import requester_variable, toleration_variable
from webhook.api.taints import DeviceToleration
from webhook.expressions.engine import EvaluationError, compile_expression
from webhook.policy.document import TAINT_VARIABLES, TOLERATION_VARIABLES
from webhook.policy.match import Requester

if TYPE_CHECKING:
    from collections.abc import Mapping

UNSET: Mapping[str, Any] = {
    "toleration": toleration_variable(DeviceToleration()),
    "request": {"adminAccess": False, "alternative": False},
    "claim": {"name": "", "labels": {}, "annotations": {}, "generated": False},
    "requester": requester_variable(Requester("mila")),
    "taint": {"value": ""},
    "rule": {"annotations": {}, "evict": False},
}
SET: Mapping[str, Any] = {
    "toleration": toleration_variable(DeviceToleration("a.com/b", "", "c", "NoExecute", 0)),
    "request": {"adminAccess": True, "alternative": True},
    "claim": {"name": "c", "labels": {"": ""}, "annotations": {"a": ""}, "generated": True},
    "requester": requester_variable(Requester("system:serviceaccount:a:b", ("g",))),
    "taint": {"value": "x", "timeAdded": "2026-06-01T10:00:00Z"},
    "rule": {"driver": "d", "pool": "p", "device": "x", "annotations": {"a": ""}, "evict": True},
}
FIELDS = (
    *("toleration.key", "toleration.value", "toleration.effect", "toleration.tolerationSeconds"),
    *("request.adminAccess", "request.alternative", "claim.name", "claim.labels", "claim.annotations"),
    *("claim.generated", "requester.groups", "requester.serviceAccount"),
    *("taint.value", "taint.timeAdded", "rule.driver", "rule.pool", "rule.device", "rule.annotations", "rule.evict"),
)


def has(field: str, facts: Mapping[str, Any]) -> bool:
    variables = TAINT_VARIABLES if field.startswith(("taint", "rule")) else TOLERATION_VARIABLES
    return compile_expression(f"has({field})", variables).evaluate(facts)


@pytest.mark.parametrize("field", FIELDS)
def test_field_is_there_only_if_it_is_set(field: str) -> None:
    assert (has(field, UNSET), has(field, SET)) == (False, True)


def test_entry_of_a_map_is_there_even_if_it_is_empty() -> None:
    assert has("claim.annotations.a", SET)
    assert has("rule.annotations.a", SET)
    assert not has("claim.annotations.b", SET)


def test_operator_has_its_default() -> None:
    assert has("toleration.operator", UNSET)


def test_count_of_zero_is_there() -> None:
    assert has("request.count", {"request": {"count": 0}})


def test_groups_that_are_not_known_are_neither_there_nor_not() -> None:
    """Else a rule that refuses `has(requester.groups) && ...` would not match an author whose groups were cut."""
    facts = {"requester": requester_variable(Requester("mila", groups_known=False))}
    with pytest.raises(EvaluationError, match=r"^requester\.groups is not set$"):
        has("requester.groups", facts)


@pytest.mark.parametrize("keys", [{}, {"tolerations": {"keys": ["*"]}}])
def test_keyless_toleration_can_be_refused_by_its_missing_key(keys: dict[str, Any]) -> None:
    context = make_context(judge=judge_of(make_entry("keyless", "deny", {**keys, "when": "!has(toleration.key)"})))
    refused = {
        key: any(each.rule == "keyless" for each in validate(make_admission_request(claim), context).findings)
        for key in (None, "maint.example.com/a")
        for claim in [make_claim([make_toleration(key)])]
    }
    assert refused == {None: True, "maint.example.com/a": False}
