"""A minimal JSON Patch (RFC 6902) that sets and removes values, and makes the parents they need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from webhook.api.field import JSON

Pointer: TypeAlias = "tuple[str | int, ...]"

REMOVED: Final = object()
"""As a value: take away what the pointer shows, which must be there."""


def escape(step: str | int) -> str:
    """One step of a JSON Pointer (RFC 6901)."""
    return str(step).replace("~", "~0").replace("/", "~1")


def render(pointer: Pointer) -> str:
    """The pointer as text."""
    return "".join(f"/{escape(step)}" for step in pointer)


def patch_for(document: JSON, edits: Iterable[tuple[Pointer, JSON]]) -> tuple[dict[str, JSON], ...]:
    """Operations that set each pointer to its value.

    Only the value itself is touched: `add` also replaces what is there. A missing object on the way is added
    first, empty, and once, however many edits need it; a null entry of a list is replaced, as `add` would insert.
    Steps through lists must exist: edits come from what was read in them. Only a list's next entry may be new.
    """
    operations: list[dict[str, JSON]] = []
    made: set[Pointer] = set()
    for pointer, value in edits:
        at = document
        for depth, step in enumerate(pointer[:-1]):
            parent = pointer[: depth + 1]
            at = at[step] if isinstance(step, int) else at.get(step)
            if at is None:
                if parent not in made:
                    made.add(parent)
                    operation = "replace" if isinstance(step, int) else "add"
                    operations.append({"op": operation, "path": render(parent), "value": {}})
                at = {}
        if value is REMOVED:
            operations.append({"op": "remove", "path": render(pointer)})
        else:
            operations.append({"op": "add", "path": render(pointer), "value": value})
    return tuple(operations)


def apply_patch(document: JSON, operations: Iterable[dict[str, JSON]]) -> JSON:
    """The document with the operations of `patch_for` carried out; the original is left alone."""
    for operation in operations:
        steps = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
        document = _with(document, steps, operation.get("value", REMOVED))
    return document


def _with(document: JSON, steps: list[str], value: JSON) -> JSON:
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(document, list):
        copy, position = list(document), int(step)
        if position == len(copy):
            copy.append(value)
        else:
            copy[position] = _with(copy[position], rest, value)
        return copy
    if value is REMOVED and not rest:
        return {key: entry for key, entry in document.items() if key != step}
    return {**document, step: _with(document.get(step), rest, value)}
