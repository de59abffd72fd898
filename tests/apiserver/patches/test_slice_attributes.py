"""Attributes and capacity of patches in slices, under a driver with the real library and the real scheduler."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.apiserver.patches.closing import TRIED_AGAIN_SECONDS, wait_younger
from tests.apiserver.patches.slices import SLICES, SliceStage
from tests.apiserver.patches.values import COLLECTION
from tests.apiserver.planes import own_plane
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until
from tests.controlplane.slice_publisher import SlicePublisher

pytestmark = pytest.mark.whole

Json = dict[str, Any]

NAMESPACE: Final = "claims"
MODEL: Final = {"string": "a100"}


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SliceStage]:
    with own_plane(request, "kube-scheduler", since=34, audit=True) as plane:
        plane.add_node("node-0")
        stage = SliceStage(plane, tmp_path_factory.mktemp("registrations"))
        stage.begin()
        stage.create("v1", "Namespace", NAMESPACE)
        yield stage
        stage.stop_webhook()


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> str:
    """One of its own for each test."""
    return f"{request.node.name.removeprefix('test_').replace('_', '-')[:40].rstrip('-')}.example.com"


def publisher(stage: SliceStage, folder: Path, driver: str, *slices: list[Json]) -> SlicePublisher:
    return SlicePublisher(stage.plane.kubeconfig, folder, driver, ("pool", list(slices)))


def device(name: str = "gpu-0", memory: str = "40Gi", **attributes: Any) -> Json:
    return {"name": name, "attributes": {"model": MODEL, **attributes}, "capacity": {"memory": {"value": memory}}}


def sets(driver: str, **values: Any) -> Json:
    """The fields of a patch: None removes an attribute."""
    attributes = {f"{driver}/{name}": {"null": {}} if value is None else value for name, value in values.items()}
    return {"filter": {"driver": driver}, "attributes": attributes}


def test_patch_is_carried_out_with_two_writes_a_slice_and_taken_back_with_two(
    stage: SliceStage, driver: str, tmp_path: Path
) -> None:
    """The touch, and the driver's own, by which it adopts what is stored; nothing comes after that."""
    with publisher(stage, tmp_path, driver, [device()]) as library:
        assert stage.settled(driver, 1) == ["driver create"]
        fields = sets(driver, model=None, healthy={"bool": False})
        stage.put("p1", **fields, capacity={f"{driver}/memory": {"value": "8192Mi"}})
        patched = {"gpu-0": {f"{driver}/healthy": {"bool": False}, "memory": {"value": "8Gi"}}}
        assert stage.devices(driver) == patched
        assert stage.settled(driver, 3) == ["driver create", "touch", "driver update"]
        assert stage.devices(driver) == patched
        wait_until(lambda: library.dropped > 0, "it is told of it")
        assert library.dropped == 1
        stage.take("p1", driver)
        published = {"gpu-0": {"model": MODEL, "memory": {"value": "40Gi"}}}
        assert stage.devices(driver) == published
        assert stage.settled(driver, 5)[3:] == ["touch", "driver update"]
        assert stage.devices(driver) == published
        wait_until(lambda: library.dropped > 1, "it is told of it")
        assert (library.dropped, stage.slices(driver)[0]["metadata"]["generation"]) == (2, 3)
        assert stage.originals(driver) == [None]
        library.publish(("pool", [[device(memory="41Gi")]]))
        fresh = {"gpu-0": {"model": MODEL, "memory": {"value": "41Gi"}}}
        wait_until(lambda: stage.devices(driver) == fresh, "the driver's own values")


def test_driver_s_own_changes_and_restarts_are_kept_under_a_patch(
    stage: SliceStage, driver: str, tmp_path: Path
) -> None:
    """With a taint, two entries have us look at each write, one after the other."""
    taint = {"taints": [{"key": "example.com/slow", "effect": "NoSchedule"}]}
    with publisher(stage, tmp_path, driver, [device() | taint]) as library:
        stage.settled(driver)
        stage.put("p2", **sets(driver, model={"string": "other"}))
        stage.settled(driver)
        library.publish(("pool", [[device(model={"string": "h100"}) | taint]]))
        stage.settled(driver)
        assert stage.devices(driver)["gpu-0"]["model"] == {"string": "other"}
        library.restart()
        assert stage.settled(driver)[-1] == "driver update"
        assert stage.devices(driver)["gpu-0"]["model"] == {"string": "other"}
        stage.take("p2", driver)
        stage.settled(driver)
        assert stage.devices(driver)["gpu-0"]["model"] == {"string": "h100"}


def test_new_value_of_a_patch_is_not_taken_for_the_driver_s(stage: SliceStage, driver: str, tmp_path: Path) -> None:
    """The driver sends the old one once more, because that is what it has adopted."""
    with publisher(stage, tmp_path, driver, [device()]):
        stage.settled(driver)
        stage.put("p3", **sets(driver, model={"string": "one"}))
        stage.settled(driver)
        changed = {"spec": {"devices": {"attributes": {f"{driver}/model": {"string": "two"}}}}}
        assert stage.client.patch(f"{COLLECTION}/p3", changed).ok
        stage.touch_until(driver, lambda: stage.devices(driver)["gpu-0"]["model"] == {"string": "two"})
        assert stage.settled(driver)[3:] == ["touch", "driver update"]
        assert stage.devices(driver)["gpu-0"]["model"] == {"string": "two"}
        stage.take("p3", driver)
        stage.settled(driver)
        assert stage.devices(driver)["gpu-0"]["model"] == MODEL


def test_pool_of_several_slices_converges(stage: SliceStage, driver: str, tmp_path: Path) -> None:
    """The library bumps the pool's generation where more than one slice differs, and writes all of them."""
    slices = [[device(f"gpu-{number}")] for number in range(3)]
    with publisher(stage, tmp_path, driver, *slices):
        stage.settled(driver)
        stage.put("p4", **sets(driver, model=None))
        writes = stage.settled(driver)
        assert writes == ["driver create"] * 3 + ["touch"] * 3 + ["driver update"] * 3
        assert {each["spec"]["pool"]["generation"] for each in stage.slices(driver)} == {2}
        assert all("model" not in each for each in stage.devices(driver).values())
        stage.take("p4", driver)
        stage.settled(driver)
        assert all(each["model"] == MODEL for each in stage.devices(driver).values())


def test_slice_that_is_created_under_a_patch_is_patched_at_once(stage: SliceStage, driver: str, tmp_path: Path) -> None:
    _ = stage.client.create(COLLECTION, _patch("p5", sets(driver, model=None))).object
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "allNodes": True, "pool": pool, "devices": [device()]}
    probe = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "probe"}, "spec": spec}

    def heard() -> bool:
        (patched,) = stage.client.create(SLICES, probe, dry_run=True).object["spec"]["devices"]
        return "model" not in patched.get("attributes", {})

    wait_until(heard, "our server has heard of the patch")
    with publisher(stage, tmp_path, driver, [device()]) as library:
        assert stage.settled(driver, 1) == ["driver create"]
        assert "model" not in stage.devices(driver)["gpu-0"]
        wait_until(lambda: library.dropped > 0, "it is told of it")
        assert library.dropped == 1
        stage.take("p5", driver)
        stage.settled(driver)
        assert stage.devices(driver)["gpu-0"]["model"] == MODEL


def test_webhook_that_was_down_is_made_up_for(stage: SliceStage, driver: str, tmp_path: Path) -> None:
    """Meanwhile slices are stored as drivers send them: nothing of a driver waits for us."""
    with publisher(stage, tmp_path, driver, [device()]) as library:
        stage.settled(driver)
        stage.put("p6", **sets(driver, model={"string": "other"}))
        stage.settled(driver)
        stage.stop_webhook()
        library.publish(("pool", [[device(model={"string": "h100"})]]))
        wait_until(lambda: stage.devices(driver)["gpu-0"]["model"] == {"string": "h100"}, "the driver has its way")
        stage.come_back()
        stage.touch_until(driver, lambda: stage.devices(driver)["gpu-0"]["model"] == {"string": "other"})
        stage.settled(driver)
        stage.take("p6", driver)
        stage.settled(driver)
        assert stage.devices(driver)["gpu-0"]["model"] == {"string": "h100"}


def test_patch_that_wins_decides_for_each_attribute(stage: SliceStage, driver: str, tmp_path: Path) -> None:
    """P-9, P-11 to P-13; and P-15: filters see what the driver publishes, though the slice says otherwise.

    Names say the contrary of ages.
    """
    by_model = {"driver": driver, "selectors": [{"cel": {"expression": _has_model(driver)}}]}
    with publisher(stage, tmp_path, driver, [device(), {"name": "gpu-1"}]):
        stage.settled(driver)
        stage.put("b-older", **sets(driver, model=None, a={"int": 1}))
        wait_younger(stage.client, stage.client.get(f"{COLLECTION}/b-older").object)
        younger = sets(driver, model={"string": "y"}, a={"int": 2}, b={"int": 2})
        _ = stage.client.create(COLLECTION, _patch("a-younger", younger)).object
        below = {**sets(driver, b={"int": 4}, c={"int": 4}), "priority": -1}
        _ = stage.client.create(COLLECTION, _patch("below", below)).object
        empty = {"capacity": {f"{driver}/memory": {"value": "0"}}}
        high = {**sets(driver, a={"int": 3}), **empty, "filter": by_model, "priority": 1}
        _ = stage.client.create(COLLECTION, _patch("high", high)).object
        stage.touch_until(driver, lambda: stage.devices(driver)["gpu-0"].get(f"{driver}/a") == {"int": 3})
        stage.settled(driver)
        first, second = stage.devices(driver).values()
        others = {f"{driver}/b": {"int": 2}, f"{driver}/c": {"int": 4}}
        assert first == {f"{driver}/a": {"int": 3}, "memory": {"value": "0"}, **others}
        assert second == {f"{driver}/a": {"int": 1}, **others}
        for name in ("a-younger", "below", "high"):
            assert stage.client.delete(f"{COLLECTION}/{name}").ok
        stage.take("b-older", driver)
        stage.settled(driver)
        assert stage.devices(driver) == {"gpu-0": {"model": MODEL, "memory": {"value": "40Gi"}}, "gpu-1": {}}


def test_patch_that_would_make_a_slice_invalid_is_not_carried_out(
    stage: SliceStage, driver: str, tmp_path: Path
) -> None:
    """The server would refuse the slice, and its driver would lose its devices."""
    full = {"name": "gpu-0", "attributes": {f"a{number}": {"int": number} for number in range(32)}}
    with publisher(stage, tmp_path, driver, [full, device("gpu-1")]):
        stage.settled(driver)
        stage.put("more", **sets(driver, healthy={"bool": False}))
        stage.settled(driver)
        first, second = stage.devices(driver).values()
        assert (len(first), second[f"{driver}/healthy"]) == (32, {"bool": False})
        stage.take("more", driver)


def test_removed_attribute_makes_a_claim_unschedulable_until_the_patch_is_gone(
    stage: SliceStage, driver: str, tmp_path: Path
) -> None:
    """P-8, P-18: without a restart of the driver; and what is allocated stays allocated."""
    with publisher(stage, tmp_path, driver, [device("gpu-0"), device("gpu-1")]):
        _make_pod(stage, "before", driver)
        wait_until(lambda: _node_of(stage, "before") == "node-0", "a pod on a device")
        stage.put("p7", **sets(driver, model=None))
        stage.settled(driver)
        _make_pod(stage, "after", driver)
        wait_until(lambda: _waits(stage, "after", driver), "the pod cannot be scheduled")
        assert not [each for each in stage.devices(driver).values() if "model" in each]
        assert _allocated(stage, "before")
        stage.take("p7", driver)
        wait_until(lambda: _node_of(stage, "after") == "node-0", "the pod is scheduled")
        assert stage.settled(driver).count("driver create") == 1


def test_selector_that_reads_a_removed_attribute_fails_for_the_whole_claim(
    stage: SliceStage, driver: str, tmp_path: Path
) -> None:
    """Kubernetes does not go on to the next device, which has the attribute."""
    with publisher(stage, tmp_path, driver, [device("gpu-0"), device("gpu-1")]):
        stage.settled(driver)
        stage.put("first", **{**sets(driver, model=None), "filter": {"driver": driver, "device": "gpu-0"}})
        _make_pod(stage, "plain", driver, f"device.attributes['{driver}'].model == 'a100'")
        wait_until(lambda: "no such key: model" in str(_pod(stage, "plain")["status"]), "the selector fails")
        assert _node_of(stage, "plain") == ""
        _make_pod(stage, "careful", driver)
        wait_until(lambda: _node_of(stage, "careful") == "node-0", "the other device")
        stage.take("first", driver)
        wait_until(lambda: _node_of(stage, "plain") == "node-0", "the pod is scheduled")


def _has_model(driver: str) -> str:
    return f"has(device.attributes['{driver}'].model)"


def _patch(name: str, devices: Json) -> Json:
    return {
        "apiVersion": "devicetaint.io/v1alpha1",
        "kind": "ResourceSlicePatch",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }


def _make_pod(stage: SliceStage, name: str, driver: str, expression: str = "") -> None:
    """One that claims a device of the driver by its model."""
    client, group = stage.client, "resource.k8s.io/v1"
    device_class = {"apiVersion": group, "kind": "DeviceClass", "metadata": {"name": f"{name}-class"}, "spec": {}}
    device_class["spec"] = {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]}
    _ = client.create(path(group, "deviceclasses"), device_class).object
    careful = f"device.attributes['{driver}'].?model.orValue('') == 'a100'"
    selector = {"cel": {"expression": expression or careful}}
    request = {"deviceClassName": f"{name}-class", "selectors": [selector]}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}
    claim = {"apiVersion": group, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}
    _ = client.create(path(group, "resourceclaims", namespace=NAMESPACE), claim).object
    pod_spec = {
        "containers": [{"name": "main", "image": "none"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec}
    wait_until(lambda: client.create(path("v1", "pods", namespace=NAMESPACE), pod).ok, f"pod {name}")


def _pod(stage: SliceStage, name: str) -> Json:
    return stage.client.get(path("v1", "pods", namespace=NAMESPACE, name=name)).object


def _node_of(stage: SliceStage, name: str) -> str:
    return str(_pod(stage, name)["spec"].get("nodeName", ""))


def _reasons(stage: SliceStage, name: str) -> set[str]:
    return {each.get("reason", "") for each in _pod(stage, name)["status"].get("conditions", ())}


def _waits(stage: SliceStage, name: str, driver: str) -> bool:
    """Whether the pod is unschedulable. Another one is tried where the scheduler had not heard of the slice yet."""
    if _node_of(stage, name):
        pod, claim = (
            path(group, plural, namespace=NAMESPACE, name=name)
            for group, plural in (("v1", "pods"), ("resource.k8s.io/v1", "resourceclaims"))
        )
        stage.client.request("DELETE", pod, {"gracePeriodSeconds": 0})
        stage.client.patch(claim, {"metadata": {"finalizers": None}})  # no controller frees it here
        stage.client.delete(claim)
        wait_until(lambda: not any(stage.client.get(each).ok for each in (pod, claim)), f"pod {name} is gone")
        stage.client.delete(path("resource.k8s.io/v1", "deviceclasses", name=f"{name}-class"))
        _make_pod(stage, name, driver)
    if "Unschedulable" not in _reasons(stage, name):
        return False
    time.sleep(TRIED_AGAIN_SECONDS)  # it may not have heard yet that the pod before has left its device
    return "Unschedulable" in _reasons(stage, name)


def _allocated(stage: SliceStage, name: str) -> bool:
    claim = stage.client.get(path("resource.k8s.io/v1", "resourceclaims", namespace=NAMESPACE, name=name)).object
    return "allocation" in claim.get("status", {})
