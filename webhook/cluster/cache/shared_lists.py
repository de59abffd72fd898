"""Equal lists on the wire as one value: a cluster has hundreds of thousands of objects that are much alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

_REMEMBERED_BYTES: Final = 4096
"""Lists whose JSON is longer are not shared: they hardly repeat."""
REMEMBERED_ENTRIES: Final = 2048
"""What is shared is forgotten beyond this number, and shared again from then on."""


class SharedLists:
    """Values of lists by their JSON. The same text is the same value, so it is read once and held once."""

    def __init__(self, read: Callable[[Any], tuple[Any, ...]]) -> None:
        self._read = read
        self._known: dict[bytes, tuple[Any, ...]] = {}

    def of(self, raw: msgspec.Raw) -> tuple[Any, ...]:
        """The value; missing and null read as empty."""
        text = bytes(raw)
        if not text:
            return ()
        known = self._known.get(text)
        if known is None:
            known = self._read(msgspec.json.decode(text))
            if len(text) <= _REMEMBERED_BYTES:
                if len(self._known) >= REMEMBERED_ENTRIES:
                    self._known.clear()
                self._known[text] = known
        return known
