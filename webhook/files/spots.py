"""Positions of values in a file, and how a field path finds them. Lines and columns count from 1."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from webhook.api.field import Path

Step: TypeAlias = "str | int"
Steps: TypeAlias = "tuple[Step, ...]"


class Position(NamedTuple):
    """A character of a file."""

    line: int
    column: int


class Spot:
    """The position of a value; `key_position` is None for list entries and whole documents. This one is nowhere."""

    __slots__ = ()

    @property
    def position(self) -> Position:
        """Of the value's first character."""
        return Position(0, 0)

    @property
    def key_position(self) -> Position | None:
        """Of the key before it."""
        return None

    @property
    def text_start(self) -> Position | None:
        """Where the text of a literal block (`|`) begins, each of whose lines is a line of the file; else None."""
        return None

    @property
    def plain(self) -> str | None:
        """The unquoted text of the value, if it was read as something else than a string; else None."""
        return None

    def child(self, step: Step) -> Spot | None:  # noqa: ARG002 -- there is none
        """The field (text) or the list entry (a number) below, or None."""
        return None

    def steps(self) -> Iterable[Step]:
        """The steps that `child` knows."""
        return ()


NOWHERE: Final = Spot()
"""The position of values that come from no file."""


class Unreadable(Exception):  # noqa: N818 -- it says what became of the input
    """Input that cannot be read, and where. `position` is None if the file as a whole is meant."""

    def __init__(self, message: str, position: Position | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


class Problem(NamedTuple):
    """Something in a document that can be read, but should be written differently."""

    steps: Steps
    position: Position
    message: str


class Document(NamedTuple):
    """A document of a file: its value as JSON, and the positions of everything in it."""

    value: object
    spot: Spot
    problems: tuple[Problem, ...] = ()
    remarks: tuple[Problem, ...] = ()
    """What is valid, but was probably meant in another way than YAML reads it."""


def path_of(steps: Iterable[Step], at: Path | None = None) -> Path:
    """The steps as a field path from `at` on: names with dots, entries and keys that are no plain names in brackets."""
    path = at or Path.root()
    for step in steps:
        if isinstance(step, int):
            path = path.index(step)
        else:
            path = path.child(step) if _PLAIN_NAME.fullmatch(step) else path.key(step)
    return path


def descend(spot: Spot, steps: Iterable[Step]) -> Spot:
    """The spot at the steps, or the nearest parent that exists."""
    for step in steps:
        below = spot.child(step)
        if below is None:
            return spot
        spot = below
    return spot


def find(spot: Spot, path: Path) -> tuple[Spot, bool]:
    """The spot of a path as written below `spot`, and whether it is there; else its nearest parent."""
    for text in _written(path):
        below = _child(spot, text)
        if below is None:
            return spot, False
        spot = below
    return spot, True


_PLAIN_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_-]*")
_ENTRY: Final = re.compile(r"\.(.*)\[([0-9]+)\]", re.DOTALL)


def _written(path: Path) -> list[str]:
    steps: list[str] = []
    at: Path | None = path
    while at is not None:
        if at.written_step:
            steps.append(at.written_step)
        at = at.parent
    return steps[::-1]


def _child(spot: Spot, text: str) -> Spot | None:
    """One step of a path, which may be `.name`, `[3]`, `[key]` or `.name[3]`."""
    if text.startswith("["):
        return _bracketed(spot, text[1:-1])
    below = spot.child(text[1:])
    if below is None:
        entry = _ENTRY.fullmatch(text)
        named = spot.child(entry[1]) if entry else None
        return named.child(int(entry[2])) if entry and named else None
    return below


def _bracketed(spot: Spot, inner: str) -> Spot | None:
    if inner.isascii() and inner.isdigit():
        entry = spot.child(int(inner))
        if entry is not None:
            return entry
    shortened = (
        # a map key that a path shows shortened in the middle
        key
        for key in spot.steps()
        if isinstance(key, str) and Path.root().key(key).written == f"[{inner}]"
    )
    return spot.child(inner) or spot.child(next(shortened, inner))
