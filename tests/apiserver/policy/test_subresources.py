"""The table in subresources.yaml, line by line: everything that the policy could refuse is sent there."""

from __future__ import annotations

from typing import Any, Final

import pytest
import yaml

from tests.apiserver.policy.pods import unused_name
from tests.apiserver.policy.rows import FOLDER
from tests.apiserver.policy.stage import Stage, make_policy
from tests.controlplane.client import Reply, path
from tests.controlplane.versions import GROUP

Json = dict[str, Any]

TABLE: Final[list[dict[str, str]]] = yaml.safe_load((FOLDER / "subresources.yaml").read_text())
NAMESPACE: Final = "lab"
DRIVER: Final = "gpu.example.com"
TOLERATION: Final = {"key": "some.example.com/key", "operator": "Exists", "effect": "NoExecute"}
TAINT: Final = {"key": "some.example.com/key", "effect": "NoSchedule"}
OTHER_TAINT: Final = {"key": "other.example.com/key", "effect": "NoSchedule"}

_RULES: Final = {"name": "no-tolerations", "action": "deny", "match": {"requesters": {"users": ["dana"]}}}
_TAINT_RULES: Final = {**_RULES, "name": "no-taints"}
ON_SLICES: Final = make_policy(rules=[_RULES], taintRules=[_TAINT_RULES], taintRulesOnSlices=True)
NOT_ON_SLICES: Final = make_policy(rules=[_RULES], taintRules=[_TAINT_RULES])
REFUSED_BY: Final = {
    "rules": "(rule no-tolerations)",
    "taintRules": "(rule no-taints)",
    "taintRules if taintRulesOnSlices": "(rule no-taints)",
    "nothing": "",
}

_CLAIM: Final = {
    "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": DRIVER, "tolerations": [TOLERATION]}}]}
}
_POOL: Final = {"name": "subresources", "generation": 1, "resourceSliceCount": 1}
_SPECS: Final[dict[str, tuple[str, Json]]] = {
    "resourceclaims": ("ResourceClaim", _CLAIM),
    "resourceclaimtemplates": ("ResourceClaimTemplate", {"spec": _CLAIM}),
    "devicetaintrules": ("DeviceTaintRule", {"deviceSelector": {"driver": DRIVER}, "taint": TAINT}),
    "resourceslices": (
        "ResourceSlice",
        {"driver": DRIVER, "pool": _POOL, "allNodes": True, "devices": [{"name": "d", "taints": [TAINT]}]},
    ),
    "deviceclasses": ("DeviceClass", {"selectors": [{"cel": {"expression": "true"}}]}),
    "pods": ("Pod", {"containers": [{"name": "c", "image": "none"}]}),
}
_ALLOCATED: Final = {"request": "r", "driver": DRIVER, "pool": "p", "device": "d", "tolerations": [TOLERATION]}
_CHANGES: Final[dict[str, Json]] = {
    "resourceclaims": {"metadata": {"labels": {"changed": "yes"}}},
    "resourceclaims/status": {"status": {"allocation": {"devices": {"results": [_ALLOCATED]}}}},
    "resourceclaims/binding": {"status": {"allocation": {"devices": {"results": [_ALLOCATED]}}}},
    "resourceclaimtemplates": {"metadata": {"labels": {"changed": "yes"}}},
    "devicetaintrules": {"spec": {"taint": OTHER_TAINT}},
    "devicetaintrules/status": {"status": {"conditions": []}},
    "resourceslices": {"spec": {"devices": [{"name": "d", "taints": [TAINT, OTHER_TAINT]}]}},
}
_NO_NAMESPACE: Final = frozenset({"devicetaintrules", "resourceslices", "deviceclasses"})
_SYNTHETIC: Final = frozenset({"resourceclaims/binding"})
"""Only authorization knows it: nothing can be sent there."""


@pytest.fixture(scope="module")
def strict(installed: Stage) -> Stage:
    """Everything that a policy can refuse dana, it does."""
    installed.use(ON_SLICES)
    return installed


def _collection(resource: str) -> str:
    namespace = "" if resource in _NO_NAMESPACE else NAMESPACE
    return path("v1" if resource == "pods" else f"{GROUP}/v1", resource, namespace=namespace)


def _object(resource: str) -> Json:
    kind, spec = _SPECS[resource]
    version = "v1" if resource == "pods" else f"{GROUP}/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": unused_name()}, "spec": spec}


def _sent(stage: Stage, row: dict[str, str]) -> Reply:
    resource, _, subresource = row["resource"].partition("/")
    dana, obj = stage.client.acting_as("dana"), _object(resource)
    if row["operation"] == "create":
        return dana.create(_collection(resource), obj, dry_run=True)
    _ = stage.client.create(_collection(resource), obj).object
    url = f"{_collection(resource)}/{obj['metadata']['name']}"
    try:
        return dana.patch(f"{url}/{subresource}" if subresource else url, _CHANGES[row["resource"]])
    finally:
        stage.client.delete(url)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row['operation']} {row['resource']}")
def test_line(strict: Stage, row: dict[str, str]) -> None:
    reply = _sent(strict, row)
    if row["resource"] in _SYNTHETIC:
        assert reply.code == 404, reply
        return
    refused_by = REFUSED_BY[row["checked"]]
    if not refused_by:
        assert reply.ok, reply
        assert reply.warnings == ()
    else:
        assert reply.code == 403, reply
        assert refused_by in reply.message


@pytest.mark.parametrize("row", [row for row in TABLE if "if" in row["checked"].split()], ids=lambda r: r["operation"])
def test_slices_are_their_drivers_affair_unless_the_policy_says_so(stage: Stage, row: dict[str, str]) -> None:
    stage.use(NOT_ON_SLICES)
    assert _sent(stage, row).ok


def test_every_resource_that_is_registered_has_its_lines(strict: Stage) -> None:
    served = strict.client.get(f"/apis/{GROUP}/v1").object["resources"]
    told = {row["resource"] for row in TABLE}
    ours = ("resourceclaims", "resourceclaimtemplates", "devicetaintrules", "resourceslices")
    assert {each["name"] for each in served if each["name"].partition("/")[0] in ours} <= told
