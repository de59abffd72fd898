"""The list as a table like kubectl's, as names, and as values for programs.

The structure of JSON and YAML is stable: while `version` is 1, fields may be added, but none is removed or changes its
meaning. docs/kubectl.md explains it.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from webhook.api.meta import format_time
from webhook.files.structured import STRUCTURED, json_text
from webhook.files.tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from webhook.commands.list.taints import AffectedUser, ListedTaint

VERSION: Final = 1
_NONE: Final = "<none>"
_PODS_SHOWN: Final = 3
_HEADERS: Final = ("NAME", "TAINT", "EFFECT", "SOURCE", "AGE", "PODS")
_WIDE: Final = ("NODE", "RULE", "EVICTION", "EXPIRES", "REASON")


def table_text(
    rows: Sequence[ListedTaint], now: datetime, *, wide: bool = False, headers: bool = True, removed: bool = False
) -> str:
    """Columns as kubectl prints them; empty for no rows. `removed`: these taints are gone."""
    titles = (*_HEADERS, *(_WIDE if wide else ()))
    cells = [_cells(each, now, wide=wide, removed=removed) for each in rows]
    return "".join(f"{line}\n" for line in table(cells, headers=titles if headers else ()))


def names_text(rows: Sequence[ListedTaint]) -> str:
    """The devices, as other verbs take them, each once."""
    return "".join(f"{device}\n" for device in dict.fromkeys(each.device for each in rows))


def values_of(rows: Sequence[ListedTaint], now: datetime, notes: Sequence[str]) -> dict[str, Any]:
    """The structure behind JSON and YAML."""
    return {
        "version": VERSION,
        "time": format_time(now),
        "devices": [_device_values(list(group)) for _, group in groupby(rows, key=lambda each: each.device)],
        "notes": list(notes),
    }


def structured_text(values: dict[str, Any], output: str, *, one_of_many: bool) -> str:
    """JSON or YAML; `one_of_many`: a line of JSON, or a YAML document."""
    if not one_of_many:
        return STRUCTURED[output](values)
    if output == "json":
        return json_text(values, indent=None)
    return f"---\n{STRUCTURED[output](values)}"


def _cells(row: ListedTaint, now: datetime, *, wide: bool, removed: bool) -> list[str]:
    device, taint, source = str(row.device), row.taint, row.source
    if taint is None or source is None:
        cells = [device, _NONE, _NONE, _NONE, _NONE, _pods(row.users, wide=wide)]
        return [*cells, *([row.node or _NONE, *[_NONE] * 4] if wide else [])]
    name = f"{taint.key}={taint.value}" if taint.value else taint.key
    effect = "<removed>" if removed else f"{taint.effect},evict" if row.evict else taint.effect
    cells = [device, name, effect, str(source), age(taint.time_added, now), _pods(row.affected, wide=wide)]
    if wide:
        more = (row.node, source.rule, row.eviction, row.expires, row.reason)
        cells += [each or _NONE for each in more]
    return cells


def _pods(users: Sequence[AffectedUser], *, wide: bool) -> str:
    """As kubectl shows endpoints: the first ones, and how many more there are."""
    shown = users if wide else users[:_PODS_SHOWN]
    text = ",".join(map(str, shown)) or _NONE
    return f"{text} + {len(users) - len(shown)} more..." if len(shown) < len(users) else text


def _device_values(rows: Sequence[ListedTaint]) -> dict[str, Any]:
    device = rows[0].device
    return {
        "driver": device.driver,
        "pool": device.pool,
        "device": device.device,
        "node": rows[0].node or None,
        "taints": [_taint_values(each) for each in rows if each.taint is not None],
    }


def _taint_values(row: ListedTaint) -> dict[str, Any]:
    taint, source = row.taint, row.source
    assert taint is not None
    assert source is not None
    return {
        "key": taint.key,
        "value": taint.value or None,
        "effect": taint.effect,
        "evict": row.evict,
        "timeAdded": None if taint.time_added is None else format_time(taint.time_added),
        "source": {"kind": source.kind, "name": source.name, "rule": source.rule or None},
        "eviction": row.eviction or None,
        "expiresAt": row.expires or None,
        "reason": row.reason or None,
        "users": [
            {"namespace": each.namespace, "resource": each.resource, "name": each.name, "tolerates": each.tolerates}
            for each in row.users
        ],
    }


# --- ages -----------------------------------------------------------------------------------------


_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY
UNKNOWN: Final = "<unknown>"
_STEPS: Final = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)
"""Below the first number of seconds: the unit, its letter, the smaller unit that is added (0: none), and its letter."""


def age(since: datetime | None, now: datetime) -> str:
    """The time since then: `45s`, `5m30s`, `90m`, `3h20m`, `2d`; `<unknown>` without one."""
    return UNKNOWN if since is None else human_duration(int((now - since).total_seconds()))


def human_duration(seconds: int) -> str:
    """A duration in whole seconds; a clock that is behind by a second does no harm."""
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    for below, unit, letter, smaller, small_letter in _STEPS:
        if seconds < below:
            rest = seconds % unit // smaller if smaller else 0
            return f"{seconds // unit}{letter}" + (f"{rest}{small_letter}" if rest else "")
    return f"{seconds // _YEAR}y"
