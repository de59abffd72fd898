"""Five hundred nodes with one device each, and a pod's claim on every device. Of the pods there are only the claims."""

from __future__ import annotations

from typing import Any, Final

from tests.controlplane.client import Client, path
from tests.controlplane.versions import GROUP

Json = dict[str, Any]

COUNT: Final = 500
DRIVER: Final = "crowd.example.com"
NAMESPACE: Final = "crowd"
KEY: Final = "maint.example.com/window"
RULES: Final = path(f"{GROUP}/v1", "devicetaintrules")
SLICES: Final = path(f"{GROUP}/v1", "resourceslices")
CLAIMS: Final = path(f"{GROUP}/v1", "resourceclaims", namespace=NAMESPACE)
_THREADS: Final = 8


def node(number: int) -> str:
    return f"node-{number:03}"


def install(client: Client) -> None:
    """All of it."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    _ = client.create(path("v1", "namespaces"), namespace).object
    client.each(lambda number: client.create(SLICES, _slice(number)).object, range(COUNT), threads=_THREADS)
    client.each(lambda number: occupy(client, number), range(COUNT), threads=_THREADS)


def occupy(client: Client, number: int) -> None:
    """A pod comes to a node's device: a claim that is allocated and reserved, as a scheduler would have it."""
    _ = client.create(CLAIMS, _claim(number)).object
    result = {"request": "r", "driver": DRIVER, "pool": node(number), "device": "gpu"}
    consumer = {"resource": "pods", "name": f"pod-{number}", "uid": f"uid-{number}"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
    _ = client.patch(f"{CLAIMS}/{node(number)}/status", {"status": status}).object


def vacate(client: Client, number: int) -> None:
    """The pod is gone, and its claim with it, as after an eviction."""
    _ = client.delete(f"{CLAIMS}/{node(number)}").object


def make_rule(number: int | None, name: str = "", *, effect: str = "NoExecute", **metadata: Any) -> Json:
    """A rule for one node, or for all of them."""
    selector = {"driver": DRIVER} if number is None else {"driver": DRIVER, "pool": node(number)}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name or f"empty-{number}", **metadata},
        "spec": {"deviceSelector": selector, "taint": {"key": KEY, "effect": effect}},
    }


def delete_rules(client: Client) -> None:
    """Every rule that there is."""
    assert client.delete(RULES).ok


def _slice(number: int) -> Json:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": node(number)},
        "spec": {
            "driver": DRIVER,
            "nodeName": node(number),
            "pool": {"name": node(number), "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu"}],
        },
    }


def _claim(number: int) -> Json:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": node(number), "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": DRIVER}}]}},
    }
