"""What a release needs of this machine, asked before anything is installed or built: `python -m release.needs`.

Imports only the standard library, since it runs before there is a virtual environment.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from release.bases import ARCHITECTURES, NotHereError, native
from release.emulation import emulator
from release.images import need_tools
from release.source import ReleaseError, source_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT: Final = Path(__file__).parents[1]
WITHOUT_IMAGES: Final = "none"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, or 2 if there can be no release."""
    parser = argparse.ArgumentParser(prog="python -m release.needs", description=__doc__)
    for flag in ("--version", "--kubectl", "--kustomize", "--images"):
        parser.add_argument(flag, default="")
    given = parser.parse_args(arguments)
    try:
        source_of(ROOT, given.version, os.environ)
        renderer_of(given.kubectl, given.kustomize)
        if given.images != WITHOUT_IMAGES:
            need_images(given.images.split(",") if given.images else ARCHITECTURES)
    except ReleaseError as error:
        print(f"make release: {error}", file=sys.stderr)
        return 2
    return 0


def renderer_of(kubectl: str, kustomize: str) -> list[str]:
    """The command that renders: the programs that are named, else those on PATH; of both, kubectl.

    Raises: ReleaseError if there is none.
    """
    if not kubectl and not kustomize:
        kubectl, kustomize = shutil.which("kubectl") or "", shutil.which("kustomize") or ""
    if kubectl:
        return [kubectl, "kustomize"]
    if kustomize:
        return [kustomize, "build"]
    raise ReleaseError("neither kubectl nor kustomize is on PATH; set KUBECTL or KUSTOMIZE to one of them")


def need_images(architectures: Iterable[str]) -> None:
    """Raises ReleaseError if this machine cannot build images."""
    try:
        need_tools()
        for each in sorted({*ARCHITECTURES} & {*architectures} - {native()}):
            emulator(each)
    except NotHereError as error:
        raise ReleaseError(f"images: {error}; to release without them, say so: IMAGES=none") from error


if __name__ == "__main__":
    sys.exit(main())
