"""Functions on lists, sets, maps and optional values in selectors.

Source: cel-go ext/lists.go, ext/sets.go, ext/comprehensions.go, cel/library.go;
k8s.io/apiserver/pkg/cel/library/lists.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final

from webhook.expressions.selectors.arithmetic import add, compare
from webhook.expressions.selectors.values import (
    ABSENT,
    Charge,
    Optional,
    UInt,
    is_equal,
    is_number,
    map_key,
    no_overload,
    size_of,
)
from webhook.expressions.values import EvaluationError

_RANGE_MAX: Final = 10_000
"""Of `lists.range`; the API server's 10,000,000 cost more than an evaluation may."""
_ORDERED: Final = (bool, int, float, str, bytes)
_KINDS: Final = ("int", "uint", "double", "bool", "string", "bytes")


def _joined(charge: Charge, one: list[Any], other: list[Any]) -> list[Any]:
    charge(len(one) + len(other))
    return one + other


def _within(charge: Charge, item: Any, entries: list[Any]) -> bool:
    charge(len(entries))
    return any(is_equal(item, entry, charge) for entry in entries)


def _in_map(key: Any, entries: dict[Any, Any]) -> bool:
    return isinstance(key, str | bool | int | float) and map_key(key) in entries


def _index_of(charge: Charge, entries: list[Any], item: Any) -> int:
    charge(len(entries))
    return next((at for at, entry in enumerate(entries) if is_equal(entry, item, charge)), -1)


def _last_index_of(charge: Charge, entries: list[Any], item: Any) -> int:
    charge(len(entries))
    return next((at for at in range(len(entries) - 1, -1, -1) if is_equal(entries[at], item, charge)), -1)


def _includes(charge: Charge, target: Any, item: Any) -> bool:
    return _within(charge, item, target) if isinstance(target, list) else is_equal(target, item, charge)


def _order(one: Any, other: Any) -> int | None:
    """As `compare`; None where it fails for two values that others of their own type can be compared with."""
    if not isinstance(other, _ORDERED):
        raise no_overload(other)
    try:
        return compare(one, other)
    except EvaluationError:
        return None


def _charge_all(charge: Charge, entries: list[Any], times: int = 1) -> None:
    """For a look at each entry as a whole."""
    charge(len(entries) * times)
    charge(sum(map(size_of, entries)) * times)


def _is_sorted(charge: Charge, entries: list[Any]) -> bool:
    _charge_all(charge, entries)
    return all(_order(one, other) != 1 for one, other in pairwise(entries))


def _largest(sign: int, name: str) -> Callable[[Charge, list[Any]], Any]:
    def run(charge: Charge, entries: list[Any]) -> Any:
        _charge_all(charge, entries)
        if not entries:
            raise EvaluationError(f"{name} called on empty list")
        found = entries[0]
        for entry in entries[1:]:
            if _order(found, entry) == -sign:
                found = entry
        return found

    return run


def _sum(start: Any) -> Callable[[Charge, list[Any]], Any]:
    def run(charge: Charge, entries: list[Any]) -> Any:
        charge(len(entries))
        total = start
        for entry in entries:
            total = add(total, entry)
        return total

    return run


def _slice(charge: Charge, entries: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(entries):
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(entries)}")
    charge(end - start)
    return entries[start:end]


def _flatten(charge: Charge, entries: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    charge(len(entries))
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, list) and depth:
            charge(len(entry))
            found.extend(_flatten(charge, entry, depth - 1))
        else:
            found.append(entry)
    return found


def _sorted_by(charge: Charge, entries: list[Any], keys: list[Any]) -> list[Any]:
    _charge_all(charge, keys, len(keys).bit_length())
    if len(entries) != len(keys):
        raise EvaluationError("the list and its keys differ in length")
    kinds = {type(key) for key in keys}
    if len(kinds) > 1:
        raise EvaluationError("list elements must have the same type")
    return [entries[at] for at in sorted(range(len(entries)), key=keys.__getitem__)]


def _distinct(charge: Charge, entries: list[Any]) -> list[Any]:
    found: list[Any] = []
    for entry in entries:
        if not _within(charge, entry, found):
            found.append(entry)
    return found


def _range(charge: Charge, count: int) -> list[int]:
    if count < 0:
        raise EvaluationError(f"lists.range: size must be non-negative, got {count}")
    if count > _RANGE_MAX:
        raise EvaluationError(f"lists.range: size {count} exceeds maximum allowed ({_RANGE_MAX})")
    charge(count)
    return list(range(count))


def _contains(charge: Charge, entries: list[Any], others: list[Any]) -> bool:
    charge(len(others))
    return all(_within(charge, other, entries) for other in others)


def _intersects(charge: Charge, entries: list[Any], others: list[Any]) -> bool:
    charge(len(entries))
    return any(_within(charge, entry, others) for entry in entries)


def _reversed(charge: Charge, entries: list[Any]) -> list[Any]:
    charge(len(entries))
    return entries[::-1]


def _unwrapped(charge: Charge, entries: list[Any]) -> list[Any]:
    charge(len(entries))
    for entry in entries:
        if not isinstance(entry, Optional):
            raise EvaluationError("value is not optional")
    return [entry.value for entry in entries if entry.present]


def _non_zero(value: Any) -> Optional:
    zero = value is None or (is_number(value) and value == 0) or value is False
    empty = isinstance(value, str | bytes | list | dict) and not value
    return ABSENT if zero or empty else Optional(present=True, value=value)


def _inserted(charge: Charge, entries: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    charge(len(entries))
    at = map_key(key)
    if at in entries:
        raise EvaluationError(f"insert failed: key {key} already exists")
    return {**entries, at: value}


def _merged(charge: Charge, entries: dict[Any, Any], others: dict[Any, Any]) -> dict[Any, Any]:
    charge(len(entries) + len(others))
    for key in others:
        if key in entries:
            raise EvaluationError("insert failed: key already exists")
    return {**entries, **others}


def _of_kinds(pattern: str, function: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {pattern.replace("KIND", kind): function for kind in _KINDS}


COUNTED_LISTS: Final[Mapping[str, Callable[..., Any]]] = {
    "add_list": _joined,
    "in_list": _within,
    "list_a_index_of_int": _index_of,
    "list_a_last_index_of_int": _last_index_of,
    "list_includes_dyn_dyn": _includes,
    **_of_kinds("list_KIND_is_sorted_bool", _is_sorted),
    **_of_kinds("list_KIND_max_KIND", _largest(1, "max")),
    **_of_kinds("list_KIND_min_KIND", _largest(-1, "min")),
    "list_int_sum_int": _sum(0),
    "list_uint_sum_uint": _sum(UInt(0)),
    "list_double_sum_double": _sum(0.0),
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    **_of_kinds("list_KIND_sort", lambda charge, entries: _sorted_by(charge, entries, entries)),
    **_of_kinds("list_KIND_sortByAssociatedKeys", _sorted_by),
    "list_reverse": _reversed,
    "list_distinct": _distinct,
    "lists_range": _range,
    "list_sets_contains_list": _contains,
    "list_sets_intersects_list": _intersects,
    "list_sets_equivalent_list": lambda charge, one, other: (
        _contains(charge, one, other) and _contains(charge, other, one)
    ),
    "optional_unwrap": _unwrapped,
    "optional_unwrapOpt": _unwrapped,
    "@mapInsert_map_key_value": _inserted,
    "@mapInsert_map_map": _merged,
}
"""By overload. What is first given takes the steps for each entry that is looked at."""

LISTS: Final[Mapping[str, Callable[..., Any]]] = {
    "in_map": _in_map,
    "list_first": lambda entries: Optional(present=True, value=entries[0]) if entries else ABSENT,
    "list_last": lambda entries: Optional(present=True, value=entries[-1]) if entries else ABSENT,
    "optional_of": lambda value: Optional(present=True, value=value),
    "optional_ofNonZeroValue": _non_zero,
    "optional_none": lambda: ABSENT,
    "optional_value": Optional.get,
    "optional_hasValue": lambda optional: optional.present,
}
"""Those whose time does not depend on the size of their arguments, by overload."""
