"""What component reports grants is what `evict --open-reports` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from tests.apiserver.accounts import RBAC_KINDS, Token, asked_for, refused, rights_of, wait_granted
from tests.apiserver.evicting import EvictProcess
from tests.apiserver.manifests.installing import overlay_of, rendered
from tests.builders import make_claim, make_meta, make_toleration
from tests.conftest import _keeping_logs_of_failures
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.assets import Assets

pytestmark = pytest.mark.apiserver

EVICT: Final = "device-taint-webhook-evict"
DEFINITIONS: Final = Path(__file__).parents[2] / "controlplane" / "openreports"
REPORTS: Final = path("openreports.io/v1alpha1", "reports", namespace="default")
CLUSTER_REPORTS: Final = path("openreports.io/v1alpha1", "clusterreports")
NONE_MAY: Final = """
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
rules:
- {name: none-may, action: deny, match: {namespaces: {names: [default]}}}
"""


@pytest.fixture(scope="module")
def audited(request: pytest.FixtureRequest, assets: Assets) -> Iterator[ControlPlane]:
    """One that authorizes by RBAC, has the kinds, and says what it was asked."""
    with ControlPlane(assets, audit=True) as plane:
        done = plane.kubectl("apply", "--server-side", "-f", DEFINITIONS)
        assert done.code == 0, done
        # A kind that was just installed answers 429 (storage is (re)initializing) for a moment.
        wait_until(lambda: all(plane.client.get(each).ok for each in (REPORTS, CLUSTER_REPORTS)), "both are served")
        yield from _keeping_logs_of_failures(request, plane)


def test_reports_are_written_with_what_the_component_grants(audited: ControlPlane, tmp_path: Path) -> None:
    folder = overlay_of(tmp_path / "mine", base="overlays/evict-observe", components=["components/reports"])
    documents = rendered(audited.assets, folder)
    granted = [each for each in documents if each["kind"] in RBAC_KINDS]
    done = audited.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(granted))
    assert done.code == 0, done
    wait_until(lambda: wait_granted(audited, EVICT, rights_of(documents, EVICT)), "the authorizer knows the roles")
    version = versions.api_versions(audited.server_version)[0]
    claims = path(f"{versions.GROUP}/{version}", "resourceclaims", namespace="default")
    claim = make_claim([make_toleration()], meta=make_meta("c", namespace="default"), version=version)
    _ = audited.client.create(claims, claim).object
    token = Token(audited, EVICT)
    flags = ["--open-reports", "--audit-interval=10s", "--leader-elect"]
    with EvictProcess(audited, "observe", *flags, policy=NONE_MAY, kubeconfig=token.kubeconfig) as process:
        wait_until(lambda: len(audited.client.get(REPORTS).items) == 1, "a report", seconds=240)
        _ = audited.client.delete(f"{claims}/c").object
        wait_until(lambda: audited.client.get(REPORTS).items == [], "it is deleted", seconds=240)
        assert process.lines("reports not written") == []
    assert refused(token.events()) == []
    added = {right for right in rights_of(documents, EVICT) if right.group == "openreports.io"}
    # Server-side apply of what is not there is a patch, for which the server asks for the right to create too.
    tried = {right for right in added if right.verb != "create" and right.resource == "reports"}
    assert {right for right in tried if not any(right.covers(each) for each in asked_for(token.events()))} == set()
    assert {right.verb for right in added} == {"list", "create", "patch", "delete"}
