"""The chart's archive, from a small chart and from ours."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import yaml

from release.chart import write_chart
from release.source import ReleaseError, Source
from tests.release.releasing import EPOCH, REGISTRY, REPOSITORY, REVISION, ROOT

FILES = {
    "Chart.yaml": "apiVersion: v2\nname: device-taint-webhook\nversion: 0.0.0\nappVersion: 0.0.0\n",
    "values.yaml": 'other: {registry: ""}\nimage:\n  # Where images are.\n  registry: ""\n  repository: a\n',
    "templates/a.yaml": "kind: A\n",
    ".helmignore": "# not packed\n*.tmp\nscratch/\n",
    "notes.tmp": "",
    "scratch/b.yaml": "",
}


def _tree(folder: Path, changed: dict[str, str]) -> Source:
    for name, text in (FILES | changed).items():
        path = folder / "manifests" / "helm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Source(folder, "1.2.3", REVISION, EPOCH)


def _packed(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as unpacked:
        found = {entry.name: unpacked.extractfile(entry) for entry in unpacked.getmembers()}
        return {name: file.read().decode() for name, file in found.items() if file is not None}


def test_the_archive_has_the_version_and_the_registry_and_not_what_helm_ignores(tmp_path: Path) -> None:
    archive = write_chart(_tree(tmp_path, {}), REGISTRY, tmp_path)
    packed = _packed(archive)
    assert set(packed) == {f"device-taint-webhook/{name}" for name in ("Chart.yaml", "values.yaml", "templates/a.yaml")}
    chart = yaml.safe_load(packed["device-taint-webhook/Chart.yaml"])
    assert (chart["version"], chart["appVersion"]) == ("1.2.3", "1.2.3")
    values = yaml.safe_load(packed["device-taint-webhook/values.yaml"])
    assert values == {"other": {"registry": ""}, "image": {"registry": REGISTRY, "repository": "a"}}


@pytest.mark.parametrize("name", ["Chart.yaml", "values.yaml"])
def test_a_chart_without_what_is_to_be_set_ends_the_release(tmp_path: Path, name: str) -> None:
    with pytest.raises(ReleaseError, match=name):
        write_chart(_tree(tmp_path, {name: "name: a\n"}), REGISTRY, tmp_path)


def test_our_chart_has_the_places_that_a_release_sets(tmp_path: Path) -> None:
    packed = _packed(write_chart(Source(ROOT, "1.2.3", REVISION, EPOCH), REGISTRY, tmp_path, REPOSITORY))
    values = yaml.safe_load(packed["device-taint-webhook/values.yaml"])
    page = f"{REPOSITORY}/blob/v1.2.3/docs/runbooks.md"
    assert values["monitoring"]["prometheusRule"]["runbookUrl"] == page
    assert [name for name, text in packed.items() if "repository.example.com" in text] == []
    assert yaml.safe_load(packed["device-taint-webhook/Chart.yaml"])["appVersion"] == "1.2.3"
    assert yaml.safe_load(packed["device-taint-webhook/values.yaml"])["image"]["registry"] == REGISTRY
