"""Objects of a large cluster, written straight to the etcd of an API server that stores JSON."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import uuid
from typing import TYPE_CHECKING, Any, Final, Self

from benchmarks.gobinaries import BenchmarkError
from tests.controlplane.arguments import ETCD_SOCKET

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

DRIVER: Final = "gpu.example.com"
DEVICES: Final = 50
"""In a slice."""
NAMESPACES: Final = 100
_TIME: Final = "2026-01-31T12:00:00Z"
_TOLERATIONS: Final[tuple[list[dict[str, Any]], ...]] = (
    [],
    [
        {
            "key": "maintenance.example.com/planned",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 3600,
        }
    ],
    [{"key": "example.com/flaky", "operator": "Exists", "effect": "NoExecute"}],
)
_BATCH: Final = 100
"""Writes in one transaction; etcd takes 128."""
_BATCH_BYTES: Final = 1_000_000
"""And it takes 2 MiB."""


class EtcdWriter:
    """Writes objects as the API server would, by way of etcd's JSON gateway."""

    def __init__(self, folder: Path) -> None:
        """The folder is the control plane's."""
        self._connection = _UnixConnection(str(folder / ETCD_SOCKET))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def write(self, objects: Iterable[dict[str, Any]]) -> None:
        """All of them, in batches. Raises: BenchmarkError."""
        batch: list[dict[str, Any]] = []
        size = 0
        for obj in objects:
            value = _encoded(json.dumps(obj))
            if batch and (len(batch) == _BATCH or size + len(value) > _BATCH_BYTES):
                self._send(batch)
                batch, size = [], 0
            batch.append({"requestPut": {"key": _encoded(_key(obj)), "value": value}})
            size += len(value)
        if batch:
            self._send(batch)

    def _send(self, batch: list[dict[str, Any]]) -> None:
        self._connection.request("POST", "/v3/kv/txn", json.dumps({"success": batch}))
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != http.client.OK:
            raise BenchmarkError(f"etcd takes no objects: {answer.status} {text.decode(errors='replace')[:200]}")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _key(obj: dict[str, Any]) -> str:
    meta = obj["metadata"]
    folder = f"/registry/{obj['kind'].lower()}s"
    return "/".join([folder, *([meta["namespace"]] if "namespace" in meta else []), meta["name"]])


def _uid(of: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, of))


def _meta(name: str, namespace: str = "") -> dict[str, Any]:
    meta = {"name": name, "uid": _uid(f"{namespace}/{name}"), "creationTimestamp": _TIME}
    return {**meta, "namespace": namespace} if namespace else meta


def slices(count: int) -> Iterator[dict[str, Any]]:
    """One for each node, as a driver with a few attributes publishes it."""
    return map(slice_of, range(count))


def slice_of(number: int) -> dict[str, Any]:
    """The slice of the node of that number."""
    devices = [
        {
            "name": f"gpu-{device}",
            "attributes": {"model": {"string": "example-80"}, "index": {"int": device}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for device in range(DEVICES)
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": _meta(f"node-{number}-gpu"),
        "spec": {
            "driver": DRIVER,
            "nodeName": f"node-{number}",
            "pool": {"name": f"node-{number}", "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def claims(count: int, nodes: int) -> Iterator[dict[str, Any]]:
    """Each allocated one device, and reserved for one pod."""
    for number in range(count):
        yield claim(number, nodes)


def pod(number: int, nodes: int) -> dict[str, Any]:
    """The pod that the claim of that number is reserved for; four have a Job."""
    namespace, name = f"team-{number % NAMESPACES}", f"train-{number}"
    job = f"job-{number % NAMESPACES}-{number // NAMESPACES // 4}"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": _uid(f"job/{job}"), "controller": True}
    container = {
        "name": "train",
        "image": "registry.example.com/team/train:v1.2.3",
        "command": ["python", "-m", "train", "--epochs=100"],
        "env": [{"name": f"SETTING_{each}", "value": f"value-{each}"} for each in range(8)],
        "resources": {"requests": {"cpu": "8", "memory": "64Gi"}, "claims": [{"name": "gpu"}]},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **_meta(name, namespace),
            "uid": _uid(f"pod/{name}"),
            "labels": {"app": "train", "batch.kubernetes.io/job-name": job},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": f"node-{number % nodes}",
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
        },
        "status": {
            "phase": "Running",
            "startTime": _TIME,
            "conditions": [{"type": each, "status": "True", "lastTransitionTime": _TIME} for each in conditions],
            "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}],
        },
    }


def claim(number: int, nodes: int) -> dict[str, Any]:
    """The claim of that number, as a pod's template makes it."""
    namespace, name = f"team-{number % NAMESPACES}", f"train-{number}"
    tolerations = _TOLERATIONS[number % len(_TOLERATIONS)]
    pod = {"resource": "pods", "name": name, "uid": _uid(f"pod/{name}")}
    result = {
        "request": "gpu",
        "driver": DRIVER,
        "pool": f"node-{number % nodes}",
        "device": f"gpu-{number // nodes % DEVICES}",
        **({"tolerations": tolerations} if tolerations else {}),
    }
    node = {"key": "metadata.name", "operator": "In", "values": [f"node-{number % nodes}"]}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["uid"], "controller": True}
    exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1, "tolerations": tolerations}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {**_meta(name, namespace), "ownerReferences": [owner]},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": {
            "allocation": {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [node]}]},
            },
            "reservedFor": [pod],
        },
    }
