"""Devices of one driver on two nodes, pods that want them, and what patches make of their devices."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from tests.apiserver.patches.values import COLLECTION, patch
from tests.controlplane.client import Client, path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import GROUP
from webhook.api.decode import Reader
from webhook.api.rules import decode_rule
from webhook.inventory.pools import selects

Json = dict[str, Any]

VERSION: Final = f"{GROUP}/v1"
RULES: Final = path(VERSION, "devicetaintrules")
KEY: Final = "closed.example.com/firmware"
LARGE: Final = 'device.attributes["{driver}"].?memory.orValue(0) > 40'
_CONTAINER: Final = {"name": "c", "image": "none"}
SOON_SECONDS: Final = 180.0
TRIED_AGAIN_SECONDS: Final = 4.0
"""Within them the scheduler tries a pod again for which a device became free: its first pause is a second."""


class ClosingFleet:
    """A namespace, a driver and a device class, all of the same name; a pool of devices on each node."""

    def __init__(self, plane: ControlPlane, name: str, nodes: Iterable[str]) -> None:
        self.plane = plane
        self.client = plane.client
        self.name = name
        self.driver = f"{name}.example.com"
        self.nodes = tuple(nodes)
        self._pods = 0
        _ = self.client.create(path("v1", "namespaces"), {"metadata": {"name": name}}).object
        self.set_class(f'device.driver == "{self.driver}"')
        for node in self.nodes:
            self.publish(node)

    # --- devices ---------------------------------------------------------------------------------

    def publish(self, node: str, generation: int = 1, part: str = "", parts: int = 1, /, **memory: int) -> None:
        """Four devices, two of them large, unless it is said how large which is; one has no size at all.

        `part`: the end of the slice's name, where the pool has more of them.
        """
        sizes = memory or {"gpu-0": 80, "gpu-1": 20, "gpu-2": 80, "gpu-3": 0}
        devices = [
            {"name": name, "attributes": {"memory": {"int": size}} if size else {}} for name, size in sizes.items()
        ]
        pool = {"name": node, "generation": generation, "resourceSliceCount": parts}
        spec = {"driver": self.driver, "nodeName": node, "pool": pool, "devices": devices}
        collection, name = path(VERSION, "resourceslices"), f"{self.name}-{node}{part}"
        obj = {"apiVersion": VERSION, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
        reply = self.client.apply(f"{collection}/{name}", obj, field_manager="driver")
        assert reply.ok, reply

    def withdraw(self) -> None:
        """No devices any more."""
        collection = path(VERSION, "resourceslices")
        for each in self.client.get(collection).items:
            if each["spec"]["driver"] == self.driver:
                self.client.delete(f"{collection}/{each['metadata']['name']}")

    def set_class(self, *expressions: str) -> None:
        selectors = [{"cel": {"expression": each}} for each in expressions]
        obj = {"apiVersion": VERSION, "kind": "DeviceClass", "metadata": {"name": self.name}}
        collection = path(VERSION, "deviceclasses")
        reply = self.client.apply(
            f"{collection}/{self.name}", {**obj, "spec": {"selectors": selectors}}, field_manager="admin"
        )
        assert reply.ok, reply

    # --- pods ------------------------------------------------------------------------------------

    def pod(self, node: str, *, every: bool = False, tolerates: bool = False) -> str:
        """A pod that wants one device of the class on a node, or all there are."""
        self._pods += 1
        name = f"pod-{self._pods}"
        wanted: Json = {"deviceClassName": self.name, "allocationMode": "All" if every else "ExactCount"}
        if tolerates:
            wanted["tolerations"] = [{"key": KEY, "operator": "Exists", "effect": "NoSchedule"}]
        claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "r", "exactly": wanted}]}}}
        _ = self.client.create(path(VERSION, "resourceclaims", namespace=self.name), claim).object
        spec = {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 0,
            "containers": [_CONTAINER],
            "resourceClaims": [{"name": "r", "resourceClaimName": name}],
        }
        pods, pod = path("v1", "pods", namespace=self.name), {"metadata": {"name": name}, "spec": spec}
        wait_until(lambda: self.client.create(pods, pod).ok, f"pod {name}", every=0.5)
        return name

    def devices_of(self, pod: str) -> set[tuple[str, str]]:
        """Pool and name of the devices that its claim has."""
        claim = self.client.get(f"{path(VERSION, 'resourceclaims', namespace=self.name)}/{pod}").object
        results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        return {(each["pool"], each["device"]) for each in results}

    def wait_for_devices(self, pod: str) -> set[tuple[str, str]]:
        wait_until(lambda: bool(self.devices_of(pod)), f"devices for {pod}", seconds=SOON_SECONDS)
        return self.devices_of(pod)

    def pod_without_device(self, node: str) -> str:
        """A pod that is unschedulable: another one, while the scheduler has not yet heard of the newest taints."""
        pod = ""

        def refused() -> bool:
            nonlocal pod
            if pod and self.devices_of(pod):
                self._remove(pod)
                pod = ""
            pod = pod or self.pod(node)
            if not self._is_unschedulable(pod):
                return False
            time.sleep(TRIED_AGAIN_SECONDS)  # it may not have heard yet that the pod before has left its device
            return self._is_unschedulable(pod)

        wait_until(refused, "a pod is unschedulable", seconds=SOON_SECONDS)
        return pod

    def _is_unschedulable(self, pod: str) -> bool:
        status = self.client.get(f"{path('v1', 'pods', namespace=self.name)}/{pod}").object["status"]
        told = any(each["reason"] == "Unschedulable" for each in status.get("conditions", ()) if "reason" in each)
        return told and not self.devices_of(pod)

    def _remove(self, pod: str) -> None:
        """With its claim; returns when both are gone."""
        urls = (
            path("v1", "pods", namespace=self.name, name=pod),
            path(VERSION, "resourceclaims", namespace=self.name, name=pod),
        )
        for url in urls:
            self.client.delete(url)
        wait_until(lambda: not any(self.client.get(url).ok for url in urls), f"{pod} is gone")

    def clear(self) -> None:
        """No pods, no claims."""
        for collection in (
            path("v1", "pods", namespace=self.name),
            path(VERSION, "resourceclaims", namespace=self.name),
        ):
            self.client.delete(collection)
            wait_until(lambda collection=collection: not self.client.get(collection).items, f"{collection} is empty")  # type: ignore[misc]

    # --- patches ---------------------------------------------------------------------------------

    def patch(self, name: str, taints: Any = None, priority: int | None = None, /, **selects: Any) -> Json:
        """Creates a patch, or changes it; its taint is NoSchedule unless given."""
        devices: Json = {"filter": selects, "taints": taints or [{"key": KEY, "effect": "NoSchedule"}]}
        body = patch(devices if priority is None else {**devices, "priority": priority}, name)
        return self.client.apply(f"{COLLECTION}/{name}", body, field_manager="admin").object

    def drop(self, patch_name: str) -> None:
        assert self.client.delete(f"{COLLECTION}/{patch_name}").ok

    def status(self, patch_name: str) -> Json:
        found: Json = self.client.get(f"{COLLECTION}/{patch_name}").object.get("status", {})
        return found

    def condition(self, patch_name: str, kind: str) -> tuple[str, str, str]:
        conditions = {each["type"]: each for each in self.status(patch_name).get("conditions", ())}
        found = conditions.get(kind, {"status": "", "reason": "", "message": ""})
        return found["status"], found["reason"], found["message"]

    def wait_known(self, devices: int) -> None:
        """Until the controller knows so many of the class: it hears of them and of patches by different watches."""
        body = patch({"filter": {"deviceClassName": self.name}}, "known")
        _ = self.client.apply(f"{COLLECTION}/known", body, field_manager="admin").object
        wait_until(
            lambda: self.status("known").get("selectedDevices") == devices,
            f"{devices} devices are known",
            seconds=SOON_SECONDS,
        )
        self.drop("known")

    def wait_expanded(self, stored: Json) -> None:
        """Until what the patch says now is in rules."""

        def done() -> bool:
            name, generation = stored["metadata"]["name"], stored["metadata"]["generation"]
            current = self.status(name).get("observedGeneration") == generation
            return current and self.condition(name, "Expanded")[0] == "True"

        wait_until(done, "the patch is expanded", seconds=SOON_SECONDS)

    def rules(self, uid: str = "") -> list[Json]:
        """The rules of the patch with this uid, or all that have to do with the fleet."""
        return [
            each
            for each in self.client.get(RULES).items
            if (each["metadata"].get("labels", {}).get("devicetaint.io/patch") == uid if uid else True)
        ]

    def closed(self, uid: str) -> set[tuple[str, str]]:
        """Pool and name of the published devices that the rules of a patch select."""
        found = self._selected(self.rules(uid))
        assert {driver for driver, _, _ in found} <= {self.driver}
        return {(pool, device) for _, pool, device in found}

    def taints(self) -> dict[tuple[str, str], list[tuple[str, str, str]]]:
        """Key, value and effect of what rules put on each of the fleet's published devices, sorted."""
        found: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
        for rule in self.rules():
            taint = rule["spec"]["taint"]
            for driver, pool, device in self._selected([rule]):
                if driver == self.driver:
                    found.setdefault((pool, device), []).append((taint["key"], taint.get("value", ""), taint["effect"]))
        return {place: sorted(each) for place, each in found.items()}

    def _selected(self, rules: Iterable[Json]) -> set[tuple[str, str, str]]:
        decoded = [decode_rule(Reader.of(each, [])) for each in rules]
        found = set()
        for published in self.client.get(path(VERSION, "resourceslices")).items:
            spec = published["spec"]
            for device in spec.get("devices") or ():
                place = spec["driver"], spec["pool"]["name"], device["name"]
                if any(rule.selector is not None and selects(rule.selector, *place) for rule in decoded):
                    found.add(place)
        return found


def large(fleet: ClosingFleet) -> Any:
    return [{"cel": {"expression": LARGE.format(driver=fleet.driver)}}]


def wait_younger(client: Client, stored: Json) -> None:
    """Returns when a patch that is created now is younger: an API server keeps full seconds."""

    def younger() -> bool:
        tried = client.create(COLLECTION, patch({}, "tried"), dry_run=True).object
        return bool(tried["metadata"]["creationTimestamp"] > stored["metadata"]["creationTimestamp"])

    wait_until(younger, "another second", every=0.2)
