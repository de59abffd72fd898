"""A second look at JSON that the fast decoder does not take, so that no object is missed by a corner of the format.

An API server passes on what it keeps raw, such as a driver's opaque parameters and managedFields: nested as deeply as
10 KiB allow, with halves of surrogate pairs, bytes that are no UTF-8, and numbers of thousands of digits. Such a part
is none of ours, but it stands in the same review, list or event (ADR 5).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Final

import msgspec

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
