"""What a doctor makes of what it found."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from tests.unit.policy.documents import make_entry as make_policy_entry
from tests.unit.policy.documents import policy_of
from webhook.admission.claim_view import REQUESTED_BY
from webhook.api.meta import NamespacedName
from webhook.cluster.client.answers import RawResponse
from webhook.cluster.client.connections import NoHandshake, Untrusted
from webhook.commands.doctor.checks import (
    Check,
    Status,
    WebhookEntry,
    access_check,
    author_policy_check,
    certificate_check,
    clock_check,
    deployment_check,
    evictor_check,
    exit_code,
    fallback_check,
    forgery_check,
    policy_check,
    probe_check,
    registration_check,
    softening_check,
    versions_check,
    webhook_clock_check,
    worst,
)
from webhook.commands.doctor.probe import policy_in_config_map
from webhook.commands.shared.policy_files import read_policy
from webhook.eviction.modes import InTree
from webhook.policy.model import ImpactLimits, ImpactSettings, InTreeEvictor, Policy, Softening
from webhook.policy.vap.drift import AUTHOR_POLICY, AdmissionObjectKey, StoredObject, key_of
from webhook.policy.vap.export import export

NOW: Final = datetime(2026, 6, 1, 12, tzinfo=UTC)
RULES: Final = "rules.validate.devicetaint.io"
CONFIG_MAP: Final = NamespacedName("ns", "device-taint-webhook-policy")
POLICY: Final = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"


def make_entry(name: str = RULES, bundle: bytes = b"PEM", **fields: Any) -> WebhookEntry:
    rules = (("resource.k8s.io", "devicetaintrules", frozenset({"v1", "v1beta2"})),)
    return WebhookEntry(
        name,
        "Validating",
        **{"fails_open": False, "bundle": bundle, "address": ("h", 443, "h"), "rules": rules, **fields},
    )


def answer(code: int, message: str = "", warnings: tuple[str, ...] = (), **body: Any) -> RawResponse:
    return RawResponse(code, {"message": message, **body}, warnings, None)


def said(check: Check) -> tuple[str, str]:
    assert bool(check.advice) == (check.status is not Status.OK), (
        "what is amiss comes with advice, and nothing else does"
    )
    return check.status.value, check.message


def test_the_worst_check_counts_and_any_that_is_not_ok_is_a_finding() -> None:
    well, amiss, broken = (Check("x", status, "") for status in Status)
    together: list[list[Check]] = [[], [well], [well, amiss], [broken, amiss, well]]
    assert [worst(checks) for checks in together] == [Status.OK, Status.OK, Status.WARN, Status.FAIL]
    assert [exit_code(checks) for checks in together] == [0, 0, 1, 1]
    assert [exit_code(checks, allow_warnings=True) for checks in together] == [0, 0, 0, 1]


# --- probes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "message", "warnings", "status"),
    [
        (201, "", ("spec.taint.key: is in k8s.io [DT005]",), "ok"),
        (403, f'admission webhook "{RULES}" denied the request: no', (), "ok"),
        (422, f'admission webhook "{RULES}" denied the request: no', (), "ok"),
        (201, "", (), "fail"),
        (201, "", ("somebody else's",), "fail"),
        (500, f'failed calling webhook "{RULES}": connection refused', (), "fail"),
        (403, 'admission webhook "other" denied the request: no', (), "warn"),
        (403, 'devicetaintrules is forbidden: User "x" cannot create', (), "warn"),
    ],
)
def test_a_probe_is_answered_only_by_the_webhook(
    code: int, message: str, warnings: tuple[str, ...], status: str
) -> None:
    assert said(probe_check(make_entry(), answer(code, message, warnings), "ns"))[0] == status


def test_a_policy_that_is_there_already_was_not_refused_before() -> None:
    entry = make_entry("policy.validate.devicetaint.io", fails_open=True)
    assert said(probe_check(entry, answer(409, "exists"), "ns"))[0] == "fail"


@pytest.mark.parametrize(
    ("why", "advice"),
    [
        ("tls: failed to verify certificate: x509: unknown authority", "caBundle"),
        ('no endpoints available for service "device-taint-webhook"', "no pod answers: kubectl -n ns get pods"),
        ("dial tcp 10.0.0.1:443: connect: connection refused", "no pod answers: kubectl -n ns get pods"),
        ('service "device-taint-webhook" not found', "Service is missing"),
        ("context deadline exceeded", "firewalls"),
        (
            'Post "https://device-taint-webhook.device-taint-webhook.svc:443/validate?timeout=5s": EOF',
            "certs/README.md",
        ),
        (
            'Post "https://a.svc:443/validate": read tcp 10.0.0.1:1->10.0.0.2:2: connection reset by peer',
            "certs/README.md",
        ),
        ('Post "https://a.svc:443/validate": write tcp 10.0.0.1:1->10.0.0.2:2: write: broken pipe', "certs/README.md"),
        ("the client certificate is for 'system:node:a', which is not in --client-names", "certs/README"),
    ],
)
def test_a_failed_call_comes_with_what_to_do(why: str, advice: str) -> None:
    message = f'Internal error occurred: failed calling webhook "{RULES}": {why}'
    assert advice in probe_check(make_entry(), answer(500, message), "ns").advice


# --- authors ------------------------------------------------------------------------------------

FORGED = '{"username":"nobody"}'


def test_author_policy_says_why_authors_are_not_proved() -> None:
    assert said(author_policy_check("")) == ("ok", "API servers refuse templates that name another author")
    assert said(author_policy_check("no policy")) == ("warn", "no policy: template authors are unknown")


@pytest.mark.parametrize(
    ("code", "message", "author", "status", "text"),
    [
        (
            403,
            f"ValidatingAdmissionPolicy '{AUTHOR_POLICY}' with binding ... denied",
            None,
            "ok",
            "refused a forged author",
        ),
        (201, "", FORGED, "fail", "the API server accepted a forged author"),
        (201, "", '{"username":"me"}', "warn", "not checked: the forged author was replaced"),
        (201, "", None, "warn", "not checked: the forged author was replaced"),
        (403, 'User "visitor" cannot create', None, "warn", 'not checked, permission denied: User "visitor" cannot'),
        (500, "away", None, "warn", "not checked: away"),
    ],
)
def test_forged_author_must_be_refused_by_our_policy(
    code: int, message: str, author: str | None, status: str, text: str
) -> None:
    spec = {"metadata": {"annotations": {REQUESTED_BY: author}} if author else None}
    found, said_of_it = said(forgery_check(FORGED, answer(code, message, spec=spec)))
    assert found == status
    assert text in said_of_it


# --- registration and certificates --------------------------------------------------------------


def test_registrations() -> None:
    whole, bare = make_entry(), make_entry("claims.validate.devicetaint.io", b" \n")
    kind, name = "Validating", "device-taint-webhook"
    assert said(registration_check(kind, name, [whole], [RULES]))[0] == "ok"
    assert "API servers do not call the webhook" in said(registration_check(kind, name, None, [RULES]))[1]
    assert said(registration_check(kind, name, [whole, bare], [RULES])) == (
        "fail",
        (
            "ValidatingWebhookConfiguration device-taint-webhook: no caBundle, so calls fail: "
            "claims.validate.devicetaint.io"
        ),
    )
    assert said(registration_check(kind, name, [whole], [RULES, "x"])) == (
        "warn",
        "ValidatingWebhookConfiguration device-taint-webhook: entries missing, so their objects are not reviewed: x",
    )


def test_certificates() -> None:
    day, soon = NOW + timedelta(days=1), NOW + timedelta(minutes=59)
    assert said(certificate_check(RULES, day, NOW)) == ("ok", "matches the caBundle; expires 2026-06-02T12:00:00Z")
    assert said(certificate_check(RULES, soon, NOW)) == (
        "warn",
        "matches the caBundle; expires 2026-06-01T12:59:00Z, in 59 min",
    )
    assert said(certificate_check(RULES, Untrusted("self-signed"), NOW))[0] == "fail"
    assert said(certificate_check(RULES, NoHandshake("no such host"), NOW))[0] == "ok"


def test_versions_are_registered_that_are_served() -> None:
    key = ("resource.k8s.io", "devicetaintrules")
    assert said(*versions_check({key: frozenset({"v1beta2", "v3"})}, [make_entry()]))[0] == "ok"
    assert said(*versions_check({key: frozenset({"v3"})}, [make_entry()])) == (
        "fail",
        "devicetaintrules.resource.k8s.io is served in v3, but registered for v1, v1beta2: it is not reviewed",
    )
    assert said(*versions_check({}, [make_entry()]))[0] == "warn"
    [none] = versions_check({}, [])
    assert none.message.startswith("not checked")


# --- clocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "status"), [(0, "ok"), (10, "ok"), (-11, "warn"), (60, "warn"), (61, "fail")])
def test_this_machines_clock(seconds: int, status: str) -> None:
    assert said(clock_check(NOW, NOW + timedelta(seconds=seconds)))[0] == status


def test_a_server_without_a_clock() -> None:
    assert said(clock_check(None, NOW))[0] == "warn"


def test_the_webhooks_clock_is_told_by_what_it_takes_for_the_future() -> None:
    quiet, ahead = ["x [DT005]"], ["x [DT005]", "y [DT007]"]
    assert said(webhook_clock_check(quiet, ahead))[0] == "ok"
    assert "behind" in said(webhook_clock_check(ahead, ahead))[1]
    assert "ahead of" in said(webhook_clock_check(quiet, quiet))[1]


# --- what runs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "ready", "updated", "status"),
    [(2, 2, 2, "ok"), (2, 1, 2, "warn"), (2, 2, 1, "warn"), (2, 0, 2, "fail"), (0, 0, 0, "fail")],
)
def test_deployments(wanted: int, ready: int, updated: int, status: str) -> None:
    deployment = {"spec": {"replicas": wanted}, "status": {"readyReplicas": ready, "updatedReplicas": updated}}
    assert said(deployment_check("x", deployment, "ns"))[0] == status


def test_what_to_do_names_the_namespace_of_the_installation() -> None:
    """H2."""
    down = deployment_check("x", {"spec": {"replicas": 2}}, "platform")
    assert down.advice == "kubectl -n platform describe deployment x"
    missing = deployment_check("x", None, "platform")
    assert missing.message == "no Deployment x in namespace platform"
    broken = policy_check(read_policy("kind: ["), NamespacedName("platform", "device-taint-webhook-policy"), "", "")
    assert broken.advice.startswith("correct ConfigMap platform/device-taint-webhook-policy; ")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ({"binaryData": {"policy.yaml": "/////w=="}}, "binaryData[policy.yaml]: Forbidden: must be in data"),
        ({"data": {"policy.yml": "x"}}, 'data[policy.yml]: Forbidden: unknown key, did you mean "policy.yaml"?'),
        ({}, "data[policy.yaml]: Required value: must hold the policy"),
    ],
    ids=["binary", "misspelt", "empty"],
)
def test_config_map_without_a_readable_policy_is_a_broken_one(content: dict[str, Any], error: str) -> None:
    """F11: it is not one without a policy."""
    status, text = said(policy_check(policy_in_config_map(content, "ns"), CONFIG_MAP, "", ""))
    assert (status, text.startswith(f"cannot be loaded: {error}")) == ("fail", True)


def test_access() -> None:
    assert said(access_check([], 7)) == ("ok", "service accounts have all 7 rights that they need")
    assert said(access_check(["a may not get x", "b may not list y"], 7)) == (
        "fail",
        "a may not get x; b may not list y",
    )


# --- policy and evictor -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "said_by_policy", "status"),
    [
        (InTree.ACTIVE, None, "ok"),
        (InTree.ACTIVE, InTreeEvictor.ACTIVE, "ok"),
        (InTree.ABSENT, InTreeEvictor.ABSENT, "ok"),
        (InTree.ABSENT, None, "warn"),
        (InTree.ACTIVE, InTreeEvictor.ABSENT, "warn"),
        (InTree.UNKNOWN, None, "warn"),
    ],
)
def test_the_policy_has_to_know_who_evicts(found: InTree, said_by_policy: InTreeEvictor | None, status: str) -> None:
    policy = None if said_by_policy is None else Policy(in_tree_evictor=said_by_policy)
    assert said(evictor_check(found, policy))[0] == status


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([Softening.NEVER], False),
        ([Softening.NEVER, Softening.OVER], True),
        ([Softening.ALWAYS, Softening.NEVER], True),
    ],
)
def test_policy_with_an_entry_that_softens_does(entries: list[Softening], *, expected: bool) -> None:
    assert ImpactSettings(limits=tuple(ImpactLimits(soften=each) for each in entries)).softens is expected


def test_worker_that_does_not_act_is_a_warning() -> None:
    assert said(softening_check("no one evicts")) == ("warn", "the policy softens rules, but no one evicts")
    assert softening_check("no one evicts").advice.startswith("run evict in mode delegated or replacement")
    assert said(softening_check(""))[0] == "ok"


# --- policies that API servers evaluate by themselves ---------------------------------------------

EXPORTED: Final = policy_of(
    rules=[make_policy_entry("no-xid", "deny", {"tolerations": {"keys": ["xid"]}})],
    trustedNamespaceLabels=["example.com/tier"],
)


def stored(**flags: Any) -> dict[AdmissionObjectKey, StoredObject]:
    objects = export(EXPORTED, namespace="mine", **flags).objects
    found = [StoredObject(key_of(obj), obj["metadata"]["labels"], obj["spec"]) for obj in objects]
    return {each.key: each for each in found}


def test_there_is_no_line_where_nothing_is_wanted() -> None:
    key = AdmissionObjectKey("ValidatingAdmissionPolicy", "device-taint-webhook-guard")
    foreign = StoredObject(key, {}, {})
    assert fallback_check(EXPORTED, {}, "mine") is None
    assert fallback_check(EXPORTED, {foreign.key: foreign}, "mine") is None


@pytest.mark.parametrize("flags", [{}, {"protect_labels": True}])
def test_what_is_as_in_the_policy_passes(flags: Any) -> None:
    """With the flags that it was exported with."""
    check = fallback_check(EXPORTED, stored(**flags), "mine")
    assert check is not None
    assert (check.name, check.status.value) == ("fallback", "ok")
    assert check.message.startswith(f"{len(stored(**flags))} admission policies and bindings as in the policy")


def test_what_differs_is_named_with_what_to_do() -> None:
    there = stored()
    del there[AdmissionObjectKey("ValidatingAdmissionPolicyBinding", "device-taint-webhook-tolerations")]
    check = fallback_check(EXPORTED, there, "mine")
    assert check is not None
    assert check.status.value == "warn"
    assert check.message.endswith("ValidatingAdmissionPolicyBinding device-taint-webhook-tolerations is missing")
    assert check.advice.startswith("export and apply them again")


def test_more_than_a_few_are_counted() -> None:
    (known, *_) = stored().values()
    left = known._replace(key=AdmissionObjectKey(known.key.kind, "left"))
    check = fallback_check(EXPORTED, {left.key: left}, "mine")
    assert check is not None
    assert check.message.endswith("is missing, and 2 more")


def test_policy_that_cannot_be_loaded_is_not_compared() -> None:
    check = fallback_check(None, stored(), "mine")
    assert check is not None
    assert check.status.value == "ok"
    assert "cannot be loaded" in check.message
