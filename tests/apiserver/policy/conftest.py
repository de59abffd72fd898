"""One control plane with everything in it for this folder, and one small one for what would disturb the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.apiserver.planes import own_plane, own_stage
from tests.apiserver.policy.rows import POLICY
from tests.apiserver.policy.stage import Stage
from tests.conftest import FAKE_NODES
from tests.controlplane import versions
from tests.controlplane.assets import Assets
from tests.controlplane.plane import ControlPlane
from tests.controlplane.versions import GROUP


@pytest.fixture(scope="package")
def policy_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Controllers, scheduler, kubelets and an audit log: annotations are told nowhere else."""
    with own_plane(request, "kube-controller-manager", "kube-scheduler", "kwok", audit=True) as plane:
        for name in FAKE_NODES:
            plane.add_node(name)
        yield plane


@pytest.fixture(scope="package")
def installed(request: pytest.FixtureRequest, policy_plane: ControlPlane) -> Iterator[Stage]:
    """The webhook installed, running with the table's policy, and called."""
    stage = Stage(policy_plane)
    stage.install()
    stage.start_webhook()
    failed_before = request.session.testsfailed
    try:
        stage.use(POLICY)
        stage.register()
        yield stage
    finally:
        stage.webhook.keep_logs = request.session.testsfailed > failed_before  # tests may have started another one
        stage.stop_webhook()


@pytest.fixture
def stage(installed: Stage) -> Stage:
    """The same for one test, with the table's policy to begin with."""
    installed.use(POLICY)
    return installed


@pytest.fixture(scope="package")
def small(request: pytest.FixtureRequest, assets: Assets) -> Iterator[Stage]:
    """A control plane whose API server may go away, and which knows no DeviceTaintRules; the webhook is not running.

    With the gate off they are still served by 1.37: the gate is the controllers' and the scheduler's. Older releases
    do not serve them, nor does one that is told so. Nor does it stream lists, as some releases do not.
    """
    unserved = {f"{GROUP}/{version}/devicetaintrules": False for version in versions.rule_versions(assets.version)}
    gates = {"DRADeviceTaintRules": False, "WatchList": False}
    with own_stage(request, audit=True, feature_gates=gates, runtime_config=unserved) as stage:
        yield stage
