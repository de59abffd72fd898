"""Releases for tests: from copies of the tree, in environments that differ in whatever should not matter."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from release.wheels import PLATFORMS, Platform
from webhook import __version__

ROOT: Final = Path(__file__).parents[2]
REVISION: Final = "0123456789abcdef0123456789abcdef01234567"
EPOCH: Final = 1_700_000_000
CACHE_ELSEWHERE: Final = "cache-of-another-user"
REGISTRY: Final = "registry.example.com/team"
REPOSITORY: Final = "https://git.example.com/team/device-taint-webhook"
CHANGES: Final = "- **Something new.** See [the page](docs/development/releasing.md) and https://example.com/."
# Of this process, and no business of a release.
_NOT_PASSED: Final = ("COVERAGE_", "PYTEST_", "SOURCE_")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What differs between two machines, and must not show."""

    umask: int
    environment: Mapping[str, str]


def tracked_files() -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of this tree that git would commit."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():  # and not removed since
            yield name, (ROOT / name).read_bytes()


def commit_all(folder: Path) -> None:
    """Makes `folder` a git checkout whose only commit has all files that are there and not ignored."""
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "--quiet"], ["add", "."], [*author, "commit", "--quiet", "--message=a"]):
        subprocess.run(["git", *command], cwd=folder, check=True)


def tree_at(folder: Path, *, changes: str = CHANGES) -> Path:
    """A copy of the tree's files without its history, whose changelog has a section of this version."""
    for name, content in tracked_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    changelog = folder / "CHANGELOG.md"
    _, _, before = changelog.read_text().partition("\n## ")
    changelog.write_text(f"# Changelog\n\n## {__version__} (2026-11-24)\n\n{changes}\n\n## {before}")
    return folder


def release(
    tree: Path, *arguments: str, surroundings: Surroundings | None = None, version: str = __version__
) -> subprocess.CompletedProcess[str]:
    """`python -m release` in a tree, as of REVISION."""
    given = surroundings or Surroundings(0o022, {})
    passed = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED)}
    of_the_tree = {"SOURCE_REVISION": REVISION, "SOURCE_DATE_EPOCH": str(EPOCH)}
    command = [sys.executable, "-m", "release", f"--version={version}", *arguments]
    return subprocess.run(
        command,
        cwd=tree,
        env={**passed, **of_the_tree, **given.environment},
        umask=given.umask,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )


def this_platform() -> Platform:
    """Where the tests run."""
    here = (platform.system().lower(), platform.machine())
    return next(each for each in PLATFORMS if (each.system, each.machine) == here)
