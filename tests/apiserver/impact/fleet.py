"""A cluster as data: eight nodes, two hundred pods, and every way in which a pod comes to a device.

There are four benches, alike but for their names: each has drivers, namespaces and fifty pods of its own, so that
four rules can act side by side. Every request asks for one certain device, so who has which is known beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tests.apiserver.policy.rows import make_toleration
from tests.controlplane.versions import GROUP

Json = dict[str, Any]

VERSION: Final = f"{GROUP}/v1"
BENCHES: Final = ("alpha", "beta", "gamma", "delta")
NODES: Final = tuple(f"node-{number}" for number in range(8))
GPU: Final = "gpu"
NIC: Final = "nic"
KINDS: Final = (GPU, NIC)
MAINT: Final = "maint.example.com/window"
HEALTH: Final = "health.example.com/ecc"
OTHER: Final = "other.example.com/unheard-of"
BENCH_LABEL: Final = "bench"
ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"
STALE: Final = "stale"
"""A pool that nobody publishes any more; only an idle claim still names it."""
REBUILT: Final = "rebuilt"
"""A pool of which the generation before last is still there."""
IDLE: Final = "idle"
"""A claim that has a device, and that nobody uses."""

TOLERATIONS: Final[dict[str, tuple[Json, ...]]] = {
    name: tuple(make_toleration(text) for text in texts)
    for name, texts in {
        "nothing": (),
        "for-ever": (f"{MAINT}:NoExecute",),
        "small": (f"{MAINT}:NoExecute:4",),
        "large": (f"{MAINT}:NoExecute:3600",),
        "zero": (f"{MAINT}:NoExecute:0",),
        "smallest": (f"{MAINT}:NoExecute:3600", f"{MAINT}:NoExecute:3"),
        "for-ever-wins": (f"{MAINT}:NoExecute:3", f"{MAINT}:NoExecute"),
        "no-effect": (MAINT,),
        "scheduling": (f"{MAINT}:NoSchedule",),
        "all-keys": ("*:NoExecute",),
        "all-keys-large": ("*:NoExecute:3600",),
        "everything": ("*",),
        "value": (f"{MAINT}=fan:NoExecute",),
        "value-small": (f"{MAINT}=fan:NoExecute:4",),
        "value-of-any-key": ("*=fan:NoExecute",),
        "health": (f"{HEALTH}:NoExecute",),
        "health-small": (f"{HEALTH}:NoExecute:5",),
        "overflow": (f"{MAINT}:NoExecute:9223372037",),
    }.items()
} | {
    "negative": ({**make_toleration(f"{MAINT}:NoExecute"), "tolerationSeconds": -5},),
    "no-effect-large": ({**make_toleration(MAINT), "tolerationSeconds": 3600},),
}


@dataclass(frozen=True)
class Want:
    """A claim that a unit brings with it.

    `requests` name sets of TOLERATIONS. `alternatives`: they stand for one request, of which only the last can be had.
    `direct`: one claim for all pods of the unit; otherwise each pod has its own from a template.
    """

    requests: tuple[str, ...]
    kind: str = GPU
    count: int = 1
    direct: bool = False
    alternatives: bool = False
    admin: bool = False


@dataclass(frozen=True)
class Unit:
    """Pods that are alike and share what can be shared; on one node."""

    name: str
    wants: tuple[Want, ...]
    pods: int = 1
    extended: bool = False
    finished: bool = False


def _units() -> Iterator[Unit]:
    for name in TOLERATIONS:
        yield Unit(f"template-{name}", (Want((name,)),))
    for name in ("nothing", "for-ever", "small", "large"):
        yield Unit(f"direct-{name}", (Want((name,), direct=True),))
    for name, pods in {"nothing": 3, "small": 2, "for-ever": 2, "large": 2}.items():
        yield Unit(f"shared-{name}", (Want((name,), direct=True),), pods)
    for ours, theirs in (("for-ever", "nothing"), ("small", "large"), ("large", "small"), ("for-ever", "small")):
        yield Unit(f"two-claims-{ours}-{theirs}", (Want((ours,)), Want((theirs,), NIC)))
    yield Unit("shared-and-own", (Want(("for-ever",), direct=True), Want(("large",), NIC)), 2)
    yield Unit("two-requests-for-ever-nothing", (Want(("for-ever", "nothing")),))
    yield Unit("two-requests-small-large", (Want(("small", "large")),))
    yield Unit("two-devices", (Want(("nothing",), NIC, count=2),))
    yield Unit("second-choice", (Want(("for-ever", "small"), alternatives=True),))
    yield Unit("admin-nothing", (Want(("nothing",), admin=True),))
    yield Unit("admin-all-keys", (Want(("all-keys",), admin=True),))
    for number in range(3):
        yield Unit(f"extended-{number}", (), extended=True)
    yield Unit("extended-and-nothing", (Want(("nothing",)),), extended=True)
    yield Unit("extended-and-for-ever", (Want(("for-ever",)),), extended=True)
    yield Unit("finished", (Want(("nothing",)),), finished=True)


UNITS: Final = tuple(_units())


@dataclass
class Bench:
    """The objects of one bench, as they are sent."""

    name: str
    slices: list[Json] = field(default_factory=list)
    classes: list[Json] = field(default_factory=list)
    claims: list[Json] = field(default_factory=list)
    templates: list[Json] = field(default_factory=list)
    pods: dict[tuple[str, str], Json] = field(default_factory=dict)
    """By namespace and name."""
    finished: set[tuple[str, str]] = field(default_factory=set)
    """Of these pods, the ones that have run to their end."""

    @property
    def namespaces(self) -> tuple[str, ...]:
        return tuple(f"{self.name}-{use}" for use in ("train", "serve", "admin"))

    @property
    def extended_resource(self) -> str:
        return f"{self.name}.example.com/gpu"

    def driver(self, kind: str) -> str:
        return f"{kind}.{self.name}.example.com"

    def pool(self, node: int | str) -> str:
        """Both drivers have one of that name on every node."""
        return f"{self.name}-{NODES[node] if isinstance(node, int) else node}"

    def device(self, kind: str, number: int) -> str:
        """There is one of that name on every node that has so many."""
        return f"{self.name}-{kind}-{number}"


def make_bench(name: str) -> Bench:
    """A bench with all that is in it."""
    return _Builder(Bench(name)).build()


class _Builder:
    """Gives every unit its node and namespace, and every node the devices that its units ask for."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._purposes: dict[tuple[str, int], list[str]] = {(kind, n): [] for n in range(len(NODES)) for kind in KINDS}

    def build(self) -> Bench:
        bench = self._bench
        for position, unit in enumerate(UNITS):
            self._add(unit, position % len(NODES), bench.namespaces[position // len(NODES) % 2])
        for (kind, node), purposes in self._purposes.items():
            if purposes:
                bench.slices.append(_slice(bench, kind, NODES[node], bench.pool(node), purposes))
        for generation, count in ((1, 3), (2, 2)):
            old = _slice(bench, NIC, NODES[-1], bench.pool(REBUILT), ["nobody"] * count, generation)
            bench.slices.append(old)
        for kind in KINDS:
            bench.classes.append(_class(bench.driver(kind), f'device.driver == "{bench.driver(kind)}"'))
        gpu = bench.driver(GPU)
        expression = f'device.driver == "{gpu}" && {_purpose_is(gpu, "extended")}'
        bench.classes.append(_class(f"extended.{gpu}", expression, extendedResourceName=bench.extended_resource))
        idle = _devices([{"name": "r", "exactly": _plain(gpu, "nobody")}])
        bench.claims.append(_object("ResourceClaim", IDLE, bench.namespaces[0], idle))
        return bench

    def _add(self, unit: Unit, node: int, namespace: str) -> None:
        bench = self._bench
        if any(want.admin for want in unit.wants):
            namespace = bench.namespaces[2]
        uses = []
        for number, want in enumerate(unit.wants):
            name = f"{unit.name}-{number}"
            devices = _devices(self._requests(want, name, node, 1 if want.direct else unit.pods))
            if want.direct:
                bench.claims.append(_object("ResourceClaim", name, namespace, devices))
            else:
                bench.templates.append(_object("ResourceClaimTemplate", name, namespace, {"spec": devices}))
            uses.append({"name": f"c{number}", f"resourceClaim{'' if want.direct else 'Template'}Name": name})
        if unit.extended:
            self._purposes[GPU, node].append("extended")
        for number in range(unit.pods):
            pod = self._pod(unit, f"{unit.name}-{number}", namespace, node, uses)
            key = namespace, pod["metadata"]["name"]
            bench.pods[key] = pod
            if unit.finished:
                bench.finished.add(key)

    def _requests(self, want: Want, name: str, node: int, claims: int) -> list[Json]:
        """The requests of a claim; as many devices as so many claims need are added to the node."""
        driver = self._bench.driver(want.kind)
        if want.admin:
            everything = {"deviceClassName": driver, "allocationMode": "All", "adminAccess": True}
            return [{"name": "r", "exactly": everything | _tolerating(want.requests[0])}]
        requests, purposes = [], self._purposes[want.kind, node]
        for number, tolerations in enumerate(want.requests):
            there = not want.alternatives or number == len(want.requests) - 1
            purpose = f"{name}-{number}" if there else "nobody"
            purposes += [purpose] * (claims * want.count if there else 0)
            requests.append(_plain(driver, purpose, want.count) | _tolerating(tolerations))
        if want.alternatives:
            return [{"name": "r", "firstAvailable": [{"name": f"a{n}", **each} for n, each in enumerate(requests)]}]
        return [{"name": f"r{number}", "exactly": each} for number, each in enumerate(requests)]

    def _pod(self, unit: Unit, name: str, namespace: str, node: int, uses: list[Json]) -> Json:
        extended = {self._bench.extended_resource: "1"} if unit.extended else {}
        resources = {"limits": extended, "requests": extended, "claims": [{"name": use["name"]} for use in uses]}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": {BENCH_LABEL: self._bench.name}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "nodeSelector": {"kubernetes.io/hostname": NODES[node]},
                "containers": [{"name": "c", "image": "none", "resources": resources}],
                "resourceClaims": uses,
            },
        }


def make_namespaces(bench: Bench) -> Iterator[Json]:
    """The namespaces; in one of them claims may look into devices that are in use."""
    for name in bench.namespaces:
        labels = {ADMIN_ACCESS: "true"} if name == bench.namespaces[2] else {}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def idle_allocation(bench: Bench) -> Json:
    """A claim's status: it holds a device that nobody publishes any more, and nobody uses it."""
    result = {"request": "r", "driver": bench.driver(GPU), "pool": bench.pool(STALE), "device": bench.device(GPU, 0)}
    return {"status": {"allocation": {"devices": {"results": [result]}}}}


def _object(kind: str, name: str, namespace: str, spec: Json) -> Json:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def _devices(requests: list[Json]) -> Json:
    return {"devices": {"requests": requests}}


def _plain(driver: str, purpose: str, count: int = 1) -> Json:
    """A request for devices of one purpose."""
    selector = {"cel": {"expression": _purpose_is(driver, purpose)}}
    return {"deviceClassName": driver, "count": count, "selectors": [selector]}


def _purpose_is(driver: str, purpose: str) -> str:
    return f'device.attributes["{driver}"].purpose == "{purpose}"'


def _tolerating(name: str) -> Json:
    return {"tolerations": list(TOLERATIONS[name])} if TOLERATIONS[name] else {}


def _class(name: str, expression: str, **fields: Any) -> Json:
    spec = {"selectors": [{"cel": {"expression": expression}}], **fields}
    return {"apiVersion": VERSION, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def _slice(bench: Bench, kind: str, node: str, pool: str, purposes: list[str], generation: int = 1) -> Json:
    devices = [
        {"name": bench.device(kind, number), "attributes": {"purpose": {"string": purpose}}}
        for number, purpose in enumerate(purposes)
    ]
    return {
        "apiVersion": VERSION,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{pool}-{kind}-{generation}"},
        "spec": {
            "driver": bench.driver(kind),
            "nodeName": node,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
            "devices": devices,
        },
    }
