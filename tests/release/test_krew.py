"""The krew manifest, by the rules that krew has for it."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from release.wheels import PLATFORMS
from tests.release.krew_rules import faults, installed_files
from tests.release.releasing import REPOSITORY
from webhook import __version__


@pytest.fixture(scope="module")
def manifest(files: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((files / "dtaint.yaml").read_text())
    return document


def test_krew_accepts_the_manifest(manifest: dict[str, Any]) -> None:
    assert list(faults("dtaint", manifest)) == []
    assert manifest["spec"]["version"] == f"v{__version__}"
    assert manifest["spec"]["homepage"] == REPOSITORY


def test_each_platform_has_its_archive_with_the_right_hash_and_an_executable(
    manifest: dict[str, Any], files: Path
) -> None:
    platforms = manifest["spec"]["platforms"]
    selected = [tuple(each["selector"]["matchLabels"].values()) for each in platforms]
    assert selected == [(each.system, each.architecture) for each in PLATFORMS]
    for platform in platforms:
        folder, _, name = platform["uri"].rpartition("/")
        assert folder == f"{REPOSITORY}/releases/download/v{__version__}"
        assert hashlib.sha256((files / name).read_bytes()).hexdigest() == platform["sha256"]
        installed = installed_files(files / name, platform)
        assert installed == {"kubectl-dtaint": 0o755, "LICENSE": 0o644}
        assert platform["bin"] in installed


def _set(*path: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    def change(manifest: dict[str, Any]) -> None:
        place: Any = manifest
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (_set("apiVersion", value="v1"), "apiVersion"),
        (_set("kind", value="Plug"), "kind"),
        (_set("metadata", "name", value="kubectl-dtaint"), "name"),
        (_set("spec", "version", value=__version__), "version"),
        (_set("spec", "shortDescription", value="two\nlines"), "shortDescription"),
        (_set("spec", "platforms", value=[]), "platforms"),
        (_set("spec", "platforms", 0, "sha256", value="F" * 64), "sha256"),
        (_set("spec", "platforms", 0, "uri", value=""), "uri"),
        (_set("spec", "platforms", 0, "bin", value=""), "bin"),
        (_set("spec", "platforms", 0, "files", value=[]), "files"),
        (_set("spec", "platforms", 0, "selector", value={"matchLabels": {"libc": "musl"}}), "selector"),
    ],
)
def test_the_rules_find_what_krew_would_refuse(
    manifest: dict[str, Any], change: Callable[[dict[str, Any]], None], fault: str
) -> None:
    changed = copy.deepcopy(manifest)
    change(changed)
    assert list(faults("dtaint", changed)) == [fault]
