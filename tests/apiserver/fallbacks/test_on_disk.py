"""Exported files beside an API server that has them read from disk: no webhook, and nothing of ours in etcd."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.apiserver.fallbacks.syncing import API, DEFAULT, FORBIDDEN, POLICY, claim, collection, plural
from tests.apiserver.test_cases import MINOR
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from webhook.commands import export_vap
from webhook.policy.vap.drift import KINDS

if TYPE_CHECKING:
    from tests.controlplane.assets import Assets
    from tests.controlplane.client import Reply

Json = dict[str, Any]

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.skipif(MINOR < 37, reason="ManifestBasedAdmissionControlConfig is on since 1.37"),
]

PAGE: Final = Path(__file__).parents[3] / "docs" / "fallback.md"
SHOWN: Final = "/etc/kubernetes/admission"
"""The folder of the page."""


def _configuration(folder: Path) -> Json:
    """The AdmissionConfiguration of the page, about this folder."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    [text] = [block for block in blocks if "kind: AdmissionConfiguration" in block]
    found: Json = yaml.safe_load(text.replace(SHOWN, str(folder)))
    return found


def test_files_are_enforced_and_cannot_be_deleted_through_the_api(assets: Assets, tmp_path: Path) -> None:
    policy, folder, configuration = tmp_path / "policy.yaml", tmp_path / "files", tmp_path / "admission.json"
    policy.write_text(json.dumps(POLICY))
    assert export_vap.run(["--policy", str(policy), "--defaults", "--static", str(folder)]) == 0
    configuration.write_text(json.dumps(_configuration(folder)))
    flag = f"--admission-control-config-file={configuration}"
    with ControlPlane(assets, api_server_arguments=[flag]) as plane:

        def created(*tolerations: Json) -> Reply:
            obj = claim(*tolerations, namespace="default")
            return plane.client.create(collection(obj), obj, dry_run=True)

        assert [plane.client.get(path(API, plural(kind))).items for kind in KINDS] == [[], [], [], []]
        for _ in range(2):
            refused = created(FORBIDDEN)
            assert (refused.code, "(rule no-maintenance)" in refused.message) == (403, True), refused
            made = created().object
            assert made["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] == [DEFAULT]
            for kind in KINDS:
                assert plane.kubectl("delete", plural(kind), "--all").code == 0
        objects = list(yaml.safe_load_all((folder / "validating" / "device-taint-webhook.yaml").read_text()))
        reply = plane.client.create(path(API, "validatingadmissionpolicies"), objects[0])
        assert not reply.ok
        assert ".static.k8s.io" in reply.message
