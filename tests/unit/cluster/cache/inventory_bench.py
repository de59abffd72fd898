"""A cache of an inventory, the cluster that it follows, and the objects of both."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from msgspec import structs

from tests.builders import (
    DRIVER,
    make_basic_device,
    make_claim,
    make_device,
    make_rule,
    make_slice,
    make_status,
    make_taint,
    make_toleration,
)
from tests.unit.cluster.api_peer import ALL, RESOURCES, ApiPeer
from tests.unit.cluster.peer import cluster_of, until
from tests.unit.running import running
from webhook.cluster.cache.inventory import InventoryCache
from webhook.cluster.settings import InventorySettings, ReflectorSettings
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from webhook.inventory.state import Inventory, InventoryObject

Json = dict[str, Any]

QUICK = ReflectorSettings(page_size=2, backoff_seconds=0.004, backoff_most_seconds=0.02, short_watch_seconds=0.0)
CLAIMS, SLICES, RULES = "resourceclaims", "resourceslices", "devicetaintrules"
GROUPS = "podgroups"


def a_claim(name: str, device: str = "gpu-0", *users: str, version: str = "v1") -> Json:
    result = {"request": "r", "driver": DRIVER, "pool": "node-0", "device": device, "tolerations": [make_toleration()]}
    reserved = [{"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in users]
    meta = {"name": name, "namespace": "ml"}
    return make_claim(version=version, meta=meta, status=make_status(result) | {"reservedFor": reserved})


def a_slice(name: str = "node-0", generation: int = 1, of: int = 1, version: str = "v1") -> Json:
    make = make_basic_device if version == "v1beta1" else make_device
    manifest = make_slice([make("gpu-0", [make_taint()]), make("gpu-1")], version=version, meta={"name": name})
    manifest["spec"]["pool"] |= {"generation": generation, "resourceSliceCount": of}
    return manifest


def a_rule(name: str = "broken", version: str = "v1") -> Json:
    return make_rule(version=version, meta={"name": name})


def a_pod(name: str, *claims: str) -> Json:
    listed = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    spec = {"nodeName": "node-0", "resourceClaims": listed}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml"}, "spec": spec}


def a_group(name: str, version: str = "v1beta1", mode: Any = None) -> Json:
    meta = {"name": name, "namespace": "ml"}
    spec = {"disruptionMode": {"all": {}} if mode is None else mode}
    return {"apiVersion": f"scheduling.k8s.io/{version}", "kind": "PodGroup", "metadata": meta, "spec": spec}


def a_member(name: str, group: str) -> Json:
    manifest = a_pod(name)
    return manifest | {"spec": manifest["spec"] | {"schedulingGroup": {"podGroupName": group}}}


class Bench:
    def __init__(self, peer: ApiPeer, cache: InventoryCache, metrics: Metrics, now: list[float]) -> None:
        self.peer = peer
        self.cache = cache
        self.metrics = metrics
        self.now = now
        self.told: list[tuple[InventoryObject | None, InventoryObject | None]] = []
        cache.subscribe(lambda old, new: self.told.append((old, new)))

    async def happens(self, manifest: Json, *, gone: bool = False, cut: bool = False) -> None:
        """A change, sent on the watch."""
        line = self.peer.delete(manifest) if gone else self.peer.put(manifest)
        await self.peer.say_on(self.peer.path_of(RESOURCES[manifest["kind"]]), line, cut=cut)

    async def settles(self) -> None:
        await until(lambda: contents(self.cache.inventory) == contents(self.peer.inventory()), "the same as the peer")
        await until(self._knows, "that it knows")

    def _knows(self) -> bool:
        self.now[0] += 0.01  # a watch that is opened again is trusted after a while
        return self.cache.sight().inventory is self.cache.inventory

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"device_taint_webhook_{name}", labels) or 0.0


def contents(inventory: Inventory) -> tuple[Any, ...]:
    """What is held, without the classes of claims, which are read only on demand."""
    claims = {key: structs.replace(claim, requests=()) for key, claim in inventory.claims.items()}
    held = (inventory.slices, inventory.rules, claims, inventory.pods, inventory.pod_groups)
    return (*map(dict, held), inventory.pools.incomplete, inventory.pools.device_count(), inventory.usage.groups.keys())


@contextlib.asynccontextmanager
async def caching(
    *objects: Json,
    served: Mapping[str, frozenset[str]] = ALL,
    pods: bool = False,
    settings: InventorySettings = InventorySettings(reflector=QUICK, slice_page_size=1),  # noqa: B008 -- frozen
    peer: ApiPeer | None = None,
) -> AsyncIterator[Bench]:
    metrics = Metrics(version="0", resources=())
    now = [1000.0]
    async with peer or ApiPeer(served) as api, cluster_of(api) as cluster:
        for each in objects:
            api.put(each)
        cache = InventoryCache(
            cluster, random=lambda: 0.5, metrics=metrics, settings=settings, pods=pods, clock=lambda: now[0]
        )
        bench = Bench(api, cache, metrics, now)
        async with running(cache.run()):
            yield bench
