"""What is released: a tree, its version, the commit it is, and the time that all files of a release bear."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_VERSION: Final = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_SEMANTIC: Final = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}(-rc\.(0|[1-9][0-9]*))?")
"""What krew, Helm and Python all accept."""
REPOSITORY: Final = "https://repository.example.com/device-taint-webhook"
"""Where the source is, in links of the tree: an address that does not exist."""
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


class ReleaseError(Exception):
    """There will be no release; the message says why and what would help."""


@dataclass(frozen=True, slots=True)
class Source:
    """A tree, which is not written to."""

    root: Path
    version: str
    """Without v: 1.2.3."""
    revision: str
    """The commit, in 40 hexadecimal digits."""
    epoch: int
    """When the commit was made, in seconds since 1970."""

    @property
    def tag(self) -> str:
        """The name of the release in git and in krew."""
        return f"v{self.version}"

    def linked(self, text: str, repository: str) -> str:
        """A text of the tree whose links lead to the repository, and those to files to this version there."""
        text = text.replace(f"{REPOSITORY}/blob/main/", f"{repository}/blob/{self.tag}/")
        return text.replace(REPOSITORY, repository)


def source_of(root: Path, version: str, environment: Mapping[str, str]) -> Source:
    """The tree at `root`, if it is of the version asked for.

    A tree that is not a git checkout needs SOURCE_REVISION and SOURCE_DATE_EPOCH in the environment.

    Raises: ReleaseError if the tree has another version, changes that are not committed, or no known commit.
    """
    there = version_of(root)
    if not version:
        raise ReleaseError(f"VERSION is required: VERSION={there}")
    if version != there:
        raise ReleaseError(
            f"VERSION={version} was asked for, and the tree is {there}: set __version__ in webhook/__init__.py, "
            "commit that, and release the commit"
        )
    if not _SEMANTIC.fullmatch(there):
        raise ReleaseError(f"version {there} of webhook/__init__.py is not of the form 1.2.3 or 1.2.3-rc.1")
    revision, epoch = environment.get("SOURCE_REVISION"), environment.get("SOURCE_DATE_EPOCH")
    if revision is None or epoch is None:
        _refuse_changes(root)
    revision = revision or _git(root, "rev-parse", "HEAD")
    epoch = epoch or _git(root, "log", "-1", "--format=%ct")
    if not _COMMIT.fullmatch(revision) or not epoch.isdecimal():
        raise ReleaseError(
            f"SOURCE_REVISION={revision} and SOURCE_DATE_EPOCH={epoch} are not a commit (40 digits) and seconds"
        )
    return Source(root, there, revision, int(epoch))


def version_of(root: Path) -> str:
    """The one place of the version."""
    found = _VERSION.search((root / "webhook" / "__init__.py").read_text(encoding="utf-8"))
    if found is None:
        raise ReleaseError("webhook/__init__.py has no line __version__")
    return found[1]


def _refuse_changes(root: Path) -> None:
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        raise ReleaseError(
            f"{len(changed)} files are not as committed ({changed[0].strip()}): a release is what a commit says"
        )


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments],  # noqa: S607 -- the one on PATH
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or error
        raise ReleaseError(
            f"git {arguments[0]}: {str(said).strip()}; outside of a checkout set SOURCE_REVISION and SOURCE_DATE_EPOCH"
        ) from error
    return done.stdout.strip()
