"""Manifests, reviews and requests for tests: every field has a default, so that a test names only what it is about.

Manifests are JSON, as they come over the wire; `decoded` gives the values that the code works with.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from webhook.admission.context import AdmissionContext
from webhook.admission.review import AdmissionRequest, decode_review
from webhook.api.decode import Reader
from webhook.api.meta import GROUP, OWN_GROUP, GroupVersionKind
from webhook.policy.decide import Judge
from webhook.policy.model import Policy
from webhook.validation.kinds import BY_KIND, KINDS
from webhook.validation.releases import RELEASES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.api.field import FieldError

NOW: Final = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)
NOW_TEXT: Final = "2026-06-01T12:00:00Z"
EARLIER_TEXT: Final = "2026-06-01T11:59:30Z"
"""Half a minute before NOW: not old enough for advice."""
DRIVER: Final = "gpu.example.com"
KEY: Final = "gpu.example.com/unhealthy"
UID: Final = "0a5b6c7d-0000-4000-8000-000000000001"
USER: Final = "jane@example.com"

Manifest = dict[str, Any]


def without_none(fields: Manifest) -> Manifest:
    """A field given as None is left out; use `null` inside the object itself for a literal null."""
    return {name: value for name, value in fields.items() if value is not None}


def make_meta(name: str = "example", **fields: Any) -> Manifest:
    return without_none({"name": name, **fields})


def make_taint(
    key: str | None = KEY,
    effect: str | None = "NoSchedule",
    value: str | None = None,
    time_added: str | None = EARLIER_TEXT,
    **extra: Any,
) -> Manifest:
    return without_none({"key": key, "value": value, "effect": effect, "timeAdded": time_added, **extra})


def make_toleration(
    key: str | None = KEY,
    operator: str | None = "Exists",
    value: str | None = None,
    effect: str | None = "NoSchedule",
    seconds: int | None = None,
    **extra: Any,
) -> Manifest:
    fields = {"key": key, "operator": operator, "value": value, "effect": effect, "tolerationSeconds": seconds}
    return without_none({**fields, **extra})


def make_device(name: str = "gpu-0", taints: Iterable[Any] | None = None, **extra: Any) -> Manifest:
    return without_none({"name": name, "taints": None if taints is None else list(taints), **extra})


def make_basic_device(name: str = "gpu-0", taints: Iterable[Any] | None = None, **extra: Any) -> Manifest:
    """A device as v1beta1 writes it."""
    return {"name": name, "basic": without_none({"taints": None if taints is None else list(taints), **extra})}


def make_slice(
    devices: Iterable[Any] | None = None,
    *,
    version: str = "v1",
    driver: str | None = DRIVER,
    pool: str | None = "node-0",
    node_name: str | None = "node-0",
    meta: Any = None,
    **spec: Any,
) -> Manifest:
    """A slice of one device without taints, unless told otherwise."""
    if devices is None:
        devices = [make_basic_device() if version == "v1beta1" else make_device()]
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "ResourceSlice",
        "metadata": make_meta("node-0-gpu") if meta is None else meta,
        "spec": without_none(
            {
                "driver": driver,
                "nodeName": node_name,
                "pool": without_none({"name": pool, "generation": 1, "resourceSliceCount": 1}),
                "devices": list(devices),
                **spec,
            }
        ),
    }


def make_request(name: str = "gpu", tolerations: Iterable[Any] | None = None, **exactly: Any) -> Manifest:
    """An exact request as v1beta2 and v1 write it."""
    return {"name": name, "exactly": _exact(tolerations, exactly)}


def make_flat_request(name: str = "gpu", tolerations: Iterable[Any] | None = None, **exactly: Any) -> Manifest:
    """An exact request as v1beta1 writes it."""
    return {"name": name, **_exact(tolerations, exactly)}


def make_alternatives(*lists: Iterable[Any] | None, name: str = "gpu") -> Manifest:
    """A request of alternatives, one for each list of tolerations."""
    return {
        "name": name,
        "firstAvailable": [
            {"name": f"choice-{position}", **_exact(tolerations, {})} for position, tolerations in enumerate(lists)
        ],
    }


def _exact(tolerations: Iterable[Any] | None, fields: Manifest) -> Manifest:
    given = None if tolerations is None else list(tolerations)
    return without_none({"deviceClassName": DRIVER, "tolerations": given, **fields})


def make_claim(
    tolerations: Iterable[Any] | None = None,
    *,
    requests: Iterable[Any] | None = None,
    version: str = "v1",
    meta: Any = None,
    status: Any = None,
) -> Manifest:
    """A claim with one exact request, unless requests are given."""
    return without_none(
        {
            "apiVersion": f"{GROUP}/{version}",
            "kind": "ResourceClaim",
            "metadata": make_meta("training", namespace="ml") if meta is None else meta,
            "spec": _claim_spec(tolerations, requests, version),
            "status": status,
        }
    )


def make_scheduler_claim(
    pod: str,
    *devices: str,
    namespace: str = "ml",
    tolerations: Iterable[Any] | None = None,
    request: str = "container-0-request-{}",
    consumers: Iterable[Any] | None = None,
    **meta: Any,
) -> Manifest:
    """A claim as the scheduler makes it for the extended resources of a pod; devices are `pool/device`."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"uid-of-{pod}", "controller": True}
    given = {
        "name": f"{pod}-extended-resources-"[:58] + "x7k2p",
        "namespace": namespace,
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [owner],
        **meta,
    }
    names = [request.format(number) for number in range(len(devices))]
    results = []
    for name, place in zip(names, devices, strict=True):
        pool, _, device = place.rpartition("/")
        results.append({**make_result(tolerations, device), "request": name, "pool": pool})
    status = make_status(*results) | {"reservedFor": [make_consumer(pod)] if consumers is None else list(consumers)}
    requests = [make_request(name, tolerations) for name in names]
    return make_claim(requests=requests, meta=without_none(given), status=status)


def make_template(
    tolerations: Iterable[Any] | None = None,
    *,
    requests: Iterable[Any] | None = None,
    version: str = "v1",
    meta: Any = None,
) -> Manifest:
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "ResourceClaimTemplate",
        "metadata": make_meta("training", namespace="ml") if meta is None else meta,
        "spec": {"spec": _claim_spec(tolerations, requests, version)},
    }


def _claim_spec(tolerations: Iterable[Any] | None, requests: Iterable[Any] | None, version: str) -> Manifest:
    if requests is None:
        make = make_flat_request if version == "v1beta1" else make_request
        requests = [make(tolerations=tolerations)]
    return {"devices": {"requests": list(requests)}}


def make_result(tolerations: Iterable[Any] | None = None, device: str = "gpu-0") -> Manifest:
    """An allocated device."""
    given = None if tolerations is None else list(tolerations)
    fields = {"request": "gpu", "driver": DRIVER, "pool": "node-0", "device": device, "tolerations": given}
    return without_none(fields)


def make_status(*results: Any) -> Manifest:
    """The status of a claim with these allocation results."""
    return {"allocation": {"devices": {"results": list(results)}}}


def make_rule(
    *,
    selector: Any = "default",
    taint: Any = "default",
    version: str = "v1",
    annotations: Manifest | None = None,
    resource_version: str | None = None,
    conditions: Iterable[Any] | None = None,
    meta: Any = None,
) -> Manifest:
    """A rule for one device; selector and taint may be anything, None leaves them out."""
    chosen = {"driver": DRIVER, "pool": "node-0", "device": "gpu-0"} if selector == "default" else selector
    given = make_taint() if taint == "default" else taint
    if meta is None:
        meta = make_meta("unhealthy-gpu", annotations=annotations, resourceVersion=resource_version)
    rule = {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "DeviceTaintRule",
        "metadata": meta,
        "spec": without_none({"deviceSelector": chosen, "taint": given}),
    }
    if conditions is not None:
        rule["status"] = {"conditions": list(conditions)}
    return rule


def make_condition(**fields: Any) -> Manifest:
    """A condition without fault; a field given as None is left out."""
    given = {
        "type": "EvictionInProgress",
        "status": "False",
        "reason": "NotStarted",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": EARLIER_TEXT,
    }
    return without_none({**given, **fields})


def make_consumer(name: str, uid: str | None = None, **fields: Any) -> Manifest:
    """An entry of `reservedFor`; a pod unless the fields say otherwise."""
    return {"resource": "pods", "name": name, "uid": uid or f"uid-of-{name}", **fields}


def make_pod(
    name: str,
    *claims: str,
    namespace: str = "ml",
    owner: str | None = None,
    priority: int | None = None,
    phase: str = "Running",
    meta: Manifest | None = None,
    **spec: Any,
) -> Manifest:
    """A pod on a node that names its claims directly; an owner is `Kind/name`."""
    kind, _, owner_name = (owner or "").partition("/")
    controller = {"kind": kind, "name": owner_name, "uid": f"uid-of-{owner_name}", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": make_meta(
            name,
            namespace=namespace,
            uid=f"uid-of-{name}",
            ownerReferences=[controller] if owner else None,
            **(meta or {}),
        ),
        "spec": without_none(
            {
                "nodeName": "node-0",
                "priority": priority,
                "resourceClaims": [
                    {"name": f"c{number}", "resourceClaimName": each} for number, each in enumerate(claims)
                ],
                **spec,
            }
        ),
        "status": {"phase": phase},
    }


def make_patch(*, filter_: Any = "default", meta: Any = None, **devices: Any) -> Manifest:
    """A ResourceSlicePatch of ours for one driver; `devices` are the fields of spec.devices."""
    chosen = {"driver": DRIVER} if filter_ == "default" else filter_
    return {
        "apiVersion": f"{OWN_GROUP}/v1alpha1",
        "kind": "ResourceSlicePatch",
        "metadata": make_meta("firmware") if meta is None else meta,
        "spec": {"devices": without_none({"filter": chosen, **devices})},
    }


VALID_MANIFESTS: Final = {
    "slice": make_slice([make_device(taints=[make_taint()])]),
    "slice in v1beta1": make_slice([make_basic_device(taints=[make_taint()])], version="v1beta1"),
    "claim": make_claim([make_toleration()]),
    "claim in v1beta1": make_claim([make_toleration()], version="v1beta1"),
    "claim of alternatives": make_claim(requests=[make_alternatives([make_toleration()], [])]),
    "template": make_template([make_toleration()]),
    "rule": make_rule(),
    "rule in v1alpha3": make_rule(version="v1alpha3"),
    "patch": make_patch(taints=[make_taint()], attributes={"gpu.example.com/xid": {"int": 79}}, priority=10),
}
"""One valid object of each kind and shape, without advice to give either."""


# --- reviews ------------------------------------------------------------------------------------


def kind_of(manifest: Any) -> GroupVersionKind:
    return GroupVersionKind.parse(manifest["apiVersion"], manifest["kind"])


def make_review(
    manifest: Any,
    old: Any = None,
    *,
    operation: str | None = None,
    sub_resource: str | None = None,
    user: str = USER,
    groups: Iterable[str] = ("system:authenticated",),
    uid: str = UID,
    **fields: Any,
) -> Manifest:
    """The AdmissionReview that an API server would send; `fields` are added to the request, or replace some."""
    known = manifest if manifest is not None else old
    kind = kind_of(known)
    resource = BY_KIND[kind]
    meta = known.get("metadata")
    meta = {name: text for name, text in meta.items() if isinstance(text, str)} if isinstance(meta, dict) else {}
    if operation is None:
        operation = "CREATE" if old is None else "UPDATE"
    request = without_none(
        {
            "uid": uid,
            "kind": kind._asdict(),
            "resource": resource._asdict(),
            "subResource": sub_resource,
            "requestKind": kind._asdict(),
            "requestResource": resource._asdict(),
            "name": meta.get("name"),
            "namespace": meta.get("namespace"),
            "operation": operation,
            "userInfo": {"username": user, "groups": list(groups)},
            "dryRun": False,
        }
    )
    request |= {"object": manifest, "oldObject": old, **fields}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def make_admission_request(manifest: Any, old: Any = None, **options: Any) -> AdmissionRequest:
    """The request in `make_review`, decoded as the server decodes it."""
    return decode_review(encoded(make_review(manifest, old, **options)))


def make_context(**options: Any) -> AdmissionContext:
    """A context; fields of the policy can be given beside its own."""
    of_policy = {name: options.pop(name) for name in Policy.__struct_fields__ if name in options}
    if of_policy:
        options["judge"] = Judge(Policy(**of_policy))
    return AdmissionContext(**{"now": NOW, **options})


def decoded(manifest: Any) -> tuple[Any, list[FieldError]]:
    """The manifest's value and the type errors found in it, read by its own row of the table of kinds."""
    errors: list[FieldError] = []
    value = KINDS[BY_KIND[kind_of(manifest)]].decode(Reader.of(manifest, errors))
    return value, errors


def field_errors(manifest: Any, old: Any = None, *, minor: int = 37, status: bool = False) -> list[str]:
    """What the API server of a release refuses, as text; the manifests must be free of wrong types."""
    row = KINDS[BY_KIND[kind_of(manifest)]]
    new, type_errors = decoded(manifest)
    before = None if old is None else decoded(old)[0]
    assert type_errors == []
    judge = row.status_errors if status else row.errors
    assert judge is not None
    return [str(error) for error in judge(new, before, RELEASES[minor])]
