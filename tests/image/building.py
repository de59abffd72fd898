"""The image, built by buildah on a base that debootstrap makes: no engine, no registry of images.

Containers of the build share the machine's network and kernel names (isolation chroot), which is all that packages
need. Everything lies in one folder, and goes with it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parents[2]
EPOCH: Final = "1700000000"
_SUITE: Final = "bookworm"
_BASE: Final = "localhost/base"
_NO_SOURCES: Final = (".git", ".venv", ".*cache*", ".hypothesis", ".coverage*", "__pycache__", "build", "dist")
# The way to the package registry may lead through a proxy that signs with a CA of this machine.
_OF_THIS_MACHINE: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")


class NotHereError(Exception):
    """This machine cannot build images."""


@dataclass(frozen=True, slots=True)
class Builder:
    """buildah, with its images in a folder of its own."""

    folder: Path

    def buildah(self, *arguments: str, timeout_seconds: float = 3600) -> str:
        """What the command printed. Raises AssertionError with its output if it failed."""
        where = ["--root", str(self.folder / "store"), "--runroot", str(self.folder / "run"), "--storage-driver", "vfs"]
        return _run(["buildah", *where, *arguments], timeout_seconds)

    def make_base(self) -> None:
        """Debian with Python."""
        bootstrapped = self.folder / "debian"
        packages = "--include=python3-venv,ca-certificates"
        _run(["debootstrap", "--variant=minbase", packages, _SUITE, str(bootstrapped)], 3600)
        for needless in ("var/cache/apt/archives", "var/log"):
            shutil.rmtree(bootstrapped / needless)
            (bootstrapped / needless).mkdir()
        container = self.buildah("from", "scratch").strip()
        self.buildah("add", "--quiet", container, str(bootstrapped), "/")
        shutil.rmtree(bootstrapped)
        self.buildah("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
        self.buildah("commit", "--quiet", "--rm", container, _BASE)
        # Somebody may edit the tree while it is built twice.
        shutil.copytree(ROOT, self._sources, ignore=shutil.ignore_patterns(*_NO_SOURCES))

    @property
    def _sources(self) -> Path:
        return self.folder / "sources"

    def build(self, tag: str) -> str:
        """Builds our image from a copy of the tree, and gives the digest of its manifest."""
        volumes = [f"--volume={file}:{file}:ro" for file in _OF_THIS_MACHINE if Path(file).exists()]
        self.buildah(
            "build",
            "--isolation=chroot",
            "--pull-never",
            "--no-cache",
            f"--timestamp={EPOCH}",
            f"--build-arg=SOURCE_DATE_EPOCH={EPOCH}",
            f"--build-arg=BASE_IMAGE={_BASE}",
            *volumes,
            f"--tag={tag}",
            str(self._sources),
        )
        return self.buildah("inspect", "--type=image", "--format={{.FromImageDigest}}", tag).strip()

    def mount(self, tag: str) -> Path:
        """The image's files."""
        container = self.buildah("from", "--pull-never", tag).strip()
        return Path(self.buildah("mount", container).strip())

    def layers(self, tag: str) -> list[Path]:
        """The image as a registry would get it: a tar file for each layer, the base's first."""
        folder = self.folder / "pushed"
        self.buildah("push", "--quiet", tag, f"dir:{folder}")
        manifest = json.loads((folder / "manifest.json").read_text())
        return [folder / layer["digest"].partition(":")[2] for layer in manifest["layers"]]


def need_tools() -> None:
    """Raises NotHereError with what is missing."""
    missing = [name for name in ("buildah", "debootstrap", "unshare", "chroot") if shutil.which(name) is None]
    if missing:
        raise NotHereError(f"no {', '.join(missing)} (Debian: apt-get install buildah debootstrap)")
    if os.geteuid() != 0:
        raise NotHereError("debootstrap needs root")
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        raise NotHereError("no mount namespaces")


def _run(command: Sequence[str], timeout_seconds: float) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout
