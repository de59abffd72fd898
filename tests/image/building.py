"""The images of the tests: built once by the modules of a release, through a mirror as behind an air gap."""

from __future__ import annotations

import gzip
import json
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from release.bases import native
from release.images import Builder, Labels
from tests.image.mirror import mirror

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
OURS: Final = "opt/device-taint-webhook"
EPOCH: Final = 1_700_000_000
LABELS: Final = Labels("1.2.3", "5a8dd3ad0756a93ded72b823b19dd877aa5a2ea9", "https://git.example.com/dtw")
_NO_SOURCES: Final = (".git", ".venv", ".*cache*", ".hypothesis", ".coverage*", "__pycache__", "build", "dist")


@dataclass(frozen=True, slots=True)
class Workshop:
    """A builder, and what its mirror was asked for."""

    builder: Builder
    asked: list[str]

    def build(self, name: str, architecture: str | None = None) -> str:
        """Builds an image, for this machine's processor unless told otherwise; gives the digest of its manifest."""
        return self.builder.build(f"localhost/{name}", LABELS, architecture or native())

    def mount(self, name: str) -> Path:
        """The image's files."""
        container = self.builder.buildah("from", "--pull-never", f"localhost/{name}").strip()
        return Path(self.builder.buildah("mount", container).strip())

    def layers(self, name: str) -> list[Path]:
        """The image as a registry would get it: a tar file for each layer, the base's first."""
        folder = self.builder.folder / "pushed"
        self.builder.buildah("push", "--quiet", f"localhost/{name}", f"dir:{folder}")
        manifest = json.loads((folder / "manifest.json").read_text())
        return [folder / layer["digest"].partition(":")[2] for layer in manifest["layers"]]


@contextmanager
def workshop(folder: Path) -> Iterator[Workshop]:
    """A place to build in, from a copy of the tree: it may be edited while it is built twice."""
    shutil.copytree(ROOT, folder / "sources", ignore=shutil.ignore_patterns(*_NO_SOURCES))
    with mirror(folder / "mirror") as (index, asked):
        builder = Builder(folder, folder / "sources", EPOCH, index)
        yield Workshop(builder, asked)
        builder.buildah("umount", "--all")
        builder.buildah("rm", "--all")
        builder.buildah("rmi", "--all", "--force")


def unpacked_size(layer: Path) -> int:
    """Bytes of a layer without compression, as a node stores it: what is in the tar file, and the file itself."""
    with gzip.open(layer) as content:
        size = 0
        while part := content.read(1 << 20):
            size += len(part)
    return size
