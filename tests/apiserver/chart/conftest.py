"""Helm, built on first use."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.apiserver.chart.helming import Helm
from tests.controlplane.assets import helm as helm_program
from tests.controlplane.gobuild import AssetsUnavailableError, built

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The real one; tests are skipped where it cannot be built, or fail in CI."""
    return Helm(_program(), tmp_path_factory.mktemp("helm"))


def _program() -> Path:
    try:
        return built(helm_program(), lambda line: print(line, file=sys.stderr)) / "helm"
    except AssetsUnavailableError as e:
        if os.environ.get("CI", "").lower() not in {"", "0", "false"}:
            pytest.fail(f"in CI Helm must be there: {e}")
        pytest.skip(f"no Helm: {e}")
