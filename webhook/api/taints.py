"""DeviceTaint and DeviceToleration. Source: KEP-5055; `semantics.md` T-*, L-*; `seeds.md` N-7 to N-12."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from webhook.api.decode import MAX_ENTRIES, Reader
from webhook.api.field import JSON

_K = TypeVar("_K")
_T = TypeVar("_T")

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
NONE: Final = "None"
EQUAL: Final = "Equal"
EXISTS: Final = "Exists"

_USUAL_FIELDS: Final = frozenset({"key", "value", "effect", "timeAdded"})
_REMEMBERED_LENGTH: Final = 512
_REMEMBERED_ENTRIES: Final = 4096
_REMEMBERED_LIST_BYTES: Final = 1024


class TaintExtras(msgspec.Struct, frozen=True, gc=False):
    """The fields that only the 1.35-era revision of KEP-5055 has (N-9 to N-12)."""

    data: JSON = None
    description: str | None = None
    evictions_per_second: int | None = None


class DeviceTaint(msgspec.Struct, frozen=True, gc=False):
    """A taint. `effect` is an open set: unknown ones act as `None` (T-11). `time_added` is UTC in full seconds."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None
    extras: TaintExtras | None = None


class DeviceToleration(msgspec.Struct, frozen=True, gc=False):
    """A toleration. Empty key: all keys; empty operator: `Equal` (D-6); empty effect: all effects.

    `toleration_seconds` None: for ever; zero and negative: not at all (E-10).
    """

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


def decode_taint(reader: Reader) -> DeviceTaint:
    """One taint, whatever revision it was written for."""
    raw = reader.raw
    return DeviceTaint(
        reader.text("key"),
        reader.text("value"),
        reader.text("effect"),
        reader.time("timeAdded"),
        TaintExtras(raw.get("data"), reader.optional_text("description"), reader.integer("evictionsPerSecond"))
        if "data" in raw or "description" in raw or "evictionsPerSecond" in raw
        else None,
    )


def decode_toleration(reader: Reader) -> DeviceToleration:
    """One toleration; all versions write it the same way."""
    return DeviceToleration(
        reader.text("key"),
        reader.text("operator"),
        reader.text("value"),
        reader.text("effect"),
        reader.integer("tolerationSeconds"),
    )


def decode_taints(reader: Reader) -> tuple[DeviceTaint, ...]:
    """A list of taints. Equal entries are one value in memory: a slice repeats a few of them hundreds of times."""
    entries = reader.list("taints")
    known = remembered_taints(entries)
    if known is not None:
        return known
    return tuple([_remembered_taint(raw) or _decode_taint_entry(reader, at) for at, raw in enumerate(entries)])


_lists: Final[dict[bytes, tuple[DeviceTaint, ...]]] = {}
"""Lists of such taints, by their JSON: 13 MiB with their values at most."""
_taints: Final[dict[tuple[tuple[str, str], ...], DeviceTaint]] = {}
"""Taints that were read without fault, by their fields. Strings only, short ones, and few enough to be bounded."""
_tolerations: Final[dict[tuple[JSON, ...], DeviceToleration]] = {}
"""Tolerations that were read without fault, by their fields; the seconds have the type int itself."""


def _remember(memory: dict[_K, _T], fields: _K, value: _T, texts: Iterable[JSON]) -> None:
    """Keep a value by its fields, unless its texts are long. A full memory is emptied first."""
    if sum([len(text) for text in texts if text.__class__ is str]) > _REMEMBERED_LENGTH:
        return
    if len(memory) >= _REMEMBERED_ENTRIES:
        memory.clear()
    memory[fields] = value


def known_list(text: msgspec.Raw) -> tuple[DeviceTaint, ...] | None:
    """The taints of a list by its JSON; None for one that `remember_list` has not kept.

    Drivers publish all devices of a node for a change in one, so most lists come again.
    """
    return _lists.get(bytes(text))


def remember_list(text: msgspec.Raw, entries: JSON) -> bool:
    """Keeps what a list is read as, if each of its taints was read without fault before. Returns whether it is kept."""
    written = bytes(text)
    if entries is not None and entries.__class__ is not list:
        return False
    known = remembered_taints(entries or [])
    if known is None or len(written) > _REMEMBERED_LIST_BYTES:
        return False
    if len(_lists) >= _REMEMBERED_ENTRIES:
        _lists.clear()
    _lists[written] = known
    return True


_items_of: Final = dict.items


def remembered_taints(entries: list[JSON]) -> tuple[DeviceTaint, ...] | None:
    """A list whose taints all were read before without fault; None for any other, which needs a reader.

    A slice has hundreds of taints, so all are looked up without a line of Python for each.
    """
    if len(entries) > MAX_ENTRIES:
        return None
    try:
        known = tuple(map(_taints.get, map(tuple, map(_items_of, entries))))
    except TypeError:  # an entry is no object, or has a list or an object in it
        return None
    return known if all(known) else None  # type: ignore[return-value]  # `all` leaves no None


def _remembered_taint(raw: JSON) -> DeviceTaint | None:
    try:
        return _taints.get(tuple(_items_of(raw)))
    except TypeError:  # it is no object, or has a list or an object in it
        return None


def _decode_taint_entry(reader: Reader, position: int) -> DeviceTaint:
    entry = reader.entry("taints", position)
    taint = decode_taint(entry)
    # Types are asked again, since a reader stops taking down errors when there are too many.
    timed = taint.time_added is not None or "timeAdded" not in entry.raw
    texts = entry.raw.values()
    if timed and entry.raw.keys() <= _USUAL_FIELDS and all([text.__class__ is str for text in texts]):  # noqa: C419
        _remember(_taints, tuple(entry.raw.items()), taint, texts)
    return taint


def decode_tolerations(reader: Reader) -> tuple[DeviceToleration, ...]:
    """The `tolerations` of a request, an alternative or an allocation result. Equal entries are one value."""
    if "tolerations" not in reader.raw:
        return ()
    found: list[DeviceToleration] = []
    for raw in reader.list("tolerations"):
        found.append(_remembered_toleration(raw) or _decode_toleration_entry(reader, len(found)))
    return tuple(found)


def _remembered_toleration(raw: JSON) -> DeviceToleration | None:
    if raw.__class__ is not dict:
        return None
    seconds = raw.get("tolerationSeconds")
    if seconds is not None and seconds.__class__ is not int:
        return None  # true and 1.0 would be found under 1
    get = raw.get
    try:
        return _tolerations.get((get("key"), get("operator"), get("value"), get("effect"), seconds))
    except TypeError:  # a field has an unexpected type
        return None


def _decode_toleration_entry(reader: Reader, position: int) -> DeviceToleration:
    entry = reader.entry("tolerations", position)
    toleration = decode_toleration(entry)
    texts = tuple(entry.raw.get(field) for field in ("key", "operator", "value", "effect"))
    seconds = entry.raw.get("tolerationSeconds")
    if all(text is None or text.__class__ is str for text in texts) and seconds == toleration.toleration_seconds:
        _remember(_tolerations, (*texts, toleration.toleration_seconds), toleration, texts)
    return toleration
