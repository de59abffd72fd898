"""What people report about admission webhooks and no other test tries; docs/development/complaints.md has all of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from tests.apiserver.objects import claim_of, rule_for, slice_of
from tests.apiserver.policy.pods import CLAIMS, NAMESPACE, acting_as, make_template, unused_name
from tests.apiserver.policy.rows import DANA, make_toleration
from tests.apiserver.policy.stage import ACCOUNT, Stage, make_policy
from tests.apiserver.registration.recording import RecordingWebhook
from tests.apiserver.registration.samples import collection as collection_of
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import GROUP

Json = dict[str, Any]

FINALIZER: Final = "test.example.com/wait"
OWN: Final = make_toleration("own.example.com/key:NoExecute")
INJECTED: Final = make_toleration("injected.example.com/key:NoExecute:60")
DEFAULT: Final = {**make_toleration("maint.example.com/window:NoExecute:300")}
TAINT: Final = {"key": "broken.example.com/x", "effect": "NoSchedule"}
_READS: Final = {"get", "list", "watch"}


def _claim(*tolerations: Json, **metadata: Any) -> Json:
    given = {"name": unused_name(), "namespace": NAMESPACE, **metadata}
    return claim_of("gpu.example.com", *tolerations, **given)


def _rule(version: str, **metadata: Any) -> Json:
    return rule_for({"driver": "nobody.example.com"}, TAINT, unused_name(), version=version, **metadata)


def _slice(**metadata: Any) -> Json:
    device = {"name": "gpu-0", "taints": [TAINT]}
    return slice_of("nobody.example.com", unused_name(), device, node=None, **metadata)


# --- a policy locks itself or the control plane out -------------------------------------------------


@pytest.mark.parametrize(
    "account",
    [
        "system:serviceaccount:kube-system:resource-claim-controller",
        "system:kube-scheduler",
        "system:serviceaccount:device-taint-webhook:device-taint-webhook",
        "system:serviceaccount:device-taint-webhook:device-taint-webhook-evict",
    ],
)
def test_a_policy_that_would_lock_out_whom_the_cluster_needs_is_refused_and_names_them(
    stage: Stage, account: str
) -> None:
    before = stage.policy_hash
    rule = {"name": "lock-out", "action": "deny", "match": {"requesters": {"users": [account]}}}
    reply = stage.write_policy(json.dumps(make_policy(rules=[rule])))
    assert reply.code == 422
    (cause,) = reply.causes
    assert cause.field == "data[policy.yaml].rules[0].match.requesters.users[0]"
    assert account in cause.message
    assert stage.policy_hash == before


# --- labels that anybody may set --------------------------------------------------------------------


def test_a_label_that_a_namespaces_admin_may_set_allows_nothing(stage: Stage) -> None:
    """A policy that would let it is refused, and a namespace that calls itself exempt is judged like any other."""
    match = {"namespaces": {"labels": {"tier": "exempt"}}}
    allow = {"name": "exempt", "action": "allow", "match": match}
    reply = stage.write_policy(json.dumps(make_policy(default="deny", rules=[allow])))
    assert reply.code == 422
    (cause,) = reply.causes
    assert cause.field == "data[policy.yaml].rules[0].match.namespaces.labels[tier]"
    assert 'add "tier" to trustedNamespaceLabels' in cause.message
    stage.use(make_policy(default="deny"))
    namespace = unused_name()
    labels = {"tier": "exempt", "control-plane": "yes", "devicetaint.io/ignore": "true", "name": "kube-system"}
    stage.create("v1", "Namespace", namespace, labels=labels)
    claim = _claim(OWN, namespace=namespace)
    assert acting_as(stage, DANA).create(collection_of(claim), claim, dry_run=True).code == 403
    stage.client.delete(path("v1", "namespaces", name=namespace))


# --- finalizers and terminating namespaces ----------------------------------------------------------


def test_clean_up_is_admitted_though_the_object_breaks_the_policy_of_today(stage: Stage) -> None:
    """All of them were fine when they were made; then the policy changed, and now they lose their finalizers."""
    stage.use(make_policy())
    version = versions.rule_versions(stage.plane.server_version)[0]
    kept = {"finalizers": [FINALIZER]}
    template = make_template("own.example.com/key:NoExecute")
    template["metadata"] |= kept
    urls = []
    for obj in (_claim(OWN, **kept), template, _rule(version, **kept), _slice(**kept)):
        stored = stage.client.create(collection_of(obj), obj).object
        urls.append(f"{collection_of(obj)}/{stored['metadata']['name']}")
    stage.use(
        make_policy(
            default="deny",
            taintRules=[
                {
                    "name": "ours",
                    "action": "allow",
                    "match": {"requesters": {"serviceAccounts": ["device-taint-webhook/*"]}},
                },
                {"name": "nobody", "action": "deny"},
            ],
        )
    )
    for obj in (_claim(OWN), _rule(version)):
        refused = acting_as(stage, DANA).create(collection_of(obj), obj, dry_run=True)
        assert refused.code == 403, obj["kind"]
    for url in urls:
        assert stage.client.delete(url).ok, url
        assert stage.client.get(url).object["metadata"]["deletionTimestamp"]
        assert stage.client.patch(url, {"metadata": {"finalizers": None}}).ok, url
        assert stage.client.get(url).code == 404, url


# --- dry runs ---------------------------------------------------------------------------------------


def test_answering_writes_nothing_in_a_dry_run_or_otherwise(stage: Stage) -> None:
    """Whatever the answer is: admitted, completed, warned of, or refused. By the API server's own log."""
    version = versions.rule_versions(stage.plane.server_version)[0]
    everything = _rule(version)
    everything["spec"]["deviceSelector"] = {}
    rule = {"name": "nobody", "action": "deny", "match": {"tolerations": {"keys": ["injected.example.com/*"]}}}
    stage.use(make_policy(rules=[rule]))
    refused = _claim(INJECTED)
    objects = [
        _claim(OWN),
        refused,
        make_template("own.example.com/key:NoExecute"),
        _rule(version),
        everything,
        _slice(),
    ]
    earlier = sum(1 for _ in stage.plane.audit_events())
    codes = [acting_as(stage, DANA).create(collection_of(obj), obj, dry_run=True).code for obj in objects]
    assert {201, 403} <= set(codes), codes
    written = _claim(OWN)
    assert acting_as(stage, DANA).create(CLAIMS, written).ok
    assert acting_as(stage, DANA).delete(f"{CLAIMS}/{written['metadata']['name']}").ok
    events = list(stage.plane.audit_events())[earlier:]
    asked = [event for event in events if event.get("impersonatedUser", {}).get("username") == DANA.user]
    assert len(asked) == len(objects) + 2
    ours = {event["verb"] for event in events if event["user"]["username"] == ACCOUNT}
    assert ours <= _READS
    configurations = [
        entry
        for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
        for each in stage.client.get(path("admissionregistration.k8s.io/v1", plural)).items
        for entry in each["webhooks"]
    ]
    assert {entry["sideEffects"] for entry in configurations} == {"None"}


# --- other injectors --------------------------------------------------------------------------------


class _Injector(RecordingWebhook):
    """Adds a toleration to the first request of whatever it is asked about, unless it is there."""

    def answer(self, url_path: str, review: Json) -> Json:
        answer = super().answer(url_path, review)
        exactly = review["request"]["object"]["spec"]["devices"]["requests"][0]["exactly"]
        there = exactly.get("tolerations") or []
        if INJECTED in there:
            return answer
        patch = [
            {"op": "add", "path": "/spec/devices/requests/0/exactly/tolerations", "value": [*there, INJECTED]},
        ]
        answer["response"] |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
        return answer


class _Injected(NamedTuple):
    stage: Stage

    def create(self, *tolerations: Json) -> Any:
        claim = _claim(*tolerations)
        return acting_as(self.stage, DANA).create(CLAIMS, claim, dry_run=True)


@pytest.fixture
def injected(stage: Stage, tmp_path: Any) -> Iterator[_Injected]:
    """Somebody else's webhook, which is called after ours: names decide the order."""
    stage.use(make_policy())
    with _Injector(tmp_path) as injector:
        entry = {
            "name": "injector.example.com",
            "clientConfig": {
                "url": f"{injector.base_url}/mutate",
                "caBundle": base64.b64encode(injector.ca_pem).decode(),
            },
            "rules": [
                {"apiGroups": [GROUP], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["resourceclaims"]}
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
            "timeoutSeconds": 30,
        }
        configuration = {"metadata": {"name": "zz-injector"}, "webhooks": [entry]}
        collection = path("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations")
        _ = stage.client.create(collection, configuration).object
        found = _Injected(stage)
        try:
            wait_until(lambda: INJECTED in _tolerations(found.create(OWN).object), "the other webhook is called")
            yield found
        finally:
            stage.client.delete(f"{collection}/zz-injector")
            wait_until(lambda: INJECTED not in _tolerations(found.create(OWN).object), "it is not called any more")


def _tolerations(claim: Json) -> list[Json]:
    found: list[Json] = claim["spec"]["devices"]["requests"][0]["exactly"].get("tolerations", [])
    return found


def test_what_another_injector_adds_after_us_is_judged(injected: _Injected) -> None:
    denied = {"name": "nobody", "action": "deny", "match": {"tolerations": {"keys": ["injected.example.com/*"]}}}
    injected.stage.use(make_policy(rules=[denied]))
    for tolerations in ([OWN], []):
        reply = injected.create(*tolerations)
        assert reply.code == 403, reply
        assert "(rule nobody)" in reply.message
    injected.stage.use(make_policy())


def test_what_another_injector_adds_stays_and_defaults_come_once(injected: _Injected) -> None:
    """We are called again because of it, and find nothing left to do."""
    defaults = [{"name": "five-minutes", "tolerations": [DEFAULT]}]
    injected.stage.use(make_policy(defaultTolerations=defaults))
    assert _tolerations(injected.create(OWN).object) == [OWN, DEFAULT, INJECTED]
    injected.stage.use(make_policy())
