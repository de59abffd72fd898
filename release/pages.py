"""The documentation as an archive, for a machine or a reader without the repository."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Final

from release.tarballs import write_tarball

if TYPE_CHECKING:
    from pathlib import Path

    from release.source import Source

_LINK: Final = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
"""To a file of the tree."""


def write_pages(source: Source, repository: str, folder: Path) -> Path:
    """Writes device-taint-webhook-VERSION-docs.tar.gz: docs/, whose links to other files lead to the repository."""
    top = f"device-taint-webhook-{source.version}-docs"
    files = {}
    for path in sorted(source.root.glob("docs/**/*")):
        if path.is_file():
            content = path.read_bytes()
            if path.suffix == ".md":
                content = _linked(content.decode(), path.relative_to(source.root), source, repository).encode()
            files[f"{top}/{path.relative_to(source.root / 'docs').as_posix()}"] = content
    archive = folder / f"{top}.tar.gz"
    write_tarball(archive, files, source)
    return archive


def _linked(text: str, page: Path, source: Source, repository: str) -> str:
    def outside(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(page.parent.as_posix(), link[1]))
        return link[0] if target.startswith("docs/") else f"]({repository}/blob/{source.tag}/{target}"

    return source.linked(_LINK.sub(outside, text), repository)
