"""The archives of all images, and their digests."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from release import images
from release.index import digest_of, image_index
from release.source import ReleaseError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from release.source import Source


def build_images(source: Source, repository: str, architectures: Sequence[str], folder: Path) -> str:
    """An archive for each architecture, and all digests in image-digests.txt; nothing for no architectures.

    Returns the digest of the list of all images, which is what people pull by; empty for no architectures.

    Raises: ReleaseError if this machine cannot build images.
    """
    if not architectures:
        return ""
    try:
        with _environment({"SOURCE_DATE_EPOCH": str(source.epoch), "SOURCE_URL": repository}):
            archives = [images.build_archive(each, source.version, source.revision, folder) for each in architectures]
    except Exception as error:
        raise ReleaseError(f"images: {error}; to release without them, say so: IMAGES=none") from error
    digest = digest_of(image_index([each.path for each in archives]))
    platforms = ",".join(f"linux/{each.architecture}" for each in archives)
    lines = [f"{each.digest}  linux/{each.architecture}  {each.path.name}\n" for each in archives]
    lines.append(f"{digest}  {platforms}  device-taint-webhook:{source.version}\n")
    (folder / "image-digests.txt").write_text("".join(lines), encoding="utf-8")
    return digest


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """That is where the builder looks for what its arguments do not say."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
