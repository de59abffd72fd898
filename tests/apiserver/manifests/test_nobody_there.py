"""A whole cluster whose webhook is gone, as two overlays register it: what goes on, and what docs/runbooks.md says.

With controllers, scheduler and kubelets at work; what single requests meet is the subject of registration/test_outage.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.apiserver.manifests.installing import (
    MANIFESTS,
    OWN_NAMESPACE,
    REGISTRATIONS,
    ROOT,
    Json,
    installation,
    remove,
    url,
    write_registrations,
)
from tests.apiserver.registration.recording import RecordingWebhook
from tests.apiserver.registration.samples import (
    TAINT,
    TOLERATION,
    collection,
    device,
    exactly,
    make_claim,
    make_object,
    make_policy,
    make_rule,
    make_slice,
    make_template,
    need_namespace,
    unused_name,
)
from tests.controlplane import versions
from tests.controlplane.client import Reply, path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.controlplane.registration import registered

RUNBOOKS: Final = ROOT / "docs" / "runbooks.md"
COLUMNS: Final = {"self-managed": "default", "high-availability": "high availability"}
_SOON_SECONDS: Final = 900.0
"""The claim controller waits for twice as long with each claim that is refused."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Pods that use devices were there before the webhook went away."""

    plane: ControlPlane
    way: str
    documents: list[Json]
    version: str
    namespace: str
    """Of the pods and their claims."""
    resource_slice: Json

    def create(self, obj: Json) -> Reply:
        return self.plane.client.create(collection(obj), obj)

    def run_pod(self, template: str) -> Json:
        """A pod with a claim from the template, not waited for."""
        return self.run_pod_with(resourceClaimTemplateName=template)

    def run_pod_with(self, **claim: str) -> Json:
        containers = [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}]
        spec = {"containers": containers, "resourceClaims": [{"name": "gpu", **claim}]}
        pod = make_object("v1", "Pod", spec, namespace=self.namespace) | {"apiVersion": "v1"}
        _ = self.create(pod).object
        return pod

    def phase(self, pod: Json) -> str:
        return str(self.plane.client.get(url(pod)).object["status"].get("phase"))

    def claims_of(self, pod: Json) -> list[Json]:
        claims = path(f"{versions.GROUP}/{self.version}", "resourceclaims", namespace=self.namespace)
        return [
            claim
            for claim in self.plane.client.get(claims).items
            if pod["metadata"]["name"] in {owner["name"] for owner in claim["metadata"].get("ownerReferences", [])}
        ]

    def wait_running(self, pod: Json) -> None:
        wait_until(lambda: self.phase(pod) == "Running", "the pod runs", seconds=_SOON_SECONDS)


TEMPLATES: Final = {"plain": None, "tolerating": [TOLERATION]}


@pytest.fixture(scope="module", params=[pytest.param("self-managed", marks=pytest.mark.whole), "high-availability"])
def cluster(
    request: pytest.FixtureRequest, full_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Two pods run, one of them with a toleration; then it is registered, and no one listens."""
    way: str = request.param
    version = versions.api_versions(full_plane.server_version)[0]
    documents = installation(full_plane.assets, way)
    resource_slice = make_slice(version, *[device(version)] * 6)
    cluster = Cluster(full_plane, way, documents, version, unused_name(), resource_slice)
    need_namespace(full_plane, cluster.namespace)
    need_namespace(full_plane, OWN_NAMESPACE)
    driver = resource_slice["spec"]["driver"]
    selectors = [{"cel": {"expression": f"device.driver == '{driver}'"}}]
    device_class = make_object(version, "DeviceClass", {"selectors": selectors}, name=driver)
    classes = path(device_class["apiVersion"], "deviceclasses")
    _ = full_plane.client.create(classes, device_class).object
    _ = cluster.create(resource_slice).object
    for name, tolerations in TEMPLATES.items():
        template = make_template(version, exactly(version, tolerations), namespace=cluster.namespace, name=name)
        _ = cluster.create(template).object
    for pod in [cluster.run_pod(name) for name in TEMPLATES]:
        cluster.wait_running(pod)
    folder = tmp_path_factory.mktemp("way")
    file = write_registrations(full_plane.assets, way, folder)
    with (
        RecordingWebhook(tmp_path_factory.mktemp("webhook")) as recording,
        registered(full_plane, folder, recording.base_url, recording.ca_pem, files=[file]),
    ):
        recording.stop()
        yield cluster
    for left in (url(resource_slice), f"{classes}/{driver}", path("v1", "namespaces", name=cluster.namespace)):
        full_plane.client.delete(left)


def _pods_of(cluster: Cluster) -> list[Json]:
    return cluster.plane.client.get(path("v1", "pods", namespace=cluster.namespace)).items


@pytest.mark.parametrize("namespace", ["default", "kube-system", OWN_NAMESPACE])
def test_ordinary_objects_come_change_and_go_in_every_namespace(cluster: Cluster, namespace: str) -> None:
    here = {"namespace": namespace, "name": unused_name()}
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    containers = [{"name": "c", "image": "none", "securityContext": restricted}]
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    deployment = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    objects: list[Json] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": here["name"]}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here},
        {"apiVersion": "v1", "kind": "Event", "metadata": here, "involvedObject": {"namespace": namespace}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": here, "spec": deployment},
        {"apiVersion": "v1", "kind": "Pod", "metadata": here, "spec": {"containers": containers}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": here},
        {"apiVersion": "v1", "kind": "Secret", "metadata": here},
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": here},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": here["name"]}},
    ]
    for obj in objects:
        assert cluster.create(obj).code == 201, obj["kind"]
        assert cluster.plane.client.patch(url(obj), {"metadata": {"labels": {"a": "b"}}}).ok, obj["kind"]
        assert cluster.plane.client.delete(url(obj)).ok, obj["kind"]


def test_new_pods_get_devices(cluster: Cluster) -> None:
    """The claim controller makes the claim, the scheduler allocates, the kubelet starts: none of them waits for us."""
    pod = cluster.run_pod("plain")
    cluster.wait_running(pod)
    (claim,) = cluster.claims_of(pod)
    assert claim["status"]["allocation"]["devices"]["results"][0]["driver"] == cluster.resource_slice["spec"]["driver"]


def test_pods_whose_claims_are_refused_wait_and_the_claim_controller_says_why(cluster: Cluster) -> None:
    pod = cluster.run_pod("tolerating")
    if cluster.way == "self-managed":
        cluster.wait_running(pod)
        return
    events = path("v1", "events", namespace=cluster.namespace)

    def reasons() -> list[str]:
        named = [e for e in cluster.plane.client.get(events).items if e["involvedObject"]["name"] == _name(pod)]
        return [event["message"] for event in named if event["reason"] == "FailedResourceClaimCreation"]

    wait_until(lambda: bool(reasons()), "an Event about the claim", seconds=_SOON_SECONDS)
    assert 'failed calling webhook "claims.validate.devicetaint.io"' in reasons()[0]
    assert cluster.phase(pod) == "Pending"


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def test_a_driver_taints_its_devices_and_goes_on_with_the_slice(cluster: Cluster) -> None:
    """A device is added to a slice that carries a taint, another gets a taint too, and then both lose theirs."""
    client, there = cluster.plane.client, url(cluster.resource_slice)
    clean = client.get(there).object["spec"]["devices"]
    taint = {**TAINT, "effect": "NoSchedule"}
    one = [*clean[:-1], {**clean[-1], "taints": [taint]}]
    two = [{**clean[0], "taints": [{**taint, "value": "worse"}]}, *one[1:]]
    for devices in (one, [*one, {"name": "late"}], two, clean):
        assert client.patch(there, {"spec": {"devices": devices}}).ok
    assert client.get(there).object["spec"]["devices"] == clean


def test_pods_go_with_their_claims(cluster: Cluster) -> None:
    """Deallocated, finalizer removed, deleted: by scheduler, claim controller and garbage collector."""
    there = [{**pod, "apiVersion": "v1", "kind": "Pod"} for pod in _pods_of(cluster)]
    using = [pod for pod in there if cluster.claims_of(pod)]
    templates = {pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] for pod in using}
    assert templates == set(TEMPLATES)
    for pod in using:
        assert cluster.plane.client.delete(url(pod)).ok
    wait_until(lambda: not any(map(cluster.claims_of, using)), "their claims are gone", seconds=_SOON_SECONDS)


def test_our_own_pods_start_anew_without_us(cluster: Cluster) -> None:
    """Restricted, of critical priority and with a quota; all of them deleted at once."""
    client = cluster.plane.client
    ours = [document for document in cluster.documents if document["kind"] not in REGISTRATIONS]
    deployment = next(document for document in ours if document["kind"] == "Deployment")
    pods = path("v1", "pods", namespace=OWN_NAMESPACE)

    def available() -> bool:
        status = client.get(url(deployment)).object.get("status", {})
        return bool(status.get("availableReplicas", 0) == deployment["spec"]["replicas"])

    try:
        done = cluster.plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(ours))
        assert done.code == 0, done
        wait_until(available, "our pods run", seconds=_SOON_SECONDS)
        before = {pod["metadata"]["uid"] for pod in client.get(pods).items}
        for pod in client.get(pods).items:
            assert client.delete(f"{pods}/{_name(pod)}").ok
        wait_until(
            lambda: available() and not before & {pod["metadata"]["uid"] for pod in client.get(pods).items},
            "other pods run in their place",
            seconds=_SOON_SECONDS,
        )
    finally:
        remove(cluster.plane, [document for document in ours if document["kind"] != "Namespace"])
    wait_until(lambda: client.get(pods).items == [], "our pods are gone", seconds=_SOON_SECONDS)


def test_whole_namespaces_go(cluster: Cluster) -> None:
    """With pods, claims in use and templates in them: the namespace controller gets rid of all."""
    doomed = replace(cluster, namespace=unused_name())
    need_namespace(cluster.plane, doomed.namespace)
    if cluster.way == "self-managed":  # elsewhere templates are refused
        template = make_template(doomed.version, exactly(doomed.version), namespace=doomed.namespace, name="plain")
        _ = doomed.create(template).object
    claim = make_claim(doomed.version, exactly(doomed.version), namespace=doomed.namespace, name="mine")
    _ = doomed.create(claim).object
    doomed.wait_running(doomed.run_pod_with(resourceClaimName="mine"))
    namespace = path("v1", "namespaces", name=doomed.namespace)
    assert cluster.plane.client.delete(namespace).ok
    wait_until(lambda: cluster.plane.client.get(namespace).code == 404, "the namespace is gone", seconds=_SOON_SECONDS)


# --- what the page says ---------------------------------------------------------------------------


def _told(column: str) -> dict[str, str]:
    """The table under "What is blocked while the webhook is down", without what only a component registers.

    Component `patches` is down in tests/apiserver/patches/test_webhook.py.
    """
    page = RUNBOOKS.read_text()
    section = page[page.index("## What is blocked while the webhook is down") :].partition("\n## ")[0]
    head, *rows = re.findall(r"^\|(.+)\|$", section, re.MULTILINE)
    columns = [cell.strip() for cell in head.split("|")]
    cells = [[cell.strip() for cell in row.split("|")] for row in rows[1:]]
    return {row[0]: row[columns.index(column)] for row in cells if "with component" not in row[0]}


def _seen(cluster: Cluster) -> dict[str, str]:
    version, rule_version = cluster.version, versions.rule_versions(cluster.plane.server_version)[0]
    waiting = {
        "DeviceTaintRule: create, change": make_rule(rule_version),
        "ResourceClaim with tolerations: create": make_claim(version, exactly(version, [TOLERATION])),
        "ResourceClaimTemplate: create": make_template(version, exactly(version)),
        "ResourceSlice with a taint: create, change": make_slice(version, device(version, [TAINT])),
        "ConfigMap `device-taint-webhook-policy`: create, change": make_policy(
            OWN_NAMESPACE, "device-taint-webhook-policy"
        ),
    }
    codes = {
        what: cluster.plane.client.create(collection(obj), obj, dry_run=True).code for what, obj in waiting.items()
    }
    return {what: {500: "refused", 201: "passes unjudged"}[code] for what, code in codes.items()}


def test_the_page_lists_what_is_affected(cluster: Cluster) -> None:
    assert _told(COLUMNS[cluster.way]) == _seen(cluster)


def test_the_alerts_would_see_it(cluster: Cluster) -> None:
    """Series of API servers have the names and labels that the alerts ask for."""
    _seen(cluster)
    alerts = (MANIFESTS / "components" / "monitoring" / "alerts.yaml").read_text()
    metrics = cluster.plane.metrics()
    for name in set(re.findall(r"apiserver_\w+", alerts)):
        labels = re.findall(rf"^{name}{{(.*)}} ", metrics, re.MULTILINE)
        assert [each for each in labels if re.search(r'\bname="\w+\.(validate|mutate)\.devicetaint\.io"', each)], name
    refused = r'apiserver_admission_webhook_rejection_count{.*error_type="calling_webhook_error".*name="rules\.validate'
    assert re.search(refused, metrics)


def _documented_command(page: Path) -> str:
    (command,) = set(re.findall(r"^kubectl delete .*webhookconfiguration.*$", page.read_text(), re.MULTILINE))
    return str(command)


def test_both_pages_name_the_same_command() -> None:
    assert _documented_command(RUNBOOKS) == _documented_command(ROOT / "docs" / "install.md")


def test_the_documented_command_lifts_it_all(cluster: Cluster) -> None:
    """Last in this file: nothing is registered afterwards."""
    done = cluster.plane.kubectl(*shlex.split(_documented_command(RUNBOOKS))[1:])
    assert done.code == 0, done
    assert done.stdout.count(" deleted") == 2
    wait_until(lambda: set(_seen(cluster).values()) == {"passes unjudged"}, "nothing is refused", seconds=_SOON_SECONDS)
    for pod in _pods_of(cluster):  # those that waited for their claim, too
        cluster.wait_running({**pod, "apiVersion": "v1", "kind": "Pod"})
