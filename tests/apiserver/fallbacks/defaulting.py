"""Exported default tolerations in force on a control plane, and what `/mutate` makes of the same objects."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tests.apiserver.fallback import KEY
from tests.builders import make_review
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until
from webhook.admission.chain import mutate
from webhook.admission.context import AdmissionContext
from webhook.admission.jsonpatch import apply_patch
from webhook.admission.review import decode_review
from webhook.policy.decide import Judge
from webhook.policy.vap.default_tolerations import export_defaults

if TYPE_CHECKING:
    from tests.controlplane.client import Client
    from webhook.policy.model import Policy
    from webhook.policy.ports import KnownNames, Requester
    from webhook.policy.vap.default_tolerations import DefaultsExport

Json = dict[str, Any]

API: Final = "admissionregistration.k8s.io/v1"
PLURALS: Final = {
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}
NOTE: Final = "devicetaint.io/defaulted-tolerations"
_MARKER: Final = "fallback-marker"


class Defaulting:
    """One policy's default tolerations after the other."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._used = 0
        self._applied: list[Json] = []
        self.exported: DefaultsExport

    def use(self, policy: Policy) -> None:
        """Puts those of a policy in force, and nothing else of ours."""
        self.clear()
        self.exported = export_defaults(policy)
        self._used += 1
        for obj in (*map(_failing, self.exported.objects), *_marker(f"{self._used}")):
            reply = self._client.create(path(API, PLURALS[obj["kind"]]), obj, field_validation="Strict")
            assert reply.ok, (reply.message, obj)
            assert reply.warnings == ()
            self._applied.append(obj)
        wait_until(lambda: self._marked() == f"{self._used}", f"defaults {self._used} in force")

    def clear(self) -> None:
        """Takes back what `use` applied."""
        for obj in self._applied:
            assert self._client.delete(f"{path(API, PLURALS[obj['kind']])}/{obj['metadata']['name']}").ok
        if self._applied:
            wait_until(lambda: self._marked() == "", f"defaults {self._used} out of force")
        self._applied.clear()

    def _marked(self) -> str:
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _MARKER, "labels": {"own": "x"}}}
        made = self._client.create(path("v1", "configmaps", namespace="default"), obj, dry_run=True).object
        return str(made["metadata"]["labels"].get(_MARKER, ""))


def expected(policy: Policy, manifest: Json, requester: Requester, names: KnownNames) -> Json:
    """What the webhook alone makes of an object that is created; without authors, which only it signs."""
    context = AdmissionContext(
        now=datetime.now(UTC),  # noqa: TID251 -- an API server has a clock of its own
        judge=Judge(policy),
        names=names,
        key=KEY,
    )
    review = make_review(manifest, None, user=requester.username, groups=[*requester.groups, "system:authenticated"])
    decision = mutate(decode_review(json.dumps(review).encode()), context)
    made: Json = apply_patch(manifest, decision.patch)
    return made


def lists_of(obj: Json) -> list[list[Json]]:
    """The tolerations of each request and alternative, with the operator that an API server fills in."""
    spec = obj["spec"]["spec"] if obj["kind"] == "ResourceClaimTemplate" else obj["spec"]
    asked: list[Json] = []
    for each in spec["devices"]["requests"]:
        asked += each["firstAvailable"] if "firstAvailable" in each else [each.get("exactly", each)]
    return [[{"operator": "Equal", **one} for one in each.get("tolerations") or []] for each in asked]


def note_of(obj: Json) -> str | None:
    """What is noted about them."""
    annotations: dict[str, str] = obj["metadata"].get("annotations") or {}
    return annotations.get(NOTE)


def _failing(obj: Json) -> Json:
    """The same, but an expression that fails is heard of."""
    return {**obj, "spec": {**obj["spec"], "failurePolicy": "Fail"}} if "mutations" in obj["spec"] else obj


def _marker(value: str) -> tuple[Json, Json]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    patch = f'[JSONPatch{{op: "add", path: "/metadata/labels/{_MARKER}", value: "{value}"}}]'
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "it", "expression": f'object.metadata.name == "{_MARKER}"'}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    metadata = {"name": f"{_MARKER}-{value}"}
    return (
        {"apiVersion": API, "kind": "MutatingAdmissionPolicy", "metadata": metadata, "spec": spec},
        {
            "apiVersion": API,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": metadata["name"]},
        },
    )
