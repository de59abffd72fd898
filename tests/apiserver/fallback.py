"""Exported policies in force on a control plane, and our own word on the same requests."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from tests.builders import make_review
from tests.controlplane.client import Client, Reply, path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from webhook.admission.chain import validate
from webhook.admission.context import AdmissionContext
from webhook.admission.review import decode_review
from webhook.api.field import Severity
from webhook.inventory.state import Inventory, Sight
from webhook.policy.decide import Judge
from webhook.policy.match import KnownNames, Requester
from webhook.policy.model import Policy
from webhook.policy.vap.export import Coverage, Export, export

Json = dict[str, Any]

_API: Final = "admissionregistration.k8s.io/v1"
_PLURALS: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
_NAMESPACE: Final = "default"


class Word(NamedTuple):
    """What the webhook says: whether it allows, and by which rules it does not."""

    allowed: bool
    by: frozenset[str]


NOT_ASKED: Final = Word(allowed=True, by=frozenset())


class Fallback:
    """What `export-vap` prints, in place of the webhook, one policy after the other."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.exported: Export
        self._policy: Policy
        self._used = 0
        self._applied: list[Json] = []

    def use(self, policy: Policy, *, protect_labels: bool = False) -> None:
        """Puts a policy in force, and nothing else of ours."""
        self.clear()
        self.exported, self._policy = export(policy, protect_labels=protect_labels), policy
        self._used += 1
        # Applied last, so what comes before it is in force when it is.
        marker = f"marker-{self._used}"
        for obj in (*self.exported.objects, *_marker(marker)):
            reply = self.plane.client.create(_collection(obj), obj, field_validation="Strict")
            assert reply.ok, (reply.message, obj)
            assert reply.warnings == ()
            self._applied.append(obj)
        wait_until(lambda: is_refused(_create(self.plane.client, marker)), f"policy {self._used} in force")

    def clear(self) -> None:
        """Takes back what `use` applied."""
        for obj in self._applied:
            assert self.plane.client.delete(f"{_collection(obj)}/{obj['metadata']['name']}").ok
        if self._applied:
            marker = f"marker-{self._used}"
            wait_until(lambda: _create(self.plane.client, marker).ok, f"policy {self._used} out of force")
        self._applied.clear()

    @property
    def full(self) -> frozenset[str]:
        """The rules that are exported in full."""
        return frozenset(each.name for each in self.exported.rules if each.coverage is Coverage.FULL)

    def word(
        self, manifest: Json, old: Json | None, requester: Requester, names: KnownNames, *, sub_resource: str = ""
    ) -> Word:
        """The webhook's, in a cluster that is empty."""
        context = AdmissionContext(
            now=datetime.now(UTC),  # noqa: TID251 -- an API server has a clock of its own
            judge=Judge(self._policy),
            names=names,
            sight=Sight(Inventory()),
        )
        user, groups = requester.username, [*requester.groups, "system:authenticated"]
        review = make_review(manifest, old, user=user, groups=groups, sub_resource=sub_resource or None)
        decision = validate(decode_review(json.dumps(review).encode()), context)
        assert decision.problem is None, decision.problem
        denying = frozenset(each.rule for each in decision.findings if each.severity is Severity.DENY and each.rule)
        return Word(decision.allowed, denying)

    def fault(self, reply: Reply, word: Word) -> str:
        """What is wrong with an answer, if anything is."""
        refused = is_refused(reply)
        if "resulted in error" in reply.message:
            return f"an expression failed: {reply.message}"
        if refused and word.allowed:
            return f"the webhook allows what is refused: {reply.message}"
        if not refused and reply.ok and word.by & self.full:
            return f"not refused by {sorted(word.by & self.full)}, exported in full"
        return ""


def is_refused(reply: Reply) -> bool:
    """Whether a ValidatingAdmissionPolicy said no."""
    return not reply.ok and "ValidatingAdmissionPolicy" in reply.message


def _collection(obj: Json) -> str:
    return path(_API, _PLURALS[obj["kind"]])


def _marker(name: str) -> tuple[Json, Json]:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    validation = {"expression": f'object.metadata.name != "{name}"', "message": name}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return (
        {"apiVersion": _API, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
        {"apiVersion": _API, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": binding},
    )


def _create(client: Client, name: str) -> Reply:
    """A ConfigMap, of which no policy of ours knows."""
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    return client.create(path("v1", "configmaps", namespace=_NAMESPACE), obj, dry_run=True)
