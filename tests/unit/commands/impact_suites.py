"""Suites about impacts: four nodes of two devices each, and rules on them."""

from __future__ import annotations

from typing import Any

from tests.builders import (
    DRIVER,
    NOW_TEXT,
    make_claim,
    make_consumer,
    make_device,
    make_meta,
    make_rule,
    make_slice,
    make_taint,
)
from webhook.api.rules import EVICT
from webhook.policy.suites import KIND

POLICY: dict[str, Any] = {
    "apiVersion": "policy.devicetaint.io/v1alpha1",
    "kind": "DeviceTaintPolicy",
    "impact": {
        "limits": [
            {"requesters": {"serviceAccounts": ["health/operator"]}, "devices": 7, "pods": 50, "namespaces": 10},
            {"pods": 2, "namespaces": 10},
        ],
        "protectedNamespaces": {"names": ["kube-system"]},
        "breakGlassGroups": ["oncall"],
        "window": "10m",
    },
}
DANA = {"username": "dana"}
OPERATOR = {"serviceAccount": "health/operator"}


def node(number: int, namespace: str = "ml") -> list[dict[str, Any]]:
    """A node with two devices, and a pod on the first of them."""
    pool = f"node-{number}"
    result = {"request": "gpu", "driver": DRIVER, "pool": pool, "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [make_consumer(f"pod-{number}")]}
    devices = [make_device("gpu-0"), make_device("gpu-1")]
    name = f"pod-{number}"
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-of-{name}", "controller": True}]
    return [
        make_slice(devices, pool=pool, node_name=pool, meta=make_meta(f"slice-{number}")),
        make_claim(meta=make_meta(f"claim-{number}", namespace=namespace, ownerReferences=owners), status=status),
    ]


CLUSTER = [*node(0), *node(1), *node(2), *node(3)]
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}
"""What the claims ask for: any device."""


def on(number: int, effect: str = "NoExecute", *, evict: bool = False, time: str | None = None, **meta: Any) -> Any:
    """A rule on all devices of a node."""
    annotations = {EVICT: "true"} if evict else None
    return make_rule(
        selector={"driver": DRIVER, "pool": f"node-{number}"},
        taint=make_taint(effect=effect, time_added=time),
        meta=make_meta(**{"name": f"rule-{number}", "annotations": annotations, **meta}),
    )


def everywhere(effect: str = "NoExecute") -> Any:
    return make_rule(selector={"driver": DRIVER}, taint=make_taint(effect=effect, time_added=None))


def stored(rule: Any, **meta: Any) -> Any:
    return {**rule, "metadata": {**rule["metadata"], "resourceVersion": "7", **meta}}


def case(value: Any, decision: str, requester: Any = DANA, name: str = "one", **fields: Any) -> dict[str, Any]:
    """A case of a suite; what it has no value for is left out."""
    words = ("rules", "message", "field", "impact", "reasons", "defaulted", "softened")
    expect = {each: fields.pop(each) for each in words if each in fields}
    given = {
        "name": name,
        "object": value,
        "requester": requester,
        "expect": {"decision": decision, **expect},
        **fields,
    }
    return {key: entry for key, entry in given.items() if entry is not None}


def before(seconds: int, value: Any, requester: Any = OPERATOR, **fields: Any) -> dict[str, Any]:
    return {"secondsAgo": seconds, "object": value, "requester": requester, **fields}


def make_suite(*cases: Any, **fields: Any) -> dict[str, Any]:
    given = {
        "apiVersion": "policy.devicetaint.io/v1alpha1",
        "kind": KIND,
        "metadata": {"name": "ours"},
        "policy": POLICY,
        "defaults": {"time": NOW_TEXT},
        "inventory": {"objects": CLUSTER},
        "cases": list(cases),
        **fields,
    }
    return {name: value for name, value in given.items() if value is not None}


def policy(**impact: Any) -> dict[str, Any]:
    mode = impact.pop("mode", "enforce")
    return {**POLICY, "mode": mode, "impact": {**POLICY["impact"], **impact}}
