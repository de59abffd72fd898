"""Five hundred nodes with one device each, and a pod's claim on every device. Of the pods there are only the claims."""

from __future__ import annotations

from typing import Any, Final

from tests.apiserver.objects import RULES, SLICES, allocate, claim_of, rule_for, slice_of
from tests.controlplane.client import Client, path
from tests.controlplane.versions import GROUP

Json = dict[str, Any]

COUNT: Final = 500
DRIVER: Final = "crowd.example.com"
NAMESPACE: Final = "crowd"
KEY: Final = "maint.example.com/window"
CLAIMS: Final = path(f"{GROUP}/v1", "resourceclaims", namespace=NAMESPACE)
_THREADS: Final = 8


def node(number: int) -> str:
    return f"node-{number:03}"


def install(client: Client) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    _ = client.create(path("v1", "namespaces"), namespace).object
    slices = [slice_of(DRIVER, node(number), "gpu") for number in range(COUNT)]
    client.each(lambda each: client.create(SLICES, each).object, slices, threads=_THREADS)
    client.each(lambda number: occupy(client, number), range(COUNT), threads=_THREADS)


def occupy(client: Client, number: int) -> None:
    """A pod comes to a node's device."""
    _ = client.create(CLAIMS, claim_of(DRIVER, name=node(number), namespace=NAMESPACE)).object
    allocate(client, CLAIMS, node(number), driver=DRIVER, pool=node(number), device="gpu")


def vacate(client: Client, number: int) -> None:
    """The pod is gone, and its claim with it, as after an eviction."""
    _ = client.delete(f"{CLAIMS}/{node(number)}").object


def make_rule(number: int | None, name: str = "", *, effect: str = "NoExecute", **metadata: Any) -> Json:
    """A rule for one node, or for all of them."""
    selector = {"driver": DRIVER} if number is None else {"driver": DRIVER, "pool": node(number)}
    return rule_for(selector, {"key": KEY, "effect": effect}, name or f"empty-{number}", **metadata)


def delete_rules(client: Client) -> None:
    """Every rule that there is."""
    assert client.delete(RULES).ok
