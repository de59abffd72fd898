"""Clusters by seed: nodes, devices of every kind, owners of pods that use them, and a taint on some of the devices.

Each has its own drivers, classes, namespaces and nodes, so that many of them live on one control plane side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.controlplane.versions import GROUP

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

VERSION: Final = f"{GROUP}/v1"
LABEL: Final = "cluster"
PRIORITIES: Final = {"placement-low": 10, "placement-high": 1000}
KEY: Final = "maint.example.com/window"
_ADMIN: Final = "resource.kubernetes.io/admin-access"


@dataclass
class Cluster:
    """One cluster as data. `deleted`: owners whose pods go by hand, where the taint evicts none."""

    name: str
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    objects: list[Json] = field(default_factory=list)
    """In an order in which they can be created; namespaces first."""
    rules: list[Json] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    crowded: bool = False
    """Whether pods that find no devices stay and wait for those of the others."""

    def add(self, version: str, kind: str, name: str, namespace: str = "", **content: Any) -> Json:
        """Add an object, with the cluster's label."""
        metadata = {"name": name, "labels": {LABEL: self.name}} | ({"namespace": namespace} if namespace else {})
        value = {"apiVersion": version, "kind": kind, "metadata": metadata, **content}
        self.objects.append(value)
        return value


def make_cluster(seed: int) -> Cluster:
    """The cluster of a seed: always the same."""
    return _Builder(seed).build()


class _Builder:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._cluster = Cluster(f"c{seed}")
        self._name = self._cluster.name
        self._pools: list[tuple[str, str, list[str]]] = []
        """Driver, pool and devices."""

    def build(self) -> Cluster:
        random, cluster = self._random, self._cluster
        cluster.crowded = random.random() < 0.15
        for namespace, labels in ((self._name, {}), (f"{self._name}-admin", {_ADMIN: "true"})):
            cluster.add("v1", "Namespace", namespace)["metadata"]["labels"] |= labels
        for number in range(random.randint(2, 5)):
            labels = {LABEL: self._name, "zone": random.choice("ab"), "rank": str(number)}
            cluster.nodes[f"{self._name}-n{number}"] = labels
        gpus = {node: random.randint(3, 6) for node in cluster.nodes}
        self._add_gpus(gpus)
        others = [self._add_nics, self._add_partitions, self._add_shares]
        kinds: list[Callable[[], Json]] = [self._plain, self._plain, self._choice, self._bound, self._all]
        for add in random.sample(others, random.randint(0, 2)):
            kinds += [add()] * 3
        for number in range(random.randint(4, 8)):
            self._add_owner(f"{self._name}-w{number}", random.choice(kinds))
        if random.random() < 0.4:
            self._add_daemon_set(f"{self._name}-ds")
        self._add_taint()
        return cluster

    # --- devices ---------------------------------------------------------------------------------

    def _driver(self, kind: str) -> str:
        return f"{kind}.{self._name}.example.com"

    def _class(self, kind: str, name: str, *expressions: str) -> None:
        texts = [f'device.driver == "{self._driver(kind)}"', *expressions]
        selectors = [{"cel": {"expression": " && ".join(texts)}}]
        self._cluster.add(VERSION, "DeviceClass", f"{self._name}-{name}", spec={"selectors": selectors})

    def _slice(self, kind: str, pool: str, count: int = 1, **content: Any) -> None:
        driver, number = self._driver(kind), sum(1 for each in self._cluster.objects if each["kind"] == "ResourceSlice")
        spec = {
            "driver": driver,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": count},
            **content,
        }
        self._cluster.add(VERSION, "ResourceSlice", f"{self._name}-{number:02}-{kind}", spec=spec)
        if content.get("devices"):
            self._pools.append((driver, pool, [each["name"] for each in content["devices"]]))

    def _add_gpus(self, gpus: dict[str, int]) -> None:
        random, driver = self._random, self._driver("gpu")
        for node, count in gpus.items():
            devices = []
            for number in range(count):
                attributes = {
                    "model": {"string": random.choice("aab")},
                    "numa": {"int": random.randint(0, 1)},
                    "serial": {"string": f"{node}-{number}"},
                }
                device: Json = {
                    "name": f"gpu-{number}",
                    "attributes": attributes,
                    "capacity": {"memory": {"value": random.choice(["40Gi", "80Gi"])}},
                }
                if random.random() < 0.08:
                    device["taints"] = [{"key": "old.example.com/weak", "effect": "NoSchedule"}]
                devices.append(device)
            self._slice("gpu", node, nodeName=node, devices=devices)
        self._class("gpu", "gpu")
        for model in "ab":
            self._class("gpu", f"gpu-{model}", f'device.attributes["{driver}"].model == "{model}"')

    def _add_nics(self) -> Callable[[], Json]:
        random, nodes = self._random, self._cluster.nodes
        devices: list[Json] = [
            {"name": f"nic-{number}", "attributes": {"rail": {"int": number % 2}}} for number in range(len(nodes) + 1)
        ]
        way = random.choice(["all", "selector", "each"])
        if way == "all":
            self._slice("nic", "fabric", allNodes=True, devices=devices)
        elif way == "selector":
            zone = random.choice(list(nodes.values()))["zone"]
            self._slice("nic", "fabric", nodeSelector=_selector(zone=zone, **{LABEL: self._name}), devices=devices)
        else:
            for device in devices:
                node = random.choice(list(nodes))
                reach: list[Json] = [
                    {"nodeName": node},
                    {"allNodes": True},
                    {"nodeSelector": _selector(zone=nodes[node]["zone"])},
                ]
                device.update(random.choice(reach))
            self._slice("nic", "fabric", perDeviceNodeSelection=True, devices=devices)
        self._class("nic", "nic")
        return lambda: _devices(self._request("nic"))

    def _add_partitions(self) -> Callable[[], Json]:
        for node in self._random.sample(sorted(self._cluster.nodes), self._random.randint(1, 2)):
            devices = []
            for profile, parts in (("full", 1), ("half", 2), ("quarter", 4)):
                for number in range(parts):
                    draws = [{"counterSet": "card", "counters": {"memory": {"value": f"{40 // parts}Gi"}}}]
                    attributes = {"profile": {"string": profile}}
                    devices.append({"name": f"{profile}-{number}", "attributes": attributes, "consumesCounters": draws})
            counters = [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]
            self._slice("part", node, 2, nodeName=node, sharedCounters=counters)
            self._slice("part", node, 2, nodeName=node, devices=devices)
        self._class("part", "part")
        driver = self._driver("part")

        def ask() -> Json:
            profile = self._random.choice(["full", "half", "half", "quarter", "quarter"])
            return _devices(self._request("part", f'device.attributes["{driver}"].profile == "{profile}"'))

        return ask

    def _add_shares(self) -> Callable[[], Json]:
        random = self._random
        policies: list[Json] = [
            {},
            {"requestPolicy": {"default": "10Gi", "validRange": {"min": "5Gi", "step": "5Gi", "max": "30Gi"}}},
            {"requestPolicy": {"default": "10Gi", "validValues": ["5Gi", "10Gi", "20Gi"]}},
        ]
        policy = random.choice(policies)
        for node in random.sample(sorted(self._cluster.nodes), random.randint(1, 2)):
            capacity = {"memory": {"value": "40Gi", **policy}}
            devices = [
                {"name": f"share-{number}", "allowMultipleAllocations": True, "capacity": capacity}
                for number in range(random.randint(1, 2))
            ]
            self._slice("share", node, nodeName=node, devices=devices)
        self._class("share", "share")

        def ask() -> Json:
            amount = random.choice(["", "3Gi", "8Gi", "12Gi", "20Gi", "35Gi"])
            request = self._request("share")
            if amount:
                request["exactly"]["capacity"] = {"requests": {"memory": amount}}
            return _devices(request)

        return ask

    # --- what pods ask for -----------------------------------------------------------------------

    def _request(self, device_class: str, *expressions: str, name: str = "r", **content: Any) -> Json:
        exactly: Json = {"deviceClassName": f"{self._name}-{device_class}", **content}
        if expressions:
            exactly["selectors"] = [{"cel": {"expression": each}} for each in expressions]
        if self._random.random() < 0.1:
            tolerations: list[Json] = [
                {"operator": "Exists"},
                {"key": KEY, "operator": "Exists", "effect": "NoSchedule"},
            ]
            exactly["tolerations"] = [self._random.choice(tolerations)]
        return {"name": name, "exactly": exactly}

    def _plain(self) -> Json:
        random, driver = self._random, self._driver("gpu")
        expressions = [
            f'device.attributes["{driver}"].numa == 0',
            f'device.attributes["{driver}"].model in ["a", "c"]',
            f'device.capacity["{driver}"].memory.compareTo(quantity("60Gi")) > 0',
            f'"serial" in device.attributes["{driver}"]',
        ]
        chosen = random.sample(expressions, random.choice([0, 0, 1]))
        device_class, count = random.choice(["gpu", "gpu-a", "gpu-b"]), random.choice([1, 1, 2])
        return _devices(self._request(device_class, *chosen, count=count))

    def _choice(self) -> Json:
        alternatives: list[Json] = [
            {"deviceClassName": f"{self._name}-gpu-b", "count": 2},
            {"deviceClassName": f"{self._name}-gpu-a", "count": 2},
            {"deviceClassName": f"{self._name}-gpu-b"},
            {"deviceClassName": f"{self._name}-gpu"},
        ]
        chosen = self._random.sample(alternatives, 2)
        return _devices(
            {"name": "r", "firstAvailable": [{"name": f"s{number}", **each} for number, each in enumerate(chosen)]}
        )

    def _bound(self) -> Json:
        random, driver = self._random, self._driver("gpu")
        requests = [self._request("gpu", count=2)]
        if random.random() < 0.5:
            requests = [self._request("gpu", name="one"), self._request("gpu-a", name="two")]
        constraint = random.choice(
            [
                {"matchAttribute": f"{driver}/numa"},
                {"matchAttribute": f"{driver}/model"},
                {"distinctAttribute": f"{driver}/numa"},
                {"distinctAttribute": f"{driver}/serial"},
            ]
        )
        return _devices(*requests, constraints=[constraint])

    def _all(self) -> Json:
        return _devices(self._request(self._random.choice(["gpu", "gpu-b"]), allocationMode="All"))

    # --- owners ----------------------------------------------------------------------------------

    def _add_owner(self, name: str, ask: Callable[[], Json]) -> None:
        random, replicas = self._random, self._random.choice([1, 1, 2, 3])
        kind = random.choice(["ReplicaSet", "ReplicaSet", "StatefulSet", "Job"])
        asks = [ask()] + ([self._plain()] if random.random() < 0.15 else [])
        shared = random.random() < 0.05
        pod = self._pod(name, self._name, asks, shared=shared)
        pod["spec"]["priorityClassName"] = random.choice(sorted(PRIORITIES)) if random.random() < 0.3 else ""
        selector = {"matchLabels": {"app": name}}
        if kind == "Job":
            pod["spec"]["restartPolicy"] = "Never"
            spec = {"parallelism": replicas, "completions": replicas, "backoffLimit": 1000, "template": pod}
            self._cluster.add("batch/v1", "Job", name, self._name, spec=spec)
        else:
            more = {"podManagementPolicy": "Parallel", "serviceName": name} if kind == "StatefulSet" else {}
            spec = {"replicas": replicas, "selector": selector, "template": pod, **more}
            self._cluster.add("apps/v1", kind, name, self._name, spec=spec)

    def _add_daemon_set(self, name: str) -> None:
        kind = self._random.choice(["admin", "one"])
        namespace = f"{self._name}-admin" if kind == "admin" else self._name
        more: Json = {"allocationMode": "All", "adminAccess": True} if kind == "admin" else {}
        pod = self._pod(name, namespace, [_devices(self._request("gpu", **more))])
        spec = {"selector": {"matchLabels": {"app": name}}, "template": pod}
        self._cluster.add("apps/v1", "DaemonSet", name, namespace, spec=spec)

    def _pod(self, name: str, namespace: str, asks: list[Json], *, shared: bool = False) -> Json:
        uses = []
        for number, spec in enumerate(asks):
            if shared:
                self._cluster.add(VERSION, "ResourceClaim", f"{name}-{number}", namespace, spec=spec)
                uses.append({"name": f"c{number}", "resourceClaimName": f"{name}-{number}"})
            else:
                template = {"metadata": {"labels": {LABEL: self._name}}, "spec": spec}
                self._cluster.add(VERSION, "ResourceClaimTemplate", f"{name}-{number}", namespace, spec=template)
                uses.append({"name": f"c{number}", "resourceClaimTemplateName": f"{name}-{number}"})
        return {
            "metadata": {"labels": {LABEL: self._name, "app": name}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "nodeSelector": {LABEL: self._name},
                "containers": [{"name": "c", "image": "none"}],
                "resourceClaims": uses,
            },
        }

    # --- the taint -------------------------------------------------------------------------------

    def _add_taint(self) -> None:
        random, evicting = self._random, self._random.random() < 0.75
        for number in range(random.choice([1, 2, 2])):
            driver, pool, devices = random.choice(self._pools)
            selector = {"driver": driver, "pool": pool}
            if random.random() < 0.3:
                selector["device"] = random.choice(devices)
            taint = {"key": KEY, "effect": "NoExecute" if evicting else "NoSchedule"}
            metadata = {"name": f"{self._name}-{number}", "labels": {LABEL: self._name}}
            spec = {"deviceSelector": selector, "taint": taint}
            rule = {"apiVersion": VERSION, "kind": "DeviceTaintRule", "metadata": metadata, "spec": spec}
            self._cluster.rules.append(rule)
        if not evicting:
            owners = [each["metadata"]["name"] for each in self._cluster.objects if "template" in each.get("spec", {})]
            self._cluster.deleted += random.sample(owners, min(len(owners), random.randint(2, 4)))


def _devices(*requests: Json, **more: Any) -> Json:
    return {"devices": {"requests": list(requests), **more}}


def _selector(**labels: str) -> Json:
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    return {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
