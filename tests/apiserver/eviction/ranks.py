"""Work whose pods are of no use without each other: Indexed Jobs with a device for each rank, and PodGroups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.apiserver.eviction.ground import Ground, pod_spec_of
from tests.conftest import FAKE_NODES
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

Json = dict[str, Any]

GATES: Final = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
"""PodGroups, which may have claims too."""
SERVED: Final = {"scheduling.k8s.io/v1beta1": True}
ALL: Final[Json] = {"all": {}}


class Ranks:
    """An Indexed Job, which the Job controller makes whole again, ready and with a device for each of its pods."""

    def __init__(
        self, ground: Ground, count: int, name: str = "job", labels: Mapping[str, str] | None = None, **pod_spec: Any
    ) -> None:
        """`labels` and `pod_spec` are added to those of its pods. There have to be devices and a template."""
        self.ground = ground
        self.name = name
        self.count = count
        template = {
            "metadata": {"labels": {"app": ground.name, **(labels or {})}},
            "spec": pod_spec_of({"resourceClaimTemplateName": ground.name}) | {"restartPolicy": "Never"} | pod_spec,
        }
        # Evicted ranks count as failed; with a limit for each index they are not delayed by those of other indexes.
        spec = {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "backoffLimitPerIndex": 100,
            "template": template,
        }
        self._url = path("batch/v1", "jobs", namespace=ground.name)
        _ = ground.client.create(self._url, {"metadata": {"name": name}, "spec": spec}).object
        self.wait_ready()

    def wait_ready(self) -> None:
        """Raises NotReadyError."""
        wait_until(self.ready, f"{self.count} ranks of {self.name} are ready", seconds=300, every=0.5)

    def ready(self) -> bool:
        status = self.ground.client.get(f"{self._url}/{self.name}").object.get("status", {})
        return bool(status.get("ready", 0) == self.count)


def make_pod_group(ground: Ground, name: str, mode: Json, **spec: Any) -> str:
    """A PodGroup whose pods are scheduled one by one: its uid."""
    url = path("scheduling.k8s.io/v1beta1", "podgroups", namespace=ground.name)
    spec = {"schedulingPolicy": {"basic": {}}, "disruptionMode": mode, **spec}
    created = ground.client.create(url, {"metadata": {"name": name}, "spec": spec}).object
    uid: str = created["metadata"]["uid"]
    return uid


def make_daemon_set(ground: Ground, **pod_spec: Any) -> None:
    """A DaemonSet of one pod, which is ready; `pod_spec` is added to that of the pod."""
    where = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [FAKE_NODES[0]]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [where]}}}
    labels = {"app": f"{ground.name}-daemon"}
    pod = pod_spec_of({"resourceClaimTemplateName": ground.name}) | {"affinity": affinity} | pod_spec
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    url = path("apps/v1", "daemonsets", namespace=ground.name)
    _ = ground.client.create(url, {"metadata": {"name": "daemon"}, "spec": spec}).object

    def ready() -> bool:
        return bool(ground.client.get(f"{url}/daemon").object.get("status", {}).get("numberReady", 0) == 1)

    wait_until(ready, "the pod of the DaemonSet is ready", seconds=300, every=0.5)


def in_pod_group(name: str) -> Json:
    """For the spec of a pod."""
    return {"schedulingGroup": {"podGroupName": name}}
