"""The image, built by buildah: no engine, and without a base from a registry on one that debootstrap makes.

Containers of the build share the machine's network and kernel names (isolation chroot), which is all that packages
need. Everything lies in one folder, and goes with it.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from release.bases import SUITE, base, native, need, need_mounts, run
from release.emulation import enable

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]
NAME: Final = "device-taint-webhook"
_NEEDED: Final = ("buildah", "debootstrap", "unshare", "chroot")
# The way to the package index may lead through a proxy that signs with a CA of this machine.
_OF_THIS_MACHINE: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")


@dataclass(frozen=True, slots=True)
class Archive:
    """An image as a file: an OCI layout in a tar file, for `docker load`, `podman load` and `skopeo copy`."""

    path: Path
    digest: str
    """Of its manifest, `sha256:...`: what a registry will call it by."""
    architecture: str
    """`amd64` or `arm64`; the operating system is linux."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """Where packages come from, if not from where this machine's pip takes them."""

    index_url: str
    ca_pem: str


@dataclass(frozen=True, slots=True)
class Labels:
    """What an image says about where it comes from. A field that is unknown is empty."""

    version: str
    revision: str = ""
    """Of the sources: a commit."""
    source: str = ""
    """A URL of the sources."""


@dataclass(frozen=True, slots=True)
class Builder:
    """buildah, with its images in a folder of its own."""

    folder: Path
    sources: Path = ROOT
    """The build's context; .dockerignore says what of it is used."""
    epoch: int = 0
    """Seconds since 1970: the time of every file, and of the image."""
    mirror: Mirror | None = None
    _bases: dict[str, tuple[str, str]] = field(default_factory=dict)

    def buildah(self, *arguments: str) -> str:
        """What the command printed. Raises CannotBuildError with its output if it failed."""
        where = ["--root", str(self.folder / "store"), "--runroot", str(self.folder / "run"), "--storage-driver", "vfs"]
        return run("buildah", *where, *arguments)

    def base(self, architecture: str) -> tuple[str, str]:
        """Name and digest of the image to build on: BASE_IMAGE from its registry, else Debian from debootstrap.

        Raises: CannotBuildError.
        """
        if architecture not in self._bases:
            given = os.environ.get("BASE_IMAGE", "")
            name = given or f"localhost/debian-{SUITE}:{architecture}"
            if given:
                self.buildah("pull", "--quiet", f"--arch={architecture}", given)
            else:
                self._commit_base(architecture, name)
            digest = self.buildah("inspect", "--type=image", "--format={{.FromImageDigest}}", name).strip()
            self._bases[architecture] = name, digest
        return self._bases[architecture]

    def _commit_base(self, architecture: str, name: str) -> None:
        files = base(architecture)
        container = self.buildah("from", "scratch").strip()
        self.buildah("add", "--quiet", container, str(files), "/")
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        self.buildah("config", "--arch", architecture, "--env", path, container)
        self.buildah("commit", "--quiet", "--rm", container, name)

    def build(self, tag: str, labels: Labels, architecture: str) -> str:
        """Builds our image, and gives the digest of its manifest.

        Raises: CannotBuildError.
        """
        enable(architecture)
        build_on, _ = self.base(native())
        name, digest = self.base(architecture)
        given = {
            "SOURCE_DATE_EPOCH": str(self.epoch),
            "CREATED": datetime.fromtimestamp(self.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "BUILDPLATFORM": f"linux/{native()}",  # older versions of buildah do not know it
            "BUILD_IMAGE": build_on,
            "BASE_IMAGE": name,
            "BASE_DIGEST": digest,
            "VERSION": labels.version,
            "REVISION": labels.revision,
            "SOURCE": labels.source,
        }
        self.buildah(
            "build",
            "--isolation=chroot",
            "--pull-never",
            "--no-cache",
            f"--platform=linux/{architecture}",
            f"--timestamp={self.epoch}",
            *(f"--build-arg={key}={value}" for key, value in given.items()),
            *self._way_to_packages(),
            f"--tag={tag}",
            str(self.sources),
        )
        return self.buildah("inspect", "--type=image", "--format={{.FromImageDigest}}", tag).strip()

    def _way_to_packages(self) -> Iterator[str]:
        if self.mirror is not None:
            yield f"--build-arg=PIP_INDEX_URL={self.mirror.index_url}"
            yield f"--build-arg=CA_CERTIFICATE={self.mirror.ca_pem}"
            return
        for file in _OF_THIS_MACHINE:
            if Path(file).exists():
                yield f"--volume={file}:{file}:ro"

    def write_archive(self, tag: str, version: str, target: Path) -> str:
        """Writes an image as a file, and gives the digest of its manifest. The same image makes the same bytes."""
        layout = Path(tempfile.mkdtemp(dir=self.folder)) / "layout"
        self.buildah("push", "--quiet", tag, f"oci:{layout}:{version}")
        index: dict[str, Any] = json.loads((layout / "index.json").read_text())
        (manifest,) = index["manifests"]
        # What docker names it by; the annotation beside it, ref.name, is what podman and skopeo look at.
        manifest["annotations"]["io.containerd.image.name"] = f"docker.io/library/{NAME}:{version}"
        (layout / "index.json").write_text(json.dumps(index, separators=(",", ":"), sort_keys=True))
        with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(layout.rglob("*")):
                archive.add(path, path.relative_to(layout).as_posix(), recursive=False, filter=self._plain)
        shutil.rmtree(layout.parent)
        return str(manifest["digest"])

    def _plain(self, member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = 0o755 if member.isdir() else 0o644
        member.mtime = self.epoch
        return member


def need_tools() -> None:
    """Raises NotHereError with what is missing on this machine."""
    need(*_NEEDED)
    need_mounts()


def build_archive(architecture: str, version: str, revision: str, folder: Path) -> Archive:
    """Builds the image for linux on `amd64` or `arm64`, as NAME-VERSION-linux-ARCHITECTURE.tar in a folder.

    revision is a commit. From the environment: SOURCE_DATE_EPOCH, the image's time (0); SOURCE_URL, for its label
    (none); BASE_IMAGE, a base in a registry (debootstrap makes one).

    Raises: NotHereError if a tool or a right is missing, CannotBuildError if a step failed.
    """
    need_tools()
    target = folder / f"{NAME}-{version}-linux-{architecture}.tar"
    labels = Labels(version, revision, os.environ.get("SOURCE_URL", ""))
    with tempfile.TemporaryDirectory(prefix="image-", ignore_cleanup_errors=True) as work:
        builder = Builder(Path(work), epoch=int(os.environ.get("SOURCE_DATE_EPOCH") or 0))
        tag = f"localhost/{NAME}:{architecture}"
        builder.build(tag, labels, architecture)
        digest = builder.write_archive(tag, version, target)
        builder.buildah("rmi", "--all", "--force")
    return Archive(target, digest, architecture)
