"""Archives whose bytes depend on nothing but the names, modes and bytes of what is in them."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from release.source import Source


def write_tarball(
    path: Path, files: Mapping[str, bytes], source: Source, programs: frozenset[str] = frozenset()
) -> None:
    """Writes a .tar.gz with these files, of which `programs` are executable.

    Stored rather than deflated: what is large in them is compressed already, and no version of zlib has a say.
    """
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=source.epoch, compresslevel=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(files[name]), source.epoch
            entry.mode = 0o755 if name in programs else 0o644
            archive.addfile(entry, io.BytesIO(files[name]))


def sha256_of(path: Path) -> str:
    """The digest of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
