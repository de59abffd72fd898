"""The walk; its laws are in tests/properties/test_policy.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from tests.builders import NOW
from tests.tables import table
from tests.unit.policy.documents import judge_of, make_entry, make_exception, on_request
from webhook.api.rules import DeviceSelector
from webhook.api.taints import EXISTS, DeviceTaint, DeviceToleration
from webhook.policy import decide
from webhook.policy.decide import BUILTIN_JUDGE, Judge, PolicyState, PolicyStore
from webhook.policy.evaluation import Evaluation
from webhook.policy.match import NamespaceFacts, Placement, Requester, Scope, Target
from webhook.policy.model import Subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.policy.evaluation import RuleHit

JANE = Requester("jane", ("ml-a",))
SCOPE = Scope(JANE, "train", NamespaceFacts("train", {"team": "ml"}))
TARGET = Target("gpu", frozenset({"gpu.example.com"}), admin_access=False)
XID = DeviceToleration("xid", EXISTS, "", "NoExecute")
XIDS = {"tolerations": {"keys": ["xid"]}}


def told(hits: tuple[RuleHit, ...]) -> list[str]:
    """Each rule that matched with what followed, and whether by an exception or in spite of an error."""
    return [
        f"{hit.rule.name} {hit.action}"
        + (f" by {hit.exception.name}" if hit.exception else "")
        + (" unsure" if hit.problem else "")
        for hit in hits
    ]


def on_toleration(
    judge: Judge,
    toleration: DeviceToleration = XID,
    *,
    scope: Scope = SCOPE,
    target: Target = TARGET,
    now: Any = NOW,
    **variables: Any,
) -> list[str]:
    return told(judge.on_toleration(scope, target, toleration, now, lambda: variables))


# --- order --------------------------------------------------------------------------------------

ALLOW, DENY = make_entry("allows", "allow"), make_entry("denies", "deny")
WARN, AUDIT = make_entry("warns", "warn"), make_entry("audits", "audit")


@table(
    "rules, default, expected",
    {
        "without rules the default decides": ([], "allow", ["default allow"]),
        "also where it denies": ([], "deny", ["default deny"]),
        "the first that denies decides": ([DENY, ALLOW], "allow", ["denies deny"]),
        "the first that allows decides": ([ALLOW, DENY], "deny", ["allows allow"]),
        "warn and audit go on": ([WARN, AUDIT], "allow", ["warns warn", "audits audit", "default allow"]),
        "nothing is told after the decision": ([DENY, WARN], "allow", ["denies deny"]),
        "a rule that matches": ([{**DENY, "match": XIDS}], "allow", ["denies deny"]),
        "one that does not": ([{**DENY, "match": {"tolerations": {"keys": ["b"]}}}], "allow", ["default allow"]),
        "a rule on requests is no step": ([{**DENY, "subject": "request"}], "allow", ["default allow"]),
    },
)
def test_first_rule_that_allows_or_denies_decides(rules: list[Any], default: str, expected: list[str]) -> None:
    assert on_toleration(judge_of(*rules, default=default)) == expected


def test_requests_are_a_walk_of_their_own_that_no_default_ends() -> None:
    judge = judge_of({**WARN, "subject": "request"}, {**DENY, "match": XIDS}, default="deny")
    assert told(on_request(judge, SCOPE, TARGET, NOW, dict)) == ["warns warn"]
    admin = {"name": "no-admin", "action": "deny", "subject": "request", "match": {"adminAccess": True}}
    assert told(on_request(judge_of(admin), SCOPE, TARGET._replace(admin_access=True), NOW, dict)) == ["no-admin deny"]
    assert told(on_request(judge_of(admin), SCOPE, TARGET, NOW, dict)) == []


@table(
    "match, expected",
    {
        "all hold": ({"deviceClasses": ["gpu"], "namespaces": {"names": ["train"]}, **XIDS}, "denies"),
        "not the class": ({"deviceClasses": ["nic"], "namespaces": {"names": ["train"]}, **XIDS}, "default"),
        "not the requester": ({"deviceClasses": ["gpu"], "requesters": {"users": ["joe"]}}, "default"),
        "not the driver": ({"drivers": ["nic.*"]}, "default"),
        "not the admin access": ({"adminAccess": True}, "default"),
        "the admin access that is not there": ({"adminAccess": False}, "denies"),
    },
)
def test_all_that_a_match_gives_must_hold(match: Any, expected: str) -> None:
    assert on_toleration(judge_of({**DENY, "match": match}))[0].startswith(expected)


# --- expressions --------------------------------------------------------------------------------

FEW = {"when": "request.count <= 4"}


@table(
    "action, request_variable, expected",
    {
        "it holds, and the rule denies": ("deny", {"count": 4}, ["asks deny"]),
        "it does not hold": ("deny", {"count": 5}, ["default allow"]),
        "an error denies, and says so": ("deny", {}, ["asks deny unsure"]),
        "an error warns, and says so": ("warn", {}, ["asks warn unsure", "default allow"]),
        "an error is noted, and says so": ("audit", {}, ["asks audit unsure", "default allow"]),
        "it holds, and the rule allows": ("allow", {"count": 4}, ["asks allow"]),
        "an error does not allow": ("allow", {}, ["default allow"]),
    },
)
def test_expression_has_the_last_word_on_a_match(action: str, request_variable: Any, expected: list[str]) -> None:
    assert on_toleration(judge_of(make_entry("asks", action, FEW)), request=request_variable) == expected


def test_expression_is_asked_each_time_though_the_rest_is_remembered() -> None:
    judge = judge_of(make_entry("asks", "deny", FEW))
    answers = [on_toleration(judge, request={"count": count})[0] for count in (4, 5, 4)]
    assert answers == ["asks deny", "default allow", "asks deny"]


def test_variables_are_not_put_together_where_no_expression_asks() -> None:
    def never() -> Mapping[str, Any]:
        raise AssertionError("nobody asked")

    judge = judge_of({**make_entry("asks", "deny", FEW), "match": {"deviceClasses": ["nic"], **FEW}}, DENY)
    assert told(judge.on_toleration(SCOPE, TARGET, XID, NOW, never)) == ["denies deny"]


# --- exceptions ---------------------------------------------------------------------------------


def excusing(*rules: str, **fields: Any) -> Any:
    return make_exception("excused", rules, **fields)


def test_exception_takes_a_rule_out_of_the_walk_which_goes_on() -> None:
    second = make_entry("denies-too", "deny")
    judge = judge_of(DENY, second, exceptions=[excusing("denies")])
    assert on_toleration(judge) == ["denies allow by excused", "denies-too deny"]


def test_exception_to_the_default_allows() -> None:
    judge = judge_of(default="deny", exceptions=[excusing("default", match=XIDS)])
    assert on_toleration(judge) == ["default allow by excused"]
    assert on_toleration(judge, DeviceToleration("", EXISTS)) == ["default deny"]


def test_exception_holds_for_no_more_than_it_contains() -> None:
    judge = judge_of(DENY, exceptions=[excusing("denies", match={"tolerations": {"seconds": {"atMost": 60}}})])
    assert on_toleration(judge, DeviceToleration("xid", EXISTS, "", "NoExecute", 60))[0] == "denies allow by excused"
    assert on_toleration(judge) == ["denies deny"]


def test_exception_needs_to_know() -> None:
    judge = judge_of(DENY, exceptions=[excusing("denies", match={"requesters": {"users": ["*"]}})])
    assert on_toleration(judge)[0] == "denies allow by excused"
    assert on_toleration(judge, scope=SCOPE._replace(requester=None)) == ["denies deny"]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(4, "denies allow by excused"), (5, "denies deny"), (None, "denies deny")],
    ids=["that holds", "that does not hold", "that cannot be evaluated"],
)
def test_exception_may_have_an_expression(count: int | None, expected: str) -> None:
    judge = judge_of(DENY, exceptions=[excusing("denies", match=FEW)])
    assert on_toleration(judge, request={} if count is None else {"count": count})[0] == expected


def test_first_exception_that_holds_is_named() -> None:
    exceptions = [make_exception("later", ["denies"], match=FEW), make_exception("plain", ["denies"])]
    assert on_toleration(judge_of(DENY, exceptions=exceptions), request={"count": 9})[0] == "denies allow by plain"


# --- taints -------------------------------------------------------------------------------------

TAINT = DeviceTaint("health/xid", "79", "NoExecute")
OURSELVES = make_entry("ourselves", "allow", {"requesters": {"serviceAccounts": ["device-taint-webhook/*"]}})
"""Without a rule like this, a document that denies every taint is refused."""
ANY = Placement.of(None, evict=False)
ONE = Placement.of(DeviceSelector("gpu.example.com", "node-0", "gpu-0"), evict=False)


def on_taint(
    *rules: Any, place: Placement = ONE, taint: DeviceTaint = TAINT, requester: Requester = JANE, **fields: Any
) -> list[str]:
    judge = judge_of(taintRules=[OURSELVES, *rules], **fields)
    return told(judge.on_taint(requester, place, taint, NOW, dict))


@table(
    "match, place, both",
    {
        "the driver is named": ({"drivers": ["gpu.*"]}, ONE, (True, True)),
        "no driver is any driver": ({"drivers": ["gpu.*"]}, ANY, (True, False)),
        "another driver": ({"drivers": ["nic.*"]}, ONE, (False, False)),
        "the pool is named": ({"pools": ["node-*"]}, ONE, (True, True)),
        "no pool is any pool": ({"pools": ["node-*"]}, ANY, (True, False)),
        "the key fits": ({"taints": {"keys": ["health/*"]}}, ANY, (True, True)),
        "the key does not fit": ({"taints": {"keys": ["maint/*"]}}, ANY, (False, False)),
        "the value fits": ({"taints": {"values": ["7?"]}}, ANY, (True, True)),
        "the effect does not fit": ({"taints": {"effects": ["NoSchedule"]}}, ANY, (False, False)),
        "nobody is asked to evict": ({"evict": True}, ONE, (False, False)),
        "we are asked to evict": ({"evict": True}, ONE._replace(evict=True), (True, True)),
        "we are asked, and must not be": ({"evict": False}, ONE._replace(evict=True), (False, False)),
        "the requester fits": ({"requesters": {"groups": ["ml-*"]}}, ONE, (True, True)),
    },
)
def test_taint_rule_means_what_its_match_says(match: Any, place: Placement, both: tuple[bool, bool]) -> None:
    denied = on_taint(make_entry("rule", "deny", match), place=place) == ["rule deny"]
    allowed = on_taint(make_entry("rule", "allow", match), make_entry("rest", "deny"), place=place) == ["rule allow"]
    assert (denied, allowed) == both


def test_taint_rules_end_in_allow_whatever_the_default() -> None:
    assert on_taint(default="deny", exceptions=[]) == []
    assert on_taint(WARN, DENY) == ["warns warn", "denies deny"]


def test_taint_rule_that_does_not_match_ends_nothing() -> None:
    """Also where it would by its names alone."""
    other = {"taints": {"keys": ["*"], "effects": ["None"]}}
    assert on_taint(make_entry("other", "deny", other), DENY) == ["denies deny"]


def test_exceptions_hold_for_taint_rules_too() -> None:
    exception = excusing("denies", match={"pools": ["node-0"]})
    assert on_taint(DENY, exceptions=[exception]) == ["denies allow by excused"]
    assert on_taint(DENY, exceptions=[exception], place=ANY) == ["denies deny"]


# --- what is remembered -------------------------------------------------------------------------


def test_built_in_policy_has_nothing_to_ask() -> None:
    assert (BUILTIN_JUDGE.judges_claims, BUILTIN_JUDGE.judges_taints) == (False, False)
    assert (judge_of(default="deny").judges_claims, judge_of(DENY).judges_claims) == (True, True)
    assert judge_of(taintRules=[OURSELVES]).judges_taints


def test_answer_is_remembered_for_all_to_whom_the_same_rules_apply() -> None:
    judge = judge_of(DENY)
    assert judge.scoped(SCOPE, NOW).remembered(TARGET, XID) is None
    on_toleration(judge)
    known = judge.scoped(SCOPE, NOW).remembered(TARGET, XID)
    assert known == Evaluation.of(judge.on_toleration(SCOPE, TARGET, XID, NOW, dict))
    assert judge.scoped(SCOPE._replace(namespace="other"), NOW).remembered(TARGET, XID) is known


def test_expression_behind_the_rule_that_decides_has_no_say() -> None:
    judge = judge_of(DENY, make_entry("asks", "deny", FEW))
    assert on_toleration(judge) == ["denies deny"]
    assert judge.scoped(SCOPE, NOW).remembered(TARGET, XID) is not None


@table(
    "rules, default, refusing",
    {
        "no rule": ([], "allow", None),
        "the default": ([], "deny", "default"),
        "a rule behind one that only warns": ([WARN, DENY], "allow", "denies"),
        "a rule behind one that allows everything": ([ALLOW, DENY], "deny", None),
        "behind one that allows something": ([{**ALLOW, "match": XIDS}, DENY], "allow", "denies"),
        "behind one that allows at times": ([{**ALLOW, "match": FEW}, DENY], "allow", "denies"),
        "administrators may": ([{**ALLOW, "match": {"adminAccess": True}}], "deny", "default"),
        "one class is allowed": ([{**ALLOW, "match": {"deviceClasses": ["gpu"]}}], "deny", "default"),
        "one driver is allowed": ([{**ALLOW, "match": {"drivers": ["gpu.*"]}}], "deny", "default"),
    },
)
def test_rule_that_may_refuse_something(rules: list[Any], default: str, refusing: str | None) -> None:
    scoped = judge_of(*rules, default=default).scoped(SCOPE, NOW)
    assert scoped.refusing(Subject.TOLERATION) == refusing
    assert scoped.refusing(Subject.REQUEST) is None


def test_namespace_whose_labels_changed_is_another() -> None:
    judge = judge_of(make_entry("no-ml", "deny", {"namespaces": {"labels": {"team": "ml"}}}))
    assert on_toleration(judge) == ["no-ml deny"]
    assert on_toleration(judge, scope=SCOPE._replace(facts=NamespaceFacts("train", {}))) == ["default allow"]
    assert on_toleration(judge) == ["no-ml deny"]


def test_names_that_no_server_keeps_are_not_remembered() -> None:
    """/mutate sees what nobody has looked at: a few thousand names of a few megabytes would fill any memory."""
    judge = judge_of(DENY)
    longest = Target("g" * 253, None, admin_access=False)
    for target in (longest, longest._replace(device_class="g" * 254)):
        assert on_toleration(judge, target=target) == ["denies deny"]
    scoped = judge.scoped(SCOPE, NOW)
    assert scoped.remembered(longest, XID) is not None
    assert scoped.remembered(longest._replace(device_class="g" * 254), XID) is None


def test_of_requesters_in_very_many_groups_only_the_last_is_remembered() -> None:
    judge = judge_of(make_entry("last", "deny", {"requesters": {"groups": ["group-999"]}}))
    members = [Scope(Requester(name, tuple(f"group-{n}" for n in range(1000))), "train", None) for name in "abcde"]
    for scope in members:
        assert on_toleration(judge, scope=scope) == ["last deny"]
        assert judge.scoped(scope, NOW) is judge.scoped(scope, NOW)
    assert judge._era.scopes == {}
    assert judge._era.large is not None
    assert judge._era.large[0] == members[-1]


def test_memory_holds_as_much_as_it_may_and_no_more() -> None:
    with patch.object(decide, "_REMEMBERED", 3):
        judge = judge_of(DENY)
        known = []
        for key in ("xid", "other"):  # the first: the rules that apply, the requester, and the answer
            on_toleration(judge, DeviceToleration(key, EXISTS, "", "NoExecute"))
            known.append(judge.scoped(SCOPE, NOW).remembered(TARGET, XID) is not None)
    assert known == [True, False]


@pytest.mark.parametrize(("groups", "remembered"), [(64, True), (65, False)])
def test_requester_in_64_groups_is_remembered_beside_others(groups: int, *, remembered: bool) -> None:
    judge = judge_of(DENY)
    member = Scope(Requester("joe", tuple(f"group-{n}" for n in range(groups))), "train", None)
    unknown = Scope(None, "train", None)
    for scope in (member, unknown):
        assert on_toleration(judge, scope=scope) == ["denies deny"]
    assert (member in judge._era.scopes) is remembered
    assert unknown in judge._era.scopes


@pytest.mark.parametrize(
    ("mode", "generated_claims", "generated", "updating", "expected", "turned_down"),
    [
        ("enforce", "enforce", False, False, "enforce", False),
        ("enforce", "enforce", True, False, "enforce", False),
        ("enforce", "enforce", False, True, "warn", False),
        ("enforce", "enforce", True, True, "warn", False),
        ("enforce", "warn", False, False, "enforce", False),
        ("enforce", "warn", True, False, "warn", False),
        ("warn", "enforce", False, False, "warn", True),
        ("warn", "enforce", True, False, "warn", True),
        ("warn", "enforce", False, True, "warn", False),
        ("warn", "enforce", True, True, "warn", False),
        ("warn", "warn", False, False, "warn", True),
        ("warn", "warn", True, False, "warn", False),
        ("off", "enforce", False, False, "off", False),
        ("off", "enforce", False, True, "off", False),
    ],
)
def test_mode_for_a_claim_and_whether_the_mode_alone_turns_a_refusal_down(
    mode: str, generated_claims: str, *, generated: bool, updating: bool, expected: str, turned_down: bool
) -> None:
    """An update is warned at most; a refusal is turned down only where it would be one otherwise."""
    judge = judge_of(mode=mode, generatedClaims=generated_claims)
    assert judge.claim_mode(generated=generated, updating=updating).value == expected
    assert judge.mode_turns_down(generated=generated, updating=updating) is turned_down


# --- the store of policies ------------------------------------------------------------------------


JUDGE, CANDIDATE = judge_of(), judge_of()


class Followed:
    """A store, and what a subscriber was called with."""

    def __init__(self) -> None:
        self.store = PolicyStore()
        self.seen: list[tuple[PolicyState, PolicyState]] = []
        self.store.subscribe(lambda old, new: self.seen.append((old, new)))


def test_new_store_has_the_built_in_policy_and_says_that_nothing_was_loaded() -> None:
    assert PolicyStore().state == PolicyState(BUILTIN_JUDGE, None, loaded=False, failure="")


def test_subscriber_is_called_with_the_state_before_and_after_each_change() -> None:
    followed = Followed()
    followed.store.use(JUDGE)
    followed.store.use_candidate(CANDIDATE)
    states = [PolicyState(), PolicyState(JUDGE, loaded=True), PolicyState(JUDGE, CANDIDATE, loaded=True)]
    assert followed.seen == [(states[0], states[1]), (states[1], states[2])]


def test_subscriber_is_not_called_when_nothing_changes() -> None:
    followed = Followed()
    followed.store.use(JUDGE)
    followed.store.use(JUDGE)
    followed.store.use_candidate(None)
    assert len(followed.seen) == 1


def test_first_look_is_a_change_even_if_there_is_no_document() -> None:
    followed = Followed()
    followed.store.use(BUILTIN_JUDGE)
    assert [new.loaded for _, new in followed.seen] == [True]


def test_rejected_document_leaves_both_policies_and_the_next_good_one_clears_the_failure() -> None:
    store = PolicyStore(JUDGE, CANDIDATE)
    store.reject("rules[0]: Required")
    assert store.state == PolicyState(JUDGE, CANDIDATE, loaded=True, failure="rules[0]: Required")
    store.use(CANDIDATE)
    assert store.state == PolicyState(CANDIDATE, CANDIDATE, loaded=True)


def test_subscriber_that_reads_the_store_sees_the_new_state() -> None:
    store = PolicyStore()
    seen = []
    store.subscribe(lambda _, new: seen.append((store.state, new)))
    store.use(JUDGE)
    assert seen == [(PolicyState(JUDGE, loaded=True),) * 2]
