"""What tests of the shipped registrations have in common: the files, and objects of every served version."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane

Json = dict[str, Any]

MANIFESTS = Path(__file__).parents[3] / "manifests"
OWN_NAMESPACE = "device-taint-webhook"
POLICY = "device-taint-webhook-policy"
FINALIZER = "test.example.com/wait"
NO_FINALIZERS = {"metadata": {"finalizers": None}}

DRIVER = "gpu.example.com"
TAINT = {"key": "health.example.com/broken", "effect": "NoExecute"}
TOLERATION = {"key": "maintenance.example.com/soon", "operator": "Exists", "effect": "NoExecute"}

_numbers = itertools.count()


def unused_name() -> str:
    """A name that no other object of this test run has."""
    return f"registration-{next(_numbers)}"


def make_object(api_version: str, kind: str, spec: Mapping[str, Any], **metadata: Any) -> Json:
    """An object of any kind with a spec; without a name it gets an unused one."""
    return {
        "apiVersion": api_version if "/" in api_version else f"{versions.GROUP}/{api_version}",
        "kind": kind,
        "metadata": {"name": unused_name(), **metadata},
        "spec": spec,
    }


def collection(obj: Mapping[str, Any]) -> str:
    """Where the object is created."""
    plural = f"{obj['kind'].lower()}s"
    return path(obj["apiVersion"], plural, namespace=obj["metadata"].get("namespace", ""))


def url(obj: Mapping[str, Any]) -> str:
    """Where the object is, once it has been created."""
    return f"{collection(obj)}/{obj['metadata']['name']}"


def make_claim(version: str, *requests: Json | None, namespace: str = "default", **metadata: Any) -> Json:
    """A ResourceClaim with requests from exactly, first_available, or made by hand."""
    return make_object(version, "ResourceClaim", _claim_spec(requests), namespace=namespace, **metadata)


def make_template(version: str, *requests: Json | None, namespace: str = "default", **metadata: Any) -> Json:
    """A ResourceClaimTemplate for claims with these requests."""
    spec = {"spec": _claim_spec(requests)}
    return make_object(version, "ResourceClaimTemplate", spec, namespace=namespace, **metadata)


def _claim_spec(requests: Sequence[Json | None]) -> Json:
    named = [{"name": f"r{i}", **r} if r is not None else None for i, r in enumerate(requests)]
    return {"devices": {"requests": named}} if named else {}


def exactly(version: str, tolerations: list[Json] | None = None) -> Json:
    """A request without alternatives, in the shape of the version."""
    wanted = _wanted(tolerations)
    return wanted if version == "v1beta1" else {"exactly": wanted}


def first_available(*tolerations: list[Json] | None) -> Json:
    """A request with an alternative for each list of tolerations; the same in every version."""
    return {"firstAvailable": [{"name": f"a{i}", **_wanted(each)} for i, each in enumerate(tolerations)]}


def _wanted(tolerations: list[Json] | None) -> Json:
    return {"deviceClassName": DRIVER, **({} if tolerations is None else {"tolerations": tolerations})}


def make_slice(version: str, *devices: Json | None, **metadata: Any) -> Json:
    """A ResourceSlice, the only one of its pool, with devices from device, or made by hand."""
    name = metadata.setdefault("name", unused_name())
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    named = [{"name": f"d{i}", **d} if d is not None else None for i, d in enumerate(devices)]
    everywhere: Json = {"driver": DRIVER, "pool": pool, "allNodes": True}
    return make_object(version, "ResourceSlice", {**everywhere, **({"devices": named} if named else {})}, **metadata)


def device(version: str, taints: list[Json] | None = None) -> Json:
    """A device in the shape of the version."""
    tainted = {} if taints is None else {"taints": taints}
    return {"basic": tainted} if version == "v1beta1" else tainted


def make_rule(version: str, **metadata: Any) -> Json:
    """A DeviceTaintRule for all devices of a driver that has none."""
    return make_object(version, "DeviceTaintRule", {"deviceSelector": {"driver": DRIVER}, "taint": TAINT}, **metadata)


def make_policy(namespace: str, name: str) -> Json:
    """A ConfigMap such as the one that holds our policy."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"policy.yaml": "mode: warn"}}


def need_namespace(plane: ControlPlane, name: str) -> None:
    """Creates the namespace unless it is there."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    reply = plane.client.create(path("v1", "namespaces"), namespace)
    assert reply.code in {201, 409}, reply
