"""Pods with a device each, as an eviction benchmark needs them: created through the API server, on no real node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.controlplane.client import path
from tests.controlplane.versions import GROUP

if TYPE_CHECKING:
    from tests.controlplane.client import Client

Json = dict[str, Any]

DEVICES: Final = 50
"""In a slice."""
_VERSION: Final = f"{GROUP}/v1"
_DRIVER: Final = "gpu.example.com"
_NAMESPACE: Final = "crowd"
_THREADS: Final = 8


class Crowd:
    """So many pods, one for each device of the slices; a DELETE makes them vanish at once."""

    def __init__(self, client: Client, pods: int) -> None:
        self._client = client
        self._size = pods
        self._pods = path("v1", "pods", namespace=_NAMESPACE)
        self._claims = path(_VERSION, "resourceclaims", namespace=_NAMESPACE)

    def gather(self) -> None:
        """All are there when it returns."""
        _ = self._client.create(path("v1", "namespaces"), {"metadata": {"name": _NAMESPACE}}).object
        self._client.each(self._publish, range(self._size // DEVICES), threads=_THREADS)
        self._client.each(self._admit, range(self._size), threads=_THREADS)

    def taint(self) -> None:
        """One rule for all of their devices."""
        spec = {"deviceSelector": {"driver": _DRIVER}, "taint": {"key": "example.com/broken", "effect": "NoExecute"}}
        _ = self._client.create(path(_VERSION, "devicetaintrules"), {"metadata": {"name": "all"}, "spec": spec}).object

    def left(self) -> int:
        """How many are still there."""
        listed = self._client.get(self._pods, limit="1").object
        return len(listed["items"]) + int(listed["metadata"].get("remainingItemCount", 0))

    def _publish(self, number: int) -> None:
        pool = {"name": f"pool-{number}", "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"device-{device}"} for device in range(DEVICES)]
        spec = {"driver": _DRIVER, "nodeName": f"node-{number}", "pool": pool, "devices": devices}
        slices = path(_VERSION, "resourceslices")
        _ = self._client.create(slices, {"metadata": {"name": f"slice-{number}"}, "spec": spec}).object

    def _admit(self, number: int) -> None:
        """A pod and its claim, which is allocated as the scheduler does it."""
        name, pool = f"pod-{number}", number // DEVICES
        requests = [{"name": "gpu", "exactly": {"deviceClassName": _DRIVER}}]
        claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
        _ = self._client.create(self._claims, claim).object
        spec = {
            "nodeName": f"node-{pool}",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        }
        pod = self._client.create(self._pods, {"metadata": {"name": name}, "spec": spec}).object
        device = {"driver": _DRIVER, "pool": f"pool-{pool}", "device": f"device-{number % DEVICES}"}
        status = {
            "allocation": {"devices": {"results": [{"request": "gpu", **device}]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}],
        }
        _ = self._client.patch(f"{self._claims}/{name}/status", {"status": status}).object
