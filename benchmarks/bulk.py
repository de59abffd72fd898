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
    if obj["kind"] == "ResourceSlice":
        return f"/registry/resourceslices/{meta['name']}"
    return f"/registry/resourceclaims/{meta['namespace']}/{meta['name']}"


def _meta(name: str, namespace: str = "") -> dict[str, Any]:
    meta = {"name": name, "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{namespace}/{name}")), "creationTimestamp": _TIME}
    return {**meta, "namespace": namespace} if namespace else meta


def slices(count: int) -> Iterator[dict[str, Any]]:
    """One for each node, as a driver with a few attributes publishes it."""
    for number in range(count):
        devices = [
            {
                "name": f"gpu-{device}",
                "attributes": {"model": {"string": "example-80"}, "index": {"int": device}},
                "capacity": {"memory": {"value": "80Gi"}},
            }
            for device in range(DEVICES)
        ]
        yield {
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


def claim(number: int, nodes: int) -> dict[str, Any]:
    """The claim of that number, as a pod's template makes it."""
    namespace, name = f"team-{number % NAMESPACES}", f"train-{number}"
    tolerations = _TOLERATIONS[number % len(_TOLERATIONS)]
    pod = {"resource": "pods", "name": name, "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, f"pod/{name}"))}
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
