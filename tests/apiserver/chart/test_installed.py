"""The chart on a real control plane, by each real helm: installed, tested, upgraded, rolled back, uninstalled."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.apiserver.chart.helming import CHART, Helm
from tests.apiserver.chart.release import NAME, NAMESPACE, POLICY, SERVE, Release
from tests.apiserver.issued import CertManager
from tests.apiserver.manifests.installing import overlay_of
from tests.apiserver.planes import own_plane
from tests.controlplane.client import path
from tests.controlplane.egress import EgressProxy
from tests.controlplane.kubelet import DaemonProcess, Kubelet
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from webhook import __version__

pytestmark = pytest.mark.whole

Json = dict[str, Any]

_IN_TREE: Final = "-device-taint-eviction-controller"
"""Off, as mode replacement needs it."""
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
CLIENT_CA: Final = "device-taint-webhook-client-ca"
FIRST: Final = {
    "policy": {"document": POLICY},
    "clientCertificates": {"enabled": True},
    "evict": {"enabled": True},
    "patches": {"enabled": True},
}
SECOND: Final = {
    **FIRST,
    "certificates": {"provider": "cert-manager"},
    "highAvailability": True,
    "evict": {"enabled": True, "mode": "replacement"},
    "patches": {"enabled": True, "keepDefinition": False},
}
PASSING: Final = ("Pod/", "ReplicaSet/", "EndpointSlice/", "Endpoints/", "CertificateRequest/")
"""Kinds of objects that controllers delete after those that they belong to."""


class Deletion(NamedTuple):
    """Who deleted what, in the order of the audit log."""

    account: str
    resource: str
    name: str


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest, each_helm: Helm) -> Iterator[tuple[ControlPlane, EgressProxy]]:
    """A cluster with controllers and cert-manager, and a namespace that admits only restricted pods, for each Helm."""
    del each_helm  # leaves objects behind
    with contextlib.ExitStack() as stack:
        egress = stack.enter_context(EgressProxy(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        plane = stack.enter_context(
            own_plane(
                request,
                *("kube-controller-manager", "cert-manager"),
                controllers=[_IN_TREE],
                audit=True,
                api_server_arguments=[egress.argument],
            )
        )
        stack.enter_context(CertManager(plane)).install_kinds()
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
        _ = plane.client.create(path("v1", "namespaces"), namespace).object
        ca = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CLIENT_CA}}
        data = {"ca.crt": plane.ca_pem.decode()}
        _ = plane.client.create(path("v1", "configmaps", namespace=NAMESPACE), {**ca, "data": data}).object
        yield plane, egress


@pytest.fixture
def release(each_helm: Helm, plane: tuple[ControlPlane, EgressProxy]) -> Iterator[Release]:
    """Of the chart, not yet installed, and uninstalled at the end if it is there."""
    made = Release(each_helm, *plane)
    yield made
    made.helm("uninstall", "--no-hooks", "--ignore-not-found")


def _deletions(release: Release) -> list[Deletion]:
    found = []
    for event in release.plane.audit_events():
        reference = event.get("objectRef", {})
        if event["verb"] == "delete" and event["responseStatus"]["code"] == 200:
            account = event["user"]["username"]
            found.append(Deletion(account, reference.get("resource", ""), reference.get("name", "")))
    return found


def _install_and_test(release: Release) -> None:
    release.install(FIRST)
    with Kubelet(release.plane, NAMESPACE, {"doctor"}) as kubelet, release.serving():
        out = release.helm("test")
        assert "Phase:" in out
        assert "Succeeded" in out
        doctor = kubelet.output["doctor"]
        lines = [line for line in doctor.splitlines() if not line.startswith(("ok ", "warn  certificate"))]
        assert lines == [], doctor
        assert "ok    probe patches.validate.devicetaint.io: answered through the API server" in doctor
        assert kubelet.faults == []
        _refuse_broken_policy(release)
    assert not release.plane.kubectl("get", "clusterrole", "device-taint-webhook-doctor").stdout


def _refuse_broken_policy(release: Release) -> None:
    """The running webhook refuses the ConfigMap, so helm fails with its words; the old policy stays."""
    broken = {**FIRST, "policy": {"document": {**POLICY, "rules": [*POLICY["rules"], *POLICY["rules"]]}}}
    code, _, err = release.try_helm("upgrade", CHART, "--reset-values", values=broken)
    assert code == 1
    assert "data[policy.yaml].rules[1].name" in err
    wait_until(release.judges, "the old policy is in use")
    release.upgrade(FIRST)


def _refuse_a_second(release: Release) -> None:
    """What it installs is named by the cluster, so a second one would take it over."""
    for name, namespace in (("taints", "default"), ("other", NAMESPACE)):
        where = f"--namespace={namespace}"
        code, _, err = release.run("install", name, CHART, where)
        assert code == 1
        assert f"there is one in namespace {NAMESPACE} already, release {NAME}, and a cluster has one" in err
        assert release.run("status", name, where)[0] == 1


def _upgrade_and_roll_back(release: Release) -> None:
    before = release.stored()
    release.upgrade(FIRST)
    assert release.stored() == before, "the same values change nothing"
    release.upgrade(SECOND)
    assert "--mode=replacement" in release.pod(f"{SERVE}-evict")["containers"][0]["args"]
    worker = DaemonProcess(release.plane, NAMESPACE, release.pod(f"{SERVE}-evict"), serves=False)
    with release.serving(), worker:
        lease = path("coordination.k8s.io/v1", "leases", namespace=NAMESPACE, name=f"{SERVE}-evict")
        wait_until(lambda: release.plane.client.get(lease).ok, "the worker leads")
        assert worker.process.code is None
    release.helm("rollback", "1")
    with release.serving():
        pass
    names = {each["name"] for each in release.pod(SERVE)["containers"][0]["env"]}
    assert "DEVICE_TAINT_WEBHOOK_SELF_MANAGED_CERTIFICATES" in names


def _uninstall(release: Release) -> None:
    before = len(_deletions(release))
    with Kubelet(release.plane, NAMESPACE, {"cleanup"}) as kubelet:
        release.helm("uninstall")
    assert kubelet.faults == []
    assert "deleted, so API servers stop calling the webhook" in kubelet.output["cleanup"]
    assert release.registrations() == []
    deletions = _deletions(release)[before:]
    account = f"system:serviceaccount:{NAMESPACE}:device-taint-webhook-cleanup"
    by_hook = [index for index, each in enumerate(deletions) if each.account == account]
    assert [deletions[index].resource for index in by_hook] == [
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
    ]
    others = [index for index, each in enumerate(deletions) if each.resource in {"deployments", "services", "roles"}]
    assert max(by_hook) < min(others)


def test_release_is_installed_tested_upgraded_rolled_back_and_uninstalled(release: Release) -> None:
    """Certificates change from self-managed to cert-manager and back, evict from observe to replacement."""
    _install_and_test(release)
    _refuse_a_second(release)
    _upgrade_and_roll_back(release)
    _uninstall(release)
    with pytest.raises(AssertionError, match="not found"):
        release.helm("status")

    wait_until(lambda: not any(each.startswith(PASSING) for each in release.left()), "pods are gone", every=1)
    assert release.left() == {
        "CustomResourceDefinition/resourceslicepatches.devicetaint.io",
        "Secret/device-taint-webhook-tls",  # cert-manager leaves what it has issued
        "Secret/device-taint-webhook-cert-manager-ca",
        "Lease/device-taint-webhook-evict",
        f"ConfigMap/{CLIENT_CA}",
    }
    release.install(FIRST)  # takes over what was kept


def test_installation_of_kustomize_is_taken_over(each_helm: Helm, release: Release, tmp_path: Path) -> None:
    """Names and selectors are the same; only labels change, so pods are replaced one at a time."""
    components = ["../certs/self-managed", "components/evict-delegated"]
    fields: Json = {
        "namespace": NAMESPACE,
        "transformers": ["transformers/namespace"],
        "images": [{"name": SERVE, "newTag": __version__}],
    }
    done = release.plane.kubectl("apply", "-k", overlay_of(tmp_path / "mine", components=components, **fields))
    assert done.code == 0, done
    before = {name: release.pod(name) for name in (SERVE, f"{SERVE}-evict")}
    values = {"evict": {"enabled": True, "mode": "delegated"}}
    release.helm("install", CHART, *each_helm.takes_over_by, values=values)
    assert {name: release.pod(name) for name in before} == before
    assert {each["metadata"]["labels"][_MANAGED_BY] for each in release.stored().values()} == {"Helm"}
    release.helm("uninstall", "--no-hooks")
    assert release.registrations() == []
