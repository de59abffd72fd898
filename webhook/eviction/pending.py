"""Pods that are still to be planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class PendingSet:
    """Things to be looked at anew, each once, the last first.

    Many that are neighbours, as whoever adds them has them, are in memory as well: it pays to take them together.
    """

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, keys: Iterable[str]) -> None:
        """Also these."""
        self._keys.update(dict.fromkeys(keys))

    def take(self, most: int) -> list[str]:
        """Some of them, which are in it no longer."""
        return [self._keys.popitem()[0] for _ in range(min(most, len(self._keys)))]
