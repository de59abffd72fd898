"""Requesters as an API server sees them, names from a table, and policies that ask who it is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.policy.documents import make_defaults, make_entry, make_exception, policy_of
from webhook.policy.match import KnownNames, Requester, asks_who, authenticated


@pytest.mark.parametrize(
    ("username", "account"),
    [
        ("system:serviceaccount:ci:runner", "ci/runner"),
        ("system:serviceaccount:ci:", "ci/"),
        ("system:serviceaccount:ci", None),
        ("system:serviceaccount", None),
        ("jane", None),
        ("x:system:serviceaccount:ci:runner", None),
    ],
)
def test_service_account_has_a_namespace_and_a_name(username: str, account: str | None) -> None:
    assert Requester(username).service_account == account


def test_groups_are_known_unless_it_is_said() -> None:
    assert Requester("jane").groups_known
    assert not Requester("jane", groups_known=False).groups_known


@pytest.mark.parametrize(
    ("username", "given", "groups"),
    [
        ("jane", (), ("system:authenticated",)),
        ("jane", ("a", "system:authenticated", "a"), ("a", "system:authenticated")),
        ("system:anonymous", ("a",), ("a", "system:unauthenticated")),
        (
            "system:serviceaccount:ci:runner",
            ("a",),
            ("a", "system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"),
        ),
    ],
)
def test_groups_that_an_api_server_adds(username: str, given: tuple[str, ...], groups: tuple[str, ...]) -> None:
    assert authenticated(username, given) == Requester(username, groups)


WHO: dict[str, Any] = {"requesters": {"users": ["jane"]}}
ASKED = {"when": 'requester.username == "jane"'}
OTHER = {"when": 'request.name == "requesters"'}


@pytest.mark.parametrize(
    ("match", "asks"), [({}, False), (WHO, True), (ASKED, True), (OTHER, False), ({**WHO, **OTHER}, True)], ids=str
)
@pytest.mark.parametrize("where", ["rules", "taintRules", "exceptions", "defaultTolerations"])
def test_policy_asks_who_it_is_where_a_match_looks_at_the_requester(where: str, match: Any, asks: bool) -> None:  # noqa: FBT001
    if where == "taintRules" and match:
        match = {**match, "when": match["when"].replace("request.name", "rule.name")} if "when" in match else match
    entries: dict[str, Any] = {
        "rules": make_entry(match=match),
        "taintRules": make_entry(action="warn", match=match),
        "exceptions": make_exception(match=match),
        "defaultTolerations": {**make_defaults(), "match": match},
    }
    assert asks_who(policy_of(default="deny", **{where: [entries[where]]})) is asks
    assert not asks_who(policy_of())


def test_names_that_are_not_in_the_table_are_not_known() -> None:
    names = KnownNames({"ml": {"tier": "user"}}, {"gpu": frozenset({"d"}), "any": None})
    found = names.namespace("ml")
    assert found is not None
    assert (found.name, found.labels) == ("ml", {"tier": "user"})
    assert (names.drivers("gpu"), names.drivers("any")) == (frozenset({"d"}), None)
    for unknown in (names, KnownNames()):
        assert (unknown.namespace("web"), unknown.drivers("nic")) == (None, None)
