"""What the CronJob of component reports does, by its own account and commands, on an API server with the kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.accounts import RBAC_KINDS, Token, asked_for, refused, rights_of, wait_granted
from tests.apiserver.manifests.installing import OWN_NAMESPACE, overlay_of, rendered
from tests.apiserver.planes import own_plane
from tests.builders import make_claim, make_meta, make_request, make_toleration
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from webhook.commands import audit
from webhook.commands.shared.main import main_of

ACCOUNT: Final = "device-taint-webhook-reports"
NAME: Final = "device-taint-webhook"
DEFINITIONS: Final = Path(__file__).parents[2] / "controlplane" / "openreports"
REPORTS: Final = path("openreports.io/v1alpha1", "reports", namespace="default")
CLAIMS: Final = 11
"""With 48 tolerations each, as many as there may be: more than a report lists."""
NONE_MAY: Final = """
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
rules:
- {name: none-may, action: deny, match: {namespaces: {names: [default]}}}
"""


@pytest.fixture(scope="module")
def audited(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """One that authorizes by RBAC, has the kinds, and says what it was asked."""
    with own_plane(request, audit=True) as plane:
        done = plane.kubectl("apply", "--server-side", "-f", DEFINITIONS)
        assert done.code == 0, done
        # A kind that was just installed answers 429 (storage is (re)initializing) for a moment.
        wait_until(lambda: plane.client.get(REPORTS).ok, "it is served")
        plane.wait_discovered("openreports.io", "reports")
        yield plane


class Job:
    """The containers of the CronJob one after the other, as a pod of its account."""

    def __init__(self, plane: ControlPlane, documents: list[Any], folder: Path) -> None:
        (cron_job,) = [each for each in documents if each["kind"] == "CronJob"]
        namespace = cron_job["metadata"]["namespace"]
        spec = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        assert spec["serviceAccountName"] == ACCOUNT
        self._audit, self._apply = (
            [
                each.replace("/reports", str(folder), 1).replace("$(POD_NAMESPACE)", namespace)
                for each in container["args"]
            ]
            for container in (*spec["initContainers"], *spec["containers"])
        )
        self._plane = plane
        self.token = Token(plane, ACCOUNT)

    def run(self) -> dict[str, Any]:
        """The reports of namespace default after it, by name."""
        assert main_of(audit, [*self._audit[1:], f"--kubeconfig={self.token.kubeconfig}"]) == 0
        done = self._plane.kubectl(*self._apply, f"--kubeconfig={self.token.kubeconfig}")
        assert done.code == 0, done
        return {each["metadata"]["name"]: each for each in self._plane.client.get(REPORTS).items}


def test_reports_are_what_the_last_audit_found(audited: ControlPlane, tmp_path: Path) -> None:
    documents = rendered(audited.assets, overlay_of(tmp_path / "mine", components=["components/reports"]))
    granted = [each for each in documents if each["kind"] in RBAC_KINDS]
    done = audited.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(granted))
    assert done.code == 0, done
    wait_until(lambda: wait_granted(audited, ACCOUNT, rights_of(documents, ACCOUNT)), "the authorizer knows the roles")
    config_map = {"metadata": {"name": "device-taint-webhook-policy"}, "data": {"policy.yaml": NONE_MAY}}
    _ = audited.client.create(path("v1", "configmaps", namespace=OWN_NAMESPACE), config_map).object
    version = versions.api_versions(audited.server_version)[0]
    claims = path(f"{versions.GROUP}/{version}", "resourceclaims", namespace="default")
    tolerations = [make_toleration(f"broken.example.com/key-{key}") for key in range(16)]
    requests = [make_request(f"gpu-{each}", tolerations) for each in range(3)]
    for number in range(CLAIMS):
        meta = make_meta(f"c-{number}", namespace="default")
        _ = audited.client.create(claims, make_claim(requests=requests, meta=meta, version=version)).object
    job = Job(audited, documents, tmp_path)
    found = job.run()
    assert {name: (each["summary"]["fail"], len(each["results"])) for name, each in found.items()} == {NAME: (528, 200)}
    result = found[NAME]["results"][0]
    assert (result["policy"], result["rule"], result["result"]) == ("DeviceTaintPolicy", "none-may", "fail")
    assert result["resources"][0]["kind"] == "ResourceClaim"
    _ = audited.client.delete(claims)
    left = job.run()
    assert {name: each["results"] for name, each in left.items()} == {NAME: []}
    assert {denied for denied in refused(job.token.events()) if "secrets" not in str(denied)} == set()
    rights = rights_of(documents, ACCOUNT)
    unused = {right for right in rights if not any(right.covers(each) for each in asked_for(job.token.events()))}
    assert {right.verb for right in unused} == {"create"}, "the server asks for it where it applies what is not there"
