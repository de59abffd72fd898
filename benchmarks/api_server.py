"""What a webhook adds to a create through a real API server, seen by the client that creates."""

from __future__ import annotations

import base64
import os
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks import bodies
from benchmarks.gobinaries import BenchmarkError
from benchmarks.servers import NONE
from tests.controlplane import assets, versions
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.controlplane.registration import calls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.gobinaries import Progress
    from benchmarks.servers import Certificates, Server
    from tests.controlplane.client import Client

CREATES = 500
_WARM_UP = 50
# Objects choose the webhook by this label, so that calls can alternate without anything being registered anew.
_LABEL = "benchmark.devicetaint.io/webhook"
_CONFIGURATIONS = path("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations")
_OBJECTS: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "ResourceClaim": ("claim", lambda: bodies.claim(0)),
    "DeviceTaintRule": ("rule", lambda: bodies.rule(0)),
}


@dataclass(frozen=True, slots=True)
class Latency:
    """Of the creates of one kind through one webhook, or through none."""

    kind: str
    server: str
    p50_ms: float
    p99_ms: float


def missing() -> str:
    """Why this part cannot run without building a control plane first; empty if it can."""
    if os.environ.get("KUBEBUILDER_ASSETS") or assets.controlplane(versions.DEFAULT).folder.is_dir():
        return ""
    return "no API server is built yet (minutes): run `python -m tests.controlplane.assets`, or set KUBEBUILDER_ASSETS"


def measure(servers: Sequence[Server], certificates: Certificates, creates: int, progress: Progress) -> list[Latency]:
    """Dry-run creates one after the other, in turn without a webhook and with each server as the only one.

    Nothing is pinned here: API server, etcd, webhook and client share what there is, as the calls follow each
    other. Raises: BenchmarkError if a create is refused, or a webhook was not called each time.
    """
    progress("starting etcd and kube-apiserver")
    with ControlPlane(assets.find(progress=progress)) as plane:
        for server in servers:
            _ = plane.client.create(_CONFIGURATIONS, _configuration(server, certificates)).object
        latencies = []
        for kind in _OBJECTS:
            for server in servers:
                _wait_registered(plane, kind, server)
            before = calls(plane)
            latencies += _creates(plane.client, kind, [NONE, *(s.name for s in servers)], creates, progress)
            after = calls(plane)
            for server in servers:
                entry = ("validating", _entry(server))
                called = after.answered[entry] - before.answered[entry]
                if called != creates + _WARM_UP or after.failed[entry]:
                    raise BenchmarkError(f"{server.name} was called {called} times for {creates + _WARM_UP} creates")
    return latencies


def _creates(client: Client, kind: str, names: Sequence[str], creates: int, progress: Progress) -> list[Latency]:
    collection = _collection(kind)
    objects = {name: _object(kind, name) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    progress(f"API server: {creates} dry-run creates of a {kind} for each of {', '.join(names)}")
    for number in range(creates + _WARM_UP):
        turn = number % len(names)  # none of them always comes first
        for name in (*names[turn:], *names[:turn]):
            started = time.perf_counter()
            reply = client.create(collection, objects[name], dry_run=True)
            ended = time.perf_counter()
            if not reply.ok:
                raise BenchmarkError(f"create of a {kind} through {name}: {reply.code} {reply.message}")
            if number >= _WARM_UP:
                seconds[name].append(ended - started)
    return [_latency(kind, name, measured) for name, measured in seconds.items()]


def _latency(kind: str, server: str, seconds: list[float]) -> Latency:
    return Latency(kind, server, statistics.median(seconds) * 1e3, statistics.quantiles(seconds, n=100)[98] * 1e3)


def _wait_registered(plane: ControlPlane, kind: str, server: Server) -> None:
    entry = ("validating", _entry(server))
    before = calls(plane)

    def called() -> bool:
        reply = plane.client.create(_collection(kind), _object(kind, server.name), dry_run=True)
        if calls(plane).failed[entry] > before.failed[entry]:
            raise BenchmarkError(f"the API server cannot call {server.name}: {reply.message}")
        return calls(plane).answered[entry] > before.answered[entry]

    wait_until(called, f"{server.name} called for a {kind}")


def _configuration(server: Server, certificates: Certificates) -> dict[str, Any]:
    rule = {
        "apiGroups": [bodies.GROUP],
        "apiVersions": [bodies.VERSION],
        "operations": ["CREATE"],
        "resources": [bodies.RESOURCES[kind] for kind in _OBJECTS],
    }
    webhook = {
        "name": _entry(server),
        "clientConfig": {"url": server.url, "caBundle": base64.b64encode(certificates.ca_pem).decode()},
        "rules": [rule],
        "objectSelector": {"matchLabels": {_LABEL: server.name}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 10,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": f"benchmark-{server.name}"},
        "webhooks": [webhook],
    }


def _entry(server: Server) -> str:
    return f"{server.name}.benchmark.devicetaint.io"


def _collection(kind: str) -> str:
    namespace = "default" if kind in bodies.NAMESPACED else ""
    return path(f"{bodies.GROUP}/{bodies.VERSION}", bodies.RESOURCES[kind], namespace=namespace)


def _object(kind: str, server: str) -> dict[str, Any]:
    """As a user writes it: without what the API server fills in."""
    name, made = _OBJECTS[kind]
    return {
        "apiVersion": f"{bodies.GROUP}/{bodies.VERSION}",
        "kind": kind,
        "metadata": {"name": f"benchmark-{name}", "labels": {_LABEL: server}},
        "spec": made()["spec"],
    }
