"""A control plane with scheduler, controllers and kubelets, on which all clusters of this folder live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import _assets, _keeping_logs_of_failures
from tests.controlplane import versions
from tests.controlplane.plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def placement_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Everything that schedules and evicts pods."""
    assets = _assets(request, "kube-controller-manager", "kube-scheduler", "kwok")
    if versions.minor(assets.version) < 37:
        pytest.skip("older releases read rules of other versions, and their allocator is another one")
    with ControlPlane(assets, controllers=[], scheduler=True, kwok=True) as plane:
        yield from _keeping_logs_of_failures(request, plane)
