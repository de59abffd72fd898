from __future__ import annotations

from typing import Any

import pytest

from tests.unit.policy.documents import errors_in, make_document, make_entry, warnings_in
from webhook.api.field import Path
from webhook.policy.document import load
from webhook.policy.model import CLAIM_CONTROLLER

SCHEDULER = "system:kube-scheduler"
IN_TREE = "system:serviceaccount:kube-system:device-taint-eviction-controller"
OURS = "system:serviceaccount:device-taint-webhook:device-taint-webhook"
EVICTOR = f"{OURS}-evict"


@pytest.mark.parametrize(
    ("requesters", "field", "name"),
    [
        pytest.param({"users": [SCHEDULER]}, "users[0]", SCHEDULER, id="the scheduler"),
        pytest.param({"users": ["jane", "system:kube-*"]}, "users[1]", SCHEDULER, id="a pattern of it"),
        pytest.param({"users": ["system:serviceaccount*"]}, "users[0]", IN_TREE, id="a prefix of all accounts"),
        pytest.param({"users": [CLAIM_CONTROLLER]}, "users[0]", CLAIM_CONTROLLER, id="the claim controller"),
        pytest.param(
            {"serviceAccounts": ["kube-system/resource-*"]}, "serviceAccounts[0]", CLAIM_CONTROLLER, id="its account"
        ),
        pytest.param({"users": [IN_TREE]}, "users[0]", IN_TREE, id="the in-tree controller"),
        pytest.param({"serviceAccounts": ["device-taint-webhook/*"]}, "serviceAccounts[0]", OURS, id="our accounts"),
        pytest.param({"users": [EVICTOR]}, "users[0]", EVICTOR, id="our worker"),
        pytest.param(
            {"groups": ["system:serviceaccounts:device-taint-webhook"]}, "groups[0]", OURS, id="our accounts' group"
        ),
        pytest.param(
            {"groups": ["system:serviceaccounts:kube-system"]}, "groups[0]", IN_TREE, id="the group of the controllers"
        ),
    ],
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


# --- the resource-claim controller --------------------------------------------------------------

MEANT = "system:serviceaccount:kube-system:resourceclaim-controller"
KEYS = {"tolerations": {"keys": ["k.example.com/*"]}}
ALICE = {"requesters": {"users": ["alice"]}}


@pytest.mark.parametrize(
    ("fields", "by"),
    [
        pytest.param({"default": "deny"}, "the default", id="the default"),
        pytest.param({"default": "deny", "rules": [make_entry("a", "allow", ALICE)]}, "the default", id="another may"),
        pytest.param({"default": "deny", "rules": [make_entry("a", "allow", KEYS)]}, "the default", id="other keys"),
        pytest.param(
            {"default": "deny", "rules": [make_entry("a", "allow", subject="request")]},
            "the default",
            id="requests may",
        ),
        pytest.param(
            {"rules": [make_entry("r", subject="request"), make_entry("d")]}, 'rule "d"', id="tolerations come first"
        ),
        pytest.param({"rules": [make_entry("d", match=KEYS)]}, 'rule "d"', id="a rule"),
        pytest.param(
            {"rules": [make_entry("d", match={"adminAccess": True}, subject="request")]}, 'rule "d"', id="on requests"
        ),
    ],
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


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="nothing is denied"),
        pytest.param({"default": "deny", "mode": "warn"}, id="nothing is refused"),
        pytest.param({"default": "deny", "mode": "off"}, id="the emergency switch"),
        pytest.param({"rules": [make_entry("d", match=ALICE)]}, id="another user is denied"),
        pytest.param(
            {"rules": [make_entry("d", match={**KEYS, "when": "request.count > 4"})]}, id="it may be denied or not"
        ),
        pytest.param(
            {"rules": [make_entry("a", "allow", {"requesters": {"users": [CLAIM_CONTROLLER]}})], "default": "deny"},
            id="it may have everything",
        ),
        pytest.param(
            {"rules": [make_entry("a", "allow", KEYS), make_entry("d", match=KEYS)]}, id="a rule before it allows"
        ),
    ],
)
def test_controller_that_is_not_trusted_is_a_warning_where_it_is_denied_nothing(fields: Any) -> None:
    """R9; mode `warn` and `off` refuse nothing, and the switch has to work in any document."""
    text = "claims that it makes from templates are judged as its own, not as their author's"
    assert f"DT112 trustedControllers: must list {CLAIM_CONTROLLER}: {text}" in warnings_in(
        **fields, trustedControllers=[]
    )
    assert not any(each.startswith("DT112") for each in warnings_in(**fields))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(MEANT, id="a typing error"),
        pytest.param(CLAIM_CONTROLLER.upper(), id="upper case"),
        pytest.param("system:serviceaccount:kube-system:*", id="a pattern"),
        pytest.param("kube-system/resource-claim-controller", id="as rules name service accounts"),
        pytest.param("resource-claim-controller", id="the account alone"),
        pytest.param(CLAIM_CONTROLLER[:55] + "012345", id="hardly more than nine tenths of it"),
    ],
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


# --- taint rules --------------------------------------------------------------------------------

DENY = make_entry("deny")
ALLOW_OURS = make_entry("ours", "allow", {"requesters": {"serviceAccounts": ["device-taint-webhook/*-evict"]}})
ALLOW_ADMINS = make_entry("admins", "allow", {"requesters": {"groups": ["system:masters"]}})


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param([DENY], id="everything is denied"),
        pytest.param([ALLOW_ADMINS, DENY], id="administrators are allowed"),
        pytest.param([DENY, ALLOW_OURS], id="too late"),
        pytest.param([make_entry(match={"taints": {"keys": ["k"]}})], id="some keys"),
        pytest.param([make_entry(match={"taints": {"effects": ["NoExecute", "None"]}})], id="None among the effects"),
        pytest.param([make_entry(match={"requesters": {"users": ["*"]}})], id="of everybody"),
        pytest.param(
            [make_entry("k", "allow", {"taints": {"keys": ["k"]}}), make_entry(match={"taints": {"keys": ["k", "l"]}})],
            id="some other keys are allowed",
        ),
        pytest.param(
            [make_entry("ours", "allow", ALLOW_OURS["match"] | {"when": "taint.key == 'k'"}), DENY],
            id="allowed under a condition",
        ),
    ],
)
def test_keeping_our_worker_from_ending_rules_is_refused(rules: list[Any]) -> None:
    (error,) = errors_in(taintRules=rules)
    at = next(position for position, rule in enumerate(rules) if rule["action"] == "deny")
    assert error.startswith(f"taintRules[{at}]: Forbidden: would deny {EVICTOR}, which turns rules that expire")


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param([ALLOW_OURS, ALLOW_ADMINS, DENY], id="allowed by name"),
        pytest.param(
            [make_entry("ours", "allow", ALLOW_OURS["match"] | {"taints": {"effects": ["None"]}}), ALLOW_ADMINS, DENY],
            id="allowed what it needs",
        ),
        pytest.param([make_entry(match={"taints": {"effects": ["NoExecute", "NoSchedule"]}})], id="None is no matter"),
        pytest.param([make_entry(match={"evict": True})], id="eviction is"),
        pytest.param([make_entry(match={"requesters": {"groups": ["ml-*"]}})], id="of others"),
        pytest.param(
            [make_entry(match={"requesters": {"users": ["j"]}, "when": "rule.evict"})], id="with an expression"
        ),
        pytest.param([make_entry(action="warn")], id="told only"),
    ],
)
def test_leaving_our_worker_its_way_is_fine(rules: list[Any]) -> None:
    assert errors_in(taintRules=rules) == []
    assert warnings_in(taintRules=rules) == []


def test_locking_out_administrators_is_told() -> None:
    text = "denies every taint to everybody, system:masters included; put a rule that allows before it"
    assert warnings_in(taintRules=[ALLOW_OURS, DENY]) == [f"DT105 taintRules[1]: {text}"]
    assert warnings_in(taintRules=[ALLOW_OURS, ALLOW_ADMINS, DENY]) == []


# --- in another namespace -------------------------------------------------------------------------


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
