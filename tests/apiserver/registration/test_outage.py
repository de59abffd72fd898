"""What works while the webhook does not: everything but taint rules, and those after one command."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.apiserver.accounts import grant
from tests.apiserver.evicting import EvictProcess
from tests.apiserver.manifests.installing import installation
from tests.apiserver.registration.asking import created
from tests.apiserver.registration.recording import RecordingWebhook
from tests.apiserver.registration.samples import (
    DRIVER,
    FINALIZER,
    MANIFESTS,
    NO_FINALIZERS,
    OWN_NAMESPACE,
    POLICY,
    TAINT,
    TOLERATION,
    Json,
    collection,
    device,
    exactly,
    make_claim,
    make_policy,
    make_rule,
    make_slice,
    make_template,
    need_namespace,
    unused_name,
    url,
)
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.controlplane.registration import FILES, calls, configurations, registered
from webhook import __version__
from webhook.api.names import WORKER
from webhook.eviction.modes import InTree, Mode, WorkerSays

_ACCOUNT = f"system:serviceaccount:{OWN_NAMESPACE}:{WORKER}"
_ADMINS = ("system:masters",)
# Other work may keep two cores busy; a third wait would be a third call, and the server's own is 30 s.
_SLACK_SECONDS = 20.0


def _version(plane: ControlPlane) -> str:
    return versions.api_versions(plane.server_version)[0]


def _rule_version(plane: ControlPlane) -> str:
    return versions.rule_versions(plane.server_version)[0]


def _canary(plane: ControlPlane) -> Json:
    rule = make_rule(_rule_version(plane), name="device-taint-webhook-canary-1")
    rule["spec"] = {
        "deviceSelector": {"driver": "canary.devicetaint.io"},
        "taint": {"key": "canary.devicetaint.io/canary", "effect": "None"},
    }
    return rule


@dataclass(frozen=True, slots=True)
class Outage:
    """Nobody listens at the address of the registered webhook."""

    all_fail: bool
    """Every entry has failurePolicy Fail, the strictest that a component can make of it."""
    claim: Json
    """Like the rest it was there before, with a finalizer; in a namespace of its own."""
    template: Json
    resource_slice: Json
    rule: Json

    @property
    def namespace(self) -> str:
        """Of claim and template."""
        return str(self.claim["metadata"]["namespace"])


@pytest.fixture(scope="class", params=[False, True], ids=["as shipped", "with Fail everywhere"])
def outage(
    request: pytest.FixtureRequest, plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Outage]:
    all_fail: bool = request.param
    need_namespace(plane, OWN_NAMESPACE)
    before = _held_objects(plane, unused_name(), all_fail=all_fail)
    manifests = MANIFESTS
    if all_fail:
        manifests = tmp_path_factory.mktemp("manifests")
        for name in FILES:
            strict = (MANIFESTS / name).read_text().replace("failurePolicy: Ignore", "failurePolicy: Fail")
            (manifests / name).parent.mkdir(exist_ok=True)
            (manifests / name).write_text(strict)
    with (
        RecordingWebhook(tmp_path_factory.mktemp("webhook")) as recording,
        registered(plane, manifests, recording.base_url, recording.ca_pem),
    ):
        recording.stop()
        yield before


def _held_objects(plane: ControlPlane, namespace: str, *, all_fail: bool) -> Outage:
    need_namespace(plane, namespace)
    version = _version(plane)
    there: Json = {"namespace": namespace, "finalizers": [FINALIZER]}
    tolerating = exactly(version, [TOLERATION])
    objects = Outage(
        all_fail,
        claim=make_claim(version, tolerating, **there),
        template=make_template(version, tolerating, **there),
        resource_slice=make_slice(version, device(version, [TAINT]), finalizers=[FINALIZER]),
        rule=make_rule(_rule_version(plane), finalizers=[FINALIZER]),
    )
    for obj in (objects.claim, objects.template, objects.resource_slice, objects.rule):
        _ = created(plane.client, obj, dry_run=False).object
    return objects


class TestNobodyListens:
    @pytest.mark.usefixtures("outage")
    def test_claims_and_slices_that_are_not_about_taints_go_on(self, plane: ControlPlane) -> None:
        version = _version(plane)
        objects = [
            make_claim(version),
            make_claim(version, exactly(version)),
            make_claim(version, exactly(version, [TOLERATION]), namespace="kube-system"),
            make_template(version, exactly(version, [TOLERATION]), namespace="kube-system"),
            make_slice(version),
            make_slice(version, device(version)),
            make_policy(OWN_NAMESPACE, "another"),
            make_policy("default", POLICY),
        ]
        replies = [created(plane.client, obj) for obj in objects]
        assert [reply.code for reply in replies] == [201] * len(objects), replies

    def test_claims_templates_slices_and_policy_go_on_as_far_as_their_failure_policy_lets_them(
        self, plane: ControlPlane, outage: Outage
    ) -> None:
        version = _version(plane)
        objects = [
            make_claim(version, exactly(version, [TOLERATION])),
            make_template(version, exactly(version, [TOLERATION])),
            make_slice(version, device(version, [TAINT])),
            make_policy(OWN_NAMESPACE, POLICY),
        ]
        replies = [created(plane.client, obj) for obj in objects]
        assert [reply.code for reply in replies] == [500 if outage.all_fail else 201] * len(objects), replies

    def test_new_rules_are_refused_and_the_message_names_the_entry(self, plane: ControlPlane, outage: Outage) -> None:
        reply = created(plane.client, make_rule(_rule_version(plane)))
        entry = "rules.mutate.devicetaint.io" if outage.all_fail else "rules.validate.devicetaint.io"
        assert reply.code == 500
        assert f'failed calling webhook "{entry}"' in reply.message

    @pytest.mark.usefixtures("outage")
    @pytest.mark.parametrize("mode", [pytest.param("delegated", marks=pytest.mark.whole), "replacement"])
    def test_evict_starts_and_leads(self, plane: ControlPlane, mode: str) -> None:
        """H1: its canary is not judged; all other rules are, whatever they are named."""
        if versions.minor(plane.server_version) < 37:
            pytest.skip("rules have another version, or no status")
        grant(plane, installation(plane.assets, f"evict-{mode}"), WORKER)
        account = plane.kubeconfig_of_account(OWN_NAMESPACE, WORKER)
        with EvictProcess(plane, mode, "--leader-elect", kubeconfig=account) as process:
            process.wait_working()
            assert process.lines("leading")
            [working] = process.lines("working")
            assert working["inTree"] == "absent"
            lease = path("coordination.k8s.io/v1", "leases", namespace=OWN_NAMESPACE, name=WORKER)
            said = (Mode(mode), InTree.ABSENT, __version__)
            wait_until(lambda: WorkerSays.of(plane.client.get(lease).object) == said, f"the lease says {said}")
            assert process.lines("canary rule not created") == []

    @pytest.mark.usefixtures("outage")
    @pytest.mark.parametrize(
        "change",
        [
            {"spec": {"taint": {"effect": "NoSchedule"}}},
            {"spec": {"deviceSelector": {"driver": "gpu.example.com"}}},
            {"spec": {"deviceSelector": None}},
            {"metadata": {"name": "device-taint-webhook-cannary-1"}},
            {"metadata": {"annotations": {"a": "b"}}},
            {"metadata": {"labels": {"a": "b"}}},
        ],
        ids=str,
    )
    def test_what_is_no_canary_is_refused(self, plane: ControlPlane, change: Json) -> None:
        if versions.minor(plane.server_version) < 35:
            pytest.skip("effect None is not known")
        worker, rule = plane.client.acting_as(_ACCOUNT, _ADMINS), _canary(plane)
        assert created(worker, rule).ok
        rule["metadata"] |= change.get("metadata", {})
        for field, value in change.get("spec", {}).items():
            rule["spec"][field] = rule["spec"][field] | value if value else {}
        assert created(worker, rule).code == 500

    @pytest.mark.usefixtures("outage")
    @pytest.mark.parametrize("user", ["", "admin", _ACCOUNT.replace("-webhook:", "-other:"), f"oidc:{_ACCOUNT}"])
    def test_canary_of_any_other_account_is_refused(self, plane: ControlPlane, user: str) -> None:
        """Empty: the admin whose certificate it is, whom nobody impersonates."""
        if versions.minor(plane.server_version) < 35:
            pytest.skip("effect None is not known")
        client = plane.client.acting_as(user, _ADMINS) if user else plane.client
        assert created(client, _canary(plane)).code == 500

    def test_an_old_rule_cannot_change_but_can_get_its_status_and_go(self, plane: ControlPlane, outage: Outage) -> None:
        client, rule = plane.client, url(outage.rule)
        softer = {"spec": {"taint": {**TAINT, "effect": "NoSchedule"}}}
        assert client.patch(rule, softer).code == 500
        if versions.minor(plane.server_version) >= 35:  # rules have a status
            assert client.patch(f"{rule}/status", {"status": {"conditions": []}}).ok
        assert client.delete(rule).ok
        assert client.patch(rule, softer).code == 500, "the eviction controller obeys it until it is gone"
        assert client.patch(rule, NO_FINALIZERS).ok
        assert client.get(rule).code == 404

    def test_an_old_slice_can_lose_its_taints_and_go(self, plane: ControlPlane, outage: Outage) -> None:
        client, resource_slice = plane.client, url(outage.resource_slice)
        assert client.patch(resource_slice, {"spec": {"devices": []}}).ok
        assert client.delete(resource_slice).ok
        assert client.patch(resource_slice, NO_FINALIZERS).ok
        assert client.get(resource_slice).code == 404

    def test_a_namespace_with_claims_that_wait_for_finalizers_can_be_emptied_and_deleted(
        self, plane: ControlPlane, outage: Outage
    ) -> None:
        """By hand what the namespace controller and a DRA driver do."""
        client, claim, template = plane.client, outage.claim, outage.template
        namespace = path("v1", "namespaces", name=outage.namespace)
        result = {"request": "r0", "driver": DRIVER, "pool": "p", "device": "d", "tolerations": [TOLERATION]}

        deleted = client.delete(namespace).object
        assert deleted["status"]["phase"] == "Terminating"
        assert client.patch(url(claim), {"metadata": {"labels": {"a": "b"}}}).ok
        assert client.delete(collection(claim)).ok
        assert client.delete(collection(template)).ok
        assert client.patch(f"{url(claim)}/status", {"status": {"allocation": {"devices": {"results": [result]}}}}).ok
        assert client.patch(f"{url(claim)}/status", {"status": {"allocation": None}}).ok
        assert client.patch(url(claim), NO_FINALIZERS).ok
        assert client.patch(url(template), NO_FINALIZERS).ok
        assert [client.get(collection(obj)).items for obj in (claim, template)] == [[], []]
        assert client.replace(f"{namespace}/finalize", {**deleted, "spec": {"finalizers": []}}).ok
        assert client.get(namespace).code == 404


def test_a_claim_waits_no_longer_than_its_two_entries_say(plane: ControlPlane, tmp_path: Path) -> None:
    """A webhook that takes calls and does not answer is the worst case: nothing refuses the connection."""
    version = _version(plane)
    claim = make_claim(version, exactly(version, [TOLERATION]))
    allowed_seconds = sum(
        entry["timeoutSeconds"]
        for configuration in configurations(MANIFESTS)
        for entry in configuration["webhooks"]
        if entry["name"].startswith("claims.")
    )
    with (
        RecordingWebhook(tmp_path) as recording,
        registered(plane, MANIFESTS, recording.base_url, recording.ca_pem, timeout_seconds=None),
        recording.hanging(),
    ):
        failed_before = calls(plane).failed
        before = time.monotonic()
        assert created(plane.client, claim).ok
        waited_seconds = time.monotonic() - before
        # By the API server's own count: on a busy machine it may give up before the review is read.
        failed = calls(plane).failed - failed_before
        assert failed == {
            ("admit", "claims.mutate.devicetaint.io"): 1,
            ("validating", "claims.validate.devicetaint.io"): 1,
        }
    assert allowed_seconds - 0.5 < waited_seconds < allowed_seconds + _SLACK_SECONDS
