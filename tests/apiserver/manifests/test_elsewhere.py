"""Components combined in a namespace of one's own (H2, B7), on a real control plane, with either kind of certificate.

The Service leads to a process on this machine; the API server calls by its name, and expects that in the certificate.
"""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.evicting import EvictProcess, Ward
from tests.apiserver.issued import CertManager
from tests.apiserver.manifests.installing import OWN_NAMESPACE, REGISTRATIONS, overlay_of, rendered, url
from tests.apiserver.registration.samples import collection, exactly, make_claim, make_template, need_namespace
from tests.conftest import _assets, _keeping_logs_of_failures
from tests.controlplane import versions
from tests.controlplane.client import Reply, path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.controlplane.registration import MOST_SECONDS, calls, default_probes
from tests.controlplane.webhook_process import SERVE, WebhookProcess, our_environment

Json = dict[str, Any]

NAMESPACE: Final = "platform-dra"
IN_POD: Final = ("/usr/bin/env", f"POD_NAMESPACE={NAMESPACE}")
COMPONENTS: Final = ("components/evict-delegated", "components/default-tolerations")
POLICY_MAP: Final = path("v1", "configmaps", namespace=NAMESPACE, name="device-taint-webhook-policy")
POLICY: Final = """
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
rules:
- {name: none-of-these, action: deny, match: {tolerations: {keys: [forbidden.example.com/key]}}}
defaultTolerations:
- name: some-time
  tolerations: [{key: default.example.com/key, operator: Exists, effect: NoExecute, tolerationSeconds: 60}]
eviction:
- {rate: 10000, burst: 100000, perOwnerUnavailable: null}
"""
_TOLERATION: Final = {"key": "forbidden.example.com/key", "operator": "Exists", "effect": "NoSchedule"}


class _Evict(EvictProcess):
    def _program(self) -> list[str]:
        return [*IN_POD, *super()._program()]


class Installation:
    """What the kustomization has, applied, and `serve` at the other end of its Service."""

    def __init__(self, plane: ControlPlane, documents: list[Json]) -> None:
        self.plane = plane
        self.client = plane.client
        self._documents = documents
        self.version = versions.api_versions(plane.server_version)[0]

    webhook: WebhookProcess

    def apply(self) -> None:
        """Everything, strictly; only the Service is another one."""
        documents = [
            {**each, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}}
            if each["kind"] == "Service"
            else each
            for each in self._documents
        ]
        done = self.plane.kubectl("apply", "--validate=strict", "-f", "-", stdin=yaml.safe_dump_all(documents))
        assert (done.code, done.stderr) == (0, ""), done
        policy = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": POLICY_MAP.rpartition("/")[2]}}
        _ = self.client.create(POLICY_MAP.rpartition("/")[0], {**policy, "data": {"policy.yaml": POLICY}}).object

    def serving(self, folder: Path) -> WebhookProcess:
        """As the account of `serve`; certificates are its own, or those in the Secret, as a kubelet brings them."""
        account = self.plane.kubeconfig_of_account(NAMESPACE, "device-taint-webhook")
        arguments = [f"--kubeconfig={account}"]
        kinds = {each["kind"] for each in self._documents}
        if "Certificate" in kinds:
            secret = path("v1", "secrets", namespace=NAMESPACE, name="device-taint-webhook-tls")
            wait_until(lambda: "tls.crt" in (self.client.get(secret).body or {}).get("data", {}), "issued", seconds=240)
            for name, text in self.client.get(secret).object["data"].items():
                (folder / name).write_bytes(base64.b64decode(text))
            arguments.append(f"--cert-dir={folder}")
        self_managed = "Certificate" not in kinds
        return WebhookProcess(*arguments, standalone=False, command=(*IN_POD, *SERVE), self_managed=self_managed)

    def lead_to(self, webhook: WebhookProcess) -> None:
        """Puts the port of the process into every entry, and waits until API servers trust and reach it."""
        self.webhook = webhook
        port = int(webhook.base_url.rpartition(":")[2])
        registrations = [url(each) for each in self._documents if each["kind"] in REGISTRATIONS]
        wait_until(lambda: all(self._bundles(each) for each in registrations), "caBundle in every entry", seconds=240)
        for each in registrations:
            wait_until(lambda each=each: self._with_port(each, port), "the port is in every entry")  # type: ignore[misc]
        wait_until(self.called, "the webhook is called")

    def _bundles(self, registration: str) -> bool:
        return all(each["clientConfig"].get("caBundle") for each in self.client.get(registration).object["webhooks"])

    def _with_port(self, registration: str, port: int) -> bool:
        """False where another writer came in between."""
        stored = self.client.get(registration).object
        for webhook in stored["webhooks"]:
            webhook["clientConfig"]["service"]["port"] = port
            webhook["timeoutSeconds"] = MOST_SECONDS  # a call that a busy machine delays has not failed
        return self.client.replace(registration, stored).ok

    def called(self) -> bool:
        """Whether a probe of each kind is admitted, and no call failed."""
        before = calls(self.plane)
        replies = [self.client.create(*probe, dry_run=True) for probe in default_probes(self.plane)]
        after = calls(self.plane)
        return all(each.ok for each in replies) and after.answered != before.answered and after.failed == before.failed

    def create(self, obj: Json) -> Reply:
        return self.client.create(collection(obj), obj, dry_run=True)

    def claim(self, namespace: str, *tolerations: Json) -> Json:
        return make_claim(self.version, exactly(self.version, list(tolerations)), namespace=namespace)


@pytest.fixture(scope="module", params=["self-managed", pytest.param("cert-manager", marks=pytest.mark.whole)])
def installation(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Certificates of one kind, the worker and default tolerations: a kustomization of ten lines."""
    kind: str = request.param
    assets = _assets(request, *(["cert-manager"] if kind == "cert-manager" else []))
    folder = overlay_of(
        tmp_path_factory.mktemp("overlay") / "mine",
        components=[f"../certs/{kind}", *COMPONENTS],
        namespace=NAMESPACE,
        transformers=["transformers/namespace"],
    )
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(assets))
        if kind == "cert-manager":
            stack.enter_context(CertManager(plane)).install_kinds()
        there = Installation(plane, rendered(assets, folder))
        there.apply()
        need_namespace(plane, OWN_NAMESPACE)
        there.lead_to(stack.enter_context(there.serving(tmp_path_factory.mktemp("tls"))))
        for _ in _keeping_logs_of_failures(request, plane):
            yield there
        there.webhook.keep_logs = plane.keep_logs


@pytest.mark.parametrize("namespace", ["default", OWN_NAMESPACE])
def test_claims_are_judged_also_in_a_namespace_with_our_usual_name(installation: Installation, namespace: str) -> None:
    refused = installation.create(installation.claim(namespace, _TOLERATION))
    assert refused.code == 403
    assert "none-of-these" in refused.message


def test_claims_in_the_namespace_of_the_installation_never_wait(installation: Installation) -> None:
    assert installation.create(installation.claim(NAMESPACE, _TOLERATION)).ok


def test_default_tolerations_are_added(installation: Installation) -> None:
    stored = installation.create(installation.claim("default")).object
    assert "default.example.com/key" in json.dumps(stored["spec"])


def test_the_policy_is_judged_where_it_is_in_use(installation: Installation) -> None:
    for namespace, code in ((NAMESPACE, 422), (OWN_NAMESPACE, 201)):
        name = "device-taint-webhook-policy"
        broken = {"metadata": {"name": name, "namespace": namespace}, "data": {"policy.yaml": "kind: Something"}}
        maps = path("v1", "configmaps", namespace=namespace)
        if namespace == NAMESPACE:
            assert installation.client.patch(POLICY_MAP, broken, dry_run=True).code == code
        else:
            assert installation.client.create(maps, broken, dry_run=True).code == code


def test_authors_are_written_into_templates(installation: Installation) -> None:
    template = make_template(installation.version, exactly(installation.version, None), namespace="default")
    stored = installation.create(template).object
    assert "devicetaint.io/requested-by" in stored["spec"]["metadata"]["annotations"]


@pytest.mark.whole
def test_evict_gets_its_lease_and_evicts(installation: Installation) -> None:
    plane = installation.plane
    if versions.minor(plane.server_version) < 37:
        pytest.skip("rules have another version, or no status")
    account = plane.kubeconfig_of_account(NAMESPACE, "device-taint-webhook-evict")
    lease = path("coordination.k8s.io/v1", "leases", namespace=NAMESPACE, name="device-taint-webhook-evict")
    with (
        Ward(plane.client) as ward,
        _Evict(plane, "delegated", "--leader-elect", policy=None, kubeconfig=account) as process,
    ):
        ward.admit("one")
        process.process.wait_ready(lambda: bool(process.lines("working")), seconds=180)
        assert plane.client.get(lease).object["spec"]["holderIdentity"]
        ward.taint("NoSchedule", annotations={"devicetaint.io/evict": "true"})
        wait_until(lambda: not ward.present(), "evicted")


@pytest.mark.whole
def test_doctor_finds_the_installation_in_its_namespace_only(installation: Installation) -> None:
    for name in ("device-taint-webhook", "device-taint-webhook-evict"):
        deployment = path("apps/v1", "deployments", namespace=NAMESPACE, name=name)
        status = {"status": {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}}
        _ = installation.client.patch(f"{deployment}/status", status).object
    assert _amiss(installation.plane, "-n", NAMESPACE) == set()
    elsewhere = {"deployment", "access", "probe author policy", "probe policy.validate.devicetaint.io"}
    assert _amiss(installation.plane) == elsewhere


def _amiss(plane: ControlPlane, *arguments: str) -> set[str]:
    """What `doctor` does not find well."""
    command = [sys.executable, "-m", "webhook", "doctor", f"--kubeconfig={plane.kubeconfig}", "-o", "json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=our_environment())
    assert done.stdout, done
    return {check["name"] for check in json.loads(done.stdout)["checks"] if check["status"] != "ok"}
