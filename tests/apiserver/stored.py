"""Objects that are there before a comparison starts, some of them such as only an older server would have stored.

Those are written into etcd behind the API server's back: JSON is one of the encodings it reads.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.apiserver.generator import GROUP, NAMESPACE, NAMESPACED, PLURALS
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane

JSON = Any
OLD_TIME = "2026-01-01T00:00:00Z"


def store(
    plane: ControlPlane, socket_path: Path, rule_version: str, slice_version: str, *, class_selectors: bool
) -> None:
    """Put all of them there."""
    for kind, name, spec in [*_valid(), *(_selecting() if class_selectors else ())]:
        version = rule_version if kind == "DeviceTaintRule" else slice_version
        namespace = NAMESPACE if kind in NAMESPACED else ""
        obj = {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec}
        created = plane.client.create(path(f"{GROUP}/{version}", PLURALS[kind], namespace=namespace), obj).object
        if kind == "ResourceClaim" and name.startswith("allocated"):
            created["status"] = {"allocation": {"devices": {"results": [_result()]}}}
            url = path(f"{GROUP}/{version}", PLURALS[kind], namespace=namespace, name=name, subresource="status")
            assert plane.client.replace(url, created).ok
    for kind, name, spec in _invalid():
        version = rule_version if kind == "DeviceTaintRule" else slice_version
        meta = {"name": name, "namespace": NAMESPACE} if kind in NAMESPACED else {"name": name}
        obj = {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": meta, "spec": spec}
        write(socket_path, PLURALS[kind], obj)


def _toleration(**fields: JSON) -> dict[str, JSON]:
    return {"key": "example.com/a", "operator": "Equal", "value": "v", "effect": "NoExecute", **fields}


def _result() -> JSON:
    return {
        "request": "r0",
        "driver": "gpu.example.com",
        "pool": "p",
        "device": "d0",
        "tolerations": [_toleration(tolerationSeconds=60)],
    }


def _claim(*requests: JSON) -> JSON:
    return {"devices": {"requests": list(requests)}}


def _exactly(name: str, *tolerations: JSON) -> JSON:
    return {"name": name, "exactly": {"deviceClassName": "gpu.example.com", "tolerations": list(tolerations)}}


def _alternatives(name: str, *tolerations: JSON) -> JSON:
    alternative = {"name": "alt", "deviceClassName": "gpu.example.com", "tolerations": list(tolerations)}
    return {"name": name, "firstAvailable": [alternative]}


def _slice(*devices: JSON) -> JSON:
    return {
        "driver": "gpu.example.com",
        "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "node-0",
        "devices": list(devices),
    }


def _taint(effect: str = "NoSchedule", **fields: JSON) -> dict[str, JSON]:
    return {"key": "example.com/a", "value": "v", "effect": effect, "timeAdded": OLD_TIME, **fields}


def _device(name: str, *taints: JSON) -> JSON:
    return {"name": name, "taints": list(taints)} if taints else {"name": name}


def _valid() -> Iterator[tuple[str, str, JSON]]:
    requests = [
        _claim(_exactly("r0")),
        _claim(_exactly("r0", _toleration())),
        _claim(_exactly("r0", _toleration(), _toleration(operator="Exists", value="", effect=""))),
        _claim(_alternatives("r0", _toleration())),
    ]
    for index, spec in enumerate(requests):
        yield "ResourceClaim", f"claim-{index}", spec
        yield "ResourceClaimTemplate", f"template-{index}", {"spec": spec}
    yield "ResourceClaim", "allocated-0", requests[1]
    yield "ResourceClaim", "allocated-1", requests[2]
    yield "ResourceSlice", "slice-plain", _slice(_device("d0"), _device("d1"))
    yield "ResourceSlice", "slice-tainted", _slice(_device("d0", _taint()), _device("d1", _taint("NoExecute")))
    yield "ResourceSlice", "slice-many", _slice(_device("d0", *[_taint(value=f"v{n}") for n in range(4)]))
    yield "ResourceSlice", "slice-wide", _slice(*[_device(f"d{n}") for n in range(65)])
    for effect in ("NoSchedule", "NoExecute"):
        selector = {"driver": "gpu.example.com", "pool": "pool"}
        yield "DeviceTaintRule", f"rule-{effect.lower()}", {"deviceSelector": selector, "taint": _taint(effect)}
    yield "DeviceTaintRule", "rule-all", {"deviceSelector": {}, "taint": _taint("NoExecute")}
    yield "DeviceTaintRule", "rule-nil", {"taint": _taint("NoSchedule")}


def _selecting() -> Iterator[tuple[str, str, JSON]]:
    """Rules with the selectors that 1.33 and 1.34 have."""
    for index in range(3):
        selector = {"deviceClassName": "gpu.example.com", "selectors": [{"cel": {"expression": "true"}}] * (index + 1)}
        yield "DeviceTaintRule", f"rule-selecting-{index}", {"deviceSelector": selector, "taint": _taint()}


def _invalid() -> Iterator[tuple[str, str, JSON]]:
    """What released servers refuse today, but once stored must live with (T-12, T-13, S-3, L-11)."""
    yield "DeviceTaintRule", "rule-unknown-effect", {"deviceSelector": {}, "taint": _taint("Unheard")}
    yield "DeviceTaintRule", "rule-bad-key", {"deviceSelector": {}, "taint": _taint(key="a/b/c")}
    yield "ResourceSlice", "slice-unknown-effect", _slice(_device("d0", _taint("Unheard")), _device("d1"))
    yield "ResourceSlice", "slice-bad-key", _slice(_device("d0", _taint(key="a/b/c")), _device("d1", _taint()))
    yield "ResourceSlice", "slice-crowded", _slice(_device("d0", *[_taint(value=f"v{n}") for n in range(18)]))
    yield "ResourceSlice", "slice-too-wide", _slice(*[_device(f"d{n}", _taint()) for n in range(66)])
    yield "ResourceClaimTemplate", "template-bad-key", {"spec": _claim(_exactly("r0", _toleration(key="a/b/c")))}
    yield "ResourceClaim", "claim-bad-effect", _claim(_exactly("r0", _toleration(effect="Unheard")))


def write(socket_path: Path, plural: str, obj: JSON) -> None:
    """An object straight into etcd, through its JSON gateway: no server judges it on the way."""
    meta = obj["metadata"]
    uid = f"00000000-0000-4000-8000-{abs(hash(meta['name'])) % 10**12:012d}"
    stored = {**obj, "metadata": {**meta, "uid": uid, "creationTimestamp": OLD_TIME}}
    key = "/".join(filter(None, ("/registry", plural, meta.get("namespace"), meta["name"])))
    body = {"key": _base64(key), "value": _base64(json.dumps(stored))}
    connection = _UnixConnection(socket_path)
    connection.request("POST", "/v3/kv/put", json.dumps(body))
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    if response.status != 200:
        raise AssertionError(f"etcd: {response.status} {answer!r}")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, socket_path: Path) -> None:
        super().__init__("etcd")
        self._socket_path = str(socket_path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._socket_path)
