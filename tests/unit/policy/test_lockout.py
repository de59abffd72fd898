from __future__ import annotations

from typing import Any

import pytest

from tests.tables import table
from tests.unit.policy.documents import errors_in, make_document, make_entry, warnings_in
from webhook.api.field import Path
from webhook.policy.document import load
from webhook.policy.model import CLAIM_CONTROLLER

SCHEDULER = "system:kube-scheduler"
IN_TREE = "system:serviceaccount:kube-system:device-taint-eviction-controller"
OURS = "system:serviceaccount:device-taint-webhook:device-taint-webhook"
EVICTOR = f"{OURS}-evict"


@table(
    "requesters, field, name",
    {
        "the scheduler": ({"users": [SCHEDULER]}, "users[0]", SCHEDULER),
        "a pattern of it": ({"users": ["jane", "system:kube-*"]}, "users[1]", SCHEDULER),
        "a prefix of all accounts": ({"users": ["system:serviceaccount*"]}, "users[0]", IN_TREE),
        "the claim controller": ({"users": [CLAIM_CONTROLLER]}, "users[0]", CLAIM_CONTROLLER),
        "its account": ({"serviceAccounts": ["kube-system/resource-*"]}, "serviceAccounts[0]", CLAIM_CONTROLLER),
        "the in-tree controller": ({"users": [IN_TREE]}, "users[0]", IN_TREE),
        "our accounts": ({"serviceAccounts": ["device-taint-webhook/*"]}, "serviceAccounts[0]", OURS),
        "our worker": ({"users": [EVICTOR]}, "users[0]", EVICTOR),
        "our accounts' group": ({"groups": ["system:serviceaccounts:device-taint-webhook"]}, "groups[0]", OURS),
        "the group of the controllers": ({"groups": ["system:serviceaccounts:kube-system"]}, "groups[0]", IN_TREE),
    },
)
@pytest.mark.parametrize("rules", ["rules", "taintRules"])
def test_denying_whom_the_cluster_needs_by_name_is_refused(rules: str, requesters: Any, field: str, name: str) -> None:
    match = {"requesters": requesters}
    errors = errors_in(**{rules: [make_entry(match=match)]})
    assert errors[0].startswith(f"{rules}[0].match.requesters.{field}: Forbidden: would deny {name}, which ")
    for action in ("allow", "warn", "audit"):
        assert errors_in(**{rules: [make_entry(action=action, match=match)]}) == []


@pytest.mark.parametrize(
    "requesters",
    [
        {"users": ["*"]},
        {"users": ["system:serviceaccount:*"]},
        {"users": ["system:serviceaccount:ci:*"]},
        {"serviceAccounts": ["*/*"]},
        {"groups": ["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:*", "ml-*"]},
        {"groups": ["system:serviceaccounts*"]},
        {"groups": ["system:serviceaccounts:device-taint-eviction-controller"]},
    ],
)
def test_denying_everybody_names_nobody(requesters: Any) -> None:
    assert errors_in(rules=[make_entry(match={"requesters": requesters})]) == []


def test_pattern_for_everybody_hides_no_name_behind_it() -> None:
    everybody = [{"users": ["*", SCHEDULER]}, {"serviceAccounts": ["*/*", "kube-system/resource-*"]}]
    for requesters in everybody:
        (field,) = requesters
        (error,) = errors_in(rules=[make_entry(match={"requesters": requesters})])
        assert error.startswith(f"rules[0].match.requesters.{field}[1]: Forbidden: would deny ")


def test_controllers_of_the_operators_own_are_needed_too() -> None:
    match = {"requesters": {"users": ["claim-maker"]}}
    assert errors_in(rules=[make_entry(match=match)]) == []
    assert errors_in(rules=[make_entry(match=match)], trustedControllers=["claim-maker"]) == [
        "rules[0].match.requesters.users[0]: Forbidden: would deny claim-maker, which makes claims from templates"
    ]


def test_denying_every_generated_claim_is_refused() -> None:
    rules = [make_entry("a"), make_entry("b", "allow", subject="request")]
    (error,) = errors_in(default="deny", generatedClaims="enforce", rules=rules)
    assert error.startswith("default: Forbidden: no rule allows a toleration")
    assert CLAIM_CONTROLLER in error
    assert errors_in(default="deny", rules=rules) == []
    rules.append(make_entry("c", "allow"))
    assert errors_in(default="deny", generatedClaims="enforce", rules=rules) == []


MEANT = "system:serviceaccount:kube-system:resourceclaim-controller"
KEYS = {"tolerations": {"keys": ["k.example.com/*"]}}
ALICE = {"requesters": {"users": ["alice"]}}


@table(
    "fields, by",
    {
        "the default": ({"default": "deny"}, "the default"),
        "another may": ({"default": "deny", "rules": [make_entry("a", "allow", ALICE)]}, "the default"),
        "other keys": ({"default": "deny", "rules": [make_entry("a", "allow", KEYS)]}, "the default"),
        "requests may": ({"default": "deny", "rules": [make_entry("a", "allow", subject="request")]}, "the default"),
        "tolerations come first": ({"rules": [make_entry("r", subject="request"), make_entry("d")]}, 'rule "d"'),
        "a rule": ({"rules": [make_entry("d", match=KEYS)]}, 'rule "d"'),
        "on requests": ({"rules": [make_entry("d", match={"adminAccess": True}, subject="request")]}, 'rule "d"'),
    },
)
def test_controller_that_is_not_trusted_and_would_be_denied_is_refused(fields: Any, by: str) -> None:
    """R9."""
    for trusted in ([], ["system:serviceaccount:ci:maker"]):
        (error,) = errors_in(**fields, trustedControllers=trusted)
        assert error == (
            f"trustedControllers: Forbidden: must list {CLAIM_CONTROLLER}: {by} would deny claims that it makes from "
            "templates, whatever their author may"
        )
    assert errors_in(**fields, trustedControllers=["system:serviceaccount:ci:maker", CLAIM_CONTROLLER]) == []


@table(
    "fields",
    {
        "nothing is denied": {},
        "nothing is refused": {"default": "deny", "mode": "warn"},
        "the emergency switch": {"default": "deny", "mode": "off"},
        "another user is denied": {"rules": [make_entry("d", match=ALICE)]},
        "it may be denied or not": {"rules": [make_entry("d", match={**KEYS, "when": "request.count > 4"})]},
        "it may have everything": {
            "rules": [make_entry("a", "allow", {"requesters": {"users": [CLAIM_CONTROLLER]}})],
            "default": "deny",
        },
        "a rule before it allows": {"rules": [make_entry("a", "allow", KEYS), make_entry("d", match=KEYS)]},
    },
)
def test_controller_that_is_not_trusted_is_a_warning_where_it_is_denied_nothing(fields: Any) -> None:
    """R9; mode `warn` and `off` refuse nothing, and the switch has to work in any document."""
    text = "claims that it makes from templates are judged as its own, not as their author's"
    assert f"DT112 trustedControllers: must list {CLAIM_CONTROLLER}: {text}" in warnings_in(
        **fields, trustedControllers=[]
    )
    assert not any(each.startswith("DT112") for each in warnings_in(**fields))


@table(
    "name",
    {
        "a typing error": MEANT,
        "upper case": CLAIM_CONTROLLER.upper(),
        "a pattern": "system:serviceaccount:kube-system:*",
        "as rules name service accounts": "kube-system/resource-claim-controller",
        "the account alone": "resource-claim-controller",
        "hardly more than nine tenths of it": CLAIM_CONTROLLER[:55] + "012345",
    },
)
def test_name_that_is_almost_the_controllers_is_pointed_at(name: str) -> None:
    """R9."""
    (error,) = errors_in(default="deny", trustedControllers=["maker", name])
    assert error.startswith(f'trustedControllers[1]: Forbidden: did you mean "{CLAIM_CONTROLLER}"? the default would')


@pytest.mark.parametrize(
    "name",
    [
        "system:kube-controller-manager",
        IN_TREE,
        "system:serviceaccount:kube-system:job-controller",
        pytest.param(CLAIM_CONTROLLER[:54] + "0123456", id="nine tenths of it"),
    ],
)
def test_names_of_other_controllers_are_not_taken_for_it(name: str) -> None:
    (error,) = errors_in(default="deny", trustedControllers=[name])
    assert error.startswith("trustedControllers: Forbidden: must list")


DENY = make_entry("deny")
ALLOW_OURS = make_entry("ours", "allow", {"requesters": {"serviceAccounts": ["device-taint-webhook/*-evict"]}})
ALLOW_ADMINS = make_entry("admins", "allow", {"requesters": {"groups": ["system:masters"]}})


@table(
    "rules",
    {
        "everything is denied": [DENY],
        "administrators are allowed": [ALLOW_ADMINS, DENY],
        "too late": [DENY, ALLOW_OURS],
        "some keys": [make_entry(match={"taints": {"keys": ["k"]}})],
        "None among the effects": [make_entry(match={"taints": {"effects": ["NoExecute", "None"]}})],
        "of everybody": [make_entry(match={"requesters": {"users": ["*"]}})],
        "some other keys are allowed": [
            make_entry("k", "allow", {"taints": {"keys": ["k"]}}),
            make_entry(match={"taints": {"keys": ["k", "l"]}}),
        ],
        "allowed under a condition": [
            make_entry("ours", "allow", ALLOW_OURS["match"] | {"when": "taint.key == 'k'"}),
            DENY,
        ],
    },
)
def test_keeping_our_worker_from_ending_rules_is_refused(rules: list[Any]) -> None:
    (error,) = errors_in(taintRules=rules)
    at = next(position for position, rule in enumerate(rules) if rule["action"] == "deny")
    assert error.startswith(f"taintRules[{at}]: Forbidden: would deny {EVICTOR}, which turns rules that expire")


@table(
    "rules",
    {
        "allowed by name": [ALLOW_OURS, ALLOW_ADMINS, DENY],
        "allowed what it needs": [
            make_entry("ours", "allow", ALLOW_OURS["match"] | {"taints": {"effects": ["None"]}}),
            ALLOW_ADMINS,
            DENY,
        ],
        "None is no matter": [make_entry(match={"taints": {"effects": ["NoExecute", "NoSchedule"]}})],
        "eviction is": [make_entry(match={"evict": True})],
        "of others": [make_entry(match={"requesters": {"groups": ["ml-*"]}})],
        "with an expression": [make_entry(match={"requesters": {"users": ["j"]}, "when": "rule.evict"})],
        "told only": [make_entry(action="warn")],
    },
)
def test_leaving_our_worker_its_way_is_fine(rules: list[Any]) -> None:
    assert errors_in(taintRules=rules) == []
    assert warnings_in(taintRules=rules) == []


def test_locking_out_administrators_is_told() -> None:
    text = "denies every taint that no rule before it allows, also to system:masters; put one that allows before it"
    assert warnings_in(taintRules=[ALLOW_OURS, DENY]) == [f"DT105 taintRules[1]: {text}"]
    assert warnings_in(taintRules=[ALLOW_OURS, ALLOW_ADMINS, DENY]) == []


@pytest.mark.parametrize("namespace", ["device-taint-webhook", "platform"])
def test_our_accounts_are_those_of_the_namespace_that_we_are_in(namespace: str) -> None:
    """H2."""
    for mentioned in ("device-taint-webhook", "platform"):
        match = {"requesters": {"serviceAccounts": [f"{mentioned}/device-taint-webhook-evict"]}}
        loaded = load(make_document(taintRules=[make_entry(match=match)]), Path.root(), namespace=namespace)
        assert (loaded.policy is None) == (mentioned == namespace)


def test_denying_effect_none_to_our_worker_in_another_namespace_is_refused() -> None:
    """H2: only the account of this installation turns rules that expire to None."""
    elsewhere = {"requesters": {"serviceAccounts": ["device-taint-webhook/*"]}}
    rules = [make_entry("ours", action="allow", match=elsewhere), make_entry("rest", match={"taints": {"keys": ["*"]}})]
    document = make_document(taintRules=rules)
    (error,) = load(document, Path.root(), namespace="platform").errors
    assert "would deny system:serviceaccount:platform:device-taint-webhook-evict, which turns rules" in str(error)
    assert load(document, Path.root()).errors == ()


@pytest.mark.parametrize(
    "harmless",
    [
        make_entry("harmless", match={"evict": True}),
        make_entry("harmless", match={"taints": {"effects": ["NoExecute"]}}),
        make_entry("harmless", match={"requesters": {"users": ["jane"]}}),
        make_entry("harmless", match={"when": "rule.evict"}),
        make_entry("harmless", "warn"),
        make_entry("harmless", "allow", {"evict": True}),
    ],
    ids=lambda rule: f"{rule['action']} {rule.get('match')}",
)
def test_rule_that_leaves_our_worker_its_way_does_not_hide_a_denial_behind_it(harmless: Any) -> None:
    rules = [harmless, make_entry("harmful")]
    (error,) = errors_in(taintRules=rules)
    assert error.startswith(f"taintRules[1]: Forbidden: would deny {EVICTOR}")
