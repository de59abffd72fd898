"""JSON decoded in short steps, so that a large review does not hold the interpreter for as long as it takes to decode.

One call of the decoder keeps every other thread waiting until it returns: 10 ms and more for 2 MB. A large value is
split by the same decoder into the values that it holds, which are copied as they stand, and those are decoded in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.api.lenient_json import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.api.field import JSON

STEP_BYTES: Final = 64 * 1024
"""What is decoded in one call: about a third of a millisecond."""
_DEPTH_MAX: Final = 12
"""Values are split down to here, three levels below the longest lists of a template: each level reads the text again,
so a text that is nested on purpose would otherwise cost its size times its depth."""

_whole: Final = msgspec.json.Decoder()
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items: Final = msgspec.json.Decoder(list[msgspec.Raw])


def decode_stepwise(
    text: bytes | bytearray, *, step_bytes: int = STEP_BYTES, rest: Callable[[], None] | None = None
) -> JSON:
    """The value of a JSON text, as one call of the decoder gives it. Raises what that call raises.

    `rest` is called between steps, and is where other threads get their time.
    Only the values of objects and lists are split, so a long string is still one step; so is each look at a large value
    to find what it holds, which takes a tenth of the time that decoding takes.
    """
    try:
        return _decoded(text, step_bytes, rest or _no_rest, 0)
    except UNREADABLE:
        # Positions in an error are those in the whole text.
        return _whole.decode(text)


def _decoded(text: bytes | bytearray | msgspec.Raw, step_bytes: int, rest: Callable[[], None], depth: int) -> JSON:
    rest()
    first = bytes(memoryview(text)[:1])
    if len(text) <= step_bytes or depth == _DEPTH_MAX or first not in {b"{", b"["}:
        return _whole.decode(text)
    if first == b"{":
        members = _members.decode(text)
        return {name: _decoded(value, step_bytes, rest, depth + 1) for name, value in members.items()}
    values: list[JSON] = []
    for group in _groups(_items.decode(text), step_bytes):
        if len(group) > 1:
            rest()
            values += _whole.decode(b"[" + b",".join(group) + b"]")
        else:
            values.append(_decoded(group[0], step_bytes, rest, depth + 1))
    return values


def _groups(items: list[msgspec.Raw], step_bytes: int) -> Iterator[list[msgspec.Raw]]:
    """Neighbours that are small enough for one step together; an item that is not is alone."""
    group: list[msgspec.Raw] = []
    size = 0
    for item in items:
        if group and size + len(item) > step_bytes:
            yield group
            group, size = [], 0
        group.append(item)
        size += len(item)
    if group:
        yield group


def _no_rest() -> None:
    """For callers with no other work to let in."""
