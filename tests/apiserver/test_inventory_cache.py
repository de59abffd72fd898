"""The inventory of a real API server: through restarts, forgotten versions and half a generation it comes to the
same as a fresh list, and says so only once it has."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from tests.apiserver.looping import run, until
from tests.apiserver.test_cluster import RestartablePlane, cluster_of, running
from tests.builders import DRIVER, NOW, make_device, make_rule, make_slice, make_taint, make_toleration
from tests.controlplane import versions
from tests.controlplane.assets import Assets
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until
from tests.unit.cluster.held import held
from tests.unit.inventory.values import taints_on
from webhook.api.meta import GROUP
from webhook.api.rules import DeviceSelector
from webhook.api.taints import NO_EXECUTE, DeviceTaint
from webhook.cluster.cache.inventory import InventoryCache
from webhook.cluster.client.errors import Gone
from webhook.cluster.settings import InventorySettings, ReflectorSettings
from webhook.inventory.impact import Taint, impact_of
from webhook.inventory.pools import Evictor
from webhook.inventory.state import Inventory
from webhook.telemetry.metrics import Metrics

Json = dict[str, Any]

KINDS: Final = {
    "resourceslices": "ResourceSlice",
    "devicetaintrules": "DeviceTaintRule",
    "resourceclaims": "ResourceClaim",
}
AWAY_SECONDS: Final = 240.0
"""An API server needs a few seconds to come back; somebody else may keep two cores busy."""
STRICT: Final = 0.0
_EVERYTHING: Final = Taint(DeviceTaint("any.example.com/key", "", NO_EXECUTE, NOW), Evictor.IN_TREE)


class InventoryPlane(RestartablePlane):
    """A control plane that can be told to serve no rules; then it takes a restart."""

    serves_rules = True

    def serve_rules(self, *, served: bool) -> None:
        """Returns once that is so, and the server is there."""
        if "kube-apiserver" not in self.processes:
            self.start_api_server()
            wait_until(self.ready, "the API server", seconds=AWAY_SECONDS)
        if self.serves_rules != served:
            self.restart(rules=served)
            wait_until(self.ready, "the API server", seconds=AWAY_SECONDS)

    def restart(self, *, rules: bool = True) -> None:
        """Returns before it is ready."""
        self.stop_api_server()
        self.serves_rules = rules
        for version in versions.rule_versions(self.server_version):
            self._runtime_config[f"{GROUP}/{version}/devicetaintrules"] = rules
        self.start_api_server()

    def all_served(self) -> bool:
        """Whether it answers from its caches; one that is ready may still have to fill them."""
        return self.ready() and all(self.client.get(self.collection(each), resourceVersion="0").ok for each in KINDS)

    def collection(self, resource: str) -> str:
        """In the preferred version of this release."""
        served = versions.rule_versions if resource == "devicetaintrules" else versions.api_versions
        namespace = "default" if resource == "resourceclaims" else ""
        return path(f"{GROUP}/{served(self.server_version)[0]}", resource, namespace=namespace)

    def version(self, resource: str) -> str:
        return self.collection(resource).split("/")[3]

    # --- what is in it ---------------------------------------------------------------------------

    def publish(self, name: str, pool: str, *, generation: int = 1, of: int = 1, **taints: Any) -> None:
        """A slice of two devices; those that are named have a taint."""
        version = self.version("resourceslices")
        devices = [make_device(each, taints=[taints[each]] if each in taints else None) for each in ("a", "b")]
        if version == "v1beta1":
            devices = [{"name": each.pop("name"), "basic": each} for each in devices]
        manifest = make_slice(devices, version=version, pool=pool, node_name=pool, meta={"name": name})
        manifest["spec"]["pool"] |= {"generation": generation, "resourceSliceCount": of}
        _ = self.client.create(self.collection("resourceslices"), manifest).object

    def give(self, name: str, pool: str, device: str, *users: str, tolerations: Any = ()) -> None:
        """A claim with a device, and its users."""
        version = self.version("resourceclaims")
        request = {"deviceClassName": DRIVER, "tolerations": list(tolerations)}
        requests = [{"name": "gpu", **request} if version == "v1beta1" else {"name": "gpu", "exactly": request}]
        collection = self.collection("resourceclaims")
        manifest = {
            "apiVersion": f"{GROUP}/{version}",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": requests}},
        }
        _ = self.client.create(collection, manifest).object
        result = {"request": "gpu", "driver": DRIVER, "pool": pool, "device": device, "tolerations": list(tolerations)}
        status = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in users],
        }
        _ = self.client.patch(f"{collection}/{name}/status", {"status": status}).object

    def taint(self, name: str, pool: str) -> None:
        version = self.version("devicetaintrules")
        taint = make_taint(effect="NoExecute", time_added=None)
        manifest = make_rule(
            selector={"driver": DRIVER, "pool": pool}, taint=taint, version=version, meta={"name": name}
        )
        _ = self.client.create(self.collection("devicetaintrules"), manifest).object

    def clear(self) -> None:
        for resource in KINDS:
            if resource != "devicetaintrules" or self.serves_rules:
                _ = self.client.delete(self.collection(resource)).object

    def fill(self) -> None:
        """Three pools with users, and a rule."""
        for number in range(3):
            pool = f"node-{number}"
            self.publish(f"{pool}-gpu", pool, b=make_taint(time_added=None))
            self.give(f"one-{number}", pool, "a", f"pod-{number}")
            self.give(f"shared-{number}", pool, "b", f"x-{number}", f"y-{number}", tolerations=[make_toleration()])
        if self.serves_rules:
            self.taint("broken", "node-0")

    def change(self) -> None:
        """Something of everything: added, changed, deleted, and replaced by a namesake."""
        claims, slices = self.collection("resourceclaims"), self.collection("resourceslices")
        _ = self.client.delete(f"{claims}/one-0").object
        _ = self.client.patch(f"{claims}/shared-1/status", {"status": {"reservedFor": None}}).object
        _ = self.client.delete(f"{claims}/one-2").object
        self.give("one-2", "node-1", "b", "namesake")
        self.give("new", "node-2", "a", "pod-new")
        _ = self.client.delete(f"{slices}/node-0-gpu").object
        self.publish("node-3-gpu", "node-3")
        if self.serves_rules:
            _ = self.client.delete(f"{self.collection('devicetaintrules')}/broken").object
            self.taint("next", "node-2")

    # --- what is asked ---------------------------------------------------------------------------

    def fresh(self) -> Inventory:
        """What a list says now, read by the decoders that reviews and files are read by."""
        inventory = Inventory()
        for resource, kind in KINDS.items():
            if resource != "devicetaintrules" or self.serves_rules:
                for item in self.client.get(self.collection(resource)).items:
                    inventory.apply(None, held(item, kind))
        return inventory


def told(inventory: Inventory) -> tuple[Any, ...]:
    """Everything in an inventory, and what it answers."""
    everything = impact_of(inventory, DeviceSelector(), _EVERYTHING, NOW)
    objects = (dict(inventory.slices), dict(inventory.rules), dict(inventory.claims))
    return (*objects, inventory.pools.incomplete, everything)


@pytest.fixture(scope="module")
def inventory_plane(assets: Assets) -> Iterator[InventoryPlane]:
    with InventoryPlane(assets) as started:
        yield started


@pytest.fixture
def plane(inventory_plane: InventoryPlane) -> Iterator[InventoryPlane]:
    inventory_plane.serve_rules(served=True)
    inventory_plane.fill()
    yield inventory_plane
    inventory_plane.clear()


class Followed:
    """A cache at work."""

    def __init__(self, plane: InventoryPlane, cache: InventoryCache, metrics: Metrics) -> None:
        self.plane = plane
        self.cache = cache
        self.metrics = metrics

    def same(self) -> bool:
        """Whether it says that it knows, and knows what a fresh list gives."""
        return self.cache.sight().inventory is not None and told(self.cache.inventory) == told(self.plane.fresh())

    def lists(self) -> dict[str, float]:
        """How often each resource was listed."""
        return {resource: self.count("reflector_lists_total", resource=resource) for resource in KINDS}

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"device_taint_webhook_{name}", labels) or 0.0


@contextlib.asynccontextmanager
async def resting(plane: InventoryPlane) -> AsyncIterator[Followed]:
    """Not at work yet."""
    reflector = ReflectorSettings(page_size=3, backoff_seconds=0.05, backoff_most_seconds=0.5)
    settings = InventorySettings(reflector=reflector, slice_page_size=2, stale_seconds=STRICT)
    metrics = Metrics(version="0", resources=())
    async with cluster_of(plane) as cluster:
        cache = InventoryCache(cluster, random=lambda: 0.5, metrics=metrics, settings=settings)
        assert cache.sight().inventory is None
        yield Followed(plane, cache, metrics)


@contextlib.asynccontextmanager
async def following(plane: InventoryPlane) -> AsyncIterator[Followed]:
    """At work, and in step."""
    async with resting(plane) as followed, running(followed.cache.run()):
        await until(followed.same, "the first list")
        yield followed


def test_inventory_is_what_a_fresh_list_gives_before_and_after_changes(plane: InventoryPlane) -> None:
    async def test() -> None:
        async with following(plane) as followed:
            everything = impact_of(followed.cache.inventory, DeviceSelector(), _EVERYTHING, NOW)
            assert (everything.devices, everything.allocated, len(everything.pods)) == (6, 6, 9)
            before = followed.lists()
            plane.change()
            await until(followed.same, "the changes")
            assert followed.lists() == before, "events brought them"
            assert followed.count("inventory_synced") == 1.0
            assert followed.count("inventory_objects", resource="resourceslices") == 3.0

    run(test())


@pytest.mark.whole
def test_api_server_that_restarts_makes_it_unknown_and_then_the_same_again(plane: InventoryPlane) -> None:
    async def test() -> None:
        async with following(plane) as followed:
            plane.stop_api_server()
            await until(lambda: followed.cache.sight().inventory is None, "that it is lost")
            assert "not watched for" in followed.cache.sight().unknown
            await until(lambda: followed.count("inventory_synced") == 0.0, "that a metric says so")
            await until(lambda: "(GET /apis/" in (followed.cache.problem or ""), "with what the request ran into")
            plane.start_api_server()
            await until(plane.ready, "the API server", seconds=AWAY_SECONDS)
            plane.change()
            await until(followed.same, "the present state", seconds=AWAY_SECONDS)
            assert followed.cache.problem is None

    run(test())


def test_what_etcd_has_forgotten_is_gone_and_a_list_brings_the_difference(plane: InventoryPlane) -> None:
    """As if this process had been suspended: it comes back to versions that nobody remembers."""

    async def test() -> None:
        async with resting(plane) as followed:
            async with running(followed.cache.run()):
                await until(followed.same, "the first list")
            plane.change()
            plane.compact()
            plane.restart()  # and with it what it remembers itself
            await until(plane.all_served, "the API server", seconds=AWAY_SECONDS)
            for reflector in followed.cache._reflectors:
                with pytest.raises(Gone):
                    await reflector._watch()
            assert followed.cache.sight().inventory is None
            assert told(followed.cache.inventory) != told(plane.fresh())
            async with running(followed.cache.run()):
                await until(followed.same, "the present state")

    run(test())


def test_generation_that_is_half_published_is_told_as_such_until_it_is_whole(plane: InventoryPlane) -> None:
    async def test() -> None:
        pool = (DRIVER, "node-0")
        async with following(plane) as followed:
            inventory = followed.cache.inventory
            plane.publish("next-0", "node-0", generation=2, of=2, a=make_taint("next.example.com/a", time_added=None))
            await until(followed.same, "half of the next generation")
            assert inventory.pools.incomplete == {pool}
            _ = plane.client.delete(f"{plane.collection('resourceslices')}/node-0-gpu").object
            plane.publish("next-1", "node-0", generation=2, of=2)
            await until(followed.same, "all of it")
            assert inventory.pools.incomplete == frozenset()
            assert {taint.key for taint in taints_on(inventory, *pool, "a") if taint.effect == "NoSchedule"} <= {
                "next.example.com/a"
            }

    run(test())


@pytest.mark.whole
def test_rules_that_are_not_served_are_none_and_are_seen_when_they_come(plane: InventoryPlane) -> None:
    async def test() -> None:
        plane.serve_rules(served=False)
        async with following(plane) as followed:
            assert dict(followed.cache.inventory.rules) == {}
            assert followed.cache.problem is None
            assert followed.count("reflector_errors_total", resource="devicetaintrules") == 0.0
            plane.restart(rules=True)
            await until(plane.ready, "the API server", seconds=AWAY_SECONDS)
            plane.taint("late", "node-1")
            await until(lambda: "late" in followed.cache.inventory.rules, "the rule", seconds=AWAY_SECONDS)
            await until(followed.same, "the rules")
            assert set(followed.cache.inventory.rules) == {"broken", "late"}, "what was stored before is there again"

    run(test())
