"""A release, built once or twice, for all tests of this folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from release.bases import cache_root
from tests.controlplane.assets import Assets
from tests.release.releasing import CACHE_ELSEWHERE, REGISTRY, REPOSITORY, Surroundings, release, tree_at
from webhook import __version__

_HERE = Surroundings(0o022, {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"})
_ELSEWHERE = Surroundings(
    0o077,
    {
        "TZ": "Asia/Kathmandu",
        "LC_ALL": "C",
        "PYTHONHASHSEED": "2",
        "USER": "another",
        # what was downloaded for the first release stays where it is
        "DEVICE_TAINT_WEBHOOK_CACHE": str(cache_root().parent),
        "XDG_CACHE_HOME": str(Path(tempfile.gettempdir(), CACHE_ELSEWHERE)),
        "PEX_ROOT": str(Path(tempfile.gettempdir(), CACHE_ELSEWHERE, "pex")),
    },
)


@pytest.fixture(scope="package")
def files(assets: Assets) -> Iterator[Path]:
    """The folder with the files of a release. Large, so not kept."""
    with tempfile.TemporaryDirectory(prefix="release-") as made:
        yield _built(assets, Path(made, "here"), _HERE)


@pytest.fixture(scope="package")
def releases(files: Path, assets: Assets) -> Iterator[tuple[Path, Path]]:
    """The same, and those of the same release that was built in another folder."""
    with tempfile.TemporaryDirectory(prefix="release-") as made:
        yield files, _built(assets, Path(made, "some/where/else"), _ELSEWHERE)


def _built(assets: Assets, top: Path, surroundings: Surroundings) -> Path:
    top.mkdir(parents=True)
    kubectl = f"--kubectl={assets.program('kubectl')}"
    given = [kubectl, f"--output={top / 'out'}", f"--registry={REGISTRY}", f"--repository={REPOSITORY}"]
    done = release(tree_at(top / "tree"), *given, "--images=none", surroundings=surroundings)
    assert done.returncode == 0, done.stderr
    folder = top / "out" / f"v{__version__}"
    assert done.stdout == f"{folder}\n"
    return folder
