"""Untrusted JSON to values: a cursor that turns wrong types into field errors and never raises.

What is missing or null reads as Go's zero value, as in the API server. Whether a value is *right* is asked in
`validation`.

JSON that the fast decoder does not take gets a second look, so that no object is missed by a corner of the format: an
API server passes on what it keeps raw, such as a driver's opaque parameters and managedFields, nested as deeply as
10 KiB allow, with halves of surrogate pairs, bytes that are no UTF-8, and numbers of thousands of digits. Such a part
is none of ours, but it stands in the same review, list or event (ADR 5).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sized
from datetime import datetime
from typing import Final, TypeAlias

import msgspec

from webhook.api.field import JSON, FieldError, Path, outline, too_many, type_invalid
from webhook.api.meta import A_TIME, ObjectMeta, parse_time

_Errors: TypeAlias = list[FieldError]
INT64: Final = range(-(2**63), 2**63)
MAX_ENTRIES: Final = 4096
"""Entries of a list that are read: many times what any limit allows, and few enough to be read at once."""
MAX_TYPE_ERRORS: Final = 100
"""Further type errors in an object are dropped: a hundred are enough to see what is wrong."""


class Reader(msgspec.Struct, eq=False, gc=False):
    """A JSON object under a cursor.

    Getters return the value or its zero; a value of another type is noted in `errors`, which all readers of one
    object share, and reads as zero. The path is built only on demand.
    """

    raw: dict[str, JSON]
    errors: _Errors
    _parent: Reader | Path | None = None
    _step: str = ""

    @classmethod
    def of(cls, value: JSON, errors: list[FieldError], path: Path | None = None) -> Reader:
        """A reader at the root of an object; anything but a JSON object is an error and reads as empty."""
        if isinstance(value, dict):
            return cls(value, errors, path)
        reader = cls({}, errors, path)
        reader._no_object(value)
        return reader

    @property
    def path(self) -> Path:
        """Where this object stands, as written in the manifest."""
        parent = self._parent
        if parent is None:
            return Path.root()
        base = parent if isinstance(parent, Path) else parent.path
        return Path(base, self._step) if self._step else base

    def wrong(self, name: str, expected: str) -> None:
        """Note that the field has a value of another type than `expected` says."""
        self._note(lambda: type_invalid(self.path.child(name), outline(self.raw[name]), expected))

    def _no_object(self, value: JSON) -> None:
        """Note that what stands here is no object, so that this reader has nothing to read."""
        self._note(lambda: type_invalid(self.path, outline(value), "an object"))

    def _note(self, error: Callable[[], FieldError]) -> None:
        """Record an error; past MAX_TYPE_ERRORS it is not even built."""
        if len(self.errors) < MAX_TYPE_ERRORS:
            self.errors.append(error())

    def has(self, name: str) -> bool:
        """Whether the field is there with a value other than null."""
        return self.raw.get(name) is not None

    def text(self, name: str) -> str:
        """A string; missing and null read as empty."""
        value = self.raw.get(name)
        if value.__class__ is str:
            return value
        if value is not None:
            self.wrong(name, "a string")
        return ""

    def optional_text(self, name: str) -> str | None:
        """A string behind a pointer: missing and empty differ (R-6)."""
        return self.text(name) if self.has(name) else None

    def integer(self, name: str) -> int | None:
        """A 64-bit integer, or None. `true` is not a number, and neither is 1.5; 1.0 is not either, as in Go."""
        value = self.raw.get(name)
        if value is None or (value.__class__ is int and value in INT64):
            return value
        self.wrong(name, "a 64-bit integer")
        return None

    def boolean(self, name: str) -> bool | None:
        """`true`, `false` or None."""
        value = self.raw.get(name)
        if value is None or value is True or value is False:
            return value
        self.wrong(name, "true or false")
        return None

    def time(self, name: str) -> datetime | None:
        """An RFC 3339 time, or None. The empty string is an error, null is not (T-9)."""
        value = self.raw.get(name)
        if value is None:
            return None
        if value.__class__ is str:
            time = parse_time(value)
            if time is not None:
                return time
        self.wrong(name, A_TIME)
        return None

    def child(self, name: str) -> Reader | None:
        """A nested object, or None if it is missing."""
        value = self.raw.get(name)
        if value.__class__ is dict:
            return Reader(value, self.errors, self, f".{name}")
        if value is not None:
            self.wrong(name, "an object")
        return None

    def child_or_empty(self, name: str) -> Reader:
        """A nested object; a missing one reads as empty, as Go's structs without a pointer do."""
        return self.child(name) or Reader({}, self.errors, self, f".{name}")

    def list(self, name: str) -> list[JSON]:
        """A list as it stands; missing and null read as empty."""
        value = self.raw.get(name)
        if value.__class__ is list:
            if len(value) <= MAX_ENTRIES:
                return value
            self._too_long(name, value)
        elif value is not None:
            self.wrong(name, "a list")
        return []

    def _too_long(self, name: str, value: Sized) -> None:
        # Apart from `list`, as a lambda there would slow down each of its calls.
        self._note(lambda: too_many(self.path.child(name), len(value), MAX_ENTRIES))

    def each(self, name: str) -> Iterator[Reader]:
        """The objects of a list, in order."""
        for position in range(len(self.list(name))):
            yield self.entry(name, position)

    def entry(self, name: str, position: int) -> Reader:
        """One object of a list. A null entry reads as an empty object, as in Go."""
        value = self.raw[name][position]
        step = f".{name}[{position}]"
        if value.__class__ is dict:
            return Reader(value, self.errors, self, step)
        reader = Reader({}, self.errors, self, step)
        if value is not None:
            reader._no_object(value)
        return reader

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        values = self.list(name)
        for position, value in enumerate(values):
            if value.__class__ is not str and len(self.errors) < MAX_TYPE_ERRORS:
                self.errors.append(type_invalid(self.path.child(name).index(position), outline(value), "a string"))
        return tuple(value for value in values if value.__class__ is str)

    def map(self, name: str) -> Mapping[str, JSON]:
        """A map with free keys; missing and null read as empty."""
        value = self.raw.get(name)
        if value.__class__ is dict:
            return value
        if value is not None:
            self.wrong(name, "an object")
        return {}

    def text_map(self, name: str) -> Mapping[str, str]:
        """A map of strings, such as annotations."""
        values = self.map(name)
        if not values:
            return {}
        for key, value in values.items():
            if value.__class__ is not str and value is not None and len(self.errors) < MAX_TYPE_ERRORS:
                self.errors.append(type_invalid(self.path.child(name).key(key), outline(value), "a string"))
        return {key: value if value.__class__ is str else "" for key, value in values.items()}

    def entries(self, name: str) -> Iterator[tuple[str, Reader]]:
        """The objects of a map with free keys."""
        for key, value in self.map(name).items():
            path = self.path.child(name).key(key)
            yield key, Reader.of({} if value is None else value, self.errors, path)

    def meta(self) -> ObjectMeta:
        """The object's `metadata`."""
        raw = self.raw.get("metadata")
        if raw is None:
            return ObjectMeta()
        try:
            return msgspec.convert(raw, ObjectMeta)
        except (msgspec.ValidationError, UnicodeError):
            # A null, which reads as empty, or a field of the wrong type, which has a path.
            meta = self.child_or_empty("metadata")
        return ObjectMeta(
            meta.text("name"),
            meta.text("generateName"),
            meta.text("namespace"),
            meta.text("uid"),
            meta.text("resourceVersion"),
            meta.text_map("annotations"),
        )


# --- what the fast decoder does not take -----------------------------------------------------------

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the fast decoder raises for what it does not take: no JSON, of another shape, or nested too deeply."""
DEPTH_MAX: Final = 64
"""Nothing that is judged lies deeper; what does becomes null."""
_DIGITS_MAX: Final = 1_000
"""Python and the fast decoder both read longer numbers; past some thousand digits neither does."""
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?P<end>"?)|[\[\]{}]', re.DOTALL)
"""Never gives back what it took, and takes a string without an end as well: so it reads no byte twice."""
_BRACKET: Final = re.compile(rb"[\[\]{}]")


def salvaged(body: bytes | bytearray) -> bytes | None:
    """The body as strict JSON with its deep parts cut out and what is no text replaced; None if it is no JSON."""
    try:
        value = json.loads(_pruned(bytes(body)).decode(errors="replace"), parse_float=_finite, parse_int=_whole)
    except (ValueError, RecursionError):
        return None
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _whole(text: str) -> int | None:
    return int(text) if len(text) <= _DIGITS_MAX else None


def _pruned(body: bytes) -> bytes:
    kept: list[bytes] = []
    depth, start = 0, 0
    for token in _brackets(body):
        text = token[0]
        if text in b"[{":
            depth += 1
            if depth == DEPTH_MAX + 1:
                kept.append(body[start : token.start()] + b"null")
        elif text in b"]}":
            if depth == DEPTH_MAX + 1:
                start = token.end()
            depth -= 1
    if depth > DEPTH_MAX:
        return b"".join(kept)
    return b"".join(kept) + body[start:]


def _brackets(body: bytes) -> Iterator[re.Match[bytes]]:
    """The brackets outside of strings; a quote without another one to end its string is no string's beginning."""
    for token in _TOKEN.finditer(body):
        if token["end"] is None:
            yield token
        elif not token["end"]:
            # Read from there, each later quote is one that a backslash stands before: none of them ends a string.
            yield from _BRACKET.finditer(body, token.start())
            return
