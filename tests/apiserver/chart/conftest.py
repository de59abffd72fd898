"""Helm 4 and Helm 3, each built on first use."""

from __future__ import annotations

import pytest

from tests.apiserver.chart.helming import HELMS, Helm, helm_program


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The real one; tests are skipped where it cannot be built, or fail in CI."""
    return Helm(helm_program(), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session", params=HELMS)
def each_helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """One after the other, for tests marked `whole`."""
    return Helm(helm_program(request.param), tmp_path_factory.mktemp(request.param))
