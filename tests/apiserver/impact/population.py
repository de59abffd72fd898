"""The fleet on a control plane: brought in, and brought back to what it was after pods were evicted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from tests.apiserver.impact.fleet import (
    BENCH_LABEL,
    BENCHES,
    IDLE,
    NODES,
    VERSION,
    Bench,
    idle_allocation,
    make_bench,
    make_namespaces,
)
from tests.controlplane.client import Client, path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from webhook.api.claims import decode_stored_claim
from webhook.api.decode import Reader
from webhook.api.rules import decode_rule
from webhook.api.servers import facts_of
from webhook.api.slices import decode_slice
from webhook.inventory.state import Inventory

Json = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""

RULES: Final = path(VERSION, "devicetaintrules")
SLICES: Final = path(VERSION, "resourceslices")
CLAIMS: Final = path(VERSION, "resourceclaims")
PODS: Final = path("v1", "pods")
SETTLED_WITHIN_SECONDS: Final = 300.0
_POLL_SECONDS: Final = 0.4
"""Four benches are looked after at a time, and the control plane has the same two cores."""
_THREADS: Final = 8
_KINDS: Final = ((SLICES, decode_slice), (RULES, decode_rule), (CLAIMS, decode_stored_claim))


class Population:
    """The fleet of one control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        self.client: Client = plane.client
        self._plane = plane
        self.facts = facts_of([plane.server_version])
        """Whether its in-tree controller evicts pods whose device came through an extended resource."""
        self.benches = {name: make_bench(name) for name in BENCHES}
        self.settled_seconds = 0.0

    def install(self) -> None:
        """Everything, in an order in which nobody has to wait for what comes later."""
        before = time.monotonic()
        for name in NODES:
            self._plane.add_node(name)
        benches = self.benches.values()
        for kind in ("classes", "slices", "templates", "claims"):
            if kind == "templates":
                self._create(each for bench in benches for each in make_namespaces(bench))
            self._create(each for bench in benches for each in getattr(bench, kind))
        for bench in benches:
            url = path(VERSION, "resourceclaims", namespace=bench.namespaces[0], name=IDLE, subresource="status")
            _ = self.client.patch(url, idle_allocation(bench)).object
        self.settle(*benches)
        self.settled_seconds = time.monotonic() - before

    def settle(self, *benches: Bench) -> dict[Key, str]:
        """Brings back the pods that are gone, and waits until all have what they ask for; gives their uids."""
        found: dict[Key, str] = {}
        with ThreadPoolExecutor(len(benches)) as pool:
            for uids in pool.map(lambda bench: _Settling(self.client, bench).wait(), benches):
                found |= uids
        return found

    def inventory(self) -> Inventory:
        """What the API server holds at this moment, as `serve` would have it in its caches."""
        inventory = Inventory()
        inventory.servers = self.facts
        for url, decode in _KINDS:
            for item in self.client.get(url).items:
                errors: list[Any] = []
                inventory.apply(None, decode(Reader.of(item, errors)))
                assert not errors, errors
        return inventory

    def _create(self, objects: Iterable[Json]) -> None:
        def create(obj: Json) -> None:
            plural = "deviceclasses" if obj["kind"] == "DeviceClass" else f"{obj['kind'].lower()}s"
            collection = path(obj["apiVersion"], plural, namespace=obj["metadata"].get("namespace", ""))
            _ = self.client.create(collection, obj).object

        self.client.each(create, objects, threads=_THREADS)


class _Settling:
    """One bench on its way back."""

    def __init__(self, client: Client, bench: Bench) -> None:
        self._client = client
        self._bench = bench
        self._missing = "nobody has looked yet"

    def wait(self) -> dict[Key, str]:
        """The uids of its pods, once each has its claims and nobody else has any."""
        uids: dict[Key, str] = {}

        def settled() -> bool:
            pods = self._pods()
            self._missing = next(self._faults(pods), "")
            uids.update({key: pod["metadata"]["uid"] for key, pod in pods.items()})
            return not self._missing

        try:
            wait_until(settled, "settled", seconds=SETTLED_WITHIN_SECONDS, every=_POLL_SECONDS)
        except Exception as e:
            e.add_note(f"bench {self._bench.name}: {self._missing}")
            raise
        return uids

    def _pods(self) -> dict[Key, Json]:
        listed = self._client.get(PODS, labelSelector=f"{BENCH_LABEL}={self._bench.name}").items
        return {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in listed}

    def _faults(self, pods: dict[Key, Json]) -> Iterator[str]:
        """What is not yet as it should be; what can be done about it is done on the way."""
        gone = [key for key in self._bench.pods if key not in pods]
        self._client.each(self._create, gone, threads=2)
        yield from (f"pod {'/'.join(key)} is not there" for key in gone)
        for key, pod in pods.items():
            yield from self._faults_of(key, pod)
        claims = {
            (claim["metadata"]["namespace"], claim["metadata"]["name"]): claim
            for namespace in self._bench.namespaces
            for claim in self._client.get(path(VERSION, "resourceclaims", namespace=namespace)).items
        }
        users: dict[Key, set[str]] = {
            (claim["metadata"]["namespace"], claim["metadata"]["name"]): set() for claim in self._bench.claims
        }
        for key, pod in pods.items():
            if key not in self._bench.finished:
                for name in _claims_of(pod):
                    users.setdefault((key[0], name), set()).add(pod["metadata"]["uid"])
        reserved = {
            key: {consumer["uid"] for consumer in claim.get("status", {}).get("reservedFor", ())}
            for key, claim in claims.items()
        }
        if reserved != users:
            different = [key for key in reserved | users if reserved.get(key) != users.get(key)]
            yield f"claims {different} are not reserved for those who name them"

    def _faults_of(self, key: Key, pod: Json) -> Iterator[str]:
        name, phase = "/".join(key), pod["status"].get("phase")
        if "deletionTimestamp" in pod["metadata"]:
            yield f"pod {name} is being deleted"
        elif key in self._bench.finished:
            if phase == "Running":
                finished = {"status": {"phase": "Succeeded"}}
                self._client.patch(f"{path('v1', 'pods', namespace=key[0], name=key[1])}/status", finished)
            if phase != "Succeeded":
                yield f"pod {name} has not finished"
        elif phase != "Running":
            yield f"pod {name} does not run: {json.dumps(pod['status'])}"
        elif len(_claims_of(pod)) != len(pod["spec"].get("resourceClaims", ())) + _is_extended(pod):
            yield f"pod {name} has not got all of its claims"

    def _create(self, key: Key) -> None:
        # "already there" is no fault: it was on its way out when it was looked for
        self._client.create(path("v1", "pods", namespace=key[0]), self._bench.pods[key])


def _is_extended(pod: Json) -> bool:
    return bool(pod["spec"]["containers"][0]["resources"].get("limits"))


def _claims_of(pod: Json) -> list[str]:
    """The names of the claims that a pod uses."""
    generated = {each["name"]: each.get("resourceClaimName") for each in pod["status"].get("resourceClaimStatuses", ())}
    named = [
        each.get("resourceClaimName") or generated.get(each["name"]) for each in pod["spec"].get("resourceClaims", ())
    ]
    extended = pod["status"].get("extendedResourceClaimStatus", {}).get("resourceClaimName")
    return [name for name in (*named, extended) if name]
