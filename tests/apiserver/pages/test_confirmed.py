"""docs/preview.md, "Confirm through Git", followed by an admin, while a tool's account applies what is in Git (A5)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.apiserver.pages.fleet import RULES
from tests.apiserver.pages.following import APPLICATIONS, GETTING_STARTED, KUSTOMIZATIONS, blocks
from tests.apiserver.policy.stage import POLICY_MAP, make_config_map, make_policy
from tests.controlplane.processes import wait_until

if TYPE_CHECKING:
    from tests.apiserver.pages.fleet import Fleet
    from tests.apiserver.pages.following import Reader
    from tests.controlplane.plane import Result

pytestmark = pytest.mark.apiserver

PAGE: Final = "docs/preview.md"
HEADING: Final = "Confirm through Git"
TOOL: Final = "system:serviceaccount:argocd:argocd-application-controller"
_LINE: Final = r'^ *(devicetaint\.io/confirm-impact: "v1 .+")$'


def _sync(reader: Reader) -> Result:
    """What is in Git, applied by the tool's account."""
    file = reader.folder / "rule.yaml"
    return reader.plane.kubectl("apply", "--server-side", "-f", file, user=TOOL, groups=["system:masters"])


@pytest.mark.whole
def test_a5_text_from_an_admins_preview_lets_the_tools_account_apply_the_rule(reader: Reader, fleet: Fleet) -> None:
    refused_by_tool, preview = [each for each in blocks(PAGE, HEADING) if "NAME" in each or "preview rule" in each]
    (rule,) = blocks(GETTING_STARTED, "A first preview", "yaml")
    (annotated,) = blocks(PAGE, HEADING, "yaml")
    reader.write("rule.yaml", rule)
    reader.deploy()
    with reader.pod_of_serve():
        policy = make_policy(impact={"limits": [{"pods": 1}]})
        _ = reader.client.apply(POLICY_MAP, make_config_map(json.dumps(policy)), field_manager="admin").object
        wait_until(lambda: "limit is 1 pod" in _sync(reader).stderr, "the tool is refused")
        refusal = _sync(reader).stderr.strip()
        _report(reader, refusal)
        assert reader.run(refused_by_tool.replace(" NAME ", " taints ")).splitlines() == [*refusal.splitlines()] * 2

        (line,) = re.findall(_LINE, reader.run(preview), re.MULTILINE)
        assert annotated.splitlines()[-1].strip().partition(":")[0] == line.partition(":")[0]
        reader.write("rule.yaml", rule.replace("annotations: {", "annotations: {" + line + ", "))
        assert _sync(reader).code == 0
        assert _sync(reader).code == 0
        assert reader.client.get(f"{RULES}/firmware").ok
    assert fleet.running()


def _report(reader: Reader, refusal: str) -> None:
    """Where the tools show it."""
    reader.serve_gitops_kinds()
    named = {"metadata": {"name": "taints"}}
    application = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", **named}
    kustomization = {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", **named}
    ready = {"type": "Ready", "status": "False", "message": refusal}
    _ = reader.client.create(APPLICATIONS, {**application, "status": {"operationState": {"message": refusal}}}).object
    _ = reader.client.create(KUSTOMIZATIONS, {**kustomization, "status": {"conditions": [ready]}}).object
