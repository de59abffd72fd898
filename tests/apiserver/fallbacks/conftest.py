"""One control plane for this folder: the table's namespaces, classes and users, and no webhook to begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.apiserver.fallbacks.syncing import Syncing
from tests.apiserver.policy.stage import Stage
from tests.apiserver.vap_requests import NAMESPACES
from tests.conftest import _keeping_logs_of_failures
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.assets import Assets


@pytest.fixture(scope="package")
def ground(request: pytest.FixtureRequest, assets: Assets) -> Iterator[Stage]:
    """Installed but for what calls us; requests are recorded."""
    with ControlPlane(assets, audit=True) as plane:
        stage = Stage(plane)
        stage.install()
        for name, labels in NAMESPACES.items():
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
            assert plane.client.apply(path("v1", "namespaces", name=name), namespace, field_manager="test").ok
        for _ in _keeping_logs_of_failures(request, plane):
            yield stage


@pytest.fixture(scope="package")
def syncing(ground: Stage, tmp_path_factory: pytest.TempPathFactory) -> Syncing:
    """What is asked of it, and the roles of component admission-policies."""
    return Syncing(ground, tmp_path_factory.mktemp("sync"))
