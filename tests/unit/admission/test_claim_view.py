"""What expressions see of a claim: facts of the requester who is asked about, and of no other."""

from __future__ import annotations

from typing import Any

from tests.builders import (
    decoded,
    make_admission_request,
    make_claim,
    make_context,
    make_meta,
    make_request,
    make_toleration,
)
from webhook.admission.claim_view import ClaimView, requester_variable, toleration_variable
from webhook.api.taints import DeviceToleration
from webhook.policy.match import NamespaceFacts, Requester, Scope


def test_toleration_without_a_time_limit_has_no_seconds() -> None:
    known = {"key": "a", "operator": "Equal", "value": "v", "effect": "NoExecute"}
    assert toleration_variable(DeviceToleration("a", "", "v", "NoExecute")) == known
    assert toleration_variable(DeviceToleration("a", "", "v", "NoExecute", 0)) == {**known, "tolerationSeconds": 0}
    assert toleration_variable(DeviceToleration("a", "", "v", "NoExecute", 60)) == {**known, "tolerationSeconds": 60}


def test_requester_has_a_service_account_or_none_and_groups_if_they_are_known() -> None:
    name = "system:serviceaccount:health:operator"
    assert requester_variable(Requester(name, ("a",))) == {
        "username": name,
        "serviceAccount": "health/operator",
        "groups": ["a"],
    }
    assert requester_variable(Requester("jane", ("a",), False)) == {"username": "jane", "serviceAccount": ""}  # noqa: FBT003


def test_facts_are_those_of_the_scope_that_is_asked_about() -> None:
    claim = make_claim(
        requests=[make_request("a", [make_toleration()], deviceClassName="a"), make_request("b", deviceClassName="b")]
    )
    view = ClaimView(decoded(claim)[0], make_admission_request(claim), make_context())
    scopes = [
        Scope(Requester(name), "ml", NamespaceFacts("ml", {"team": name}) if name == "jane" else None)
        for name in ("jane", "bob", "jane")
    ]
    seen = [
        (found["request"]["deviceClassName"], found["requester"]["username"], "namespace" in found)
        for scope in scopes
        for asked, target in view.asks()
        for found in (dict[str, Any](view.variables(asked, target, scope, None)),)
    ]
    assert seen == [
        ("a", "jane", True),
        ("b", "jane", True),
        ("a", "bob", False),
        ("b", "bob", False),
        ("a", "jane", True),
        ("b", "jane", True),
    ]


def test_namespace_is_that_of_the_request_and_else_of_the_object() -> None:
    """An object in a file may have none, and neither may a request of a client's own making."""
    for named, asked_for, expected in (("ml", "web", "web"), ("ml", "", "ml"), (None, "web", "web"), (None, "", "")):
        claim = make_claim(meta=make_meta("c", namespace=named))
        view = ClaimView(decoded(claim)[0], make_admission_request(claim, namespace=asked_for), make_context())
        assert view.namespace == expected
