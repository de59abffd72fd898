"""docs/impact.md, with "Confirm through Git", followed by an admin; a tool's account applies what is in Git (A5)."""

from __future__ import annotations

import json
import re
from typing import Final

import pytest

from tests.apiserver.pages.fleet import RULES, Fleet
from tests.apiserver.pages.following import APPLICATIONS, KUSTOMIZATIONS, Reader, blocks
from tests.apiserver.policy.stage import POLICY_MAP, make_config_map, make_policy
from tests.controlplane.plane import Result
from tests.controlplane.processes import wait_until

PAGE: Final = "docs/impact.md"
TITLE: Final = "Impact: what a taint hits"
CONFIRM: Final = "Confirm a large impact"
GIT: Final = "Confirm through Git"
RULE: Final = """\
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata:
  name: firmware
  annotations: {devicetaint.io/evict: "true"}
spec:
  deviceSelector: {driver: gpu.example.com, pool: node-7}
  taint: {key: maint.example.com/firmware, effect: NoSchedule}
"""
TOOL: Final = "system:serviceaccount:argocd:argocd-application-controller"
_LINE: Final = r'^ *(devicetaint\.io/confirm-impact: "v1 .+")$'


def _sync(reader: Reader) -> Result:
    """What is in Git, applied by the tool's account."""
    file = reader.folder / "rule.yaml"
    return reader.plane.kubectl("apply", "--server-side", "-f", file, user=TOOL, groups=["system:masters"])


@pytest.mark.whole
def test_a5_text_from_an_admins_preview_lets_the_tools_account_apply_the_rule(reader: Reader, fleet: Fleet) -> None:
    shown, commands = blocks(PAGE, TITLE)
    preview, dry_run = commands.splitlines()
    (renew,) = blocks(PAGE, CONFIRM)
    (refused_by_tool,) = blocks(PAGE, GIT)
    (annotated,) = blocks(PAGE, GIT, "yaml")
    reader.write("rule.yaml", RULE)
    reader.deploy()
    with reader.pod_of_serve():
        policy = make_policy(impact={"limits": [{"pods": 1}]})
        _ = reader.client.apply(POLICY_MAP, make_config_map(json.dumps(policy)), field_manager="admin").object
        wait_until(lambda: "limit is 1 pod" in _sync(reader).stderr, "the tool is refused")
        refusal = _sync(reader).stderr.strip()
        assert _masked(refusal).endswith(_masked(shown.partition("... ")[2]))
        assert _masked(reader.run(dry_run, codes=(1,))).endswith(_masked(shown.partition("... ")[2]))
        _report(reader, refusal)
        assert reader.run(refused_by_tool.replace(" NAME ", " taints ")).splitlines() == [*refusal.splitlines()] * 2

        (line,) = re.findall(_LINE, reader.run(preview), re.MULTILINE)
        assert annotated.splitlines()[-1].strip().partition(":")[0] == line.partition(":")[0]
        reader.write("rule.yaml", RULE.replace("annotations: {", "annotations: {" + line + ", "))
        reader.run(dry_run)
        assert _sync(reader).code == 0
        assert _sync(reader).code == 0
        assert reader.client.get(f"{RULES}/firmware").ok
        text = line.partition(": ")[2]
        assert f"set annotation devicetaint.io/confirm-impact to {text}" in reader.run(renew, codes=(1,))
    assert fleet.running()


def _masked(refusal: str) -> str:
    """A refusal in one line, whatever its figures."""
    words = re.sub(r"\bof=\w+|\d+", "0", " ".join(refusal.split()))
    return re.sub(r"\b(device|pod|namespace)s?\b(?!=)", r"\1", words)


def _report(reader: Reader, refusal: str) -> None:
    """Where the tools show it."""
    reader.serve_gitops_kinds()
    named = {"metadata": {"name": "taints"}}
    application = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", **named}
    kustomization = {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", **named}
    ready = {"type": "Ready", "status": "False", "message": refusal}
    _ = reader.client.create(APPLICATIONS, {**application, "status": {"operationState": {"message": refusal}}}).object
    _ = reader.client.create(KUSTOMIZATIONS, {**kustomization, "status": {"conditions": [ready]}}).object
