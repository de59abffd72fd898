"""Patches and device classes as the guard knows them, and slices with what selectors see of devices."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from msgspec import structs

from tests.builders import DRIVER, make_basic_device, make_device, make_patch, make_slice, make_taint
from tests.unit.cluster.cache.following import event, waits_of
from tests.unit.cluster.cache.test_names import ABSENT, GPU, Objects, device_class
from tests.unit.cluster.peer import Answer, Peer, Reply, Request, cluster_of, status, until
from tests.unit.patches.fake_cluster import CLOSED
from tests.unit.patches.patched import patch_of
from tests.unit.running import running
from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta
from webhook.api.patches import decode_patch
from webhook.api.rules import HARDWARE_LABEL, PATCH_LABEL, CELSelector, DeviceSelector, DeviceTaintRule
from webhook.api.slices import decode_slice
from webhook.cluster.cache.decoders import SliceWire, WholeSliceWire
from webhook.cluster.cache.known_patches import KnownRules, OwnedRuleWire, PatchesInForce, PatchWatch, PatchWire
from webhook.cluster.cache.names import ClusterCache
from webhook.cluster.client.errors import NotFound
from webhook.cluster.settings import InventorySettings, ReflectorSettings
from webhook.inventory.pools import Pool
from webhook.inventory.state import Inventory, Sight
from webhook.patches.published import ORIGINALS, Overridden, Setting, annotation_of, published_devices
from webhook.patches.slice_patches import SlicePatches
from webhook.patches.stored import PatchStatus, RuleOwner, StoredPatch, StoredRule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.slices import ResourceSlice


PATCHES = "/apis/devicetaint.io/v1alpha1"
QUICK = ReflectorSettings(backoff_seconds=0.001, backoff_most_seconds=0.01, short_watch_seconds=0.0)


class Patched(Objects):
    """A peer with patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches: list[Any] = []
        self.patches_served = True
        self.forbidden = False

    def __call__(self, request: Request) -> Reply:
        if request.path == PATCHES:
            return Answer({"resources": [{"name": "resourceslicepatches"}]}) if self.patches_served else ABSENT
        if request.path == f"{PATCHES}/resourceslicepatches":
            if self.forbidden:
                return Answer(status(403, "no patches for you", reason="Forbidden"), 403)
            return Answer({"metadata": {"resourceVersion": "10"}, "items": self.patches})
        return super().__call__(request)


def patch(name: str, version: int = 1) -> Any:
    meta = {"name": name, "uid": f"uid-of-{name}", "resourceVersion": str(version)}
    return make_patch(meta=meta, taints=[make_taint()])


class Bench:
    def __init__(
        self, peer: Peer, objects: Patched, cache: PatchesInForce, now: list[float], inventory: Inventory
    ) -> None:
        self.inventory = inventory
        self.peer = peer
        self.objects = objects
        self.cache = cache
        self.now = now

    async def until_known(self) -> None:
        await until(lambda: not self.cache.known().unknown, "the patches")


@contextlib.asynccontextmanager
async def following(*classes: Any, reflector: ReflectorSettings = QUICK, **state: Any) -> AsyncIterator[Bench]:
    async with Peer() as peer, cluster_of(peer) as cluster:
        now = [1000.0]
        objects = Patched()
        objects.add(*classes)
        for name, value in state.items():
            setattr(objects, name, value)
        peer.otherwise = objects
        names = ClusterCache(cluster, random=lambda: 0.5, reflector_settings=QUICK, clock=lambda: now[0])
        cache = PatchesInForce(
            cluster, names, random=lambda: 0.5, settings=InventorySettings(reflector=reflector), clock=lambda: now[0]
        )
        inventory = Inventory()
        tasks = [asyncio.create_task(names.run()), asyncio.create_task(cache.run(lambda: Sight(inventory)))]
        try:
            yield Bench(peer, objects, cache, now, inventory)
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def test_patches_and_classes_are_known_by_name() -> None:
    odd = device_class("odd") | {"spec": {"selectors": [{"other": 1}]}}
    async with following(GPU, odd, device_class("all"), patches=[patch("a")]) as bench:
        await bench.until_known()
        known = bench.cache.known()
        assert known.patches == {"a": decode_patch(Reader.of(patch("a"), []))}
        assert known.patches["a"].meta.uid == "uid-of-a"
        found = {name: each.selectors for name, each in known.classes.items()}
        assert found == {
            "gpu": (CELSelector('device.driver == "gpu.example.com"'),),
            "odd": (CELSelector(None),),
            "all": (),
        }
        assert known.classes["gpu"].name == "gpu"
        await bench.peer.until_watched(f"{PATCHES}/resourceslicepatches")
        await bench.peer.say_on(f"{PATCHES}/resourceslicepatches", event("ADDED", patch("b", 11)))
        await until(lambda: "b" in bench.cache.known().patches, "another one")
        await bench.peer.say_on(
            "/apis/resource.k8s.io/v1/deviceclasses", event("DELETED", device_class("gpu", version=12))
        )
        await until(lambda: set(bench.cache.known().classes) == {"odd", "all"}, "it is gone")
        assert bench.cache.problem is None


async def test_patches_that_may_not_be_read_are_not_known() -> None:
    async with following(forbidden=True) as bench:
        await until(lambda: "no patches for you" in (bench.cache.problem or ""), "the reason")
        assert bench.cache.known().unknown == "resourceslicepatches not read yet"
        bench.objects.forbidden = False
        await bench.until_known()


async def test_without_the_kind_there_are_no_patches_and_it_is_looked_for_at_times() -> None:
    async with following(patches_served=False) as bench:
        await bench.until_known()
        assert bench.cache.known().patches == {}
        bench.objects.patches_served = True
        bench.objects.patches = [patch("a")]
        await until(lambda: "a" in bench.cache.known().patches, "the kind is defined")


def setting(name: str, **fields: Any) -> Any:
    return make_patch(meta=patch(name)["metadata"], attributes={f"{DRIVER}/healthy": {"bool": False}}, **fields)


async def test_patches_for_slices_are_those_that_set_something_the_one_that_wins_first() -> None:
    some = [setting("a"), setting("b", priority=1), patch("c")]
    async with following(GPU, patches=some) as bench:
        assert bench.cache.for_slices() == SlicePatches(known=False)
        await bench.until_known()
        found = bench.cache.for_slices()
        assert (found.known, found.ranking) == (True, ("b", "a"))
        assert found.classes["gpu"].selectors == (CELSelector('device.driver == "gpu.example.com"'),)
        assert bench.cache.for_slices() is found
        await bench.peer.until_watched(f"{PATCHES}/resourceslicepatches")
        await bench.peer.say_on(f"{PATCHES}/resourceslicepatches", event("DELETED", setting("a")))
        await until(lambda: bench.cache.for_slices().ranking == ("b",), "it is gone")
        await bench.peer.say_on(
            "/apis/resource.k8s.io/v1/deviceclasses", event("DELETED", device_class("gpu", version=12))
        )
        await until(lambda: not bench.cache.for_slices().classes, "the class is gone")
        assert found.classes.keys() == {"gpu"}, "a thread may look at it"


async def test_classes_that_are_not_read_leave_patches_unknown() -> None:
    async with following(patches=[setting("a")], served=False) as bench:
        await until(lambda: bool(bench.cache.known().patches), "the patches")
        assert "deviceclasses" in bench.cache.known().unknown
        assert bench.cache.for_slices() == SlicePatches(known=False)


async def test_filter_that_took_a_review_too_long_is_gone_on_with() -> None:
    async with following() as bench:
        await bench.until_known()
        bench.inventory.apply(None, decode_slice(Reader.of(attributed("v1"), [])))
        memo, pools = bench.cache.known().memo, bench.inventory.pools
        assert memo is not None
        selector = DeviceSelector(selectors=(CELSelector("device.allowMultipleAllocations"),))
        assert memo.selected(selector, {}, pools, lambda: False) is None
        await until(lambda: not memo.step(pools), "nothing is left")
        asked = iter([True, True])
        assert memo.selected(selector, {}, pools, lambda: next(asked)) == {(DRIVER, "node-0"): frozenset({"gpu-1"})}


def attributed(version: str) -> Any:
    make = make_basic_device if version == "v1beta1" else make_device
    shared = {"attributes": {"model": {"string": "a"}}, "capacity": {"memory": {"value": "40Gi"}}}
    return make_slice(
        [
            make("gpu-0", [make_taint()], **shared),
            make("gpu-1", **shared, allowMultipleAllocations=True),
            make("gpu-2"),
            make("gpu-3", attributes={f"{DRIVER}/odd": None, "n": {"int": 1}}, capacity={"c": "1"}),
        ],
        version=version,
    )


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_selectors_see_of_a_kept_slice_what_they_see_of_the_whole(version: str) -> None:
    manifest = attributed(version)
    kept = msgspec.json.decode(json.dumps(manifest), type=WholeSliceWire).to_value()
    plain = msgspec.json.decode(json.dumps(manifest), type=SliceWire).to_value()
    assert seen(kept) == seen(decode_slice(Reader.of(manifest, [])))
    assert kept.devices == plain.devices
    assert plain.raw_devices is None


def test_what_is_beside_the_devices_of_like_slices_is_one_text() -> None:
    """As values, the counters of eight cards would take 36 KiB a node."""
    beside = {"allNodes": True, "sharedCounters": [{"name": "card", "counters": {"memory": {"value": "4Gi"}}}]}
    manifests = [{"metadata": {"name": each}, "spec": {**beside, "driver": DRIVER}} for each in "ab"]
    one, other = [msgspec.json.decode(json.dumps(each), type=WholeSliceWire).to_value() for each in manifests]
    assert one.beside_devices is other.beside_devices
    assert isinstance(one.beside_devices, bytes)
    assert json.loads(one.beside_devices) == beside


def test_slice_that_was_patched_is_seen_as_its_driver_publishes_it() -> None:
    """P-15. Of the annotations only that one is kept."""
    kept = {"gpu-0": {Setting("attributes", "model"): Overridden({"string": "h"}, {"string": "a"})}}
    manifest = attributed("v1")
    manifest["metadata"]["annotations"] = {ORIGINALS: annotation_of(kept), "other": "x"}
    value = msgspec.json.decode(json.dumps(manifest), type=WholeSliceWire).to_value()
    assert value.meta.annotations == {ORIGINALS: annotation_of(kept)}
    assert value.meta.name == manifest["metadata"]["name"]
    models = [each.attributes.get(f"{DRIVER}/model") for each in seen(value)]
    assert models == [{"string": "h"}, {"string": "a"}, None, None]
    del manifest["spec"]
    bare = msgspec.json.decode(json.dumps(manifest), type=WholeSliceWire).to_value()
    assert (bare.devices, list(bare.meta.annotations)) == ((), [ORIGINALS])


def seen(value: ResourceSlice) -> list[Any]:
    pool = Pool()
    pool.put(value)
    return list(published_devices((value.driver, value.pool), pool))


def test_rules_that_a_server_serves_again_are_not_written_before_they_were_read() -> None:
    """Else all of them would be written as new ones, with other times."""
    forgotten: list[bool] = []

    async def path() -> str:
        return "/rules"

    collection: Any = SimpleNamespace(resource="rules", path=path, forget=lambda: forgotten.append(True))
    reflector: Any = SimpleNamespace(unserved=True)
    rules = KnownRules(collection, reflector)
    with pytest.raises(NotFound, match="rules were not served, and have not been read since"):
        asyncio.run(rules.path())
    reflector.unserved = False
    assert asyncio.run(rules.path()) == "/rules"
    rules.forget()
    assert (rules.resource, forgotten) == ("rules", [True])


WHERE = f"{PATCHES}/resourceslicepatches"


@contextlib.asynccontextmanager
async def watching(
    patience: float = 5.0, **state: object
) -> AsyncIterator[tuple[Peer, Patched, PatchWatch, list[tuple[str, str]]]]:
    async with Peer() as peer, cluster_of(peer) as cluster:
        objects = Patched()
        for name, value in state.items():
            setattr(objects, name, value)
        peer.otherwise = objects
        seen: list[tuple[str, str]] = []

        def name_of(each: ResourceSlicePatch | None) -> str:
            return each.meta.name if each else ""

        watch = PatchWatch(
            cluster,
            lambda old, new: seen.append((name_of(old), name_of(new))),
            random=lambda: 0.5,
            settings=InventorySettings(reflector=QUICK, pod_groups_seconds=0.064),
            patience_seconds=patience,
        )
        async with running(watch.reflector.run()):
            yield peer, objects, watch, seen


async def test_patches_are_known_by_name_and_changes_are_passed_on() -> None:
    async with watching(patches=[patch("a")]) as (peer, _, watch, seen):
        await watch.looked()
        assert (set(watch.patches()), watch.problem) == ({"a"}, None)
        await peer.until_watched(WHERE)
        await peer.say_on(WHERE, event("ADDED", patch("b", 11)))
        await until(lambda: "b" in watch.patches(), "another one")
        assert seen == [("", "a"), ("", "b")]


async def test_kind_that_is_not_served_is_no_problem_and_looked_for_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "webhook.cluster.cache.reflector")
    async with watching(patches_served=False) as (_, objects, watch, _):
        await watch.looked()
        assert (dict(watch.patches()), watch.problem) == ({}, None)
        await until(lambda: max(waits_of(caplog, "resourceslicepatches"), default=0) > 0.02, "longer waits")
        objects.patches_served, objects.patches = True, [patch("a")]
        await until(lambda: "a" in watch.patches(), "the patch")


async def test_worker_does_not_wait_for_patches_that_it_may_not_read() -> None:
    async with watching(patience=0.5, forbidden=True, patches=[patch("a")]) as (_, objects, watch, _):
        waited: list[float] = []
        while not waited or (len(waited) < 3 and waited[-1] >= 4):  # a busy machine may stand still meanwhile
            began = time.monotonic()
            await watch.looked()
            waited.append(time.monotonic() - began)
        assert 0.4 < waited[-1] < 4
        assert dict(watch.patches()) == {}
        problem = watch.problem or ""
        assert problem.startswith("resourceslicepatches not read yet (")
        assert "no patches for you" in problem
        objects.forbidden = False
        await until(lambda: watch.problem is None, "the list")
        assert set(watch.patches()) == {"a"}


PATCH: Final = StoredPatch(
    structs.replace(patch_of("one", driver=DRIVER, taints=[CLOSED]), meta=ObjectMeta("one", uid="u"))
)


def manifest(**fields: Any) -> dict[str, Any]:
    return {"name": "one", "uid": "u", "resourceVersion": "7", **fields}


def test_patch_that_is_new_has_no_status() -> None:
    found = PatchWire(manifest(creationTimestamp="2026-01-01T00:00:00Z"), {"devices": {"priority": 3}}).to_value()
    assert (found.generation, found.patch.deleting, found.status) == (0, False, PatchStatus(0, 0, 0, 0, ()))
    assert (found.patch.priority, found.meta.uid, found.owner) == (3, "u", RuleOwner("ResourceSlicePatch", "one", "u"))
    assert found.patch.created is not None
    assert structs.replace(found, patch=PATCH.patch) == PATCH


def test_patch_with_a_status() -> None:
    status = {"observedGeneration": 4, "selectedDevices": 3, "taintedDevices": 2, "rules": 1, "patchedDevices": 5}
    conditions = [{"type": "Expanded", "status": "True", "reason": "Expanded", "message": "m"}]
    found = PatchWire(
        manifest(generation=5, deletionTimestamp="2026-01-01T00:00:00Z"), {}, {**status, "conditions": conditions}
    ).to_value()
    assert (found.generation, found.patch.deleting) == (5, True)
    assert structs.replace(found.status, conditions=()) == PatchStatus(4, 3, 2, 1, (), 5)
    assert [each.type for each in found.status.conditions] == ["Expanded"]


def test_rule_has_the_labels_and_the_owner_that_count() -> None:
    labels = {PATCH_LABEL: "u", "other": "x", HARDWARE_LABEL: 7}
    owners = [{"kind": "Node", "name": "n", "uid": "x"}, {"kind": "K", "name": "k", "uid": "w", "controller": True}]
    found = OwnedRuleWire(manifest(labels=labels, ownerReferences=owners), {"taint": {"key": "k"}}).to_value()
    assert found.labels == {PATCH_LABEL: "u"}
    assert found.controller == RuleOwner("K", "k", "w")
    assert found.owner_uids == (), "its controller is another one"
    assert found.owner == RuleOwner("DeviceTaintRule", "one", "u")
    meta, taint = ObjectMeta("one", uid="u", resource_version="7"), structs.replace(CLOSED, key="", effect="")
    assert OwnedRuleWire(manifest()).to_value() == StoredRule(DeviceTaintRule(meta, None, taint))
