"""Objects at rest, and a runner of audit over them, for tests of audit."""

from __future__ import annotations

import json
from typing import Any

from tests.builders import NOW_TEXT, make_claim, make_meta, make_template, make_toleration
from tests.unit.commands.runner import Runner
from webhook.admission.claim_view import REQUESTED_BY, annotation_of
from webhook.api.claims import FROM_TEMPLATE
from webhook.commands import audit
from webhook.commands.shared.main import main_of
from webhook.policy.match import Requester

BROKEN = make_toleration("health.example.com/x")
PLAIN = make_toleration("a.example.com/b")
HEADER: dict[str, Any] = {"apiVersion": "policy.devicetaint.io/v1alpha1", "kind": "DeviceTaintPolicy"}
NO_BROKEN: dict[str, Any] = {
    "name": "no-broken",
    "action": "deny",
    "match": {"tolerations": {"keys": ["health.example.com/*"]}},
}
OPS_MAY: dict[str, Any] = {"name": "ops-may", "action": "allow", "match": {"requesters": {"groups": ["ops"]}}}
POLICY = {**HEADER, "rules": [OPS_MAY, NO_BROKEN]}
OPS, DANA = Requester("olga", ("ops",)), Requester("dana", ())
CLAIM_PLACE = "spec.devices.requests[0].exactly.tolerations[0]"
TEMPLATE_PLACE = f"spec.{CLAIM_PLACE}"
AUTHOR_PLACE = f"spec.metadata.annotations[{REQUESTED_BY}]"


def claim(*tolerations: Any, name: str = "c", **meta: Any) -> Any:
    return make_claim(tolerations, meta=make_meta(name, namespace="ml", **meta))


def template(*tolerations: Any, author: Requester | None = None, name: str = "t", **meta: Any) -> Any:
    manifest = make_template(tolerations, meta=make_meta(name, namespace="ml", **meta))
    if author is not None:
        manifest["spec"]["metadata"] = {"annotations": {REQUESTED_BY: annotation_of(author)}}
    return manifest


def generated(*tolerations: Any, author: Requester | None = None) -> Any:
    manifest = claim(*tolerations, annotations={FROM_TEMPLATE: "gpu"})
    if author is not None:
        manifest["metadata"]["annotations"][REQUESTED_BY] = annotation_of(author)
    return manifest


class AuditRunner(Runner):
    """Writes a dump, a policy and a candidate, runs audit, gives exit code and output."""

    def __call__(self, *words: str, **files: Any) -> tuple[int, str]:
        flags = [f"--{stem}={self.write(stem, content)}" for stem, content in files.items()]
        return self.said(main_of(audit, [*words, *flags]))[:2]

    def told(self, *objects: Any, policy: Any = POLICY, **files: Any) -> list[tuple[str, str, str]]:
        """Severity, reason and path of what is told of a dump with these objects."""
        flags = ("-o", "json", "--allow-empty", "--time", NOW_TEXT)
        code, output = self(*flags, dump=list(objects), policy=policy, **files)
        findings = [each for each in json.loads(output)["findings"] if each["file"] == "dump.yaml"]
        assert code == (1 if any(each["severity"] == "error" for each in findings) else 0)
        return [(each["severity"], each["reason"], each["field"]) for each in findings]
