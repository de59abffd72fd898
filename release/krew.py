"""The manifest by which `kubectl krew install dtaint` finds an archive for its platform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import yaml

from release.plugin import PROGRAM
from release.tarballs import sha256_of
from release.wheels import PYTHONS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from release.source import Source
    from release.wheels import Platform

NAME: Final = "dtaint"
"""Without the prefix: krew calls the program kubectl-dtaint by itself."""
_FROM, _TO = (".".join(map(str, PYTHONS[at])) for at in (0, -1))
_DESCRIPTION: Final = (
    "Checks manifests with device taints and tolerations as the admission webhook does, previews what a taint would "
    "hit, explains refusals and evictions, and says whether an installation is healthy. The commands that read "
    "manifests need no cluster."
)
_CAVEATS: Final = (
    f"Needs Python {_FROM} to {_TO} on PATH, with glibc 2.28 or later on Linux. The first start unpacks the program "
    "into ~/.cache/pex (~/Library/Caches/pex on macOS), which takes some seconds."
)


def write_krew_manifest(
    source: Source, archives: Mapping[Platform, Path], addresses: Mapping[str, str], folder: Path
) -> Path:
    """Writes dtaint.yaml for these archives.

    `addresses` has `homepage`, and `downloads`, below which the archives will be.
    """
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": NAME},
        "spec": {
            "version": source.tag,
            "homepage": addresses["homepage"],
            "shortDescription": "Check, preview and explain device taints",
            "description": _DESCRIPTION,
            "caveats": _CAVEATS,
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": platform.system, "arch": platform.architecture}},
                    "uri": f"{addresses['downloads']}/{archive.name}",
                    "sha256": sha256_of(archive),
                    "bin": PROGRAM,
                    "files": [{"from": PROGRAM, "to": "."}, {"from": "LICENSE", "to": "."}],
                }
                for platform, archive in archives.items()
            ],
        },
    }
    path = folder / f"{NAME}.yaml"
    path.write_text(yaml.safe_dump(manifest, sort_keys=False, width=120), encoding="utf-8")
    return path
