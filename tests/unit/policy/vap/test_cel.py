"""Who asks, where and for what, in the words of CEL, evaluated by celpy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.policy.cel import evaluated
from webhook.api.selectors import LabelRequirement
from webhook.policy.model import Match, NamespaceMatch, RequesterMatch
from webhook.policy.vap.cel import toleration_condition


def in_namespace(match: NamespaceMatch, name: str, labels: dict[str, str]) -> bool:
    whole = toleration_condition(Match(namespaces=match), allowing=False, with_generated=False).whole
    return evaluated(whole, request={"namespace": name}, variables={"labels": labels})


def expressions(operator: str, *values: str) -> NamespaceMatch:
    return NamespaceMatch(expressions=(LabelRequirement("tier", operator, values),))


@pytest.mark.parametrize(
    ("match", "name", "labels", "holds"),
    [
        pytest.param(NamespaceMatch(names=("ml-*", "web")), "ml-a", {}, True, id="a name"),
        pytest.param(NamespaceMatch(names=("ml-*", "web")), "web", {}, True, id="the other name"),
        pytest.param(NamespaceMatch(names=("ml-*", "web")), "xml-a", {}, False, id="no name"),
        pytest.param(NamespaceMatch(("ml-*",), ("ml-prod",)), "ml-a", {}, True, id="a name but not the exception"),
        pytest.param(NamespaceMatch(("ml-*",), ("ml-prod",)), "ml-prod", {}, False, id="the exception"),
        pytest.param(NamespaceMatch(except_names=("ml-prod",)), "web", {}, True, id="all but the exception"),
        pytest.param(NamespaceMatch(labels=(("tier", "a*"),)), "web", {"tier": "ab"}, True, id="a label"),
        pytest.param(NamespaceMatch(labels=(("tier", "a*"),)), "web", {"tier": "b"}, False, id="another value"),
        pytest.param(NamespaceMatch(labels=(("tier", "*"),)), "web", {}, False, id="the label is not there"),
        pytest.param(NamespaceMatch(labels=(("a", "1"), ("b", "2"))), "web", {"a": "1"}, False, id="one label of two"),
        pytest.param(expressions("In", "a", "b"), "web", {"tier": "b"}, True, id="In"),
        pytest.param(expressions("In", "a", "b"), "web", {"tier": "c"}, False, id="In, another"),
        pytest.param(expressions("In", "a", "b"), "web", {}, False, id="In, none"),
        pytest.param(expressions("NotIn", "a"), "web", {"tier": "a"}, False, id="NotIn"),
        pytest.param(expressions("NotIn", "a"), "web", {"tier": "b"}, True, id="NotIn, another"),
        pytest.param(expressions("NotIn", "a"), "web", {}, True, id="NotIn, none"),
        pytest.param(expressions("Exists"), "web", {"tier": ""}, True, id="Exists"),
        pytest.param(expressions("Exists"), "web", {}, False, id="Exists, none"),
        pytest.param(expressions("DoesNotExist"), "web", {"tier": ""}, False, id="DoesNotExist"),
        pytest.param(expressions("DoesNotExist"), "web", {}, True, id="DoesNotExist, none"),
        pytest.param(
            NamespaceMatch(("web",), labels=(("a", "1"),), expressions=(LabelRequirement("b", "Exists"),)),
            "web",
            {"a": "1"},
            False,
            id="a name and a label but not the expression",
        ),
    ],
)
def test_namespace_is_matched_in_cel_as_the_policy_says(
    match: NamespaceMatch,
    name: str,
    labels: dict[str, str],
    holds: bool,  # noqa: FBT001 -- a table's
) -> None:
    assert in_namespace(match, name, labels) is holds


REQUESTERS = RequesterMatch(users=("jane", "ops-*"), groups=("ml-*",), service_accounts=("ci/*",))


@pytest.mark.parametrize(
    ("user", "groups", "account", "holds"),
    [
        pytest.param("jane", [], "", True, id="a user"),
        pytest.param("ops-1", [], "", True, id="a user by pattern"),
        pytest.param("joe", ["x", "ml-a"], "", True, id="a group"),
        pytest.param("system:serviceaccount:ci:runner", [], "ci/runner", True, id="a service account"),
        pytest.param("joe", ["x"], "", False, id="none of them"),
        pytest.param("system:serviceaccount:cd:runner", [], "cd/runner", False, id="another service account"),
    ],
)
@pytest.mark.parametrize("generated", [False, True])
def test_requester_is_matched_in_cel_by_any_of_the_lists(
    user: str,
    groups: list[str],
    account: str,
    holds: bool,  # noqa: FBT001 -- a table's
    generated: bool,  # noqa: FBT001 -- a parameter
) -> None:
    """Of a claim made from a template the author is unknown: what allows allows it, and what refuses does not."""
    variables = {"account": account, "generated": generated}
    request = {"userInfo": {"username": user, "groups": groups}}

    def holds_if(*, allowing: bool, with_generated: bool) -> bool:
        condition = toleration_condition(Match(requesters=REQUESTERS), allowing=allowing, with_generated=with_generated)
        assert condition.of_requester
        return evaluated(condition.whole, request=request, variables=variables)

    assert holds_if(allowing=False, with_generated=False) is holds_if(allowing=True, with_generated=False) is holds
    assert holds_if(allowing=True, with_generated=True) is (generated or holds)
    assert holds_if(allowing=False, with_generated=True) is (holds and not generated)


@pytest.mark.parametrize(
    ("match", "asked", "holds"),
    [
        pytest.param(Match(device_classes=("gpu-*",)), {"deviceClassName": "gpu-a"}, True, id="the class"),
        pytest.param(Match(device_classes=("gpu-*",)), {"deviceClassName": "nic"}, False, id="another class"),
        pytest.param(Match(admin_access=True), {"adminAccess": True}, True, id="admin access"),
        pytest.param(Match(admin_access=True), {"adminAccess": False}, False, id="no admin access, where it should"),
        pytest.param(Match(admin_access=True), {}, False, id="none given, where it should"),
        pytest.param(Match(admin_access=False), {"adminAccess": True}, False, id="admin access, where it should not"),
        pytest.param(Match(admin_access=False), {}, True, id="none given, where it should not"),
        pytest.param(
            Match(device_classes=("gpu",), admin_access=True), {"deviceClassName": "gpu"}, False, id="one of the two"
        ),
    ],
)
def test_request_is_matched_in_cel_as_the_policy_says(match: Match, asked: Any, holds: bool) -> None:  # noqa: FBT001 -- a table's
    whole = toleration_condition(match, allowing=False, with_generated=False).whole
    assert evaluated(whole, asked=asked) is holds
