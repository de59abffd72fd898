"""The policy that proves authors: evaluated by celpy, and compared with what a cluster has of it."""

from __future__ import annotations

import copy
import json
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import celpy
import pytest
import yaml
from celpy.adapter import json_to_cel
from celpy.celtypes import StringType
from hypothesis import given
from hypothesis import strategies as st

from webhook.admission.claim_view import REQUESTED_BY, annotation_of, author_of, texts_of
from webhook.policy.match import Requester
from webhook.policy.vap.drift import AUTHOR_POLICY, shipped, unproved

if TYPE_CHECKING:
    from collections.abc import Callable

POLICY, BINDING = yaml.safe_load_all(
    (Path(__file__).parents[4] / "manifests/base/author-policy.yaml").read_text(encoding="utf-8")
)
SPECS: Final = {each["kind"]: each["spec"] for each in (POLICY, BINDING)}


def _replace(text: str, old: str, new: str) -> StringType:
    return StringType(text.replace(old, new))


def _join(texts: list[str], separator: str) -> StringType:
    return StringType(separator.join(texts))


@cache
def program(expression: str) -> celpy.Runner:
    limit = sys.getrecursionlimit()
    try:
        environment = celpy.Environment()
        functions: Any = {"replace": _replace, "join": _join}
        return environment.program(environment.compile(expression), functions=functions)
    finally:
        sys.setrecursionlimit(limit)  # celpy raises it


def evaluate(requester: Requester, annotation: str) -> Callable[[str], Any]:
    """Evaluates expressions of the policy about a template with that annotation, sent by the requester."""
    annotations = {REQUESTED_BY: annotation}
    info = {"username": requester.username, "groups": list(requester.groups)}
    values: dict[str, Any] = {
        "object": json_to_cel({"spec": {"metadata": {"annotations": annotations}}}),
        "request": json_to_cel({"userInfo": {name: value for name, value in info.items() if value}}),
        "variables": json_to_cel({}),
    }
    for variable in POLICY["spec"]["variables"]:
        values["variables"][StringType(variable["name"])] = program(variable["expression"]).evaluate(values)
    return lambda expression: program(expression).evaluate(values)


def accepted(requester: Requester, annotation: str) -> bool:
    (validation,) = POLICY["spec"]["validations"]
    return bool(evaluate(requester, annotation)(validation["expression"]))


names = st.text(st.one_of(st.sampled_from('\\",[]{}:\n\x00\x1f\x7f\u2028 '), st.characters(codec="utf-8")), max_size=6)
requesters = st.builds(Requester, names, st.lists(names, max_size=3).map(tuple))


@given(requesters, requesters)
def test_policy_accepts_the_texts_of_the_requester_and_no_others(requester: Requester, other: Requester) -> None:
    texts = texts_of(requester)
    assert all(accepted(requester, text) for text in texts)
    for text in (*texts_of(other), annotation_of(other) or "", json.dumps({"username": requester.username})):
        assert accepted(requester, text) is (text in texts)


@given(requesters)
def test_author_is_read_as_it_was_written(requester: Requester) -> None:
    annotation = annotation_of(requester)
    assert author_of(annotation) == (None if annotation is None else requester)


@pytest.mark.parametrize("at", ["username", "groups"])
@pytest.mark.parametrize("control", ["\n", "\x00", "\x1f"])
def test_names_with_control_characters_are_refused_with_the_reason(at: str, control: str) -> None:
    bad = f"a{control}b"
    requester = Requester(bad, ("g",)) if at == "username" else Requester("mila", (bad,))
    (validation,) = POLICY["spec"]["validations"]
    for text in ("", json.dumps({"username": bad}, separators=(",", ":"))):
        assert not accepted(requester, text)
        message = evaluate(requester, text)(validation["messageExpression"])
        assert "have control characters" in message
        assert control not in message


def test_user_is_named_in_the_message() -> None:
    (validation,) = POLICY["spec"]["validations"]
    assert 'another author than the requester, "CORP\\mila"' in evaluate(Requester("CORP\\mila"), "x")(
        validation["messageExpression"]
    )


def test_package_has_the_policy_as_the_manifests_do() -> None:
    """For programs that have no manifests beside them."""
    assert shipped() == SPECS
    assert (POLICY["metadata"]["name"], BINDING["metadata"]["name"]) == (AUTHOR_POLICY, AUTHOR_POLICY)
    assert unproved(SPECS) == ""


def test_objects_that_are_missing_are_named() -> None:
    for kind in SPECS:
        rest = {other: spec for other, spec in SPECS.items() if other != kind}
        assert unproved(rest) == f"{kind} {AUTHOR_POLICY} is missing"
    assert unproved({}).count("is missing") == 2


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("ValidatingAdmissionPolicy", "failurePolicy", "Ignore"),
        ("ValidatingAdmissionPolicy", "validations", []),
        ("ValidatingAdmissionPolicy", "matchConditions", [{"name": "never", "expression": "false"}]),
        ("ValidatingAdmissionPolicy", "paramKind", {"apiVersion": "v1", "kind": "ConfigMap"}),
        ("ValidatingAdmissionPolicyBinding", "validationActions", ["Warn"]),
        ("ValidatingAdmissionPolicyBinding", "matchResources", {"namespaceSelector": {"matchLabels": {"a": "b"}}}),
    ],
)
def test_fields_that_differ_are_named(kind: str, field: str, value: Any) -> None:
    specs = copy.deepcopy(SPECS)
    specs[kind][field] = value
    assert unproved(specs) == f"{kind} {AUTHOR_POLICY} is not as shipped: spec.{field}"
    if kind.endswith("Policy"):
        del specs[kind]["matchConstraints"]
        assert unproved(specs).partition("shipped: ")[2] == ", ".join(
            sorted([f"spec.{field}", "spec.matchConstraints"])
        )
