"""Claims and templates under a policy: who is judged, how far its word goes, and what people try to get around it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import (
    DRIVER,
    KEY,
    NOW,
    make_admission_request,
    make_alternatives,
    make_claim,
    make_context,
    make_flat_request,
    make_meta,
    make_request,
    make_template,
    make_toleration,
)
from tests.costs import calls_of
from tests.tables import table
from tests.unit.policy.documents import judge_of, make_entry, make_exception
from webhook.admission.chain import mutate, validate
from webhook.admission.claim_view import REQUESTED_BY, SCHEDULER, annotation_of
from webhook.admission.context import Budget, OutOfTime
from webhook.admission.decision import Difference, apply_patch
from webhook.admission.policy_check import differences
from webhook.admission.rulings import Ruling
from webhook.api.claims import EXTENDED_RESOURCE
from webhook.api.field import Path
from webhook.api.taints import EXISTS, DeviceToleration
from webhook.policy.evaluation import Evaluation
from webhook.policy.match import KnownNames, Requester, Scope, Target
from webhook.policy.model import CLAIM_CONTROLLER

if TYPE_CHECKING:
    from webhook.admission.decision import Decision

# The documentation and earlier policies rely on these numbers, so they are written out.
LIST_MAX = 64
OBJECT_MAX = 1024
MAX_FINDINGS = 1000

NAMES = KnownNames({"ml": {"team": "ml"}}, {DRIVER: frozenset({DRIVER})})
NO_XID = make_entry("no-xid", "deny", {"tolerations": {"keys": [KEY]}})
XID = make_toleration()
PATH = "spec.devices.requests[0].exactly.tolerations[0]"


def judged(
    manifest: Any, *rules: Any, old: Any = None, user: str = "jane", candidate: Any = None, **fields: Any
) -> Decision:
    """The verdict of /validate under a policy with these rules; names are known."""
    groups, unproved, offline = fields.pop("groups", ()), fields.pop("unproved", ""), fields.pop("offline", False)
    options = {"judge": judge_of(*rules, **fields), "names": NAMES, "authors_unproved": unproved, "offline": offline}
    if candidate is not None:
        options["candidate"] = judge_of(*candidate)
    return validate(make_admission_request(manifest, old, user=user, groups=groups), make_context(**options))


def rules_of(decision: Decision) -> list[tuple[str, str | None]]:
    return [(finding.severity.value, finding.rule) for finding in decision.findings if finding.policy]


def annotated(claim: Any, annotation: str | None) -> Any:
    meta = make_meta("made", namespace="ml", annotations={} if annotation is None else {REQUESTED_BY: annotation})
    return {**claim, "metadata": meta}


def made_from_template_of(author: str, tolerations: Any = (XID,), *groups: str) -> Any:
    """A claim as the controller makes it from a template of that author."""
    return annotated(make_claim(tolerations), annotation_of(Requester(author, groups)))


# --- refusals -----------------------------------------------------------------------------------


def test_refusal_is_forbidden_and_names_rule_path_and_way_out() -> None:
    decision = judged(make_claim([XID]), NO_XID)
    assert (decision.code, rules_of(decision)) == (403, [("deny", "no-xid")])
    [error] = decision.errors
    assert str(error) == (
        f'{PATH}: Forbidden: "jane" in namespace "ml" may not use a toleration of key "{KEY}", NoSchedule; '
        "ask for less, or your cluster's admins for an exception"
    )
    assert decision.annotations["decision"] == "denied"
    assert decision.annotations["rules"] == "no-xid"
    assert len(decision.annotations["policy-hash"]) == 12


def test_all_that_is_refused_is_told_at_once() -> None:
    claim = make_claim(requests=[make_request("a", [XID]), make_alternatives([XID], [XID], name="b")])
    decision = judged(claim, NO_XID)
    assert [str(error.path) for error in decision.errors] == [
        "spec.devices.requests[0].exactly.tolerations[0]",
        "spec.devices.requests[1].firstAvailable[0].tolerations[0]",
        "spec.devices.requests[1].firstAvailable[1].tolerations[0]",
    ]


def test_update_of_what_is_stored_is_only_told() -> None:
    claim = make_claim([XID])
    assert rules_of(judged(claim, NO_XID, old=claim)) == [("warn", "no-xid")]


def test_claim_that_is_allowed_is_counted_and_noted_for_audit_if_a_rule_allows_it() -> None:
    decision = judged(make_claim([XID]), make_entry("quiet", "deny", {"deviceClasses": ["nic"]}))
    assert (decision.findings, decision.annotations, decision.hits) == ((), {}, (("default", "allow"),))
    decision = judged(make_claim([XID]), make_entry("fine", "allow"))
    assert decision.findings == ()
    assert (decision.annotations["decision"], decision.annotations["rules"]) == ("allowed", "fine")


# --- ways around --------------------------------------------------------------------------------

BYPASSES = {
    "as many harmless tolerations before it as are judged": make_claim(
        [*(make_toleration(key=f"k{number}") for number in range(LIST_MAX - 1)), XID]
    ),
    "as many harmless requests before it as are judged": make_claim(
        requests=[
            *(make_request(f"r{number}", [make_toleration(key="k")]) for number in range(OBJECT_MAX - 1)),
            make_request("x", [XID]),
        ]
    ),
    "no key": make_claim([make_toleration(key=None)]),
    "no key and no operator": make_claim([make_toleration(key=None, operator=None)]),
    "an empty key": make_claim([make_toleration(key="")]),
    "a null effect": make_claim([{"key": KEY, "operator": "Exists", "effect": None}]),
    "null beside it in the list": make_claim([None, XID]),
    "a template": make_template([XID]),
    "an alternative": make_claim(requests=[make_alternatives([], [XID])]),
    "an alternative beside an exact request": make_claim(requests=[{**make_request(), **make_alternatives([XID])}]),
    "a null exact request beside a flat one": make_claim(
        requests=[{**make_flat_request(tolerations=[XID]), "exactly": None}]
    ),
    "a flat request in v1": make_claim(requests=[make_flat_request(tolerations=[XID])]),
    "a flat request in v1beta1": make_claim([XID], version="v1beta1"),
    "a null admin access": make_claim(requests=[make_request(tolerations=[XID], adminAccess=None)]),
    "the scheduler's annotation": make_claim(
        [XID], meta=make_meta("c", namespace="ml", annotations={EXTENDED_RESOURCE: "true"})
    ),
    "an annotation that names somebody else": annotated(make_claim([XID]), '{"username":"admin","mac":"x"}'),
    "the annotation of somebody who may": made_from_template_of("admin"),
    "a generated name": make_claim([XID], meta={"generateName": "c-", "namespace": "ml"}),
}


@pytest.mark.parametrize("manifest", BYPASSES.values(), ids=BYPASSES.keys())
def test_way_around_a_rule_is_closed(manifest: Any) -> None:
    everybody_but = make_entry("admins-may", "allow", {"requesters": {"users": ["admin"]}})
    decision = judged(manifest, everybody_but, NO_XID, documentedRules="off")
    assert ("deny", "no-xid") in rules_of(decision)
    assert decision.code == 403


USERS = {
    "a user named nearly like the controller": f"{CLAIM_CONTROLLER}x",
    "the controller of another namespace": CLAIM_CONTROLLER.replace("kube-system", "ml"),
    "the controller in capitals": CLAIM_CONTROLLER.upper(),
    "a user named nearly like the scheduler": "kube-scheduler",
    "a user without a name": "",
    "a user with a line break": "admin\n",
    "a user with a star": "*",
}


@pytest.mark.parametrize("user", USERS.values(), ids=USERS.keys())
def test_nobody_is_taken_for_somebody_else(user: str) -> None:
    trusted = make_entry(
        "admins-may", "allow", {"requesters": {"users": ["admin"], "serviceAccounts": ["kube-system/a*"]}}
    )
    claim = made_from_template_of("admin")
    claim["metadata"]["annotations"][EXTENDED_RESOURCE] = "true"
    decision = judged(claim, trusted, NO_XID, user=user)
    assert ("deny", "no-xid") in rules_of(decision)


def test_refusal_is_not_lost_among_warnings() -> None:
    warned = make_entry("told", "warn")
    lists = [[make_toleration(key=f"k{at}x{number}") for number in range(LIST_MAX)] for at in range(16)]
    lists[-1][-1] = XID
    claim = make_claim(requests=[make_request(f"r{at}", tolerations) for at, tolerations in enumerate(lists)])
    decision = judged(claim, warned, NO_XID, documentedRules="off")
    assert [finding.rule for finding in decision.denials] == ["no-xid"]
    assert len([finding for finding in decision.findings if finding.policy]) == MAX_FINDINGS


@table(
    "fields, refused",
    {
        "four devices": ({"count": 4}, False),
        "five devices": ({"count": 5}, True),
        "one device, unsaid": ({}, False),
        "all devices, which are more than any number": ({"allocationMode": "All"}, True),
        "all devices and a number": ({"allocationMode": "All", "count": 1}, True),
        "a mode that nobody knows": ({"allocationMode": "Some"}, True),
        "an empty mode, for which servers fill in the default": ({"allocationMode": ""}, False),
        "an empty mode and five devices": ({"allocationMode": "", "count": 5}, True),
    },
)
def test_few_devices_are_few(fields: Any, *, refused: bool) -> None:
    few = make_entry("few", "allow", {"when": "request.count <= 4"})
    claim = make_claim(requests=[make_request(tolerations=[XID], **fields)])
    assert judged(claim, few, default="deny").allowed is not refused
    many = make_entry("many", "deny", {"when": "request.count > 4"})
    assert judged(claim, many).allowed is not refused


@pytest.mark.parametrize("count", [0, None, "2"])
def test_count_that_is_none_is_one_as_servers_fill_it_in(count: Any) -> None:
    claim = make_claim(requests=[make_request(tolerations=[XID], count=count)])
    assert judged(claim, make_entry("one", "allow", {"when": "request.count == 1"}), default="deny").allowed


# --- claims that are made from templates --------------------------------------------------------

ADMINS_MAY = make_entry("admins-may", "allow", {"requesters": {"users": ["admin"]}})


def generated(claim: Any, *rules: Any, **fields: Any) -> list[tuple[str, str | None]]:
    return rules_of(judged(claim, *(rules or (ADMINS_MAY, NO_XID)), user=CLAIM_CONTROLLER, **fields))


def test_generated_claim_is_judged_as_its_author_and_only_warned_of_unless_told_otherwise() -> None:
    assert generated(made_from_template_of("admin"), generatedClaims="enforce") == []
    assert generated(made_from_template_of("joe"), generatedClaims="enforce") == [("deny", "no-xid")]
    assert generated(made_from_template_of("joe")) == [("warn", "no-xid")]
    decision = judged(made_from_template_of("joe"), NO_XID, user=CLAIM_CONTROLLER, generatedClaims="enforce")
    assert '"joe" in namespace "ml" may not use' in str(decision.errors[0])


def test_expression_sees_the_requester_and_fails_where_it_is_unknown() -> None:
    asks = make_entry("asks", "deny", {"when": "requester.username == 'jane'"})
    assert rules_of(judged(make_claim([XID]), asks, user="jane")) == [("deny", "asks")]
    assert judged(make_claim([XID]), asks, user="bob").allowed
    unknown = judged(annotated(make_claim([XID]), None), asks, user=CLAIM_CONTROLLER, generatedClaims="enforce")
    assert ("deny", "asks") in rules_of(unknown)
    assert any("could not be evaluated" in error.detail for error in unknown.errors)


@table(
    "word, expected",
    {
        "allow does not judge it": ("allow", []),
        "warn judges an unknown author": ("warn", [("warn", "unknownAuthor"), ("deny", "no-xid")]),
        "deny refuses it": ("deny", [("deny", "unknownAuthor"), ("deny", "no-xid")]),
    },
)
def test_generated_claim_of_an_unknown_author(word: str, expected: list[Any]) -> None:
    claim = annotated(make_claim([XID]), '{"username":"admin","mac":"\u00e9"}')
    assert generated(claim, unknownAuthor=word, generatedClaims="enforce") == expected


@pytest.mark.parametrize("word", ["warn", "deny"])
def test_no_author_is_known_while_api_servers_prove_none(word: str) -> None:
    claim = made_from_template_of("admin")
    fields: dict[str, Any] = {"unknownAuthor": word, "unproved": "the policy is gone", "generatedClaims": "enforce"}
    decision = judged(claim, ADMINS_MAY, NO_XID, user=CLAIM_CONTROLLER, **fields)
    assert rules_of(decision) == [(word, "unknownAuthor"), ("deny", "no-xid")]
    assert "does not prove who wrote the claim's template: the policy is gone" in str(decision.findings[0].error)


def test_generated_claim_without_tolerations_needs_no_author() -> None:
    assert generated(make_claim(), unknownAuthor="deny", generatedClaims="enforce") == []


def test_rules_on_requests_hold_for_unknown_authors_too() -> None:
    no_admin = {**make_entry("no-admin", "deny", {"adminAccess": True}), "subject": "request"}
    claim = make_claim(requests=[make_request(adminAccess=True)])
    assert generated(claim, no_admin, generatedClaims="enforce") == [("deny", "no-admin")]
    assert generated(claim, no_admin, generatedClaims="enforce", unknownAuthor="allow") == []


def test_update_of_a_generated_claim_is_refused_by_nothing() -> None:
    claim = make_claim([XID])
    found = generated(claim, old=claim, unknownAuthor="deny", generatedClaims="enforce")
    assert found == [("warn", "unknownAuthor"), ("warn", "no-xid")]


def test_controllers_of_ones_own_can_be_trusted() -> None:
    claim = made_from_template_of("admin")
    trusting: dict[str, Any] = {"trustedControllers": ["jane", CLAIM_CONTROLLER], "generatedClaims": "enforce"}
    assert rules_of(judged(claim, ADMINS_MAY, NO_XID, **trusting)) == []
    assert rules_of(judged(claim, ADMINS_MAY, NO_XID, user="joe", **trusting)) == [("deny", "no-xid")]


def test_claim_of_the_scheduler_for_an_extended_resource_is_left_alone() -> None:
    meta = make_meta("c", namespace="ml", annotations={EXTENDED_RESOURCE: "true"})
    claim = make_claim([XID], meta=meta)
    assert rules_of(judged(claim, NO_XID, user=SCHEDULER)) == []
    assert rules_of(judged(make_claim([XID]), NO_XID, user=SCHEDULER)) == [("deny", "no-xid")]
    assert rules_of(judged({**claim, "metadata": {**meta, "annotations": {EXTENDED_RESOURCE: "True"}}}, NO_XID)) == [
        ("deny", "no-xid")
    ]


# --- templates ----------------------------------------------------------------------------------


def authorship(annotation: str | None, *rules: Any, **fields: Any) -> list[tuple[str, str | None]]:
    template = make_template([make_toleration("x.io/harmless")])
    if annotation is not None:
        template["spec"]["metadata"] = {"annotations": {REQUESTED_BY: annotation}}
    return rules_of(judged(template, *rules, **fields))


def test_template_that_names_somebody_else_is_refused() -> None:
    somebody = json.dumps({"username": "admin", "groups": ["system:masters"]})
    assert authorship(somebody) == [("deny", "requestedBy")]
    assert authorship(somebody, mode="warn") == [("warn", "requestedBy")]
    assert authorship(somebody, mode="off") == []


@pytest.mark.parametrize(
    "annotation",
    [
        "",
        "{}",
        '{"username":"jane"}',
        '{"username":"jane","groups":["dev","ops"]}',
        '{"username":"jane","groups":["ops","dev"]}',
        '{"username":"jane","groups":["dev"],"groupsTruncated":true}',
        '{"username":"jane","groups":["dev"],"nonce":"1","mac":"1"}',
    ],
)
def test_template_with_any_other_text_is_refused(annotation: str) -> None:
    assert authorship(annotation, groups=["dev"]) == [("deny", "requestedBy")]
    assert authorship(annotation, NO_XID, groups=["dev"]) == [("deny", "requestedBy")]


@pytest.mark.parametrize(
    "annotation", ['{"username":"jane","groups":["dev"]}', '{"username":"jane","groupsTruncated":true}']
)
def test_template_with_a_text_of_its_sender_is_fine(annotation: str) -> None:
    assert authorship(annotation, NO_XID, groups=["dev"], unproved="the policy is gone") == []


def test_template_without_author_is_warned_of_where_rules_ask_for_authors_unless_it_is_in_a_file_or_stored() -> None:
    assert authorship(None, NO_XID) == [("warn", "requestedBy")]
    assert authorship(None, unknownAuthor="deny") == [("warn", "requestedBy")]
    assert authorship(None) == []
    for annotation in (None, '{"username":"admin"}'):
        assert authorship(annotation, NO_XID, offline=True) == []
    template = make_template(meta=make_meta("t", namespace="ml", resourceVersion="7"))
    assert judged(template, NO_XID, old=template).findings == ()


def test_names_with_control_characters_are_told_why() -> None:
    template = make_template([make_toleration("x.io/harmless")])
    (missing,) = judged(template, NO_XID, user="ja\nne").findings
    assert "is missing, because a name of the requester has control characters; claims made" in str(missing.error)
    template["spec"]["metadata"] = {"annotations": {REQUESTED_BY: "x"}}
    (refused,) = judged(template, groups=["\x1f"]).findings
    assert "must be left out: a name of the requester has control characters" in str(refused.error)


def test_template_as_mutate_leaves_it_is_fine() -> None:
    template = make_template([make_toleration("x.io/harmless")])
    request = make_admission_request(template, user="jane", groups=("dev",))
    patched = apply_patch(template, mutate(request, make_context()).patch)
    assert rules_of(judged(patched, NO_XID, groups=("dev",))) == []
    assert rules_of(judged(patched, NO_XID, groups=("ops",))) == [("deny", "requestedBy")]
    assert rules_of(judged(patched, NO_XID, user="joe", groups=("dev",))) == [("deny", "requestedBy")]


# --- candidates ---------------------------------------------------------------------------------


def test_candidate_tells_what_it_would_change_and_changes_nothing() -> None:
    decision = judged(make_claim([XID]), candidate=[NO_XID])
    assert (decision.allowed, decision.findings) == (True, ())
    assert [(each.path, each.rule, each.change) for each in decision.differences] == [(PATH, "no-xid", "denied")]


def test_candidate_without_rules_lets_through_what_is_refused_now() -> None:
    decision = judged(make_claim([XID]), NO_XID, candidate=[])
    assert not decision.allowed
    assert [(each.rule, each.change) for each in decision.differences] == [("no-xid", "allowed")]


def test_exception_that_ends_soon_is_told_once_a_toleration() -> None:
    rules = [NO_XID, make_entry("no-gpus", "deny", {"drivers": [DRIVER]})]
    soon = make_exception("until-friday", ["no-xid", "no-gpus"], expiresAt="2026-06-05T00:00:00Z")
    later = {**soon, "expiresAt": "2026-07-05T00:00:00Z"}
    decision = judged(make_claim([XID]), *rules, exceptions=[soon])
    assert rules_of(decision) == [("warn", "until-friday")]
    assert "until 2026-06-05T00:00:00Z only; rule no-xid" in decision.warnings[0]
    assert rules_of(judged(make_claim([XID]), *rules, exceptions=[later])) == []
    assert ("until-friday", "allow") in decision.hits


# --- what expressions cost ----------------------------------------------------------------------

ASKING = [make_entry(f"asks-{number}", "deny", {"when": f"toleration.key == 'k{number}'"}) for number in range(100)]


def test_labels_of_a_claim_are_read_once_however_many_rules_ask() -> None:
    """F5: they were read for each rule and toleration."""
    judge = judge_of(*ASKING)

    def calls_with(labels: int) -> int:
        meta = make_meta(namespace="ml", labels={f"l{number}": "v" for number in range(labels)})
        claim = make_claim([make_toleration(key=f"a{number}") for number in range(16)], meta=meta)
        return calls_of(
            lambda request: validate(request, make_context(judge=judge)), lambda: make_admission_request(claim)
        )

    assert calls_with(64) - calls_with(0) < 64 * 16


def test_time_may_run_out_between_two_rules() -> None:
    """F5: one toleration may meet a thousand expressions."""
    asked = iter(range(1_000_000))
    budget = Budget(50.0, lambda: float(next(asked)))
    context = make_context(judge=judge_of(*ASKING), budget=budget)
    with pytest.raises(OutOfTime, match="policy"):
        validate(make_admission_request(make_claim([make_toleration()])), context)


def test_findings_that_are_not_reported_are_not_put_together() -> None:
    """F5: 400 tolerations under 100 warnings are 40,000 texts, of which a thousand are reported."""
    rules = [make_entry(f"warns-{number}", "warn") for number in range(100)]
    refusal = make_entry("refuses", "deny", {"tolerations": {"keys": ["last"]}})
    keys = [*(f"a{number}" for number in range(15)), "last"]
    requests = [make_request(f"q{at}", [make_toleration(key=key) for key in keys]) for at in range(25)]
    decision = judged(make_claim(requests=requests), *rules, refusal)
    found = rules_of(decision)
    assert len(found) == MAX_FINDINGS
    assert found[:25] == [("deny", "refuses")] * 25
    assert found[25:27] == [("warn", "warns-0"), ("warn", "warns-1")]


# --- differences of a candidate -----------------------------------------------------------------------

AT = Path.root().child("spec")


def ruling(*rules: Any, path: Path = AT, what: str = "it", **fields: Any) -> Ruling:
    hits = judge_of(*rules, **fields).on_toleration(
        Scope(None, "ml", None), Target("gpu", None, admin_access=False), DeviceToleration("a", EXISTS), NOW, dict
    )
    return Ruling(Evaluation.of(hits), lambda: path, lambda: what)


QUIET = ruling()
DENIED = ruling(make_entry("denies", "deny"))
WARNED = ruling(make_entry("warns", "warn"))
NOTED = ruling(make_entry("notes", "audit"))
ALLOWED = ruling(make_entry("allows", "allow"))
WARNED_AND_DENIED = ruling(make_entry("warns", "warn"), make_entry("denies", "deny"))
EXCUSED = ruling(make_entry("denies", "deny"), exceptions=[make_exception("excused", ["denies"])])


@table(
    "active, candidate, expected",
    {
        "the candidate refuses": (QUIET, DENIED, ("denies", "denied")),
        "the candidate refuses what a rule allows": (ALLOWED, DENIED, ("denies", "denied")),
        "the candidate refuses what was warned of": (WARNED, WARNED_AND_DENIED, ("denies", "denied")),
        "the candidate allows": (DENIED, QUIET, ("denies", "allowed")),
        "the candidate has an exception": (DENIED, EXCUSED, ("denies", "allowed")),
        "the candidate only warns": (DENIED, WARNED, ("denies", "allowed")),
        "the candidate warns": (QUIET, WARNED, ("warns", "warned")),
        "the candidate only notes": (WARNED, NOTED, ("warns", "silent")),
        "a note is shown to no one": (QUIET, NOTED, None),
        "both allow": (QUIET, ALLOWED, None),
        "both refuse": (DENIED, WARNED_AND_DENIED, None),
        "an exception allows": (QUIET, EXCUSED, None),
    },
)
def test_difference_is_told_by_the_rule_that_makes_it(active: Ruling, candidate: Ruling, expected: Any) -> None:
    found = list(differences([active], [candidate]))
    assert [(each.rule, each.change) for each in found] == ([] if expected is None else [expected])


def test_what_only_one_of_them_speaks_of_was_allowed_by_the_other() -> None:
    assert list(differences([], [DENIED])) == [Difference("spec", "it", "denies", "denied")]  # type: ignore[arg-type]
    assert list(differences([DENIED], [])) == [Difference("spec", "it", "denies", "allowed")]  # type: ignore[arg-type]


def test_each_thing_is_compared_with_itself() -> None:
    elsewhere = ruling(make_entry("denies", "deny"), path=AT.index(1))
    other = ruling(make_entry("denies", "deny"), what="another")
    assert list(differences([DENIED, elsewhere, other], [other, elsewhere, DENIED])) == []
    assert [each.path for each in differences([DENIED], [elsewhere])] == ["spec", "spec[1]"]


def test_what_they_agree_on_is_passed_over() -> None:
    second, third = (ruling(make_entry("denies", "deny"), path=AT.index(at)) for at in (1, 2))
    assert [each.path for each in differences([DENIED], [DENIED, second, third])] == ["spec[1]", "spec[2]"]


@pytest.mark.parametrize(("count", "remembered"), [(1, True), (64, True), (65, False)])
def test_decision_with_up_to_64_hits_is_remembered(count: int, *, remembered: bool) -> None:
    tolerations = [make_toleration(f"x.io/k{number}") for number in range(count)]
    requests = [make_request(f"r{at}", tolerations[at : at + 16]) for at in range(0, count, 16)]
    context = make_context(judge=judge_of(make_entry("no-other", "deny", {"tolerations": {"keys": ["other"]}})))
    first, again = (validate(make_admission_request(make_claim(requests=requests)), context) for _ in range(2))
    assert first == again
    assert (len(first.hits), first.findings) == (count, ())
    assert (first is again) is remembered


# --- exceptions in their last week ----------------------------------------------------------------

SOON = "2026-06-03T00:00:00Z"


@table(
    "action, fields, ends, told",
    {
        "a week before": ("deny", {}, "2026-06-08T12:00:00Z", True),
        "a second earlier": ("deny", {}, "2026-06-08T12:00:01Z", False),
        "a rule that warns": ("warn", {}, SOON, False),
        "one that audits": ("audit", {}, SOON, False),
        "in mode warn": ("deny", {"mode": "warn"}, SOON, False),
        "what the default denies all the same": ("deny", {"default": "deny"}, SOON, False),
    },
)
def test_an_exception_that_ends_soon_is_told_where_it_keeps_a_rule_from_refusing(
    action: str, fields: Any, ends: str, *, told: bool
) -> None:
    rule = make_entry("r", action, {"tolerations": {"keys": [KEY]}})
    decision = judged(make_claim([XID]), rule, exceptions=[make_exception("soon", ["r"], expiresAt=ends)], **fields)
    text = f"allowed by an exception until {ends} only; rule r will refuse it then"
    found = [finding.error.detail for finding in decision.findings if finding.rule == "soon"]
    assert found == ([text] if told else [])
    assert decision.allowed is ("default" not in fields)
