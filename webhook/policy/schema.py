"""The JSON Schema of the policy document, and its violations as field errors. How fields fit together: `checks`.

`schema.json` ships with the package and is published as docs/policy.schema.json. Two keywords of it are ours, and mean
nothing to others: `x-must` is the text for a value that has the wrong form, `x-misplaced` says of fields that people
look for in an object why it has none.
"""

from __future__ import annotations

import math
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Final, NamedTuple, Protocol

import msgspec

from webhook.api.field import (
    JSON,
    ErrorType,
    FieldError,
    Path,
    forbidden,
    invalid,
    not_supported,
    outline,
    required,
    too_many,
)

Check = Callable[[str], None]
Schema = dict[str, JSON]

MAX_ERRORS: Final = 100
"""Further errors are not reported: a hundred are usually one mistake made a hundred times."""
MAX_VALUES: Final = 100_000
"""Objects, lists, texts and numbers in a document: many times what people write, and checked within seconds."""
MAX_DEPTH: Final = 16
"""Twice what any field needs."""
PHASE: Final = "policy"
_SIMILARITY: Final = 0.7
_MAPS: Final = frozenset({"labels"})
"""Fields whose object has keys rather than fields."""
_WORDS: Final = {
    "object": "an object",
    "array": "a list",
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


class _SchemaError(Protocol):
    """What is used of jsonschema's ValidationError."""

    validator: str
    validator_value: JSON
    instance: JSON
    schema: Schema
    absolute_path: Iterable[str | int]


class _Validator(Protocol):
    def iter_errors(self, instance: JSON) -> Iterator[_SchemaError]: ...


class _Lists(NamedTuple):
    """The schema in pieces: the document without the entries of its long lists, and those by the list's name."""

    document: _Validator
    entries: Mapping[str, _Validator]
    maxima: Mapping[str, int]


@cache
def schema() -> Schema:
    """The document's schema as it is published."""
    content = pkgutil.get_data(__package__, "schema.json")  # part of the code, however it is packaged
    if content is None:
        raise FileNotFoundError("schema.json")
    loaded: Schema = msgspec.json.decode(content)
    return loaded


def schema_errors(document: dict[str, JSON], at: Path, check: Check) -> list[FieldError]:
    """The first hundred violations of the schema, each at its path. `check` is called between entries and may raise."""
    pieces = _pieces()
    bounds = list(_bound_errors(document, at, pieces.maxima))
    if bounds:
        return bounds
    errors: dict[str, FieldError] = {}
    for found in _found(document, at, pieces, check):
        errors.setdefault(str(found), found)
        if len(errors) == MAX_ERRORS:
            break
    return list(errors.values())


def _found(document: dict[str, JSON], at: Path, pieces: _Lists, check: Check) -> Iterator[FieldError]:
    for error in pieces.document.iter_errors(document):
        yield from _translated(error, at)
    for name, validator in pieces.entries.items():
        values = document.get(name)
        if not isinstance(values, list):
            continue
        for position, entry in enumerate(values):
            check(PHASE)
            for error in validator.iter_errors(entry):
                yield from _translated(error, at.child(name).index(position))


def _bound_errors(document: dict[str, JSON], at: Path, maxima: Mapping[str, int]) -> Iterator[FieldError]:
    """Errors for documents that are too large to check entry by entry."""
    for name, maximum in maxima.items():
        values = document.get(name)
        if isinstance(values, list) and len(values) > maximum:
            yield too_many(at.child(name), len(values), maximum)
    if not _is_bounded(document):
        yield forbidden(at, f"must have at most {MAX_VALUES} values, nested at most {MAX_DEPTH} deep")


def _is_bounded(document: JSON) -> bool:
    """Whether the document is small and flat enough to check; decided without recursion and without reading it all."""
    level, seen = [document], 0
    for _ in range(MAX_DEPTH):
        below: list[JSON] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, list):
                below += value
            if seen + len(below) > MAX_VALUES:
                return False
        if not below:
            return True
        seen += len(below)
        level = below
    return False


# --- jsonschema ---------------------------------------------------------------------------------


@cache
def _pieces() -> _Lists:
    whole = _inlined(schema(), schema()["$defs"])
    del whole["$defs"]
    long = {
        name: field for name, field in whole["properties"].items() if field.get("items", {}).get("type") == "object"
    }
    make = _validator_class()
    entries = {name: make(field["items"]) for name, field in long.items()}
    short = {name: {key: value for key, value in field.items() if key != "items"} for name, field in long.items()}
    document = make({**whole, "properties": whole["properties"] | short})
    return _Lists(document, entries, {name: field["maxItems"] for name, field in long.items()})


def _inlined(value: JSON, definitions: Schema) -> JSON:
    """The schema without references: following one for each value takes longer than all other checks."""
    if isinstance(value, list):
        return [_inlined(entry, definitions) for entry in value]
    if not isinstance(value, dict):
        return value
    own = {key: _inlined(entry, definitions) for key, entry in value.items() if key != "$ref"}
    if "$ref" not in value:
        return own
    return _inlined(definitions[value["$ref"].removeprefix("#/$defs/")], definitions) | own


@cache
def _validator_class() -> Callable[[Schema], _Validator]:
    # Importing it takes longer than importing all of our modules, and only a policy document needs it.
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415

    # As a Reader reads integers: neither true nor 1.0.
    of_numbers = {"integer": lambda _, value: value.__class__ is int, "number": _is_number}
    types = Draft202012Validator.TYPE_CHECKER.redefine_many(of_numbers)
    extended: Callable[[Schema], _Validator] = validators.extend(
        Draft202012Validator, {"pattern": _mismatches}, type_checker=types
    )
    return extended


def _is_number(_: object, value: JSON) -> bool:
    return value.__class__ is int or (value.__class__ is float and math.isfinite(value))


def _mismatches(_validator: object, pattern: str, instance: JSON, _schema: Schema) -> Iterator[Exception]:
    """As jsonschema's own, but `$` is the end of the text and not the place before a last line break."""
    if instance.__class__ is str and not _compiled(pattern).match(instance):
        from jsonschema import ValidationError  # noqa: PLC0415 -- see _validator_class

        yield ValidationError(pattern)


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.removesuffix("$") + r"\Z", re.DOTALL)


# --- in our words -------------------------------------------------------------------------------


def _translated(error: _SchemaError, at: Path) -> Iterator[FieldError]:
    path = _path(at, error.absolute_path)
    value, expected, rules = error.instance, error.validator_value, error.schema
    if error.validator == "required":
        yield from (required(path.child(name)) for name in expected if name not in value)
    elif error.validator == "additionalProperties":
        unknown = sorted(name for name in value if name not in rules["properties"])
        yield from (forbidden(path.child(name), _unknown(name, value, rules)) for name in unknown)
    elif error.validator == "pattern":
        if value or "minLength" not in rules:  # minLength has reported an empty text already
            yield invalid(path, value, rules["x-must"])
    elif error.validator == "type" and "enum" not in rules:
        yield FieldError(ErrorType.TYPE_INVALID, path, outline(value), _type_words(expected, rules))
    elif error.validator == "enum":
        yield not_supported(path, outline(value), [word for word in expected if isinstance(word, str)])
    elif error.validator == "minLength" and value and not _compiled(rules.get("pattern", ".*")).match(value):
        return  # its pattern says more
    elif error.validator != "type":
        yield _PLAIN[error.validator](path, value, expected)


_PLAIN: Final[Mapping[str, Callable[[Path, JSON, JSON], FieldError]]] = {
    "maxItems": lambda path, value, most: too_many(path, len(value), most),
    "minItems": lambda path, _, __: required(path, "must have at least one entry"),
    "maxLength": lambda path, _, most: FieldError(
        ErrorType.TOO_LONG, path, "", f"may not be more than {most} characters"
    ),
    "minLength": lambda path, value, least: (
        invalid(path, value, f"must have at least {least} characters") if value else required(path, "must not be empty")
    ),
    "maxProperties": lambda path, value, most: too_many(path, len(value), most),
    "minProperties": lambda path, _, __: required(path, "must not be empty"),
    "minimum": lambda path, value, least: invalid(path, value, f"must be at least {least}"),
    "exclusiveMinimum": lambda path, value, bound: invalid(path, value, f"must be greater than {bound}"),
    "maximum": lambda path, value, most: invalid(path, value, f"must be at most {most}"),
}
"""Errors of keywords that need no more than their value. A test compares it with the keywords that schema.json has."""


def _type_words(expected: JSON, rules: Schema) -> str:
    if "string" in expected and str(rules.get("x-must", "")).startswith("must be "):
        return str(rules["x-must"])
    names = [expected] if isinstance(expected, str) else expected
    return f"must be {' or '.join(_WORDS[name] for name in names if name != 'null')}"


def _path(at: Path, steps: Iterable[str | int]) -> Path:
    """A path in our notation: fields by their names, entries of a map in brackets."""
    before: str | int = ""
    for step in steps:
        if isinstance(step, int):
            at = at.index(step)
        elif before in _MAPS:
            at = at.key(step)
        else:
            at = at.child(step)
        before = step
    return at


def _unknown(name: str, value: dict[str, JSON], rules: Schema) -> str:
    """Why the field is not one, or what it may have been meant to be called."""
    from difflib import get_close_matches  # noqa: PLC0415 -- only for mistakes

    misplaced = rules.get("x-misplaced", {})
    if name in misplaced:
        return f"unknown field: {misplaced[name]}"
    fields: Schema = rules["properties"]
    close = get_close_matches(name, [field for field in fields if field not in value], 1, _SIMILARITY)
    close += [f"{field}.{name}" for field, held in fields.items() if name in held.get("properties", {})]
    return f'unknown field, did you mean "{close[0]}"?' if close else "unknown field"
