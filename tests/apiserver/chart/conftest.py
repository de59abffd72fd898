"""Helm, built on first use."""

from __future__ import annotations

import pytest

from tests.apiserver.chart.helming import Helm, helm_program


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The real one; tests are skipped where it cannot be built, or fail in CI."""
    return Helm(helm_program(), tmp_path_factory.mktemp("helm"))
