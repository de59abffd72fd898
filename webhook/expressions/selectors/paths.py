"""Where a part of a selector leads to, as the API server keeps it: a slice of Go, which may share its memory.

A name that is added to a slice with room goes into its memory, over the name that was added to it before. Of the paths
into a device only those of three names have room, such as that of `device.attributes["a"]`: in a loop over it with two
variables the path of the key becomes that of the value, which may be twice as long, and so counts the key.

Source: `append` in cel-go checker/cost.go.
"""

from __future__ import annotations


class NodePath:
    """The names on the way, the variable first; none if it leads nowhere."""

    __slots__ = ("_length", "_memory", "_room")

    def __init__(self, name: str | None = None) -> None:
        self._memory = [] if name is None else [name]
        self._length = self._room = len(self._memory)

    @property
    def names(self) -> tuple[str, ...]:
        """As they are now."""
        return tuple(self._memory[: self._length])

    def then(self, name: str) -> NodePath:
        """The path one further."""
        found = NodePath()
        full = self._length == self._room
        found._memory = list(self._memory) if full else self._memory
        found._room = max(2 * self._room, 1) if full else self._room
        found._memory[self._length :] = [name]
        found._length = self._length + 1
        return found
