"""The version stands in one place, webhook/__init__.py; everything else gets it from there when it is built."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest
import yaml
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from release.source import version_of
from webhook import __version__

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "manifests" / "helm"
# 1.2.3 is what pages say for any version.
_NUMBER: Final = r"v?(?!1\.2\.3\b)\d+\.\d+\.\d+"
# What people read and what they apply; a chart has a version of its own, which release/chart.py sets.
_FILES: Final = sorted(
    path
    for pattern in ("manifests/**/*", "certs/**/*.yaml", "docs/**/*.md", "*.md", "Makefile", "Dockerfile", "release/*")
    for path in ROOT.glob(pattern)
    if path.suffix in {".yaml", ".md", ".py", ""}
    if path.is_file() and CHART not in path.parents and path.name != "CHANGELOG.md"
)
_SAID: Final = re.compile(
    rf"app\.kubernetes\.io/version: *\S*\d|device-taint-webhook[:@]{_NUMBER}|newTag: *{_NUMBER}|[?&]ref={_NUMBER}"
    rf'|image\.version="{_NUMBER}'
)


@pytest.mark.parametrize("path", _FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_l16_no_file_repeats_the_version(path: Path) -> None:
    assert _SAID.findall(path.read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        "    app.kubernetes.io/version: 0.1.0",
        "image: device-taint-webhook:0.1.0",
        "docker push REGISTRY/device-taint-webhook:12.34.5",
        "{name: device-taint-webhook, newTag: 0.1.0}",
        "manifests/overlays/cert-manager?ref=v0.1.0",
        'org.opencontainers.image.version="0.1.0"',
    ],
)
def test_a_version_that_is_written_out_is_found(text: str) -> None:
    assert _SAID.search(text)


def test_the_package_has_the_version_of_the_program() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert ("version" in project, project["dynamic"]) == (False, ["version"])
    assert ProjectMetadata(str(ROOT), PluginManager()).version == __version__ == version_of(ROOT)


@pytest.mark.skipif(not CHART.is_dir(), reason="this tree has no chart")
def test_the_chart_of_the_tree_is_of_this_version_or_of_none() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {chart["version"], chart["appVersion"]} <= {"0.0.0", __version__}
