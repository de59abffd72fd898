"""Positions of the values of a YAML text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from webhook.files.spots import Position, Spot, Step


class YamlSpot(Spot):
    """The position of a value: marks from the parser, children by key or by index."""

    __slots__ = ("_base", "_children", "_key_mark", "_mark")

    def __init__(self, base: int, mark: Any, children: dict[str, YamlSpot] | list[YamlSpot] | None = None) -> None:
        self._base = base
        self._mark = mark
        self._key_mark: Any = None
        self._children = children

    @property
    def position(self) -> Position:
        """Of the value."""
        return Position(self._base + self._mark.line, self._mark.column + 1)

    @property
    def key_position(self) -> Position | None:
        """Of the key before it."""
        mark = self._key_mark
        return None if mark is None else Position(self._base + mark.line, mark.column + 1)

    def child(self, step: Step) -> YamlSpot | None:
        """The spot one step below."""
        children = self._children
        if isinstance(children, dict):
            return children.get(step) if isinstance(step, str) else None
        if children and isinstance(step, int) and 0 <= step < len(children):
            return children[step]
        return None

    def steps(self) -> Iterable[Step]:
        """All steps below."""
        children = self._children
        return children.keys() if isinstance(children, dict) else range(len(children or ()))

    def named(self, key_mark: Any) -> YamlSpot:
        """The same with a key before it."""
        self._key_mark = key_mark
        return self

    def again_at(self, mark: Any) -> YamlSpot:
        """What an alias refers to, standing where the alias does."""
        return YamlSpot(self._base, mark, self._children)

    def entries(self) -> dict[str, YamlSpot]:
        """The children of a mapping."""
        return self._children if isinstance(self._children, dict) else {}


class PlainSpot(YamlSpot):
    """The position of a number, a boolean or null, and its text."""

    __slots__ = ("_plain",)

    def __init__(self, base: int, mark: Any, plain: str) -> None:
        super().__init__(base, mark)
        self._plain = plain

    @property
    def plain(self) -> str | None:
        """The text."""
        return self._plain

    def again_at(self, mark: Any) -> YamlSpot:
        """The same, standing where the alias does."""
        return PlainSpot(self._base, mark, self._plain)


class LiteralSpot(YamlSpot):
    """The position of a literal block (`|`), and its lines."""

    __slots__ = ("_source", "_value")

    def __init__(self, base: int, mark: Any, source: str, value: str) -> None:
        """`source` is the text that was parsed, whose first line is number `base` of the file."""
        super().__init__(base, mark)
        self._source = source
        self._value = value

    @property
    def text_start(self) -> Position | None:
        """The line after the `|`, and the column behind the indent."""
        lines = self._source.split("\n")[self._mark.line + 1 :]
        for line, kept in zip(lines, self._value.split("\n"), strict=False):
            if kept.strip():
                indent = len(line.rstrip("\r")) - len(kept)
                return Position(self._base + self._mark.line + 1, indent + 1)
        return None
