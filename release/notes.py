"""The release notes: a section of the changelog, which is that of the version unless another one is named."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from release.source import ReleaseError

if TYPE_CHECKING:
    from pathlib import Path

    from release.source import Source

_LINK: Final = re.compile(r"\]\((?!\w+:|#)([^)\s]+)\)")
"""To a file of the tree."""


def write_notes(source: Source, heading: str, repository: str, folder: Path) -> Path:
    """Writes RELEASE_NOTES.md from the section below `## HEADING`, with links to files of the tree at the tag.

    Raises: ReleaseError if the changelog has no such section, or an empty one.
    """
    changes = section_of((source.root / "CHANGELOG.md").read_text(encoding="utf-8"), heading)
    absolute = _LINK.sub(rf"]({repository}/blob/{source.tag}/\1)", changes)
    path = folder / "RELEASE_NOTES.md"
    path.write_text(f"# device-taint-webhook {source.version}\n\n{absolute}\n", encoding="utf-8")
    return path


def section_of(changelog: str, heading: str) -> str:
    """What is below `## HEADING`, which may have a date behind it.

    Raises: ReleaseError.
    """
    found = re.search(
        rf"^## {re.escape(heading)}(?:[ ,(][^\n]*)?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise ReleaseError(
            f"CHANGELOG.md has no section '## {heading}': give '## Unreleased' that name, and a date, before a "
            "release; to only try it out, set NOTES=Unreleased"
        )
    text = found[1].strip()
    if not text:
        raise ReleaseError(f"section '## {heading}' of CHANGELOG.md is empty")
    return text
