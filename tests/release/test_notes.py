"""The release notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from release.notes import section_of, write_notes
from release.source import ReleaseError, Source
from tests.release.releasing import EPOCH, REPOSITORY, REVISION
from webhook import __version__

CHANGELOG = """\
# Changelog

## Unreleased

later

## 1.10.0 (2026-12-01)

### Fixed

text of 1.10.0

## 1.1.0

text of 1.1.0
"""


@pytest.mark.parametrize(
    ("version", "text"),
    [("1.10.0", "### Fixed\n\ntext of 1.10.0"), ("1.1.0", "text of 1.1.0"), ("Unreleased", "later")],
)
def test_a_section_is_what_is_below_its_heading(version: str, text: str) -> None:
    assert section_of(CHANGELOG, version) == text


@pytest.mark.parametrize("version", ["1.1", "1.0.0", "1.1.0 (2026-12-01)", "1.10"])
def test_a_version_without_a_section_is_an_error_that_says_what_to_do(version: str) -> None:
    with pytest.raises(ReleaseError, match=r"no section '## .*': give '## Unreleased' that name"):
        section_of(CHANGELOG, version)


def test_an_empty_section_is_an_error() -> None:
    with pytest.raises(ReleaseError, match="is empty"):
        section_of("# Changelog\n\n## 1.0.0\n\n## 0.9.0\n\ntext\n", "1.0.0")


def test_links_to_files_lead_to_the_tag_and_others_stay(tmp_path: Path) -> None:
    text = "[a](docs/a.md#b) [c](https://example.com/d) [e](#f)"
    (tmp_path / "CHANGELOG.md").write_text(f"## 1.0.0\n\n{text}\n")
    notes = write_notes(Source(tmp_path, "1.0.0", REVISION, EPOCH), "1.0.0", REPOSITORY, tmp_path).read_text()
    linked = f"[a]({REPOSITORY}/blob/v1.0.0/docs/a.md#b) [c](https://example.com/d) [e](#f)"
    assert notes == f"# device-taint-webhook 1.0.0\n\n{linked}\n"


def test_the_notes_of_a_release_are_its_section_and_no_more(files: Path) -> None:
    notes = (files / "RELEASE_NOTES.md").read_text()
    assert notes.startswith(
        f"# device-taint-webhook {__version__}\n\n- **Something new.** See [the page]({REPOSITORY}/"
    )
    assert len(notes.splitlines()) == 3
