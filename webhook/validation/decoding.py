"""What an API server cannot decode: a value of another type than its field has, anywhere in an object.

A server answers these with 400 before any rule is asked. Null reads as missing everywhere, as in Go. The fields come
from `api.schema`; those that it has no type for, and all that are unknown, are left to others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.api.field import Path, outline, type_invalid
from webhook.api.meta import parse_time
from webhook.api.schema import held_by, type_of
from webhook.validation.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.api.field import JSON, FieldError
    from webhook.api.meta import GroupVersionKind
    from webhook.api.schema import Reference
    from webhook.validation.releases import Release

_INT64: Final = range(-(2**63), 2**63)
_INT32: Final = range(-(2**31), 2**31)


def decoding_errors(value: JSON, kind: GroupVersionKind, release: Release) -> Iterator[FieldError]:
    """An error for each value of a wrong type, at the path as written."""
    root = type_of(kind, release.minor)
    if root is not None:
        yield from _of_type(value, root, Path.root(), release.minor)


def _of_type(value: JSON, type_name: str, path: Path, minor: int) -> Iterator[FieldError]:
    """The errors of a value that should be an object of a type with fields."""
    if value is None:
        return
    if not isinstance(value, dict):
        yield type_invalid(path, outline(value), "an object")
        return
    fields = held_by(type_name, minor)
    for name, entry in value.items():
        held = fields.get(name)
        if held is not None and entry is not None:
            yield from _of_field(entry, held, path, name, minor)


def _of_field(value: JSON, held: Reference, path: Path, name: str, minor: int) -> Iterator[FieldError]:
    if not held.container:
        yield from _one(value, held, path, f".{name}", minor)
    elif held.container == "[":
        if not isinstance(value, list):
            yield type_invalid(path.child(name), outline(value), "a list")
            return
        at = path.child(name) if held.has_fields else None
        for position, entry in enumerate(value):
            yield from _one(entry, held, at or path, f"[{position}]" if at else f".{name}[{position}]", minor)
    else:
        if not isinstance(value, dict):
            yield type_invalid(path.child(name), outline(value), "an object")
            return
        for key, entry in value.items():
            yield from _entry(entry, held, path.child(name), key, minor)


def _entry(value: JSON, held: Reference, path: Path, key: str, minor: int) -> Iterator[FieldError]:
    if held.has_fields:
        yield from _of_type(value, held.type, path.key(key), minor)
    elif value is not None and not _SCALARS[held.type][0](value):
        yield type_invalid(path.key(key), outline(value), _SCALARS[held.type][1])


def _one(value: JSON, held: Reference, path: Path, step: str, minor: int) -> Iterator[FieldError]:
    """One value, which stands a step below the path; the path is built only where it is needed."""
    if held.has_fields:
        yield from _of_type(value, held.type, Path(path, step), minor)
    elif value is not None and not _SCALARS[held.type][0](value):
        yield type_invalid(Path(path, step), outline(value), _SCALARS[held.type][1])


def _is_text(value: JSON) -> bool:
    return value.__class__ is str


def _is_boolean(value: JSON) -> bool:
    return value is True or value is False


def _is_int64(value: JSON) -> bool:
    # `true` is no number, and neither 1.5 nor 1.0 is one for Go.
    return value.__class__ is int and value in _INT64


def _is_int32(value: JSON) -> bool:
    return value.__class__ is int and value in _INT32


def _is_quantity(value: JSON) -> bool:
    return parse_quantity(value) is not None


def _is_time(value: JSON) -> bool:
    return value.__class__ is str and parse_time(value) is not None


def _is_any(value: JSON) -> bool:  # noqa: ARG001 -- one of many
    return True


_SCALARS: Final[dict[str, tuple[Callable[[JSON], bool], str]]] = {
    "string": (_is_text, "a string"),
    "boolean": (_is_boolean, "true or false"),
    "int64": (_is_int64, "a 64-bit integer"),
    "int32": (_is_int32, "a 32-bit integer"),
    "quantity": (_is_quantity, 'a quantity like "500m", "16Gi" or 4'),
    "time": (_is_time, 'a time like "2026-01-31T12:00:00Z" (RFC 3339)'),
    "raw": (_is_any, "JSON"),
}
