"""Reactions in the policy document: how they are read, what is refused, and what is warned about."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tables import table
from tests.unit.policy.documents import AT, errors_in, make_document, make_entry, make_exception, policy_of, warnings_in
from webhook.policy.document import load
from webhook.policy.model import BUILTIN, Reaction, Share

WHEN = {"driver": "gpu.example.com", "key": "gpu.example.com/xid"}
EVICTING = {"evict": True}
MUST_EVICT = "must evict: a taint with NoSchedule keeps pods away by itself; set evict: true"


def make_reaction(**fields: Any) -> dict[str, Any]:
    return {"when": WHEN, **fields}


def test_there_are_none_by_default() -> None:
    assert policy_of().reactions == BUILTIN.reactions == ()
    assert policy_of(reactions=[]).reactions == ()


def test_reactions_are_read() -> None:
    first = {
        "name": "lost",
        "when": {**WHEN, "value": "7?", "effect": "NoSchedule", "for": "90s"},
        "then": {"effect": "NoExecute"},
        "maxDevices": "5%",
    }
    second = {"when": {**WHEN, "for": "0s"}, "then": {"effect": "NoSchedule", "evict": True}, "maxDevices": 3}
    key = WHEN["key"]
    assert policy_of(reactions=[first, second]).reactions == (
        Reaction("lost", WHEN["driver"], key, "7?", "NoSchedule", 90.0, "NoExecute", max_devices=Share(5.0)),
        Reaction(key, WHEN["driver"], key, for_seconds=0.0, evict=True, max_devices=3),
    )


def test_what_is_empty_is_left_out_of_a_reaction() -> None:
    given, empty = make_reaction(), make_reaction(then={}, maxDevices=None)
    assert policy_of(reactions=[given]).reactions == policy_of(reactions=[empty]).reactions


def test_name_that_is_left_out_tells_the_value_apart() -> None:
    values = ("", "48")
    found = policy_of(reactions=[{"when": {**WHEN, "value": value}} for value in values]).reactions
    assert [each.name for each in found] == [f"{WHEN['key']}=", f"{WHEN['key']}=48"]
    assert [each.value for each in found] == list(values)


@pytest.mark.parametrize(
    ("then", "evicts"),
    [({}, False), ({"evict": True}, True), ({"effect": "NoExecute"}, True), ({"effect": "NoSchedule"}, False)],
    ids=str,
)
def test_reaction_evicts_by_its_effect_or_if_the_worker_is_asked(then: Any, evicts: object) -> None:
    (reaction,) = policy_of(reactions=[make_reaction(then=then)]).reactions
    assert reaction.evicts is evicts


@table(
    "entries, errors",
    {
        "two of one name": (
            [make_reaction(), make_reaction()],
            ['reactions[1].name: Duplicate value: "gpu.example.com/xid"'],
        ),
        "a name tells them apart": ([make_reaction(), make_reaction(name="later")], []),
        "evicting twice": (
            [make_reaction(then={"effect": "NoExecute", "evict": True})],
            ["reactions[0].then.evict: Forbidden: is for effect NoSchedule; NoExecute evicts by itself"],
        ),
        "closing what is closed": (
            [make_reaction(), {"when": {**WHEN, "value": "1", "effect": "NoSchedule"}, "then": {"evict": False}}],
            [f"reactions[1].then: Forbidden: {MUST_EVICT}"],
        ),
        "a share of nothing": (
            [make_reaction(maxDevices="0%")],
            ['reactions[0].maxDevices: Invalid value: "0%": must be greater than 0%'],
        ),
        "a time without end": (
            [{"when": {**WHEN, "for": "9000h"}}],
            ['reactions[0].when.for: Invalid value: "9000h": must be at most 8784h (366 days)'],
        ),
        "of any driver": ([{"when": {"key": "k"}}], ["reactions[0].when.driver: Required value"]),
        "no effect": (
            [make_reaction(then={"effect": "None"})],
            ['reactions[0].then.effect: Unsupported value: "None": supported values: "NoExecute", "NoSchedule"'],
        ),
    },
)
def test_mistakes_in_reactions(entries: Any, errors: list[str]) -> None:
    assert errors_in(reactions=entries) == errors


@pytest.mark.parametrize("then", [EVICTING, {"effect": "NoExecute"}], ids=str)
def test_evicting_without_a_limit_is_told(then: Any) -> None:
    text = "must be set for a reaction that evicts: a driver that misreports would empty all of its devices"
    found = [f"DT123 reactions[1].maxDevices: {text}"]
    first = make_reaction(name="first")
    assert warnings_in(reactions=[first, make_reaction(then=then)]) == found
    assert warnings_in(reactions=[first, make_reaction(then=then, maxDevices=None)]) == found
    assert warnings_in(reactions=[first, make_reaction(then=then, maxDevices=1)]) == []


@pytest.mark.parametrize("then", [EVICTING, {"effect": "NoExecute"}], ids=str)
def test_reaction_that_two_steps_prevent_is_told(then: Any) -> None:
    reactions = [make_reaction(name="first"), make_reaction(then=then, maxDevices=1)]
    text = "twoStep refuses rules that evict from the start, and so those of this reaction"
    assert warnings_in(reactions=reactions, impact={"twoStep": True}) == [f"DT124 reactions[1].then: {text}"]
    assert warnings_in(reactions=reactions) == []


ACCOUNT = "system:serviceaccount:device-taint-webhook:device-taint-patch"
OURS = {"serviceAccounts": ["device-taint-webhook/device-taint-patch"]}
ANY_KEY = make_entry("no", "deny", {"taints": {"keys": ["devicetaint.io/*"]}})
PATTERNS = {"keys": ["devicetaint.io/degraded"], "values": [""]}


def denied(*rules: Any, then: Any = None, **fields: Any) -> list[str]:
    reaction = make_reaction(then=then or {}, maxDevices=1)
    return warnings_in(taintRules=[*rules, masters_may()], reactions=[reaction], **fields)


def masters_may() -> Any:
    """So that the policy locks out no one."""
    return make_entry("masters", "allow", {"requesters": {"groups": ["system:masters"]}})


def worker_may() -> Any:
    match = {"requesters": {"serviceAccounts": ["device-taint-webhook/*-evict"]}, "taints": {"effects": ["None"]}}
    return make_entry("worker", "allow", match)


@table(
    "match",
    {
        "a pattern of the key": {"taints": {"keys": ["devicetaint.io/*"]}},
        "the key": {"taints": PATTERNS},
        "the driver": {"drivers": ["gpu.*"], "taints": PATTERNS},
        "the effect": {"taints": {**PATTERNS, "effects": ["NoSchedule"]}},
        "all users": {"requesters": {"users": ["*"]}, "taints": PATTERNS},
    },
)
def test_reaction_that_a_taint_rule_denies_is_told(match: Any) -> None:
    text = f'taint rule "no" denies devicetaint.io/degraded to {ACCOUNT}, which writes its rules'
    expected = [f"DT125 reactions[0]: {text}; let a rule before it allow that"]
    deny = make_entry("no", "deny", match)
    watching = make_entry("watch", "warn", match)
    assert denied(worker_may(), deny) == expected
    assert denied(worker_may(), watching, deny) == expected
    assert denied(worker_may(), make_entry("yes", "allow", {**match, "requesters": OURS}), deny) == []
    assert denied(worker_may(), watching) == []


@table(
    "rule, told",
    {
        "another key": (make_entry("no", "deny", {"taints": {"keys": ["other/*"]}}), False),
        "another value": (make_entry("no", "deny", {"taints": {"values": ["a"]}}), False),
        "another driver": (make_entry("no", "deny", {"drivers": ["other"]}), False),
        "another user": (make_entry("no", "deny", {"requesters": {"users": ["jane"]}}), False),
        "some pools": (make_entry("no", "deny", {"pools": ["node-1"]}), False),
        "sometimes": (make_entry("no", "deny", {**ANY_KEY["match"], "when": "taint.key != 'a'"}), False),
        "another effect": (make_entry("no", "deny", {"taints": {"effects": ["NoExecute"]}}), False),
        "what evicts": (make_entry("no", "deny", {"evict": True}), False),
        "it": (ANY_KEY, True),
    },
)
def test_reaction_that_a_taint_rule_may_let_pass_is_not_told(rule: Any, told: object) -> None:
    found = [text for text in denied(worker_may(), rule) if text.startswith("DT125")]
    assert bool(found) is told


def test_reactions_that_evict_need_more_than_others() -> None:
    for match in ({"evict": True}, {"taints": {"effects": ["NoExecute"]}}):
        rule = make_entry("no", "deny", match)
        assert [text[:5] for text in denied(worker_may(), rule, then=EVICTING)] == ["DT125"]
        assert denied(worker_may(), rule) == []
    assert [text[:5] for text in denied(worker_may(), ANY_KEY, then={"effect": "NoExecute"})] == ["DT125"]


@pytest.mark.parametrize("pools", [{"pools": ["node-1"]}, {"when": "taint.key != 'a'"}], ids=str)
def test_rule_that_allows_in_part_is_given_the_benefit_of_the_doubt(pools: Any) -> None:
    allow = make_entry("yes", "allow", {"requesters": OURS, **pools})
    assert denied(worker_may(), allow, ANY_KEY) == []


def test_rule_that_an_exception_lifts_is_not_certain() -> None:
    excused = make_exception(rules=["no"], match={"drivers": ["gpu.example.com"]})
    assert denied(worker_may(), ANY_KEY, exceptions=[excused]) == []


def test_account_is_that_of_the_namespace_of_the_installation() -> None:
    worker = {"requesters": {"serviceAccounts": ["taints/*-evict"]}, "taints": {"effects": ["None"]}}
    rules = [
        make_entry("yes", "allow", {"requesters": OURS}),
        make_entry("worker", "allow", worker),
        masters_may(),
        ANY_KEY,
    ]
    document = make_document(taintRules=rules, reactions=[make_reaction()])
    (finding,) = load(document, AT, namespace="taints").warnings
    assert "system:serviceaccount:taints:device-taint-patch" in finding.error.detail
