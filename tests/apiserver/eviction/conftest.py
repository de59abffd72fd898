"""Turns on the same table: the in-tree controller's of two releases, and ours. One control plane at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.apiserver.eviction.manifests import NODE
from tests.apiserver.eviction.play import IN_TREE, OFF, InTree, InTreeOf138, Ours, Outcome, Play
from tests.apiserver.eviction.scenario import Scenario
from tests.apiserver.eviction.table import SCENARIOS
from tests.apiserver.eviction.table.groups import GROUPS
from tests.apiserver.eviction.witness import AUDIT_POLICY
from tests.apiserver.policy.stage import RestartablePlane
from tests.conftest import _assets
from tests.controlplane import versions
from tests.controlplane.assets import Assets

GATES: Final = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
"""PodGroups, which may have claims too (E-17, E-18)."""
GATES_OFF: Final = {"GenericWorkload": True, "DRAWorkloadResourceClaims": False}
"""PodGroups, which may have no claims any more."""
RELEASES: Final = (
    pytest.param(InTree, id=f"1.{InTree.minor}"),
    pytest.param(
        InTreeOf138,
        id="1.38",
        marks=pytest.mark.skipif(
            os.environ.get("EVICTION_SCALE") != "all",
            reason="EVICTION_SCALE is not all: `make test-matrix` builds the controller of 1.38 for it",
        ),
    ),
)
"""Of the in-tree controller."""


@pytest.fixture(scope="session")
def eviction_assets(request: pytest.FixtureRequest) -> Assets:
    assets = _assets(request, "kube-controller-manager")
    if versions.minor(assets.version) < 37:
        pytest.skip("the eviction controller of older releases works with rules of v1alpha3 or v1beta2")
    return assets


@pytest.fixture(scope="session")
def audit_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("eviction") / "audit-policy.yaml"
    file.write_text(json.dumps(AUDIT_POLICY))  # JSON is YAML
    return file


@pytest.fixture(scope="module", params=RELEASES)
def in_tree(request: pytest.FixtureRequest, eviction_assets: Assets, audit_policy: Path) -> Mapping[str, Outcome]:
    """What the real controller of a release made of each scenario."""
    return _played_in_tree(request.param, eviction_assets, audit_policy)


@pytest.fixture(scope="module")
def ours(eviction_assets: Assets, audit_policy: Path) -> Mapping[str, Outcome]:
    """What we did, where it is off."""
    with _plane(eviction_assets, audit_policy, (*OFF, f"-{IN_TREE}")) as plane:
        return _played(plane, Ours(plane))


@pytest.fixture(scope="module", params=RELEASES)
def in_tree_without_gate(
    request: pytest.FixtureRequest, eviction_assets: Assets, audit_policy: Path
) -> Mapping[str, Outcome]:
    """What the real controller of a release made of claims of PodGroups where the gate for them is off."""
    return _played_in_tree(request.param, eviction_assets, audit_policy, GATES_OFF, GROUPS)


@pytest.fixture(scope="module")
def ours_without_gate(eviction_assets: Assets, audit_policy: Path) -> Mapping[str, Outcome]:
    """What we did there."""
    with _plane(eviction_assets, audit_policy, (*OFF, f"-{IN_TREE}"), GATES_OFF) as plane:
        return _played(plane, Ours(plane), GROUPS)


def _plane(
    assets: Assets, audit_policy: Path, controllers: tuple[str, ...], gates: Mapping[str, bool] = GATES
) -> RestartablePlane:
    return RestartablePlane(
        assets,
        controllers=controllers,
        audit=True,
        feature_gates=gates,
        api_server_arguments=[f"--audit-policy-file={audit_policy}"],
    )


def _played_in_tree(
    evictor: type[InTree | InTreeOf138],
    assets: Assets,
    audit_policy: Path,
    gates: Mapping[str, bool] = GATES,
    scenarios: tuple[Scenario, ...] = SCENARIOS,
) -> Mapping[str, Outcome]:
    off = OFF if evictor is InTree else (*OFF, f"-{IN_TREE}")
    with _plane(assets, audit_policy, off, gates) as plane:
        return _played(plane, evictor(plane), scenarios)


def _played(
    plane: RestartablePlane, evictor: InTree | InTreeOf138 | Ours, scenarios: tuple[Scenario, ...] = SCENARIOS
) -> Mapping[str, Outcome]:
    plane.add_node(NODE)
    play = Play(plane, evictor)
    outcomes = play.run(scenarios)
    print(f"{len(outcomes)} scenarios in {play.seconds:.0f} s")
    if any(outcome.error for outcome in outcomes.values()):
        plane.keep_logs = True
        if isinstance(evictor, Ours):
            print(*evictor.log, sep="\n")
    return outcomes
