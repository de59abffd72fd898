"""A key that is read from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from webhook.files.keys import key_in

if TYPE_CHECKING:
    from pathlib import Path


def test_key_of_16_bytes_is_taken_without_the_newline_after_it(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"k" * 16 + b"\n")
    assert key_in(path) == b"k" * 16


def test_key_of_15_bytes_is_refused_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"k" * 15 + b"\n")
    with pytest.raises(OSError, match="must have at least 16 bytes, but has 15") as caught:
        key_in(path)
    assert str(caught.value).startswith(f"{path}: ")
