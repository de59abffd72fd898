"""Functions on lists, sets, maps and optional values in selectors.

Source: cel-go ext/lists.go, ext/sets.go, ext/comprehensions.go, cel/library.go;
k8s.io/apiserver/pkg/cel/library/lists.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final

from webhook.expressions.selectors import call_costs as costs
from webhook.expressions.selectors.arithmetic import add, compare
from webhook.expressions.selectors.call_costs import Estimate, Estimator, Function, Operand, Operands, Range, counted
from webhook.expressions.selectors.faults import Charge
from webhook.expressions.selectors.kinds import named
from webhook.expressions.selectors.syntax import Constant
from webhook.expressions.selectors.values import (
    ABSENT,
    MAX_UINT,
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


def _sorted_by(charge: Charge, entries: list[Any], keys: list[Any] | None = None) -> list[Any]:
    keys = entries if keys is None else keys
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


def _equivalent(charge: Charge, entries: list[Any], others: list[Any]) -> bool:
    return _contains(charge, entries, others) and _contains(charge, others, entries)


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


# --- costs --------------------------------------------------------------------------------------


def _include_cost(given: Operands) -> Estimate:
    target = given[0]
    return Estimate(costs.each_entry(target) if target.type.of else target.size)


def _range_cost(given: Operands) -> Estimate:
    return _list_call(1, costs.fixed(_whole(given[0], MAX_UINT)))


def _slice_cost(given: Operands) -> Estimate:
    start, end = _whole(given[1], 0), _whole(given[2], given[0].size.most)
    return _list_call(1, costs.fixed((end - start) % 2**64))


def _flatten_cost(given: Operands) -> Estimate:
    depth = _whole(given[1], MAX_UINT) if len(given) == 2 else 1
    return _list_call(float(depth), given[0].size)


def _sort_cost(position: int, *, texts: bool = False) -> Estimator:
    factor = 2.0 + costs.TRAVERSAL if texts else 2.0
    return lambda given: _list_call(factor, given[position].size.times(given[position].size))


def _pair_cost(times: int = 1) -> Estimator:
    return lambda given: Estimate(given[0].size.times(given[1].size).scaled(times).plus(costs.ONE))


def _list_call(factor: float, size: Range) -> Estimate:
    return Estimate(size.scaled(factor).plus(costs.ONE).plus(costs.fixed(costs.LIST_COST)), size)


def _whole(operand: Operand, otherwise: int) -> int:
    """The number that an argument spells."""
    if isinstance(operand.node, Constant) and type(operand.node.value) is int:
        return max(operand.node.value, 0)
    return otherwise


def _of_kinds(declared: str, run: Callable[..., Any], compared: int | None = None) -> Iterator[Function]:
    """A row for each sort of entries that have an order; of `compared`, if there is one, each two are looked at."""
    for kind in ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"):
        name = kind if compared is None else named(kind).name
        cost = costs.aggregate if compared is None else _sort_cost(compared, texts=kind in {"string", "bytes"})
        evaluated = kind not in {"duration", "timestamp"}
        yield Function(declared.replace("KIND", name), run if evaluated else None, cost, counted=evaluated)


LISTS: Final = (
    counted("@in in_list (A, list(A)) -> bool", _within, lambda given: Estimate(given[1].size.scaled(1))),
    Function("@in in_map (A, map(A, B)) -> bool", _in_map),
    counted("cel.@mapInsert @mapInsert_map_key_value (map(K, V), K, V) -> map(K, V)", _inserted),
    counted("cel.@mapInsert @mapInsert_map_map (map(K, V), map(K, V)) -> map(K, V)", _merged),
    counted("distinct list_distinct list(T).() -> list(T)", _distinct, _sort_cost(0)),
    Function(
        "first list_first list(V).() -> optional_type(V)",
        lambda entries: Optional(present=True, value=entries[0]) if entries else ABSENT,
    ),
    counted("flatten list_flatten list(list(T)).() -> list(T)", _flatten, _flatten_cost),
    counted("flatten list_flatten_int list(dyn).(int) -> list(dyn)", _flatten, _flatten_cost),
    counted("includes list_includes_dyn_dyn dyn.(dyn) -> bool", _includes, _include_cost),
    counted("indexOf list_a_index_of_int list(A).(A) -> int", _index_of, costs.aggregate),
    *_of_kinds("isSorted list_KIND_is_sorted_bool list(KIND).() -> bool", _is_sorted),
    Function(
        "last list_last list(V).() -> optional_type(V)",
        lambda entries: Optional(present=True, value=entries[-1]) if entries else ABSENT,
    ),
    counted("lastIndexOf list_a_last_index_of_int list(A).(A) -> int", _last_index_of, costs.aggregate),
    counted("lists.range lists_range (int) -> list(int)", _range, _range_cost),
    *_of_kinds("max list_KIND_max_KIND list(KIND).() -> KIND", _largest(1, "max")),
    *_of_kinds("min list_KIND_min_KIND list(KIND).() -> KIND", _largest(-1, "min")),
    counted("reverse list_reverse list(T).() -> list(T)", _reversed, lambda given: _list_call(1, given[0].size)),
    counted("sets.contains list_sets_contains_list (list(T), list(T)) -> bool", _contains, _pair_cost()),
    counted("sets.equivalent list_sets_equivalent_list (list(T), list(T)) -> bool", _equivalent, _pair_cost(2)),
    counted("sets.intersects list_sets_intersects_list (list(T), list(T)) -> bool", _intersects, _pair_cost()),
    counted("slice list_slice list(T).(int, int) -> list(T)", _slice, _slice_cost),
    *_of_kinds("sort list_KIND_sort list(KIND).() -> list(KIND)", _sorted_by, 0),
    *_of_kinds("@sortByAssociatedKeys list_KIND_sortByAssociatedKeys list(T).(list(KIND)) -> list(T)", _sorted_by, 1),
    counted("sum list_int_sum_int list(int).() -> int", _sum(0), costs.aggregate),
    counted("sum list_uint_sum_uint list(uint).() -> uint", _sum(UInt(0)), costs.aggregate),
    counted("sum list_double_sum_double list(double).() -> double", _sum(0.0), costs.aggregate),
    Function("sum list_duration_sum_duration list(duration).() -> duration", cost=costs.aggregate),
)
OPTIONALS: Final = (
    Function("hasValue optional_hasValue optional_type(V).() -> bool", lambda optional: optional.present),
    Function("optional.none optional_none () -> optional_type(V)", lambda: ABSENT),
    Function("optional.of optional_of (V) -> optional_type(V)", lambda value: Optional(present=True, value=value)),
    Function("optional.ofNonZeroValue optional_ofNonZeroValue (V) -> optional_type(V)", _non_zero),
    counted("optional.unwrap optional_unwrap (list(optional_type(V))) -> list(V)", _unwrapped),
    counted("unwrapOpt optional_unwrapOpt list(optional_type(V)).() -> list(V)", _unwrapped),
    Function("value optional_value optional_type(V).() -> V", Optional.get),
)
