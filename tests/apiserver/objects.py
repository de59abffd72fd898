"""What a cluster stores, in v1: every part has a default, or is what the test is about."""

from __future__ import annotations

from typing import Any, Final

from tests.builders import make_claim, make_request, make_rule, make_slice
from tests.controlplane.client import Client, path
from tests.controlplane.versions import GROUP

Json = dict[str, Any]

RULES: Final = path(f"{GROUP}/v1", "devicetaintrules")
SLICES: Final = path(f"{GROUP}/v1", "resourceslices")


def rule_for(selector: Json | None, taint: Json, name: str, *, version: str = "v1", **metadata: Any) -> Json:
    return make_rule(selector=selector, taint=taint, version=version, meta={"name": name, **metadata})


def slice_of(driver: str, pool: str, *devices: str | Json, node: str | None = "", **metadata: Any) -> Json:
    """The only slice of its pool, named after it; on a node of that name unless another is given, None for all."""
    each = [{"name": device} if isinstance(device, str) else device for device in devices]
    where = {"node_name": None, "allNodes": True} if node is None else {"node_name": node or pool}
    return make_slice(each, driver=driver, pool=pool, meta={"name": pool, **metadata}, **where)


def claim_of(device_class: str, *tolerations: Json, **metadata: Any) -> Json:
    """With one request."""
    request = make_request("r", tolerations or None, deviceClassName=device_class)
    return make_claim(requests=[request], meta=metadata)


def allocate(client: Client, claims: str, name: str, *, driver: str, pool: str, device: str) -> None:
    """A pod comes to a device: its claim is allocated and reserved, as a scheduler would have it."""
    number = pool.rpartition("-")[2]
    result = {"request": "r", "driver": driver, "pool": pool, "device": device}
    consumer = {"resource": "pods", "name": f"pod-{number}", "uid": f"uid-{number}"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
    _ = client.patch(f"{claims}/{name}/status", {"status": status}).object
