"""Hints for errors that come from YAML reading an unquoted text as something else than it looks like.

Only what was read matters: a field that may be a boolean is left alone. Which texts are read as what is `scalars`.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Final

from webhook.api.field import ErrorType, FieldError, Path
from webhook.api.taints import EQUAL, EXISTS, NO_EXECUTE, NO_SCHEDULE, NONE
from webhook.files.spots import Spot, find

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
    """The error, with a hint if it comes from how YAML reads an unquoted text. `spot` is that of the path `at`."""
    if error.type not in (ErrorType.TYPE_INVALID, ErrorType.NOT_SUPPORTED):
        return error
    if isinstance(error.bad_value, str):
        hint = _sexagesimal(error) if error.type is ErrorType.TYPE_INVALID else ""
    elif error.bad_value.__class__ in _KINDS:
        place, found = find(spot, error.path if at is None else _below(error.path, at))
        hint = _hint(error, place.plain) if found and place.plain is not None else ""
    else:
        hint = ""
    return replace(error, detail=f"{error.detail}; {hint}") if hint else error


def _hint(error: FieldError, plain: str) -> str:
    """What the unquoted text was read as, and how to write it if the text would be valid."""
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
    """Other YAML 1.1 parsers read `1:30` as 90; kubectl does not."""
    value = str(error.bad_value)
    if not error.detail.endswith("number") or not _SEXAGESIMAL.fullmatch(value):
        return ""
    number = 0
    for part in value.split(":"):
        number = number * 60 + int(part)
    return f"{value} is text here, as kubectl reads it: write {number}"


def _below(path: Path, at: Path) -> Path:
    """The rest of a path that leads through `at`."""
    steps = []
    step: Path | None = path
    while step is not None and step is not at:
        steps.append(step)
        step = step.parent
    rest = Path.root()
    for each in reversed(steps):
        rest = Path(rest, each.normal, each.written_step)
    return rest
