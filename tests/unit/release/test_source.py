"""Which versions a release can have: those that krew, Helm and Python all accept."""

from __future__ import annotations

from pathlib import Path

import pytest

from release.source import ReleaseError, source_of

TREE = {"SOURCE_REVISION": "0" * 40, "SOURCE_DATE_EPOCH": "1700000000"}


def tree(folder: Path, version: str) -> Path:
    (folder / "webhook").mkdir()
    (folder / "webhook" / "__init__.py").write_text(f'__version__ = "{version}"\n')
    return folder


@pytest.mark.parametrize("version", ["1.2.3", "0.10.0", "1.2.3-rc.1", "1.2.3-rc.10"])
def test_version_of_a_release_or_a_candidate_is_taken(tmp_path: Path, version: str) -> None:
    assert source_of(tree(tmp_path, version), version, TREE).version == version


@pytest.mark.parametrize("version", ["1.2.3-foo", "01.2.3", "1.2", "1.2.3-rc.01", "1.2.3-", "1.2.3+b", "1.2.٣"])
def test_version_that_one_of_them_refuses_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(ReleaseError, match=r"is not of the form 1\.2\.3 or 1\.2\.3-rc\.1"):
        source_of(tree(tmp_path, version), version, TREE)
