"""Answers of an API server: JSON as values, also where one object in it holds what the fast decoder does not take.

A server keeps some parts of objects as they were sent: a driver's opaque parameters, managedFields. A tenant who fills
them with thousands of levels or half a surrogate pair must not make a whole list, or the process, fail (ADR 5).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from multidict import CIMultiDictProxy

from webhook.api.decode import UNREADABLE, salvaged
from webhook.cluster.client.errors import Unavailable

T = TypeVar("T")

_LARGE_BYTES: Final = 64 * 1024
"""The second look takes 0.1 s for a megabyte; from here on it is taken in a thread."""

objects: Final = msgspec.json.Decoder(dict[str, Any])
"""Any object."""


def decode(decoder: msgspec.json.Decoder[T], text: bytes | msgspec.Raw) -> T:
    """The value of a text. Raises DecodeError for what is no JSON or has another shape.

    Parts that the decoder does not take are cut out or replaced (`api.decode`); none of them is read here.
    """
    try:
        return decoder.decode(text)
    except UNREADABLE as error:
        return _decode_again(decoder, salvaged(bytes(text)), error)


async def decode_large(decoder: msgspec.json.Decoder[T], text: bytes) -> T:
    """The same for a text of any size, without holding the event loop for a second look."""
    try:
        return decoder.decode(text)
    except UNREADABLE as error:
        again = salvaged(text) if len(text) < _LARGE_BYTES else await asyncio.to_thread(salvaged, text)
        return _decode_again(decoder, again, error)


def _decode_again(decoder: msgspec.json.Decoder[T], text: bytes | None, error: Exception) -> T:
    if text is None:
        raise msgspec.DecodeError(str(error)) from None
    return decoder.decode(text)


def read_answer(decoder: msgspec.json.Decoder[T], path: str, answer: bytes | msgspec.Raw) -> T:
    """The value of an answer to a GET of that path. Raises Unavailable if it is none."""
    try:
        return decode(decoder, answer)
    except msgspec.DecodeError as error:
        raise unreadable(path, error) from None


def unreadable(path: str, error: msgspec.DecodeError) -> Unavailable:
    """The error of an answer to a GET of that path that has another shape."""
    return Unavailable(f"GET {path}: cannot be read: {error}")


_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


class RawResponse(NamedTuple):
    """An API server's answer, granted or not, in full: what `doctor` looks at."""

    code: int
    body: Mapping[str, Any]
    """The object, or a Status; empty if the body is not JSON."""
    warnings: tuple[str, ...]
    date: datetime | None
    """The server's clock."""

    @classmethod
    def of(cls, code: int, headers: CIMultiDictProxy[str], body: bytes) -> RawResponse:
        """From an HTTP response; a body that is not JSON becomes the message of a Status."""
        texts = [text for header in headers.getall("Warning", []) for text in _WARNING.findall(header)]
        warnings = tuple([re.sub(r"\\(.)", r"\1", text) for text in texts])
        try:
            found = decode(objects, body)
        except msgspec.DecodeError:
            found = {"message": body[:1024].decode(errors="replace").strip()}
        try:
            date = parsedate_to_datetime(headers.get("Date", "")).astimezone(UTC)
        except ValueError:
            date = None
        return cls(code, found, warnings, date)

    @property
    def granted(self) -> bool:
        """Whether the request was granted."""
        return 200 <= self.code < 300

    @property
    def message(self) -> str:
        """The message of a Status; empty if the request was granted."""
        return str(self.body.get("message") or "") if not self.granted else ""
