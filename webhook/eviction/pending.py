"""Keys that wait to be planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class PendingSet:
    """Keys of claims or pods, each once; the key added last is taken first.

    Keys that are added together often refer to objects that are close in memory, so taking them together is faster.
    """

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, keys: Iterable[str]) -> None:
        """Adds keys; a key that is in the set already keeps its place."""
        self._keys.update(dict.fromkeys(keys))

    def take(self, most: int) -> list[str]:
        """Removes at most `most` keys and returns them."""
        return [self._keys.popitem()[0] for _ in range(min(most, len(self._keys)))]
