"""One control plane with two hundred pods for this folder, and the webhook installed on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.apiserver.impact.population import Population
from tests.apiserver.impact.witness import AUDIT_POLICY, Witness
from tests.apiserver.planes import own_plane
from tests.apiserver.policy.stage import RestartablePlane, Stage, make_policy
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

EVERYBODYS_RIGHTS: Final = path("rbac.authorization.k8s.io/v1", "clusterrolebindings", name="test-users")
TELLING: Final = make_policy(mode="warn")
"""Everything is told and nothing refused: not even empty selectors, of which there are some."""


@pytest.fixture(scope="package")
def impact_plane(request: pytest.FixtureRequest) -> Iterator[RestartablePlane]:
    """Controllers, scheduler, kubelets, and an audit log of what matters here."""
    programs = ("kube-controller-manager", "kube-scheduler", "kwok")
    with own_plane(request, *programs, since=37, audit_policy=AUDIT_POLICY) as plane:
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
