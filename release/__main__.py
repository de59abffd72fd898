"""Builds a release: `make release VERSION=1.2.3`, or python -m release --version 1.2.3."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from release.archives import build_images
from release.bill import write_bill
from release.chart import write_chart
from release.distributions import build_distributions
from release.installations import Image, write_installations
from release.krew import write_krew_manifest
from release.needs import WITHOUT_IMAGES, need_images, renderer_of
from release.notes import section_of, write_notes
from release.pages import write_pages
from release.plugin import build_plugin
from release.provenance import write_provenance
from release.source import REPOSITORY, ReleaseError, source_of
from release.tarballs import sha256_of
from release.wheels import PLATFORMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from release.source import Source

ROOT: Final = Path(__file__).parents[1]
REGISTRY: Final = "registry.example.com"
"""Stands for an address that this project does not have yet, as REPOSITORY does."""
_NAMES: Final = {each.name: each for each in PLATFORMS}
_ARCHITECTURES: Final = ("amd64", "arm64")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, or 2 if there is no release; then the output folder is as it was."""
    given = command_line().parse_args(arguments)
    try:
        source = source_of(ROOT, given.version, os.environ)
        output: Path = given.output / source.tag
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{source.tag}.", dir=output.parent) as made:
            staging = Path(made, "files")
            staging.mkdir(mode=0o755)
            build_release(source, given, staging)
            _put_in_place(staging, output)
    except ReleaseError as error:
        print(f"make release: {error}", file=sys.stderr)
        return 2
    for line in _remarks(given):
        print(line, file=sys.stderr)
    print(output)
    return 0


def build_release(source: Source, given: argparse.Namespace, folder: Path) -> None:
    """Writes all files of the release to `folder`. What names the image comes after it: with its digest."""
    heading = given.notes or source.version
    section_of((source.root / "CHANGELOG.md").read_text(encoding="utf-8"), heading)
    renderer = renderer_of(given.kubectl, given.kustomize)
    architectures = [] if given.images == [WITHOUT_IMAGES] else given.images
    if architectures:
        need_images(architectures)
    downloads = given.downloads or f"{given.repository}/releases/download/{source.tag}"

    wheel = build_distributions(source, given.repository, folder)
    write_chart(source, given.registry, folder, given.repository)
    archives = {_NAMES[name]: build_plugin(source, _NAMES[name], wheel, folder) for name in given.platforms}
    write_krew_manifest(source, archives, {"homepage": given.repository, "downloads": downloads}, folder)
    write_bill(source, wheel, folder)
    digest = build_images(source, given.repository, architectures, folder)
    image = Image(given.registry, digest)
    write_installations(source, image, given.repository, renderer, folder)
    write_pages(source, given.repository, folder)
    write_notes(source, heading, given.repository, folder)
    parameters = {
        "version": source.version,
        "registry": given.registry,
        "repository": given.repository,
        "downloads": downloads,
        "platforms": list(given.platforms),
        "images": architectures,
    }
    write_provenance(source, folder.iterdir(), parameters, given.repository, folder)
    sums = [f"{sha256_of(path)}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    for path in folder.iterdir():
        path.chmod(0o644)


def _put_in_place(staging: Path, output: Path) -> None:
    """The folder of a release appears whole; one of the same version that is there already goes."""
    if output.exists():
        shutil.rmtree(output)
    staging.rename(output)


def _remarks(given: argparse.Namespace) -> list[str]:
    """What to know before this is published."""
    remarks = []
    if given.images == [WITHOUT_IMAGES]:
        remarks.append("left out, as asked: image archives (IMAGES=none)")
    if set(given.platforms) != set(_NAMES):
        remarks.append(f"left out, as asked: kubectl-dtaint for other platforms than {', '.join(given.platforms)}")
    if given.notes:
        remarks.append(f"the release notes are section '## {given.notes}': cut a release before you publish this")
    remarks += [
        f"{name}={value} stands for an address that is not known: set {name} before you publish this"
        for name, value, default in (
            ("REGISTRY", given.registry, REGISTRY),
            ("REPOSITORY", given.repository, REPOSITORY),
        )
        if value == default
    ]
    return remarks


def command_line() -> argparse.ArgumentParser:
    """What `make release` can be given: docs/development/releasing.md."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--version", required=True, help="the version that webhook/__init__.py has")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="FOLDER", help="gets a folder vVERSION")
    parser.add_argument("--registry", default=REGISTRY, help="where images will be: HOST[/PATH]")
    parser.add_argument("--repository", type=_address, default=REPOSITORY, help="where the source is: https://...")
    parser.add_argument("--downloads", type=_address, help="where the files will be; else as GitHub has them")
    parser.add_argument("--platforms", type=_list_of(tuple(_NAMES)), default=list(_NAMES), help="of kubectl-dtaint")
    parser.add_argument(
        "--images",
        type=_list_of((*_ARCHITECTURES, WITHOUT_IMAGES)),
        default=list(_ARCHITECTURES),
        help="architectures, or none",
    )
    parser.add_argument("--notes", default="", metavar="HEADING", help="section of CHANGELOG.md; else VERSION's")
    parser.add_argument("--kubectl", default="", help="renders manifests; else the one on PATH")
    parser.add_argument("--kustomize", default="", help="likewise")
    return parser


def _address(text: str) -> str:
    if not text.startswith("https://"):
        raise argparse.ArgumentTypeError(f"{text} does not begin with https://")
    return text.rstrip("/")


class _list_of:  # noqa: N801 -- a type of argparse
    """A list with commas, of some words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words

    def __call__(self, text: str) -> list[str]:
        given = text.split(",")
        if (
            len(set(given)) < len(given)
            or not set(given) <= set(self._words)
            or (WITHOUT_IMAGES in given and given != [WITHOUT_IMAGES])
        ):
            raise argparse.ArgumentTypeError(f"{text} is not of {', '.join(self._words)}")
        return given


if __name__ == "__main__":
    sys.exit(main())
