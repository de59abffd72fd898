"""Folders within folders that cannot be listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from webhook.files.read import read


def test_a_folder_that_cannot_be_listed_is_told_beside_what_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for root, whom permissions do not stop: the name of the last folder is too long."""
    (tmp_path / "a.yaml").write_text("a: 1\n")
    monkeypatch.chdir(tmp_path)
    deep = "d" * 250
    for _ in range(17):
        Path(deep).mkdir()
        monkeypatch.chdir(deep)
    Path("b.yaml").write_text("b: 1\n")
    monkeypatch.chdir(tmp_path)
    first, second = read(["."])
    assert ([each.value for each in first.manifests], first.unreadable) == ([{"a": 1}], [])
    assert (second.manifests, second.name.startswith("./ddd")) == ([], True)
    assert [each.message for each in second.unreadable] == ["cannot be read: File name too long"]
