"""The key in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.api.keys import KEY_LEAST_BYTES

if TYPE_CHECKING:
    from pathlib import Path


def key_in(path: Path) -> bytes:
    """The key in a file, without a final newline. Raises OSError with the path, also for a key that is too short."""
    key = path.read_bytes().strip()
    if len(key) < KEY_LEAST_BYTES:
        raise OSError(f"{path}: must have at least {KEY_LEAST_BYTES} bytes, but has {len(key)}")
    return key
