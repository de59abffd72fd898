"""Single patterns and matches, and what they look at; the laws are in tests/properties/test_policy.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.policy.documents import make_defaults, make_entry, make_exception, policy_of
from webhook.api.meta import LabelRequirement
from webhook.api.rules import DeviceSelector
from webhook.api.taints import DeviceToleration
from webhook.policy.match import (
    DriverMatcher,
    Glob,
    KnownNames,
    NamespaceFacts,
    NamespaceMatcher,
    Placement,
    Requester,
    RequesterMatcher,
    TextSet,
    TolerationMatcher,
    asks_who,
    authenticated,
)
from webhook.policy.model import NamespaceMatch, RequesterMatch, TolerationMatch

# --- patterns -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        pytest.param("gpu", "gpu", True, id="plain text matches itself"),
        pytest.param("gpu", "gpu2", False, id="plain text matches no longer text"),
        pytest.param("", "", True, id="nothing matches nothing"),
        pytest.param("", "a", False, id="nothing matches no text"),
        pytest.param("*", "", True, id="a star matches nothing"),
        pytest.param("*", "a/b\nc", True, id="a star crosses slashes and lines"),
        pytest.param("?", "", False, id="a question mark is not nothing"),
        pytest.param("?", "\U0001f4a5", True, id="a question mark is one character, not one byte"),
        pytest.param("a*a", "a", False, id="two ends do not share a character"),
        pytest.param("a*a", "aa", True, id="a star between two ends may be nothing"),
        pytest.param("*ab*ab", "abab", True, id="pieces stand one after the other"),
        pytest.param("*ab*ab", "ab", False, id="a piece is not used twice"),
        pytest.param("*a?c", "abcabc", True, id="the last piece is looked for at the end"),
        pytest.param("*a*b", "ab", True, id="the last of two pieces is another"),
        pytest.param("*a*bc", "abc", True, id="the last of two pieces is longer"),
        pytest.param("*ab*c", "abc", True, id="the last of two pieces is shorter"),
        pytest.param("*a*", "bb", False, id="a piece between stars that is not there"),
        pytest.param("*a*b*", "ba", False, id="pieces in another order"),
        pytest.param("[a-z]+", "b", False, id="nothing else is special, brackets"),
        pytest.param("a.c", "abc", False, id="nothing else is special, dots"),
        pytest.param("\\*", "*", False, id="a backslash does not escape"),
        pytest.param("A", "a", False, id="case counts"),
    ],
)
def test_glob(pattern: str, text: str, matches: bool) -> None:  # noqa: FBT001 -- a table's
    assert Glob(pattern).matches(text) is matches


@pytest.mark.parametrize(
    ("patterns", "everything"),
    [([], True), (["*"], True), (["a", "***"], True), (["?*"], False), ([""], False), (["a*"], False)],
)
def test_set_is_everything_only_if_a_pattern_takes_all_texts(patterns: list[str], everything: bool) -> None:  # noqa: FBT001 -- a table's
    assert TextSet(patterns).everything is everything


# --- namespaces ---------------------------------------------------------------------------------

FACTS = NamespaceFacts("train-a", {"team": "ml", "tier": ""})


def in_namespaces(
    match: NamespaceMatch, name: str = "train-a", facts: NamespaceFacts | None = FACTS
) -> tuple[bool, bool]:
    """Whether a rule that refuses and one that allows mean the namespace."""
    names = NamespaceMatcher(match)
    return names.matches(name, facts, allowing=False), names.matches(name, facts, allowing=True)


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        pytest.param(NamespaceMatch(names=("train-*",)), True, id="a pattern of its name"),
        pytest.param(NamespaceMatch(names=("infer", "t*")), True, id="one pattern is enough"),
        pytest.param(NamespaceMatch(except_names=("train-?",)), False, id="an exception to all names"),
        pytest.param(NamespaceMatch(names=("*",), except_names=("train-b",)), True, id="an exception for another"),
        pytest.param(NamespaceMatch(labels=(("team", "m?"),)), True, id="a label whose value fits"),
        pytest.param(NamespaceMatch(labels=(("team", "m?"), ("zone", "*"))), False, id="labels that are not all there"),
        pytest.param(NamespaceMatch(labels=(("tier", ""),)), True, id="a label with an empty value"),
        pytest.param(NamespaceMatch(names=("infer",), labels=(("team", "ml"),)), False, id="the name must fit as well"),
        pytest.param(
            NamespaceMatch(expressions=(LabelRequirement("team", "In", ("ml", "x")),)), True, id="In with its value"
        ),
        pytest.param(
            NamespaceMatch(expressions=(LabelRequirement("zone", "In", ("a",)),)), False, id="In without label"
        ),
        pytest.param(
            NamespaceMatch(expressions=(LabelRequirement("zone", "NotIn", ("a",)),)), True, id="NotIn without the label"
        ),
        pytest.param(
            NamespaceMatch(expressions=(LabelRequirement("team", "NotIn", ("ml",)),)), False, id="NotIn with its value"
        ),
        pytest.param(
            NamespaceMatch(expressions=(LabelRequirement("tier", "Exists"),)), True, id="Exists, though empty"
        ),
        pytest.param(
            NamespaceMatch(expressions=(LabelRequirement("team", "DoesNotExist"),)), False, id="DoesNotExist with label"
        ),
        pytest.param(
            NamespaceMatch(expressions=(LabelRequirement("team", "In", ("m*",)),)), False, id="values are no patterns"
        ),
    ],
)
def test_namespace_that_is_known(match: NamespaceMatch, matches: bool) -> None:  # noqa: FBT001 -- a table's
    assert in_namespaces(match) == (matches, matches)


def test_unknown_labels_fit_what_refuses_and_nothing_that_allows() -> None:
    for match in (
        NamespaceMatch(labels=(("team", "ml"),)),
        NamespaceMatch(expressions=(LabelRequirement("team", "DoesNotExist"),)),
        NamespaceMatch(expressions=(LabelRequirement("team", "NotIn", ("ml",)),)),
    ):
        assert in_namespaces(match, facts=None) == (True, False)


def test_unknown_labels_do_not_matter_where_the_name_decides() -> None:
    assert in_namespaces(NamespaceMatch(names=("train-a",)), facts=None) == (True, True)
    assert in_namespaces(NamespaceMatch(names=("b",), labels=(("team", "ml"),)), facts=None) == (False, False)


# --- requesters ---------------------------------------------------------------------------------

RUNNER = "system:serviceaccount:ci:runner"


@pytest.mark.parametrize(
    ("match", "requester", "matches"),
    [
        pytest.param(RequesterMatch(), Requester("jane"), True, id="a match without lists is for everybody"),
        pytest.param(RequesterMatch(users=("j*",)), Requester("jane"), True, id="a user by a pattern"),
        pytest.param(
            RequesterMatch(groups=("ml-*",)), Requester("jane", ("x", "ml-a")), True, id="one group is enough"
        ),
        pytest.param(RequesterMatch(groups=("*",)), Requester("jane"), False, id="nobody without groups is in one"),
        pytest.param(
            RequesterMatch(users=("joe",), groups=("ops",)), Requester("jane", ("ops",)), True, id="one list is enough"
        ),
        pytest.param(RequesterMatch(service_accounts=("ci/*",)), Requester(RUNNER), True, id="an account by a pattern"),
        pytest.param(RequesterMatch(users=("*:ci:*",)), Requester(RUNNER), True, id="an account is a user as well"),
        pytest.param(RequesterMatch(service_accounts=("*",)), Requester("jane"), False, id="a user is no account"),
        pytest.param(
            RequesterMatch(service_accounts=("*",)), Requester("system:serviceaccount:ci"), False, id="half an account"
        ),
        pytest.param(RequesterMatch(users=("jane",)), Requester("jane\n"), False, id="a name with a line break"),
        pytest.param(RequesterMatch(users=("jane",)), Requester("Jane"), False, id="a name in another case"),
    ],
)
def test_requester_that_is_known(match: RequesterMatch, requester: Requester, matches: bool) -> None:  # noqa: FBT001 -- a table's
    for allowing in (False, True):
        assert RequesterMatcher(match).matches(requester, allowing=allowing) is matches


@pytest.mark.parametrize(
    ("match", "requester", "both"),
    [
        pytest.param(RequesterMatch(users=("*",)), None, (True, False), id="nobody knows who it is"),
        pytest.param(
            RequesterMatch(groups=("ops",)), Requester("jane", (), groups_known=False), (True, False), id="cut"
        ),
        pytest.param(
            RequesterMatch(users=("jane",), groups=("ops",)),
            Requester("jane", (), groups_known=False),
            (True, True),
            id="the user is known though groups are not",
        ),
        pytest.param(
            RequesterMatch(users=("joe",)),
            Requester("jane", (), groups_known=False),
            (False, False),
            id="no groups asked",
        ),
    ],
)
def test_requester_that_is_not_known_fits_what_refuses(
    match: RequesterMatch, requester: Requester | None, both: tuple[bool, bool]
) -> None:
    compiled = RequesterMatcher(match)
    assert (compiled.matches(requester, allowing=False), compiled.matches(requester, allowing=True)) == both


# --- drivers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("drivers", "refused", "allowed"),
    [
        pytest.param({"gpu.example.com"}, True, True, id="all of them are meant"),
        pytest.param({"gpu.example.com", "nic.example.com"}, True, False, id="some of them are meant"),
        pytest.param({"nic.example.com"}, False, False, id="none of them is meant"),
        pytest.param(None, True, False, id="they are not known"),
        pytest.param(set(), False, True, id="the class gives no device at all"),
    ],
)
def test_drivers_behind_a_class(drivers: set[str] | None, refused: bool, allowed: bool) -> None:  # noqa: FBT001 -- a table's
    compiled = DriverMatcher(["gpu.*"])
    assert compiled.matches(drivers, allowing=False) is refused
    assert compiled.matches(drivers, allowing=True) is allowed
    assert DriverMatcher([]).matches(drivers, allowing=True)


# --- placements ---------------------------------------------------------------------------------


@pytest.mark.parametrize("evict", [True, False])
def test_selector_that_cannot_be_judged_is_for_any_device(evict: bool) -> None:  # noqa: FBT001 -- a parameter
    selector = DeviceSelector("gpu.example.com", "node-0", "gpu-0")
    assert Placement.of(selector, evict=evict) == Placement("gpu.example.com", "node-0", "gpu-0", evict)
    unknown = DeviceSelector("gpu.example.com", "node-0", "gpu-0", unknown=(("all", "true"),))
    for each in (None, unknown, DeviceSelector()):
        assert Placement.of(each, evict=evict) == Placement(None, None, evict=evict)


# --- tolerations --------------------------------------------------------------------------------


def toleration(
    key: str = "maint/a", operator: str = "Exists", effect: str = "NoExecute", seconds: int | None = None
) -> DeviceToleration:
    return DeviceToleration(key, operator, "", effect, seconds)


MAINTENANCE = TolerationMatch(keys=("maint/*",))


@pytest.mark.parametrize(
    ("match", "asked", "refused", "allowed"),
    [
        pytest.param(MAINTENANCE, toleration(), True, True, id="a key of the pattern"),
        pytest.param(MAINTENANCE, toleration("xid"), False, False, id="another key"),
        pytest.param(MAINTENANCE, toleration(""), True, False, id="no key is every key"),
        pytest.param(
            MAINTENANCE, toleration("", "Equal"), True, False, id="no key is every key, whatever its operator"
        ),
        pytest.param(TolerationMatch(keys=("*",)), toleration(""), True, True, id="every key where all are meant"),
        pytest.param(
            TolerationMatch(values=("v",)), toleration(operator="Exists"), True, False, id="Exists is every value"
        ),
        pytest.param(TolerationMatch(values=("",)), toleration(operator=""), True, True, id="no operator is Equal"),
        pytest.param(
            TolerationMatch(effects=("NoExecute", "NoSchedule")),
            toleration(effect=""),
            True,
            False,
            id="no effect is all",
        ),
        pytest.param(
            TolerationMatch(effects=("None", "NoExecute", "NoSchedule")),
            toleration(effect=""),
            True,
            True,
            id="all three",
        ),
        pytest.param(TolerationMatch(above=60), toleration(seconds=60), False, True, id="not above the limit"),
        pytest.param(TolerationMatch(above=60), toleration(seconds=61), True, True, id="above the limit"),
        pytest.param(TolerationMatch(above=60), toleration(), True, True, id="no seconds are for ever"),
        pytest.param(TolerationMatch(above=60), toleration(effect=""), True, True, id="every effect evicts as well"),
        pytest.param(
            TolerationMatch(above=60), toleration(effect="NoSchedule"), False, True, id="what never evicts has no limit"
        ),
        pytest.param(TolerationMatch(at_most=60), toleration(seconds=61), True, False, id="more than is allowed"),
        pytest.param(TolerationMatch(at_most=0), toleration(seconds=-5), True, True, id="less than nothing is nothing"),
        pytest.param(TolerationMatch(at_most=60), toleration(effect="None"), True, True, id="no seconds are looked at"),
    ],
)
def test_toleration_is_the_set_of_what_it_tolerates(
    match: TolerationMatch,
    asked: DeviceToleration,
    refused: bool,  # noqa: FBT001 -- a table's
    allowed: bool,  # noqa: FBT001 -- likewise
) -> None:
    """`semantics.md` L-5, E-10."""
    compiled = TolerationMatcher(match)
    assert (compiled.intersects(asked), compiled.contains(asked)) == (refused, allowed)


# --- what is looked at --------------------------------------------------------------------------


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
