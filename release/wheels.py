"""The locked packages as wheels for other machines than this one, kept in a cache outside the tree."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging import tags

from release.bases import cache_root
from release.source import ReleaseError
from release.tools import run_tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from release.source import Source

PYTHONS: Final = ((3, 11), (3, 12), (3, 13), (3, 14))
"""The releases of CPython that the packages of the lock have wheels for."""
_GLIBC: Final = range(28, 16, -1)
_MACOS: Final = (14, 0)


@dataclass(frozen=True, slots=True)
class Platform:
    """An operating system and an architecture, in the words of Go and krew."""

    system: str
    """linux or darwin."""
    architecture: str
    """amd64 or arm64."""

    @property
    def name(self) -> str:
        """As it is written on command lines: linux/amd64."""
        return f"{self.system}/{self.architecture}"

    @property
    def machine(self) -> str:
        """What `uname -m` says there."""
        if self.architecture == "amd64":
            return "x86_64"
        return "arm64" if self.system == "darwin" else "aarch64"

    @property
    def wheel_tags(self) -> list[str]:
        """The platform tags of wheels that run there, the best first; Linux with glibc 2.28, macOS 14."""
        if self.system == "darwin":
            return list(tags.mac_platforms(_MACOS, self.machine))
        return [*(f"manylinux_2_{minor}_{self.machine}" for minor in _GLIBC), f"manylinux2014_{self.machine}"]


PLATFORMS: Final = tuple(Platform(*each) for each in (("linux", "amd64"), ("linux", "arm64"), ("darwin", "arm64")))
"""Where there is a wheel of each locked package. cryptography has none for macOS on Intel any more."""


def locked_wheels(source: Source, platform: Platform) -> list[Path]:
    """The wheels of requirements.lock for all of PYTHONS, downloaded first if need be: 10 s for each release.

    pip compares each with the hashes in the lock.

    Raises: ReleaseError if a package has no wheel there.
    """
    lock = source.root / "requirements.lock"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    folder = cache_root() / "wheels" / digest / platform.name.replace("/", "-")
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        try:
            for python in PYTHONS:
                _download(source, platform, python, staging)
            staging.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first
                raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return sorted(folder.glob("*.whl"))


def _download(source: Source, platform: Platform, python: Sequence[int], folder: Path) -> None:
    """What is there already, since it is for more than one release, is left alone."""
    release = ".".join(map(str, python))
    wanted = [f"--platform={tag}" for tag in platform.wheel_tags]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    hashes = ["--require-hashes", "--only-binary=:all:", f"--python-version={release}", "--implementation=cp"]
    lock = ["--requirement", str(source.root / "requirements.lock"), "--dest", str(folder)]
    try:
        run_tool([*pip, *hashes, *wanted, *lock], source)
    except ReleaseError as error:
        raise ReleaseError(f"wheels of {platform.name}, Python {release}: {error}") from error
