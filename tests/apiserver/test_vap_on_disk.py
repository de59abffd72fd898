"""Exported files beside an API server that has them read from disk: no webhook, and nothing of ours in etcd."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.policy.stage import make_policy
from tests.apiserver.test_cases import MINOR
from tests.builders import make_claim, make_meta, make_toleration
from tests.controlplane.assets import Assets
from tests.controlplane.client import Reply, path
from tests.controlplane.plane import ControlPlane
from webhook.commands import export_vap
from webhook.commands.shared.main import main_of

Json = dict[str, Any]

pytestmark = pytest.mark.skipif(MINOR < 37, reason="ManifestBasedAdmissionControlConfig is on since 1.37")

PAGE: Final = Path(__file__).parents[2] / "docs" / "integrations.md"
SHOWN: Final = "/etc/kubernetes/admission"
"""The folder of the page."""


POLICY: Final = make_policy(
    rules=[
        {
            "name": "no-maintenance",
            "action": "deny",
            "match": {"tolerations": {"keys": ["maint.example.com/*"]}},
            "message": "maintenance is for everyone",
        }
    ],
)
FORBIDDEN: Final = make_toleration("maint.example.com/window")
CLAIMS: Final = path("resource.k8s.io/v1", "resourceclaims", namespace="default")
POLICIES: Final = [
    path("admissionregistration.k8s.io/v1", f"validatingadmissionpolic{end}") for end in ("ies", "ybindings")
]


def _configuration(folder: Path) -> Json:
    """The AdmissionConfiguration of the page, about this folder."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    [text] = [block for block in blocks if "kind: AdmissionConfiguration" in block]
    found: Json = yaml.safe_load(text.replace(SHOWN, str(folder)))
    return found


def test_files_are_enforced_and_cannot_be_deleted_through_the_api(assets: Assets, tmp_path: Path) -> None:
    policy, folder, configuration = tmp_path / "policy.yaml", tmp_path / "files", tmp_path / "admission.json"
    policy.write_text(json.dumps(POLICY))
    assert main_of(export_vap, ["--policy", str(policy), "--static", str(folder)]) == 0
    configuration.write_text(json.dumps(_configuration(folder)))
    flag = f"--admission-control-config-file={configuration}"
    with ControlPlane(assets, api_server_arguments=[flag]) as plane:

        def created(*tolerations: Json) -> Reply:
            meta = make_meta("c", namespace="default")
            return plane.client.create(CLAIMS, make_claim(tolerations, meta=meta), dry_run=True)

        assert [plane.client.get(each).items for each in POLICIES] == [[], []]
        for _ in range(2):
            refused = created(FORBIDDEN)
            assert (refused.code, "(rule no-maintenance)" in refused.message) == (403, True), refused
            assert created().ok
            assert (
                plane.kubectl("delete", "validatingadmissionpolicies,validatingadmissionpolicybindings", "--all").code
                == 0
            )
        objects = list(yaml.safe_load_all((folder / "validating" / "device-taint-webhook.yaml").read_text()))
        reply = plane.client.create(POLICIES[0], objects[0])
        assert not reply.ok
        assert ".static.k8s.io" in reply.message
