"""JSON to values with positions. Positions are computed on demand: dumps are large, findings rare."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from math import isfinite
from typing import Any, Final, NoReturn

from webhook.files.spots import Document, Position, Problem, Spot, Step, Unreadable
from webhook.files.yaml_documents import as_json_number, check_depth, too_deep

_BLANK: Final = re.compile(r"[ \t\n\r]*")
_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"(?P<colon>[ \t\n\r]*:)?|[\[\]{},]')
_CONSTANT: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|(-?Infinity|NaN)')
_MAYBE_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_AFTER_COMMA: Final = {
    ("Expecting property name enclosed in double quotes", "}"): "object",
    ("Expecting value", "]"): "array",
}
"""What older decoders say at the closing bracket, where there may be a comma before it."""
_decode: Final = json.JSONDecoder().raw_decode


class Lines:
    """Offsets of a text as lines and columns, and what else is found once for the whole text."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self._text))]

    @cached_property
    def with_whole_pairs(self) -> str:
        """The text with U+FFFD spelled out in place of each half of a surrogate pair; as long as before."""
        return _ESCAPE.sub(lambda match: "\\ufffd" if match[1] else match[0], self._text)

    def position(self, offset: int) -> Position:
        """Return the line and column of the character at an offset."""
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)


class JsonSpot(Spot):
    """The position of a value. Values below it are found by decoding from sibling to sibling."""

    def __init__(self, text: str, lines: Lines, offset: int, key_offset: int | None = None) -> None:
        self._text = text
        self._lines = lines
        self._offset = offset
        self._key_offset = key_offset

    @property
    def position(self) -> Position:
        """Of the value."""
        return self._lines.position(self._offset)

    @property
    def key_position(self) -> Position | None:
        """Of the key before it."""
        return None if self._key_offset is None else self._lines.position(self._key_offset)

    def child(self, step: Step) -> JsonSpot | None:
        """Return the spot one step below; of a duplicate key the last."""
        return self._children.get(step)

    def steps(self) -> Iterable[Step]:
        """Return all steps below."""
        return self._children.keys()

    @cached_property
    def _children(self) -> dict[Step, JsonSpot]:
        return dict(self._members())

    def _members(self) -> Iterator[tuple[Step, JsonSpot]]:
        text, opening = self._text, self._text[self._offset]
        if opening not in "{[":
            return
        at = _skip(text, self._offset + 1)
        number = 0
        while text[at] not in "}]":
            step: Step = number
            key_offset = None
            if opening == "{":
                key_offset = at
                step, at = _decode(text, at)
                at = _skip(text, _skip(text, at) + 1)  # the colon
            yield step, JsonSpot(text, self._lines, at, key_offset)
            _, at = _decode(text, at)
            at = _skip(text, at)
            if text[at] == ",":
                at = _skip(text, at + 1)
            number += 1


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


class _Decoder(json.JSONDecoder):
    """Remembers whether a map had a key twice, which plain decoding hides."""

    def __init__(self) -> None:
        self.duplicates = False
        super().__init__(object_pairs_hook=self._map, parse_float=_finite, parse_constant=self._constant)

    def _map(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) != len(pairs):
            self.duplicates = True
        return values

    def _constant(self, name: str) -> NoReturn:
        raise _ConstantError(name)


def _finite(text: str) -> int | float:
    number = float(text)
    if isfinite(number):
        return as_json_number(number)  # kubectl writes it again before a server reads it
    raise ValueError(f"number {text[:20]} is out of range")


class _ConstantError(ValueError):
    """NaN or an infinity, which Python's decoder accepts and JSON does not."""


class NotJSON(Unreadable):
    """The text is not JSON, but may still be YAML."""


def json_documents(text: str, lines: Lines, start: int, end: int) -> Iterator[Document]:
    """Yield the documents between two offsets of a text: JSON values one after another, as kubectl reads them.

    Half a surrogate pair reads as U+FFFD, as in Go: no UTF-8 can hold it. Raises NotJSON, or Unreadable where no
    other reading could help.
    """
    decoder = _Decoder()
    if _MAYBE_SURROGATE.search(text, start, end):
        text = lines.with_whole_pairs  # made once, however many documents have one
    at = _skip(text, start)
    while at < end:
        decoder.duplicates = False
        value, after = _value(decoder, text, lines, at)
        if value is not None:
            check_depth(value, lines.position(at))
            problems = tuple(_duplicates(text, lines, at, after)) if decoder.duplicates else ()
            yield Document(value, JsonSpot(text, lines, at), problems)
        at = _skip(text, after)


def _value(decoder: _Decoder, text: str, lines: Lines, at: int) -> tuple[Any, int]:
    try:
        return decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _not_json(error, lines) from None
    except _ConstantError as error:
        found = next((match.start(1) for match in _CONSTANT.finditer(text, at) if match[1]), at)
        raise Unreadable(f"not JSON: {error} is not a JSON value", lines.position(found)) from None
    except RecursionError:
        raise too_deep(lines.position(at)) from None
    except ValueError as error:  # a number of more digits than Python converts
        raise Unreadable(f"not JSON: {error}", lines.position(at)) from None


def _not_json(error: json.JSONDecodeError, lines: Lines) -> NotJSON:
    """Use the decoder's words; about a trailing comma those of Python 3.13, on every version: they name it."""
    before = error.doc[: error.pos].rstrip(" \t\r\n")
    ends = _AFTER_COMMA.get((error.msg, error.doc[error.pos : error.pos + 1]))
    if ends and before.endswith(","):
        message, at = f"illegal trailing comma before end of {ends}", len(before) - 1
    else:
        message, at = f"{error.msg[:1].lower()}{error.msg[1:]}", error.pos
    return NotJSON(f"not JSON: {message}", lines.position(at))


def _duplicates(text: str, lines: Lines, start: int, end: int) -> Iterator[Problem]:
    """Find the keys that a map has twice, in one pass: values may nest deep, and decoding them reads all below."""
    steps: list[Step] = []
    first: list[dict[str, int]] = []
    for match in _TOKEN.finditer(text, start, end):
        at = match.start()
        if text[at] in "[{":
            steps.append(0)
            first.append({})
        elif text[at] in "]}":
            steps.pop()
            first.pop()
        elif match["colon"]:
            key, _ = _decode(text, at)
            steps[-1] = key
            before = first[-1].setdefault(key, at)
            if before != at:
                line = lines.position(before).line
                message = f'duplicate key "{key}", already on line {line}; the last one counts'
                yield Problem(tuple(steps), lines.position(at), message)
        elif text[at] == "," and isinstance(number := steps[-1], int):
            steps[-1] = number + 1
