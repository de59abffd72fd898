"""One control plane with two hundred pods for this folder, and the webhook installed on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pytest

from tests.apiserver.impact.population import Population
from tests.apiserver.impact.witness import AUDIT_POLICY, Witness
from tests.apiserver.policy.stage import RestartablePlane, Stage, make_policy
from tests.conftest import _assets, _keeping_logs_of_failures
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

EVERYBODYS_RIGHTS: Final = path("rbac.authorization.k8s.io/v1", "clusterrolebindings", name="test-users")
TELLING: Final = make_policy(mode="warn")
"""Everything is told and nothing refused: not even empty selectors, of which there are some."""


@pytest.fixture(scope="package")
def impact_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RestartablePlane]:
    """Controllers, scheduler, kubelets, and an audit log of what matters here."""
    assets = _assets(request, "kube-controller-manager", "kube-scheduler", "kwok")
    if versions.minor(assets.version) < 37:
        pytest.skip("the eviction controller of older releases works with rules of v1alpha3 or v1beta2")
    audit_policy = tmp_path_factory.mktemp("impact") / "audit-policy.yaml"
    audit_policy.write_text(json.dumps(AUDIT_POLICY))  # JSON is YAML
    arguments = [f"--audit-policy-file={audit_policy}"]
    with RestartablePlane(
        assets, controllers=[], scheduler=True, kwok=True, audit=True, api_server_arguments=arguments
    ) as plane:
        for _ in _keeping_logs_of_failures(request, plane):
            yield plane


@pytest.fixture(scope="package")
def installed(request: pytest.FixtureRequest, impact_plane: RestartablePlane) -> Iterator[Stage]:
    """The webhook, as it is installed, and called for everything that comes after."""
    stage = Stage(impact_plane)
    stage.install()
    # Here nobody but the admin asks, and the webhook shall have no rights but those that it is shipped with.
    _ = stage.client.delete(EVERYBODYS_RIGHTS).object
    stage.start_webhook()
    failed_before = request.session.testsfailed
    try:
        stage.use(TELLING)
        stage.register()
        yield stage
    finally:
        stage.webhook.keep_logs = request.session.testsfailed > failed_before
        stage.stop_webhook()


@pytest.fixture(scope="package")
def population(impact_plane: RestartablePlane, installed: Stage) -> Population:
    """All pods run and have their devices, and the webhook knows of them."""
    population = Population(impact_plane)
    population.install()
    wait_until(lambda: installed.metric("inventory_synced") == {"": 1.0}, "the webhook knows the inventory")
    return population


@pytest.fixture(scope="package")
def witness(impact_plane: RestartablePlane) -> Witness:
    """What the in-tree controller does from now on."""
    return Witness(impact_plane.folder / "audit.log")


@pytest.fixture(scope="module")
def telling(installed: Stage) -> Stage:
    """With the policy that refuses nothing."""
    installed.use(TELLING)
    return installed
