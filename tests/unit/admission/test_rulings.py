"""What rules that matched are told as, and to whom a taint's rules apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import (
    KEY,
    NOW,
    make_admission_request,
    make_basic_device,
    make_claim,
    make_context,
    make_device,
    make_meta,
    make_patch,
    make_request,
    make_rule,
    make_slice,
    make_taint,
    make_toleration,
)
from tests.tables import table
from tests.unit.policy.documents import judge_of, make_entry
from webhook.admission.chain import validate
from webhook.admission.rulings import Ruling, at_most, findings_of
from webhook.api.field import Finding, Path, Severity, forbidden
from webhook.api.rules import CONFIRM_IMPACT
from webhook.policy.evaluation import Evaluation, RuleHit
from webhook.policy.model import PolicyMode

if TYPE_CHECKING:
    from webhook.admission.decision import Decision

CONFIRMED = "v1 devices=0 claims=0 pods=0 namespaces=0 of=kzyzlpynzpdgdngp"
"""What confirms `make_rule()`."""


def judged(manifest: Any, *rules: Any, old: Any = None, user: str = "jane", **fields: Any) -> Decision:
    return validate(make_admission_request(manifest, old, user=user), make_context(judge=judge_of(*rules, **fields)))


def texts(decision: Decision) -> list[str]:
    """What rules said, each as `severity path: text`."""
    return [
        f"{finding.severity} {finding.error.path}: {finding.error.detail}"
        for finding in decision.findings
        if finding.policy
    ]


def text_for(toleration: Any, *rules: Any, **fields: Any) -> str:
    """The one text about a claim's one toleration, without its path."""
    [text] = texts(judged(make_claim([toleration]), *rules, **fields))
    return text.partition(": ")[2]


# --- words --------------------------------------------------------------------------------------


@table(
    "toleration, words",
    {
        "a key and an effect": (make_toleration(), f'key "{KEY}", NoSchedule'),
        "a value": (make_toleration(operator="Equal", value="79", effect="None"), f'key "{KEY}" with value "79", None'),
        "no value": (make_toleration(operator="Equal"), f'key "{KEY}", NoSchedule'),
        "seconds": (make_toleration(effect="NoExecute", seconds=30), f'key "{KEY}", NoExecute, for 30 s'),
        "no seconds": (make_toleration(effect="NoExecute"), f'key "{KEY}", NoExecute, for ever'),
        "everything": (make_toleration(key=None, effect=None), "every key, every effect, for ever"),
    },
)
def test_toleration_is_told_with_what_is_left_out(toleration: Any, words: str) -> None:
    text = text_for(toleration, make_entry("no", "deny"))
    assert f"may not use a toleration of {words}; ask for less" in text


CHAT: Any = {"message": "ask #gpu-ops in chat"}
NIC = make_entry("others", "allow", {"deviceClasses": ["nic"]})


@table(
    "rule, fields, text",
    {
        "a message of a refusal": (
            make_entry("no", "deny", **CHAT),
            {},
            f'a toleration of key "{KEY}", NoSchedule: ask #gpu-ops in chat',
        ),
        "a message of a warning": (make_entry("no", "warn", **CHAT), {}, "ask #gpu-ops in chat"),
        "a warning without a message": (
            make_entry("told", "warn"),
            {},
            f'"jane" in namespace "ml" asks for a toleration of key "{KEY}", NoSchedule',
        ),
        "a default that denies": (
            NIC,
            {"default": "deny"},
            (
                f'no rule allows "jane" in namespace "ml" a toleration of key "{KEY}", NoSchedule; '
                "ask for less, or your cluster's admins for a rule"
            ),
        ),
    },
)
def test_rule_is_told_in_its_own_words_or_with_who_asks_for_what(rule: Any, fields: Any, text: str) -> None:
    assert text_for(make_toleration(), rule, **fields) == text


def test_condition_that_could_not_be_evaluated_is_told() -> None:
    text = text_for(make_toleration(), make_entry("no", "deny", {"when": "toleration.tolerationSeconds > 5"}))
    assert "(its condition could not be evaluated: " in text


def test_rules_that_match_nothing_are_compared_with_a_candidate() -> None:
    rule = {**make_entry("no-admin", "deny", {"adminAccess": True}), "subject": "request"}
    context = make_context(judge=judge_of(rule), candidate=judge_of(make_entry("all", "deny"), rule))
    for tolerations, changes in (([], []), ([make_toleration()], ["denied"])):
        decision = validate(make_admission_request(make_claim(tolerations)), context)
        assert (decision.allowed, [each.change for each in decision.differences]) == (True, changes)


def test_request_is_told_by_its_class_and_admin_access() -> None:
    rule = {**make_entry("no-admin", "deny", {"adminAccess": True}), "subject": "request"}
    claim = make_claim(requests=[make_request(adminAccess=True)])
    [text] = texts(judged(claim, rule))
    assert text.startswith('deny spec.devices.requests[0].exactly: "jane" in namespace "ml" may not use ')
    assert 'may not use devices of class "gpu.example.com" with admin access; ask for less' in text


def test_rule_that_only_notes_is_for_the_audit_log() -> None:
    decision = judged(make_claim([make_toleration()]), make_entry("noted", "audit"))
    assert [finding.severity for finding in decision.findings] == [Severity.AUDIT]
    assert (decision.allowed, decision.warnings, decision.annotations["rules"]) == (True, (), "default,noted")


def test_refusals_come_before_the_rest_where_there_are_too_many() -> None:
    findings = [
        Finding(severity, forbidden(Path.root().index(position), ""))
        for position, severity in enumerate([Severity.WARN, Severity.DENY, Severity.AUDIT, Severity.DENY])
    ]
    assert at_most(findings, 4) == findings
    assert at_most(findings, 3) == [findings[1], findings[3], findings[0]]


# --- taints -------------------------------------------------------------------------------------

NO_HEALTH = make_entry("no-health", "deny", {"taints": {"keys": ["gpu.example.com/*"], "effects": ["NoSchedule"]}})
OURSELVES = make_entry("ourselves", "allow", {"requesters": {"serviceAccounts": ["device-taint-webhook/*"]}})
"""Without a rule like this, a document that denies too much is refused."""
NO_EVICTION = make_entry("no-eviction", "deny", {"evict": True})
TAINT = make_taint()
OTHER = make_taint(key="maint", effect="None")


def on_taints(manifest: Any, *rules: Any, old: Any = None, **fields: Any) -> list[str]:
    if old is not None:  # what is stored has a version, and an update names it
        manifest, old = ({**each, "metadata": {**each["metadata"], "resourceVersion": "7"}} for each in (manifest, old))
    decision = judged(manifest, taintRules=[OURSELVES, *(rules or [NO_HEALTH])], old=old, **fields)
    assert decision.code in {200, 403}
    return texts(decision)


def refused(path: str, *, who: str = "jane") -> str:
    what = f"taint {KEY}:NoSchedule"
    return f'deny {path}: "{who}" may not use {what}; ask for less, or your cluster\'s admins for an exception'


def test_taint_of_a_rule_or_patch_is_refused_at_its_path() -> None:
    assert on_taints(make_rule()) == [refused("spec.taint")]
    assert judged(make_rule(), taintRules=[NO_HEALTH]).code == 403
    assert on_taints(make_patch(taints=[OTHER, TAINT])) == [refused("spec.devices.taints[1]")]


def test_taints_of_slices_are_left_to_their_drivers_unless_told_otherwise() -> None:
    manifest = make_slice([make_device("a", [OTHER]), make_device("b", [OTHER, TAINT])])
    assert on_taints(manifest) == []
    assert on_taints(manifest, taintRulesOnSlices=True) == [refused("spec.devices[1].taints[1]")]
    basic = make_slice([make_basic_device("a", [TAINT])], version="v1beta1")
    assert on_taints(basic, taintRulesOnSlices=True) == [refused("spec.devices[0].taints[0]")]


def test_taint_of_a_slice_for_devices_elsewhere_is_judged_when_it_is_new() -> None:
    """As the 1.35-era revision writes it: in a slice of its own."""
    stored = make_slice([], taints=[{"device": "a", "taint": TAINT}])
    both = make_slice([], taints=[{"device": each, "taint": TAINT} for each in "ab"])
    place = "spec.taints[{}].taint"
    assert on_taints(both, taintRulesOnSlices=True) == [refused(place.format(0)), refused(place.format(1))]
    assert on_taints(stored, taintRulesOnSlices=True, old=stored) == []
    assert on_taints(both, taintRulesOnSlices=True, old=stored) == [refused(place.format(1))]


def test_no_taint_hides_behind_many() -> None:
    """As many as a slice can have: 64 devices with 16 each."""
    harmless = [make_taint(key=f"maint-{number}", effect="None") for number in range(16)]
    devices = [make_device(f"d{number}", harmless) for number in range(63)]
    many = make_slice([*devices, make_device("last", [*harmless[1:], TAINT])])
    assert on_taints(many, make_entry("told", "warn"), NO_HEALTH, taintRulesOnSlices=True)[0] == (
        refused("spec.devices[63].taints[15]")
    )


@table(
    "new, old",
    {
        "nothing changed": (make_rule(), make_rule()),
        "a label of a rule changed": (make_rule(meta=make_meta("unhealthy-gpu", labels={"a": "b"})), make_rule()),
        "an annotation that is none of ours changed": (make_rule(annotations={"example.com/x": "1"}), make_rule()),
        "another taint came to a patch": (make_patch(taints=[TAINT, OTHER]), make_patch(taints=[TAINT])),
        "taints of a patch moved": (make_patch(taints=[OTHER, TAINT]), make_patch(taints=[TAINT])),
    },
)
def test_taint_that_an_update_leaves_as_it_was_is_not_judged_again(new: Any, old: Any) -> None:
    assert on_taints(new, old=old) == []


@table(
    "new, old",
    {
        "the taint of a rule changed": (make_rule(), make_rule(taint=OTHER)),
        "a rule's devices changed": (make_rule(), make_rule(selector={"driver": "gpu.example.com"})),
        "a rule is to evict now": (make_rule(annotations={"devicetaint.io/evict": "true"}), make_rule()),
        "a rule is confirmed now": (make_rule(annotations={CONFIRM_IMPACT: CONFIRMED}), make_rule()),
        "the taint of a patch changed": (make_patch(taints=[TAINT]), make_patch(taints=[OTHER])),
        "a patch's devices changed": (make_patch(taints=[TAINT]), make_patch(taints=[TAINT], filter_={"driver": "b"})),
        "it may win over others": (make_patch(taints=[TAINT], priority=2), make_patch(taints=[TAINT], priority=1)),
    },
)
def test_taint_that_an_update_changes_is_judged(new: Any, old: Any) -> None:
    assert len([each for each in on_taints(new, old=old) if each.startswith("deny ")]) == 1


def test_rule_with_an_unknown_selector_field_may_be_about_any_driver() -> None:
    """R8."""
    deny, allow = (
        {"name": action, "action": action, "match": {"drivers": [driver]}}
        for action, driver in (("deny", "gpu.example.com"), ("allow", "nobody.example.com"))
    )
    unjudged = make_rule(selector={"driver": "nobody.example.com", "orDriver": "gpu.example.com"})
    elsewhere = make_rule(selector={"driver": "nobody.example.com"})
    for rules in ((deny,), (allow, deny)):
        assert [each.partition(" ")[0] for each in on_taints(unjudged, *rules)].count("deny") == 1
        assert on_taints(elsewhere, *rules) == []


def deleting(rule: Any) -> Any:
    meta = {**rule["metadata"], "deletionTimestamp": "2026-06-01T12:00:00Z", "finalizers": ["example.com/keep"]}
    return {**rule, "metadata": meta}


def test_rule_that_is_kept_by_a_finalizer_is_judged_if_it_is_to_do_more() -> None:
    """It goes on acting until the finalizer is gone, so this would be a way around."""
    kept = deleting(make_rule())
    freed = {**kept, "metadata": {name: value for name, value in kept["metadata"].items() if name != "finalizers"}}
    evicting = deleting(make_rule(annotations={"devicetaint.io/evict": "true"}))
    assert on_taints(freed, NO_HEALTH, old=kept) == []
    assert on_taints(evicting, NO_EVICTION, old=kept) != []
    assert on_taints(kept, NO_EVICTION, old=evicting) == []


def test_rule_on_no_execute_meets_a_taint_that_our_worker_is_asked_to_empty() -> None:
    """R11: NoSchedule with `/evict` evicts, whatever its effect is called."""
    kept, evicting = make_rule(), make_rule(annotations={"devicetaint.io/evict": "true"})
    refuse = make_entry("refuse", "deny", {"taints": {"effects": ["NoExecute"]}})
    may_keep_away = make_entry("may", "allow", {"taints": {"effects": ["NoSchedule"]}})
    may_both = make_entry("may", "allow", {"taints": {"effects": ["NoSchedule", "NoExecute"]}})
    assert on_taints(kept, refuse) == []
    (text,) = on_taints(evicting, refuse)
    assert f"taint {KEY}:NoSchedule with devicetaint.io/evict" in text
    assert on_taints(evicting, refuse, old=kept) == [text]
    assert on_taints(evicting, may_keep_away, refuse) == [text]
    assert on_taints(evicting, may_both, refuse) == []
    assert on_taints(kept, may_keep_away, make_entry("rest", "deny")) == []


def test_worker_may_end_a_rule_that_it_was_asked_to_empty() -> None:
    """The annotation stays when the effect becomes None, with which it asks for nothing."""
    evicting = make_rule(annotations={"devicetaint.io/evict": "true"})
    ended = make_rule(taint=make_taint(effect="None"), annotations={"devicetaint.io/evict": "true"})
    may_end = make_entry("may", "allow", {"taints": {"effects": ["None"]}})
    assert on_taints(ended, may_end, make_entry("rest", "deny"), old=evicting) == []


@table(
    "when, matches",
    {
        "devices": ("rule.driver == 'gpu.example.com' && rule.pool == 'node-0' && rule.device == 'gpu-0'", True),
        "the rule itself": ("rule.name == 'unhealthy-gpu' && !rule.evict", True),
        "annotations": ("rule.annotations['devicetaint.io/owner'] == requester.username", True),
        "the taint": ("taint.key == 'gpu.example.com/unhealthy' && taint.effect == 'NoSchedule'", True),
        "the time": ("taint.timeAdded < '2026-06-01T11:00:00Z'", False),
    },
)
def test_expression_sees_what_is_set(when: str, *, matches: bool) -> None:
    rule = make_rule(annotations={"devicetaint.io/owner": "jane"})
    found = on_taints(rule, make_entry("asks", "deny", {"when": when}))
    assert (len(found) == 1) is matches
    assert "evaluated" not in "".join(found)


def test_what_a_rule_does_not_name_is_unknown_to_expressions() -> None:
    asks = make_entry("asks", "deny", {"when": "rule.driver == 'nic'"})
    [text] = on_taints(make_rule(selector={}), asks)
    assert "could not be evaluated" in text
    assert on_taints(make_rule(), asks) == []


def test_refusals_count_as_turned_down_where_the_mode_of_the_policy_makes_warnings_of_them() -> None:
    claim, refuse, advise = make_claim([make_toleration()]), make_entry("no", "deny"), make_entry("advises", "warn")
    assert judged(claim, refuse, mode="warn").turned_down
    assert not judged(claim, refuse).turned_down
    assert not judged(claim, advise, mode="warn").turned_down
    assert judged(make_rule(), taintRules=[OURSELVES, NO_HEALTH], mode="warn").turned_down
    assert not judged(make_rule(), taintRules=[OURSELVES, NO_HEALTH]).turned_down


def ruling_by(*actions: str) -> Ruling:
    """A ruling by rules with these actions."""
    rules = judge_of(*[make_entry(f"{action}-{at}", action) for at, action in enumerate(actions)]).policy.rules
    return Ruling(Evaluation.of(tuple([RuleHit(rule) for rule in rules[: len(actions)]])), Path.root, lambda: "this")


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (None, ["warn-0", "audit-1", "deny-2", "warn-0", "deny-1"]),
        (3, ["warn-0", "audit-1", "deny-2", "warn-0", "deny-1"]),
        (2, ["warn-0", "audit-1", "deny-2", "deny-1"]),
        (0, ["deny-2", "deny-1"]),
    ],
)
def test_only_what_refuses_nothing_is_left_out_where_there_is_too_much(most: int | None, expected: list[str]) -> None:
    rulings = [ruling_by("warn", "audit", "deny"), ruling_by("warn", "deny")]
    found = findings_of(rulings, "jane", PolicyMode.ENFORCE, NOW, most=most)
    assert [each.rule for each in found] == expected


def test_only_refusals_are_found_and_are_turned_down_by_the_mode_of_the_policy_alone() -> None:
    rulings = [ruling_by("allow"), ruling_by("deny")]
    assert [each.rule for each in findings_of(rulings, "jane", PolicyMode.ENFORCE, NOW)] == ["deny-0"]
    (found,) = findings_of([ruling_by("deny")], "jane", PolicyMode.WARN, NOW)
    assert (found.severity, found.turned_down) == (Severity.WARN, False)


def candidate_says(active: Any, candidate: Any) -> list[tuple[str, str, str]]:
    context = make_context(judge=active, candidate=candidate)
    decision = validate(make_admission_request(make_rule()), context)
    return [(each.path, each.rule, each.change) for each in decision.differences]


def test_candidate_is_compared_on_taints_too_and_says_nothing_where_it_is_off() -> None:
    stricter, nothing = judge_of(taintRules=[NO_HEALTH]), judge_of()
    off = judge_of(taintRules=[NO_HEALTH], mode="off")
    assert candidate_says(nothing, stricter) == [("spec.taint", "no-health", "denied")]
    assert (
        candidate_says(stricter, nothing) == candidate_says(stricter, off) == [("spec.taint", "no-health", "allowed")]
    )
    assert candidate_says(stricter, stricter) == candidate_says(nothing, off) == []
