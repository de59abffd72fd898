"""Helm 3 and Helm 4 render the same objects, of the chart's folder and of a release's archive."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import yaml

from release.chart import write_chart
from release.source import REPOSITORY, Source
from tests.apiserver.chart.helming import CHART, EVERYTHING, Helm, Json
from tests.release.releasing import EPOCH, REGISTRY, REVISION, ROOT
from webhook import __version__

pytestmark = pytest.mark.whole

TREE: Final = Source(ROOT, __version__, REVISION, EPOCH)
VALUES: Final[dict[str, Json]] = {
    "default": {},
    "everything": EVERYTHING,
    **{file.stem: yaml.safe_load(file.read_text()) for file in sorted((CHART / "examples").glob("*.yaml"))},
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as a release packs it."""
    written = write_chart(TREE, REGISTRY, tmp_path_factory.mktemp("packed"))
    assert written is not None
    return written


def _rendered(helm: Helm, values: Json, chart: Path) -> list[str]:
    """As texts and sorted, since each program has an order of its own for kinds and hooks."""
    documents = helm.template(values, chart=chart)
    return sorted(TREE.linked(yaml.safe_dump(each), REPOSITORY) for each in documents)


@pytest.mark.parametrize("name", VALUES)
def test_each_program_renders_the_same_of_folder_and_archive(
    helm: Helm, each_helm: Helm, archive: Path, name: str
) -> None:
    values = VALUES[name]
    with_registry = {**values, "image": {"registry": REGISTRY, **values.get("image", {})}}
    expected = _rendered(helm, with_registry, CHART)
    assert _rendered(each_helm, with_registry, CHART) == expected
    assert _rendered(each_helm, values, archive) == expected


def test_each_program_finds_no_fault_with_the_archive(each_helm: Helm, archive: Path) -> None:
    code, out, err = each_helm.run("lint", archive, "--strict")
    assert code == 0, (out, err)
