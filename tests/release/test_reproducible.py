"""Two builds of a commit are the same bytes, and what a release consists of."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from release.wheels import PLATFORMS
from tests.release.releasing import CACHE_ELSEWHERE, EPOCH, ROOT
from webhook import __version__


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.mark.whole
def test_two_builds_in_different_folders_umasks_zones_and_locales_are_the_same_bytes(
    releases: tuple[Path, Path],
) -> None:
    first, second = map(_digests, releases)
    assert first == second


def test_a_release_has_every_artefact_and_nothing_else(files: Path) -> None:
    name, package = f"device-taint-webhook-{__version__}", f"device_taint_webhook-{__version__}"
    assert {path.name for path in files.iterdir()} == {
        "RELEASE_NOTES.md",
        "SHA256SUMS",
        "dtaint.yaml",
        "provenance.intoto.json",
        f"{name}.cdx.json",
        f"{name}-docs.tar.gz",
        f"{package}-py3-none-any.whl",
        f"{package}.tar.gz",
        "install.yaml",
        "install-cert-manager.yaml",
        "install-production.yaml",
        *(f"kubectl-dtaint-{__version__}-{each.system}-{each.architecture}.tar.gz" for each in PLATFORMS),
        *([f"{name}.tgz"] if (ROOT / "manifests/helm/Chart.yaml").is_file() else []),
    }


def test_the_sums_are_of_all_files_and_right(files: Path) -> None:
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=files, capture_output=True, text=True, check=True
    ).stdout
    assert {line.removesuffix(": OK") for line in checked.splitlines()} == {
        path.name for path in files.iterdir() if path.name != "SHA256SUMS"
    }


@pytest.mark.whole
def test_files_can_be_read_by_everyone_and_hold_no_path_and_no_time_of_the_build(releases: tuple[Path, Path]) -> None:
    for folder in releases:
        for path in folder.iterdir():
            assert path.stat().st_mode & 0o777 == 0o644, path.name
            content = path.read_bytes()
            assert str(folder.parents[1]).encode() not in content, path.name
            assert str(ROOT).encode() not in content, path.name
            assert CACHE_ELSEWHERE.encode() not in content, path.name
        assert f'"sourceDateEpoch": "{EPOCH}"' in (folder / "provenance.intoto.json").read_text()
