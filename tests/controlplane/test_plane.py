"""The test bed itself: what other tests take for granted of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest

from tests.builders import (
    Manifest,
    make_claim,
    make_device,
    make_meta,
    make_request,
    make_rule,
    make_slice,
    make_taint,
    make_template,
)
from tests.controlplane import versions
from tests.controlplane.assets import Assets
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import NotReadyError, wait_until
from tests.controlplane.test_processes import _alive
from tests.controlplane.versions import GROUP

pytestmark = pytest.mark.apiserver

CLAIMS = path("resource.k8s.io/v1", "resourceclaims", namespace="default")


# --- what is served -------------------------------------------------------------------------------


def test_exactly_the_documented_versions_are_served(plane: ControlPlane) -> None:
    """Semantics section 0: V-1 and the table above it."""
    group = plane.client.get("/apis/resource.k8s.io").object
    assert [v["version"] for v in group["versions"]] == list(versions.api_versions(plane.server_version))


def test_taints_are_not_dropped_by_a_feature_gate(plane: ControlPlane) -> None:
    """V-4, S-8: with the gate off the list would be gone; D-1: and here its time is set."""
    version = versions.api_versions(plane.server_version)[0]
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    stored = plane.client.create(
        path(f"{GROUP}/{version}", "resourceslices"),
        make_slice([make_device(taints=[taint])], version=version),
        dry_run=True,
    ).object
    (answered,) = stored["spec"]["devices"][0]["taints"]
    assert answered.pop("timeAdded")
    assert answered == taint


def test_server_version_is_what_the_server_says(plane: ControlPlane) -> None:
    assert plane.client.get("/version").object["gitVersion"] == f"v{plane.server_version}"


# --- all components -------------------------------------------------------------------------------


class Scene:
    """Objects named "test-bed" in a namespace and a driver of that name; all go when the test is over."""

    name = "test-bed"
    driver = "test-bed.example.com"

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.version = versions.api_versions(plane.server_version)[0]
        self.rule_version = versions.rule_versions(plane.server_version)[0]
        self._created: list[str] = []

    def create(self, collection: str, fields: Manifest) -> str:
        """Creates an object of that name and gives its path."""
        obj = {**fields, "metadata": {"name": self.name}}
        _ = self.plane.client.create(collection, obj).object
        self._created.append(f"{collection}/{self.name}")
        return self._created[-1]

    def delete_all(self) -> None:
        for url_path in reversed(self._created):
            self.plane.client.delete(url_path)


@pytest.fixture
def scene(full_plane: ControlPlane) -> Iterator[Scene]:
    scene = Scene(full_plane)
    scene.create(path("v1", "namespaces"), {"apiVersion": "v1", "kind": "Namespace"})
    yield scene
    scene.delete_all()


def _publish_device(scene: Scene) -> None:
    group_version = f"{GROUP}/{scene.version}"
    selectors = [{"cel": {"expression": f"device.driver == '{scene.driver}'"}}]
    device_class = {"apiVersion": group_version, "kind": "DeviceClass", "spec": {"selectors": selectors}}
    scene.create(path(group_version, "deviceclasses"), device_class)
    published = make_slice(version=scene.version, driver=scene.driver, node_name=None, allNodes=True)
    scene.create(path(group_version, "resourceslices"), published)


def _run_pod(scene: Scene) -> str:
    """A pod with a device from a claim template, once it runs: its path."""
    group_version = f"{GROUP}/{scene.version}"
    template = make_template(requests=[make_request(deviceClassName=scene.name)], version=scene.version)
    scene.create(path(group_version, "resourceclaimtemplates", namespace=scene.name), template)
    spec = {
        "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": scene.name}],
    }
    pods = path("v1", "pods", namespace=scene.name)
    pod = scene.create(pods, {"apiVersion": "v1", "kind": "Pod", "spec": spec})
    client = scene.plane.client
    wait_until(lambda: client.get(pod).object["status"].get("phase") == "Running", "the pod runs", seconds=180)
    return pod


def _evictions(plane: ControlPlane) -> int:
    """E-33: the eviction controller's own count; 0 before its first."""
    counted = re.search(
        r"^device_taint_eviction_controller_pod_deletions_total (\d+)$",
        plane.metrics("kube-controller-manager"),
        re.MULTILINE,
    )
    return int(counted[1]) if counted else 0


def test_pod_is_scheduled_onto_a_device_and_evicted_by_a_rule(scene: Scene) -> None:
    """The whole life of a taint, in released components only."""
    client, evictions = scene.plane.client, _evictions(scene.plane)
    _publish_device(scene)
    pod = _run_pod(scene)
    (claim,) = client.get(path(f"{GROUP}/{scene.version}", "resourceclaims", namespace=scene.name)).items
    assert claim["metadata"]["ownerReferences"][0]["name"] == scene.name
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"], result["device"]) == (scene.driver, "node-0", "gpu-0")

    taint = make_taint(effect="NoExecute", time_added=None)
    rule = make_rule(selector={"driver": scene.driver}, taint=taint, version=scene.rule_version)
    scene.create(path(f"{GROUP}/{scene.rule_version}", "devicetaintrules"), rule)
    wait_until(lambda: client.get(pod).code == 404, "the pod is evicted", seconds=180)

    def event_messages() -> list[str]:
        events = client.get(path("v1", "events", namespace=scene.name)).items
        return [e["message"] for e in events if e["reason"] == "DeviceTaintManagerEviction"]

    wait_until(lambda: bool(event_messages()), "the event of the eviction")  # recorded asynchronously
    assert event_messages() == ["Marking for deletion"]  # E-34
    wait_until(lambda: _evictions(scene.plane) == evictions + 1, "the eviction counted")


def test_every_component_serves_its_metrics(full_plane: ControlPlane) -> None:
    for component, metric in (
        ("kube-apiserver", "apiserver_request_total"),
        ("kube-scheduler", "scheduler_pending_pods"),
        ("kube-controller-manager", 'name="garbage_collector_attempt_to_delete"'),
    ):
        # healthy before it has started all that it counts
        wait_until(lambda name=component, text=metric: text in full_plane.metrics(name), f"{component}: {metric}")  # type: ignore[misc]


# --- start and stop -------------------------------------------------------------------------------


def test_stopping_leaves_no_process_and_no_file(assets: Assets) -> None:
    with ControlPlane(assets, audit=True) as plane:
        pids = [process.pid for process in plane.processes.values()]
        assert len(pids) == 2
        assert all(map(_alive, pids))
        plane.client.create(CLAIMS, make_claim(meta=make_meta("claim")), dry_run=True)
        created = [e for e in plane.audit_events() if e["verb"] == "create"]
        assert ("test-admin", "claim") in [
            (e["user"]["username"], e["objectRef"].get("name") or e["requestObject"]["metadata"]["name"])
            for e in created
            if e["objectRef"]["resource"] == "resourceclaims"
        ]
    assert not any(map(_alive, pids))
    assert not plane.folder.exists()


def test_a_failing_start_names_the_reason_and_keeps_the_logs(assets: Assets, capfd: pytest.CaptureFixture[str]) -> None:
    plane = ControlPlane(assets, api_server_arguments=["--no-such-flag"])
    with pytest.raises(NotReadyError, match="unknown flag: --no-such-flag"), plane:
        pass
    assert f"logs of the control plane: {plane.folder}" in capfd.readouterr().err
    assert (plane.folder / "kube-apiserver.log").is_file()
    assert plane.processes == {}
    shutil.rmtree(plane.folder)
