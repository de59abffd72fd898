"""JSON of an API server as values, also where one object in it holds what the fast decoder does not take.

A server keeps some parts of objects as they were sent: a driver's opaque parameters, managedFields. A tenant who fills
them with thousands of levels or half a surrogate pair must not make a whole list, or the process, fail (ADR 5).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar

import msgspec

from webhook.api.decode import UNREADABLE, salvaged

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
