"""Single patterns and matches, and what they look at; the laws are in tests/properties/test_policy.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tables import table
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


@table(
    "pattern, text, matches",
    {
        "plain text matches itself": ("gpu", "gpu", True),
        "plain text matches no longer text": ("gpu", "gpu2", False),
        "nothing matches nothing": ("", "", True),
        "nothing matches no text": ("", "a", False),
        "a star matches nothing": ("*", "", True),
        "a star crosses slashes and lines": ("*", "a/b\nc", True),
        "a question mark is not nothing": ("?", "", False),
        "a question mark is one character, not one byte": ("?", "\U0001f4a5", True),
        "two ends do not share a character": ("a*a", "a", False),
        "a star between two ends may be nothing": ("a*a", "aa", True),
        "pieces stand one after the other": ("*ab*ab", "abab", True),
        "a piece is not used twice": ("*ab*ab", "ab", False),
        "the last piece is looked for at the end": ("*a?c", "abcabc", True),
        "the last of two pieces is another": ("*a*b", "ab", True),
        "the last of two pieces is longer": ("*a*bc", "abc", True),
        "the last of two pieces is shorter": ("*ab*c", "abc", True),
        "a piece between stars that is not there": ("*a*", "bb", False),
        "pieces in another order": ("*a*b*", "ba", False),
        "nothing else is special, brackets": ("[a-z]+", "b", False),
        "nothing else is special, dots": ("a.c", "abc", False),
        "a backslash does not escape": ("\\*", "*", False),
        "case counts": ("A", "a", False),
    },
)
def test_glob(pattern: str, text: str, *, matches: bool) -> None:
    assert Glob(pattern).matches(text) is matches


@pytest.mark.parametrize(
    ("patterns", "everything"),
    [([], True), (["*"], True), (["a", "***"], True), (["?*"], False), ([""], False), (["a*"], False)],
)
def test_set_is_everything_only_if_a_pattern_takes_all_texts(patterns: list[str], *, everything: bool) -> None:
    assert TextSet(patterns).everything is everything


FACTS = NamespaceFacts("train-a", {"team": "ml", "tier": ""})


def in_namespaces(
    match: NamespaceMatch, name: str = "train-a", facts: NamespaceFacts | None = FACTS
) -> tuple[bool, bool]:
    """Whether a rule that refuses and one that allows mean the namespace."""
    names = NamespaceMatcher(match)
    return names.matches(name, facts, allowing=False), names.matches(name, facts, allowing=True)


@table(
    "match, matches",
    {
        "a pattern of its name": (NamespaceMatch(names=("train-*",)), True),
        "one pattern is enough": (NamespaceMatch(names=("infer", "t*")), True),
        "an exception to all names": (NamespaceMatch(except_names=("train-?",)), False),
        "an exception for another": (NamespaceMatch(names=("*",), except_names=("train-b",)), True),
        "a label whose value fits": (NamespaceMatch(labels=(("team", "m?"),)), True),
        "labels that are not all there": (NamespaceMatch(labels=(("team", "m?"), ("zone", "*"))), False),
        "a label with an empty value": (NamespaceMatch(labels=(("tier", ""),)), True),
        "the name must fit as well": (NamespaceMatch(names=("infer",), labels=(("team", "ml"),)), False),
        "In with its value": (NamespaceMatch(expressions=(LabelRequirement("team", "In", ("ml", "x")),)), True),
        "In without label": (NamespaceMatch(expressions=(LabelRequirement("zone", "In", ("a",)),)), False),
        "NotIn without the label": (NamespaceMatch(expressions=(LabelRequirement("zone", "NotIn", ("a",)),)), True),
        "NotIn with its value": (NamespaceMatch(expressions=(LabelRequirement("team", "NotIn", ("ml",)),)), False),
        "Exists, though empty": (NamespaceMatch(expressions=(LabelRequirement("tier", "Exists"),)), True),
        "DoesNotExist with label": (NamespaceMatch(expressions=(LabelRequirement("team", "DoesNotExist"),)), False),
        "values are no patterns": (NamespaceMatch(expressions=(LabelRequirement("team", "In", ("m*",)),)), False),
    },
)
def test_namespace_that_is_known(match: NamespaceMatch, *, matches: bool) -> None:
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


RUNNER = "system:serviceaccount:ci:runner"


@table(
    "match, requester, matches",
    {
        "a match without lists is for everybody": (RequesterMatch(), Requester("jane"), True),
        "a user by a pattern": (RequesterMatch(users=("j*",)), Requester("jane"), True),
        "one group is enough": (RequesterMatch(groups=("ml-*",)), Requester("jane", ("x", "ml-a")), True),
        "nobody without groups is in one": (RequesterMatch(groups=("*",)), Requester("jane"), False),
        "one list is enough": (RequesterMatch(users=("joe",), groups=("ops",)), Requester("jane", ("ops",)), True),
        "an account by a pattern": (RequesterMatch(service_accounts=("ci/*",)), Requester(RUNNER), True),
        "an account is a user as well": (RequesterMatch(users=("*:ci:*",)), Requester(RUNNER), True),
        "a user is no account": (RequesterMatch(service_accounts=("*",)), Requester("jane"), False),
        "half an account": (RequesterMatch(service_accounts=("*",)), Requester("system:serviceaccount:ci"), False),
        "a name with a line break": (RequesterMatch(users=("jane",)), Requester("jane\n"), False),
        "a name in another case": (RequesterMatch(users=("jane",)), Requester("Jane"), False),
    },
)
def test_requester_that_is_known(match: RequesterMatch, requester: Requester, *, matches: bool) -> None:
    for allowing in (False, True):
        assert RequesterMatcher(match).matches(requester, allowing=allowing) is matches


@table(
    "match, requester, both",
    {
        "nobody knows who it is": (RequesterMatch(users=("*",)), None, (True, False)),
        "cut": (RequesterMatch(groups=("ops",)), Requester("jane", (), groups_known=False), (True, False)),
        "the user is known though groups are not": (
            RequesterMatch(users=("jane",), groups=("ops",)),
            Requester("jane", (), groups_known=False),
            (True, True),
        ),
        "no groups asked": (RequesterMatch(users=("joe",)), Requester("jane", (), groups_known=False), (False, False)),
    },
)
def test_requester_that_is_not_known_fits_what_refuses(
    match: RequesterMatch, requester: Requester | None, both: tuple[bool, bool]
) -> None:
    compiled = RequesterMatcher(match)
    assert (compiled.matches(requester, allowing=False), compiled.matches(requester, allowing=True)) == both


@table(
    "drivers, refused, allowed",
    {
        "all of them are meant": ({"gpu.example.com"}, True, True),
        "some of them are meant": ({"gpu.example.com", "nic.example.com"}, True, False),
        "none of them is meant": ({"nic.example.com"}, False, False),
        "they are not known": (None, True, False),
        "the class gives no device at all": (set(), False, True),
    },
)
def test_drivers_behind_a_class(drivers: set[str] | None, *, refused: bool, allowed: bool) -> None:
    compiled = DriverMatcher(["gpu.*"])
    assert compiled.matches(drivers, allowing=False) is refused
    assert compiled.matches(drivers, allowing=True) is allowed
    assert DriverMatcher([]).matches(drivers, allowing=True)


@pytest.mark.parametrize("evict", [True, False])
def test_selector_that_cannot_be_judged_is_for_any_device(*, evict: bool) -> None:
    selector = DeviceSelector("gpu.example.com", "node-0", "gpu-0")
    assert Placement.of(selector, evict=evict) == Placement("gpu.example.com", "node-0", "gpu-0", evict)
    unknown = DeviceSelector("gpu.example.com", "node-0", "gpu-0", unknown=(("all", "true"),))
    for each in (None, unknown, DeviceSelector()):
        assert Placement.of(each, evict=evict) == Placement(None, None, evict=evict)


def toleration(
    key: str = "maint/a", operator: str = "Exists", effect: str = "NoExecute", seconds: int | None = None
) -> DeviceToleration:
    return DeviceToleration(key, operator, "", effect, seconds)


MAINTENANCE = TolerationMatch(keys=("maint/*",))


@table(
    "match, asked, refused, allowed",
    {
        "a key of the pattern": (MAINTENANCE, toleration(), True, True),
        "another key": (MAINTENANCE, toleration("xid"), False, False),
        "no key is every key": (MAINTENANCE, toleration(""), True, False),
        "no key is every key, whatever its operator": (MAINTENANCE, toleration("", "Equal"), True, False),
        "every key where all are meant": (TolerationMatch(keys=("*",)), toleration(""), True, True),
        "Exists is every value": (TolerationMatch(values=("v",)), toleration(operator="Exists"), True, False),
        "no operator is Equal": (TolerationMatch(values=("",)), toleration(operator=""), True, True),
        "no effect is all": (TolerationMatch(effects=("NoExecute", "NoSchedule")), toleration(effect=""), True, False),
        "all three": (TolerationMatch(effects=("None", "NoExecute", "NoSchedule")), toleration(effect=""), True, True),
        "not above the limit": (TolerationMatch(above=60), toleration(seconds=60), False, True),
        "above the limit": (TolerationMatch(above=60), toleration(seconds=61), True, True),
        "no seconds are for ever": (TolerationMatch(above=60), toleration(), True, True),
        "every effect evicts as well": (TolerationMatch(above=60), toleration(effect=""), True, True),
        "what never evicts has no limit": (TolerationMatch(above=60), toleration(effect="NoSchedule"), False, True),
        "more than is allowed": (TolerationMatch(at_most=60), toleration(seconds=61), True, False),
        "less than nothing is nothing": (TolerationMatch(at_most=0), toleration(seconds=-5), True, True),
        "no seconds are looked at": (TolerationMatch(at_most=60), toleration(effect="None"), True, True),
    },
)
def test_toleration_is_the_set_of_what_it_tolerates(
    match: TolerationMatch, asked: DeviceToleration, *, refused: bool, allowed: bool
) -> None:
    """`semantics.md` L-5, E-10."""
    compiled = TolerationMatcher(match)
    assert (compiled.intersects(asked), compiled.contains(asked)) == (refused, allowed)


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
def test_policy_asks_who_it_is_where_a_match_looks_at_the_requester(where: str, match: Any, *, asks: bool) -> None:
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
