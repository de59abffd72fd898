"""Default tolerations as MutatingAdmissionPolicies: which entries are exported, and why others are not.

What they add is compared with the webhook on a real API server (tests/apiserver/fallbacks/test_defaults.py).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings

from tests.properties.policies import manifest_of, tolerations
from tests.unit.policy.cel import evaluated
from tests.unit.policy.documents import make_defaults, make_entry, make_exception, policy_of
from webhook.admission.author import REQUESTED_BY as AUTHOR
from webhook.admission.claim_view import DEFAULTED as NOTE
from webhook.api.taints import EXISTS, DeviceToleration
from webhook.policy.defaults import overlap, rendered
from webhook.policy.model import DefaultTolerations, Match, Policy
from webhook.policy.vap.default_tolerations import REQUESTED_BY, DefaultsExport, export_defaults
from webhook.policy.vap.export import Coverage
from webhook.policy.vap.fallback import MUTATING_NAMES, export_fallback
from webhook.policy.vap.put_back import DEFAULTED

WAIT: Final = {"key": "maint", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
SAME: Final = {"key": "maint", "operator": "Equal", "value": "x", "effect": "NoExecute"}
OTHER: Final = {"key": "other", "operator": "Exists"}
DRIVERS: Final = {"drivers": ["gpu.example.com"]}


def exported(*entries: Any, rules: Any = (), **fields: Any) -> DefaultsExport:
    return export_defaults(policy_of(rules=list(rules), defaultTolerations=list(entries), **fields))


def entry(name: str, toleration: Any, **match: Any) -> Any:
    made = make_defaults(name, **toleration)
    return {**made, "match": match} if match else made


def of_one(toleration: DeviceToleration, match: Match | None = None) -> DefaultsExport:
    return export_defaults(Policy(default_tolerations=(DefaultTolerations("one", (toleration,), match or Match()),)))


def variables(made: DefaultsExport) -> dict[str, str]:
    """Of the policy that adds."""
    return {each["name"]: each["expression"] for each in made.objects[0]["spec"]["variables"]}


def added(made: DefaultsExport) -> str:
    """The variable with what is added, as a text."""
    return variables(made)["defaults"] if made.objects else ""


def test_annotations_are_those_of_the_webhook() -> None:
    assert (DEFAULTED, REQUESTED_BY) == (NOTE, AUTHOR)


def test_two_policies_add_and_put_back() -> None:
    made = exported(entry("wait", WAIT))
    assert [(each["kind"], each["metadata"]["name"]) for each in made.objects] == [
        (kind, name)
        for name in MUTATING_NAMES
        for kind in ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
    ]
    adding, keeping = made.objects[0]["spec"], made.objects[2]["spec"]
    assert [each["matchConstraints"]["resourceRules"][0]["operations"] for each in (adding, keeping)] == [
        ["CREATE"],
        ["UPDATE"],
    ]
    assert {each["failurePolicy"] for each in (adding, keeping)} == {"Ignore"}
    assert made.entries == (made.entries[0]._replace(name="defaultTolerations wait", coverage=Coverage.FULL),)


def test_without_entries_there_is_nothing() -> None:
    assert exported() == DefaultsExport()
    assert exported(entry("vague", WAIT, **DRIVERS)).objects == ()


@pytest.mark.parametrize(
    ("entries", "fields", "coverages", "why"),
    [
        pytest.param(
            [entry("a", WAIT, **DRIVERS)], {}, ["none"], "only the webhook can judge its drivers", id="drivers"
        ),
        pytest.param(
            [entry("a", WAIT, when="request.count > 1")], {}, ["none"], "only the webhook can judge its when", id="when"
        ),
        pytest.param(
            [entry("a", WAIT, **DRIVERS), entry("b", SAME), entry("c", OTHER)],
            {},
            ["none", "none", "full"],
            "one before it, for the same taints, is left to the webhook",
            id="what overlaps with what is left out",
        ),
        pytest.param(
            [entry("a", WAIT)],
            {"rules": [make_entry("no", "deny", DRIVERS)]},
            ["none"],
            'only the webhook can judge drivers of rule "no"',
            id="a rule that may deny it everywhere",
        ),
        pytest.param(
            [entry("a", WAIT)],
            {"rules": [make_entry("no", "deny", {**DRIVERS, "deviceClasses": ["nic"]})]},
            ["partial"],
            'only the webhook can judge drivers of rule "no"',
            id="a rule that may deny it somewhere",
        ),
        pytest.param(
            [entry("a", WAIT)],
            {
                "rules": [make_entry("no", "deny", {"deviceClasses": ["nic"]})],
                "exceptions": [make_exception("but", ["no"])],
            },
            ["partial"],
            'only the webhook knows when exception "but" holds',
            id="an exception",
        ),
        pytest.param(
            [entry("a", WAIT)],
            {"default": "deny", "rules": [make_entry("ok", "allow", DRIVERS)]},
            ["none"],
            'only the webhook can judge drivers of rule "ok"',
            id="what may allow it",
        ),
    ],
)
def test_what_only_the_webhook_can_judge_is_left_to_it(
    entries: Any, fields: Any, coverages: list[str], why: str
) -> None:
    made = exported(*entries, **fields)
    assert [each.coverage.value for each in made.entries] == coverages
    assert any(why in text for each in made.entries for text in each.why)
    assert added(made).count("maint") == coverages.count("partial")


@pytest.mark.parametrize(
    ("rules", "where"),
    [
        (
            [make_entry("no", "deny", {"requesters": {"users": ["jane"]}})],
            '!(variables.generated || request.userInfo.username == "jane")',
        ),
        (
            [make_entry("no", "deny", {"requesters": {"groups": ["ops"]}})],
            (
                "!(variables.generated || (has(request.userInfo.groups) && "
                'request.userInfo.groups.exists(group, group == "ops")))'
            ),
        ),
        (
            [make_entry("no", "deny", {"requesters": {"serviceAccounts": ["ci/runner"]}})],
            '!(variables.generated || (variables.account != "" && variables.account == "ci/runner"))',
        ),
        (
            [
                make_entry("ok", "allow", {"requesters": {"users": ["jane"]}}),
                make_entry("no", "deny", {"deviceClasses": ["nic"]}),
            ],
            '!(asked.deviceClassName == "nic" && !(!variables.generated && request.userInfo.username == "jane"))',
        ),
    ],
    ids=["what refuses refuses them", "also by group", "also by account", "what allows does not allow them"],
)
def test_claims_from_templates_whose_author_is_not_known_are_given_nothing_that_may_be_refused(
    rules: Any, where: str
) -> None:
    made = exported(entry("wait", WAIT), rules=rules)
    assert where in str(made.objects[0]["spec"]["variables"])


def test_seconds_that_cel_would_turn_into_a_text_are_left_to_the_webhook() -> None:
    entries = [
        DefaultTolerations(f"{seconds}", (DeviceToleration("maint", EXISTS, "", "NoExecute", seconds),))
        for seconds in (2**53, 2**53 + 1)
    ]
    made = [export_defaults(Policy(default_tolerations=(each,))).entries[0] for each in entries]
    assert [each.coverage.value for each in made] == ["full", "none"]
    assert made[1].why == ("tolerationSeconds is too large for CEL",)


@pytest.mark.parametrize(
    "rules",
    [
        [make_entry("xid", "deny", {"tolerations": {"keys": ["xid"]}, **DRIVERS})],
        [make_entry("long", "deny", {"tolerations": {"seconds": {"above": 300}}, **DRIVERS})],
        [make_entry("told", "warn", DRIVERS)],
        [make_entry("ok", "allow", {"deviceClasses": ["*"]}), make_entry("no", "deny", {"deviceClasses": ["nic"]})],
    ],
)
def test_rules_that_do_not_concern_it_keep_nothing_back(rules: Any) -> None:
    made = exported(entry("wait", WAIT), rules=rules)
    assert [each.coverage for each in made.entries] == [Coverage.FULL]
    assert "maint" in added(made)


def test_what_the_policy_refuses_for_certain_is_no_gap() -> None:
    made = exported(
        entry("wait", WAIT),
        entry("other", OTHER),
        rules=[make_entry("no", "deny", {"tolerations": {"keys": ["maint"]}})],
    )
    assert [(each.coverage.value, each.why) for each in made.entries] == [("full", ()), ("full", ())]
    assert "maint" not in added(made)


def test_requesters_are_unknown_for_claims_made_from_templates() -> None:
    made = exported(entry("wait", WAIT, requesters={"users": ["*"]}))
    assert "!variables.generated" in variables(made)["added1"]


def test_claims_without_an_author_get_nothing_where_they_would_be_refused_for_it() -> None:
    names = [
        [
            each["name"]
            for each in exported(entry("wait", WAIT), unknownAuthor=mode).objects[0]["spec"]["matchConditions"]
        ]
        for mode in ("warn", "deny")
    ]
    assert [("not-of-an-unknown-author" in each) for each in names] == [False, True]
    assert all("not-of-a-signed-author" in each for each in names)


def test_so_many_that_cel_would_cost_too_much_are_exported_in_part() -> None:
    entries = [entry(f"e{number}", {**OTHER, "key": f"k{number}"}) for number in range(90)]
    coverages = [each.coverage for each in exported(*entries).entries]
    assert coverages[:5] == [Coverage.FULL] * 5
    assert coverages[-1] is Coverage.NONE
    assert sorted(coverages, key=[Coverage.FULL, Coverage.NONE].index) == coverages


@pytest.mark.parametrize(("classes", "coverage"), [(71, Coverage.FULL), (72, Coverage.NONE)])
def test_entries_are_exported_until_one_of_them_would_cost_too_much(classes: int, coverage: Coverage) -> None:
    """All may cost 8,000,000, which are 15,625 parts of 512: each of 69 costs 225 of them, and 71 classes the rest."""
    entries = [entry(f"e{number}", {**OTHER, "key": f"k{number}"}) for number in range(69)]
    last = entry("last", {"operator": EXISTS}, deviceClasses=[f"c{number}" for number in range(classes)])
    coverages = [each.coverage for each in exported(*entries, last).entries]
    assert coverages == [Coverage.FULL] * 69 + [coverage]


@pytest.mark.parametrize(
    ("classes", "found"),
    [(3486, (Coverage.FULL, ())), (3487, (Coverage.NONE, ("CEL would cost too much",)))],
)
def test_entry_that_costs_too_much_alone_is_left_to_the_webhook(classes: int, found: Any) -> None:
    """It may cost 900,000, which are 3515 parts of 256 and a rest. Each class costs one of them, the other words 29."""
    match = Match(device_classes=tuple(f"c{number}" for number in range(classes)))
    (made,) = of_one(DeviceToleration("", EXISTS), match).entries
    assert (made.coverage, made.why) == found


# --- what is added ------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(tolerations, tolerations)
def test_what_is_added_is_kept_from_requests_that_tolerate_one_of_its_taints(
    toleration: DeviceToleration, present: DeviceToleration
) -> None:
    found = re.search(r"\.exists\(t, (.*)\) && size\(", variables(of_one(toleration))["added1"])
    assert found is not None
    assert evaluated(found[1], t=manifest_of(present)) is overlap(toleration, present)


@pytest.mark.parametrize(
    ("entries", "earlier"),
    [
        pytest.param([WAIT, OTHER], [None, None], id="nothing in common"),
        pytest.param([WAIT, SAME], [None, "0"], id="a taint in common"),
        pytest.param([WAIT, OTHER, {"operator": EXISTS}], [None, None, "0, 1"], id="taints of both in common"),
        pytest.param([OTHER, WAIT, SAME], [None, None, "1"], id="a taint of the second"),
    ],
)
def test_what_is_added_is_kept_from_requests_that_were_given_a_like_one_before(
    entries: Any, earlier: list[str | None]
) -> None:
    made = variables(exported(*(entry(f"e{number}", each) for number, each in enumerate(entries))))
    assert len([name for name in made if re.fullmatch(r"added\d+", name)]) == len(entries) + 1
    for number, others in enumerate(earlier):
        text = made[f"added{number + 1}"]
        assert ("exists(other," in text) is (others is not None)
        assert others is None or f"!variables.added{number}[i][k].exists(other, other in [{others}])" in text


def test_what_is_added_is_a_toleration_in_cel_and_noted_as_the_webhook_does() -> None:
    toleration = DeviceToleration("maint", "Equal", "größe", "NoExecute", 300)
    made = variables(of_one(toleration))
    assert made["defaults"] == (
        '[{"key": dyn("maint"), "operator": dyn("Equal"), "value": dyn("größe"), "effect": dyn("NoExecute"), '
        '"tolerationSeconds": dyn(300)}]'
    )
    written = msgspec.json.Encoder(order="deterministic").encode(rendered(toleration)).decode()
    assert json.loads(made["texts"]) == [written]


def test_version_and_namespace_are_the_clusters() -> None:
    policy = policy_of(defaultTolerations=[entry("wait", WAIT)])
    made = export_defaults(policy, namespace="mine", version="v1beta1")
    assert {each["apiVersion"] for each in made.objects} == {"admissionregistration.k8s.io/v1beta1"}
    assert made.objects[0]["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"][0]["values"] == [
        "mine",
        "kube-system",
    ]


def test_variables_are_there_before_they_are_used() -> None:
    for obj in exported(entry("wait", WAIT), entry("same", SAME)).objects:
        known: set[str] = set()
        for each in obj["spec"].get("variables", ()):
            assert set(re.findall(r"variables\.(\w+)", each["expression"])) <= known, each["name"]
            known.add(each["name"])


def test_export_of_everything_has_them_where_they_are_served() -> None:
    policy = policy_of(defaultTolerations=[entry("wait", WAIT)])
    without, both = export_fallback(policy, mutating_version=None), export_fallback(policy)
    assert {each["kind"] for each in both.objects[len(without.objects) :]} == {
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    }
    assert both.objects[: len(without.objects)] == without.objects
    assert [each.name for each in both.beyond[len(without.beyond) :]] == ["defaultTolerations wait"]
