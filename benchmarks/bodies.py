"""The reviews that both servers are asked: valid ones to time, broken ones to compare verdicts on.

All are made here, from nothing but a number, so that nothing has to be stored and no two of them are alike.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP, VERSION = "resource.k8s.io", "v1"
DRIVER = "gpu.example.com"
RESOURCES = {
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "ResourceSlice": "resourceslices",
    "DeviceTaintRule": "devicetaintrules",
}
NAMESPACED = ("ResourceClaim", "ResourceClaimTemplate")
# A server that remembers its last answer, or the names in it, must not look better than one that does not.
VARIANTS = 8
STRANGERS = 256
NEW_SPECS = 1024
_CREATED = "2026-11-20T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Case:
    """One review, and whether it is to be allowed."""

    name: str
    body: bytes
    allowed: bool


def claims() -> list[bytes]:
    """Claims of one request with two tolerations, as kubectl sends them: about 1.4 KB."""
    return [review("ResourceClaim", claim(n)) for n in range(VARIANTS)]


def strangers() -> list[bytes]:
    """Such claims of many requesters in many namespaces: who remembers the last few gains nothing from it."""
    return [review("ResourceClaim", claim(n, f"ml-team-{n % 64}"), f"user-{n}@example.com") for n in range(STRANGERS)]


def new_specs() -> list[bytes]:
    """Such claims with more specs than a server remembers, so that each is a new one to it."""
    return [review("ResourceClaim", claim(n)) for n in range(NEW_SPECS)]


def templates() -> list[bytes]:
    """Templates of such claims."""
    return [review("ResourceClaimTemplate", template(n)) for n in range(VARIANTS)]


def rules() -> list[bytes]:
    """Rules that taint one device."""
    return [review("DeviceTaintRule", rule(n)) for n in range(VARIANTS)]


def slices() -> list[bytes]:
    """Slices as full as tainted ones may be: 64 devices with 4 taints and 12 attributes each, about 70 KB."""
    return [review("ResourceSlice", slice_of(n)) for n in range(VARIANTS)]


def bare_slices() -> list[bytes]:
    """Slices as full as those without a taint may be: 128 devices with 12 attributes each, about 75 KB."""
    return [review("ResourceSlice", _bare(slice_of(n, devices=128))) for n in range(VARIANTS)]


def slice_updates() -> list[bytes]:
    """A driver publishes its 64 devices again, for the taints of one of them."""
    made = []
    for n in range(VARIANTS):
        after = slice_of(n)
        after["spec"]["devices"][7 * n]["taints"].append(
            {"key": f"{DRIVER}/ecc", "value": f"bank-{n}", "effect": "NoSchedule", "timeAdded": _CREATED}
        )
        made.append(review("ResourceSlice", after, old=slice_of(n)))
    return made


def verdict_cases() -> Iterator[Case]:
    """Valid and broken reviews of every kind; each broken one in one way, some of them many times over."""
    for kind, valid in (
        ("ResourceClaim", claim(0)),
        ("ResourceClaimTemplate", template(0)),
        ("ResourceSlice", slice_of(0)),
        ("DeviceTaintRule", rule(0)),
    ):
        yield Case(f"valid {kind}", review(kind, valid), allowed=True)
    for fault, toleration in _TOLERATION_FAULTS.items():
        yield Case(f"claim, toleration with {fault}", review("ResourceClaim", _tolerating(toleration)), allowed=False)
        broken = template(1)
        broken["spec"]["spec"] = _tolerating(toleration)["spec"]
        yield Case(f"template, toleration with {fault}", review("ResourceClaimTemplate", broken), allowed=False)
    yield from _long_lists()
    for fault, taint in _TAINT_FAULTS.items():
        yield Case(f"slice, taint with {fault}", review("ResourceSlice", _tainted(taint)), allowed=False)
        broken = rule(1)
        broken["spec"]["taint"] = taint
        yield Case(f"rule, taint with {fault}", review("DeviceTaintRule", broken), allowed=False)
    for fault, selector in _SELECTOR_FAULTS.items():
        broken = rule(2)
        broken["spec"]["deviceSelector"] = selector
        yield Case(f"rule, selector with {fault}", review("DeviceTaintRule", broken), allowed=False)


def review(
    kind: str, obj: dict[str, Any], username: str = "jane@example.com", old: dict[str, Any] | None = None
) -> bytes:
    """An AdmissionReview of a create, or of an update of `old`, with the fields that an API server sends, compact."""
    group_kind = {"group": GROUP, "version": VERSION, "kind": kind}
    resource = {"group": GROUP, "version": VERSION, "resource": RESOURCES[kind]}
    named = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind}
    obj = {**named, **obj}
    metadata = obj["metadata"]
    request = {
        "uid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{kind}/{metadata['name']}")),
        "kind": group_kind,
        "resource": resource,
        "requestKind": group_kind,
        "requestResource": resource,
        "name": metadata["name"],
        **({"namespace": metadata["namespace"]} if kind in NAMESPACED else {}),
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": {
            "username": username,
            "groups": ["ml-engineers", "system:authenticated"],
        },
        "object": obj,
        "oldObject": None if old is None else {**named, **old},
        "dryRun": False,
        "options": {
            "kind": "CreateOptions" if old is None else "UpdateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "fieldManager": "kubectl-create",
        },
    }
    document = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return json.dumps(document, separators=(",", ":")).encode()


def claim(n: int, namespace: str = "ml-team") -> dict[str, Any]:
    """A ResourceClaim without apiVersion and kind."""
    return {"metadata": metadata(f"training-{n}", namespace), "spec": _claim_spec(n)}


def template(n: int) -> dict[str, Any]:
    """A ResourceClaimTemplate without apiVersion and kind."""
    return {"metadata": metadata(f"training-{n}", "ml-team"), "spec": {"spec": _claim_spec(n)}}


def rule(n: int) -> dict[str, Any]:
    """A DeviceTaintRule without apiVersion and kind."""
    return {
        "metadata": metadata(f"xid-{n}"),
        "spec": {
            "deviceSelector": {"driver": DRIVER, "pool": f"node-{n}", "device": f"gpu-{n}"},
            "taint": {"key": f"{DRIVER}/xid", "value": f"{70 + n}", "effect": "NoSchedule", "timeAdded": _CREATED},
        },
    }


def slice_of(n: int, devices: int = 64) -> dict[str, Any]:
    """The ResourceSlice of one node, without apiVersion and kind."""
    return {
        "metadata": metadata(f"node-{n}-{DRIVER}"),
        "spec": {
            "driver": DRIVER,
            "nodeName": f"node-{n}",
            "pool": {"name": f"node-{n}", "generation": 1, "resourceSliceCount": 1},
            "devices": [_device(n, i) for i in range(devices)],
        },
    }


def metadata(name: str, namespace: str = "") -> dict[str, Any]:
    """What an API server has filled in by the time it asks, managedFields included."""
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
        "creationTimestamp": _CREATED,
        "managedFields": [
            {
                "manager": "kubectl-create",
                "operation": "Update",
                "apiVersion": f"{GROUP}/{VERSION}",
                "time": _CREATED,
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {}},
            }
        ],
    }


def _claim_spec(n: int) -> dict[str, Any]:
    tolerations = [
        {"key": f"{DRIVER}/xid-{n}", "operator": "Exists", "effect": "NoSchedule"},
        {
            "key": "maint.example.com/firmware",
            "operator": "Equal",
            "value": f"wave-{n}",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        },
    ]
    exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1, "tolerations": tolerations}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def _device(node: int, i: int) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "uuid": {"string": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{node}/{i}"))},
        "productName": {"string": "Example Accelerator 80GB"},
        "architecture": {"string": "Example"},
        "brand": {"string": "Example"},
        "index": {"int": i},
        "minor": {"int": i},
        "pcieRoot": {"string": f"pci0000:{i:02x}"},
        "driverVersion": {"version": "580.65.6"},
        "runtimeVersion": {"version": "13.0.0"},
        "virtual": {"bool": False},
        "addressingMode": {"string": "HMM"},
        "numaNode": {"int": i // 32},
    }
    taints = [
        {"key": f"{DRIVER}/{name}", "value": f"{value}", "effect": effect, "timeAdded": _CREATED}
        for name, value, effect in (
            ("xid", 48 + node, "NoSchedule"),
            ("thermal", f"zone-{i}", "NoSchedule"),
            ("firmware", "outdated", "None"),
            ("maintenance", f"wave-{node}", "NoSchedule"),
        )
    ]
    return {
        "name": f"gpu-{i}",
        "attributes": {f"{DRIVER}/{name}": value for name, value in attributes.items()},
        "capacity": {f"{DRIVER}/memory": {"value": "80Gi"}},
        "taints": taints,
    }


# --- what is wrong with the broken ones ----------------------------------------------------------

_GOOD_TOLERATION = {"key": "a.example.com/b", "operator": "Exists", "effect": "NoExecute"}
_GOOD_TAINT = {"key": "a.example.com/b", "value": "v", "effect": "NoSchedule", "timeAdded": _CREATED}
_SELECTOR = {"driver": DRIVER, "pool": "node-1", "device": "gpu-1"}

_TOLERATION_FAULTS: dict[str, dict[str, Any]] = {
    "a key in capitals": {**_GOOD_TOLERATION, "key": "Example.com/b"},
    "a key of 64 bytes": {**_GOOD_TOLERATION, "key": "k" * 64},
    "an unknown operator": {**_GOOD_TOLERATION, "operator": "Gt"},
    "a value beside Exists": {**_GOOD_TOLERATION, "value": "v"},
    "a malformed value": {**_GOOD_TOLERATION, "operator": "Equal", "value": "a b"},
    "an unknown effect": {**_GOOD_TOLERATION, "effect": "PreferNoSchedule"},
    "neither key nor Exists": {"operator": "Equal", "value": "v", "effect": "NoSchedule"},
}
_TAINT_FAULTS: dict[str, dict[str, Any]] = {
    "no key": {**_GOOD_TAINT, "key": ""},
    "two slashes in the key": {**_GOOD_TAINT, "key": "a/b/c"},
    "a value of 64 bytes": {**_GOOD_TAINT, "value": "v" * 64},
    "no effect": {"key": "a.example.com/b", "timeAdded": _CREATED},
    "an unknown effect": {**_GOOD_TAINT, "effect": "Evict"},
    "everything wrong": {"key": "-", "value": "-", "effect": "-", "timeAdded": _CREATED},
}
_SELECTOR_FAULTS: dict[str, dict[str, Any]] = {
    "an empty driver": {**_SELECTOR, "driver": ""},
    "a driver of 64 bytes": {**_SELECTOR, "driver": "d" * 64},
    "a malformed driver": {**_SELECTOR, "driver": "gpu_example"},
    "an empty pool": {**_SELECTOR, "pool": ""},
    "a pool that ends in a slash": {**_SELECTOR, "pool": "node-1/"},
    "a device with a dot": {**_SELECTOR, "device": "gpu.1"},
    "a device of 64 bytes": {**_SELECTOR, "device": "d" * 64},
}


def _tolerating(*tolerations: dict[str, Any]) -> dict[str, Any]:
    """A claim whose only request offers two alternatives; the second has these tolerations."""
    alternatives = [
        {"name": "big", "deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1},
        {"name": "small", "deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1},
    ]
    alternatives[1]["tolerations"] = [_GOOD_TOLERATION, *tolerations]
    spec = {"devices": {"requests": [{"name": "gpu", "firstAvailable": alternatives}]}}
    return {"metadata": metadata("broken", "ml-team"), "spec": spec}


def _tainted(*taints: dict[str, Any]) -> dict[str, Any]:
    """A slice whose last device has these taints."""
    obj = slice_of(1, devices=3)
    obj["spec"]["devices"][2]["taints"] = [_GOOD_TAINT, *taints]
    return obj


def _bare(obj: dict[str, Any]) -> dict[str, Any]:
    """A slice whose devices have no taints."""
    for device in obj["spec"]["devices"]:
        del device["taints"]
    return obj


def _long_lists() -> Iterator[Case]:
    yield Case(
        "claim with 16 tolerations", review("ResourceClaim", _tolerating(*15 * [_GOOD_TOLERATION])), allowed=True
    )
    yield Case(
        "claim with 17 tolerations", review("ResourceClaim", _tolerating(*16 * [_GOOD_TOLERATION])), allowed=False
    )
    yield Case("device with 16 taints", review("ResourceSlice", _tainted(*15 * [_GOOD_TAINT])), allowed=True)
    yield Case("device with 17 taints", review("ResourceSlice", _tainted(*16 * [_GOOD_TAINT])), allowed=False)
    yield Case("65 devices with taints", review("ResourceSlice", slice_of(1, devices=65)), allowed=False)
    bare = _bare(slice_of(1, devices=129))
    yield Case("129 devices without taints", review("ResourceSlice", bare), allowed=False)
    del bare["spec"]["devices"][128]
    yield Case("128 devices without taints", review("ResourceSlice", bare), allowed=True)
