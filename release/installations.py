"""One file for each overlay, which installs everything, with the version in its images and labels.

The manifests of the tree have no version: what deploys them says which one it is. A kustomization that is made for the
occasion does so here, in the way that manifests/README.md shows.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

from release.source import ReleaseError
from release.tools import run_tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from release.source import Source

NAME: Final = "device-taint-webhook"
USUAL: Final = "self-managed"
"""The overlay whose file has no name of its own, as with `make install.yaml`."""


@dataclass(frozen=True, slots=True)
class Image:
    """What is pulled: REGISTRY/device-taint-webhook:VERSION@DIGEST."""

    registry: str
    digest: str
    """`sha256:...`; empty for a release without images, which names the version only."""

    def entry(self, version: str) -> dict[str, str]:
        """For a kustomization's images."""
        pinned = {"digest": self.digest} if self.digest else {}
        return {"name": NAME, "newName": f"{self.registry}/{NAME}", "newTag": version, **pinned}


def write_installations(
    source: Source, image: Image, repository: str, renderer: Sequence[str], folder: Path
) -> list[Path]:
    """Writes install.yaml, and install-OVERLAY.yaml for each other overlay, with this image.

    Links lead to `repository`. `renderer` is a command that takes a folder: `kubectl kustomize`, or `kustomize build`.

    Raises: ReleaseError.
    """
    written = []
    for overlay in sorted(each.parent for each in source.root.glob("manifests/overlays/*/kustomization.yaml")):
        path = folder / file_of(overlay.name)
        text = _rendered(source, overlay, image, renderer)
        path.write_text(source.linked(text, repository), encoding="utf-8")
        written.append(path)
    if not written:
        raise ReleaseError("manifests/overlays has no overlay")
    return written


def file_of(overlay: str) -> str:
    """The name of the file that installs an overlay."""
    return "install.yaml" if overlay == USUAL else f"install-{overlay}.yaml"


def _rendered(source: Source, overlay: Path, image: Image, renderer: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory() as made:
        # kustomize follows links before it goes up, and so must we
        here = Path(made).resolve()
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [os.path.relpath(overlay.resolve(), here)],
            "images": [image.entry(source.version)],
            "labels": [{"pairs": {"app.kubernetes.io/version": source.version}, "includeTemplates": True}],
        }
        (here / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
        return run_tool([*renderer, str(here)], source)
