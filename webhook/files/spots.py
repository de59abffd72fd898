"""Positions of values in a file, and how a field path finds them. Lines and columns count from 1.

An error that comes from how YAML reads an unquoted text gets a hint (`explained`). Only what was read matters: a field
that may be a boolean is left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from webhook.api.field import ErrorType, FieldError, Path
from webhook.api.taints import EQUAL, EXISTS, NO_EXECUTE, NO_SCHEDULE, NONE

Step: TypeAlias = "str | int"
Steps: TypeAlias = "tuple[Step, ...]"


class Position(NamedTuple):
    """A character of a file."""

    line: int
    column: int


class Spot:
    """The position of a value; `key_position` is None for list entries and whole documents. This one is nowhere."""

    __slots__ = ()
    plain: str | None = None
    """The unquoted text of the value, if it was read as something else than a string; else None."""

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

    def child(self, step: Step) -> Spot | None:  # noqa: ARG002 -- there is none
        """Return the field (text) or the list entry (a number) below, or None."""
        return None

    def steps(self) -> Iterable[Step]:
        """Return the steps that `child` knows."""
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
    """Return the steps as a field path from `at` on: names with dots; entries, and keys unlike names, in brackets."""
    path = at or Path.root()
    for step in steps:
        if isinstance(step, int):
            path = path.index(step)
        else:
            path = path.child(step) if _PLAIN_NAME.fullmatch(step) else path.key(step)
    return path


def descend(spot: Spot, steps: Iterable[Step]) -> Spot:
    """Return the spot at the steps, or the nearest parent that exists."""
    for step in steps:
        below = spot.child(step)
        if below is None:
            return spot
        spot = below
    return spot


def find(spot: Spot, path: Path, at: Path | None = None) -> tuple[Spot, bool]:
    """Return the spot of a path as written below `spot` (that of `at`), or its nearest parent, and if it was found."""
    texts: list[str] = []
    step: Path | None = path
    while step is not None and step is not at:
        if step.written_step:
            texts.append(step.written_step)
        step = step.parent
    for text in reversed(texts):
        below = _child(spot, text)
        if below is None:
            return spot, False
        spot = below
    return spot, True


_PLAIN_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_-]*")
_ENTRY: Final = re.compile(r"\.(.*)\[([0-9]+)\]", re.DOTALL)


def _child(spot: Spot, text: str) -> Spot | None:
    """Follow one step of a path, which may be `.name`, `[3]`, `[key]` or `.name[3]`."""
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


_NOT_TEXT: Final = tuple(
    f"must be {what}"
    for what in (
        *("an object", "a list", "a whole number", "a number", "true or false", "a 64-bit integer"),
        *("a time", "a duration", "a percentage"),
    )
)
"""How errors begin whose field is not free text: quotes would not help."""
_VALUES: Final = {"effect": (NO_SCHEDULE, NO_EXECUTE, NONE), "operator": (EQUAL, EXISTS)}
"""Fields whose text is one of a few: quotes around another one would not help."""
_KINDS: Final = {bool: "a boolean", int: "a number", float: "a number", type(None): "null"}
_SEXAGESIMAL: Final = re.compile(r"[0-9]{1,9}(:[0-5]?[0-9]){1,3}")


def explained(error: FieldError, spot: Spot, at: Path | None = None) -> FieldError:
    """Add a hint if the error comes from how YAML reads an unquoted text. `spot` is that of the path `at`."""
    if error.type not in (ErrorType.TYPE_INVALID, ErrorType.NOT_SUPPORTED):
        return error
    if isinstance(error.bad_value, str):
        hint = _sexagesimal(error) if error.type is ErrorType.TYPE_INVALID else ""
    elif error.bad_value.__class__ in _KINDS:
        place, found = find(spot, error.path, at)
        hint = _hint(error, place.plain) if found and place.plain is not None else ""
    else:
        hint = ""
    return replace(error, detail=f"{error.detail}; {hint}") if hint else error


def _hint(error: FieldError, plain: str) -> str:
    """Tell how the unquoted text was read, and how to write it if the text would be valid."""
    shown = json.dumps(error.bad_value)
    if error.type is ErrorType.NOT_SUPPORTED:
        keeps = json.dumps(plain) in error.detail
    else:
        keeps = not error.detail.startswith(_NOT_TEXT)
    if keeps and error.type is ErrorType.TYPE_INVALID and plain:
        values = _VALUES.get(str(error.path).rpartition(".")[2])
        if values is not None and plain not in values:
            return f"YAML reads an unquoted {plain} as {shown}; supported values: {', '.join(map(json.dumps, values))}"
    if not plain:
        return 'YAML reads an empty value as null: leave the field out, or write ""' if keeps else ""
    if not keeps:
        return f"YAML reads an unquoted {plain} as {shown}" if plain != shown else ""
    read = shown if plain != shown else _KINDS[error.bad_value.__class__]
    return f'YAML reads an unquoted {plain} as {read}: write "{plain}" in quotes'


def _sexagesimal(error: FieldError) -> str:
    """Read `1:30` as 90, as other YAML 1.1 parsers do; kubectl does not."""
    value = str(error.bad_value)
    if not error.detail.endswith("number") or not _SEXAGESIMAL.fullmatch(value):
        return ""
    number = 0
    for part in value.split(":"):
        number = number * 60 + int(part)
    return f"{value} is text here, as kubectl reads it: write {number}"
