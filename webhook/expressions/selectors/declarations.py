"""The functions, variables and types that a selector may name.

Source: k8s.io/apiserver/pkg/cel/environment/base.go, k8s.io/dynamic-resource-allocation/cel/compile.go.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from webhook.expressions.selectors import kinds
from webhook.expressions.selectors.kinds import CelType, list_of, map_of, named, split_types, type_of


class Overload(NamedTuple):
    """One way to call a function; `arguments` begins with the target where it is a `method`."""

    id: str
    method: bool
    arguments: tuple[CelType, ...]
    result: CelType
    parameters: frozenset[str]


class Functions(NamedTuple):
    """All overloads, by the function's name and by their own."""

    by_name: Mapping[str, tuple[Overload, ...]]
    by_id: Mapping[str, Overload]


ATTRIBUTES: Final = map_of(kinds.STRING, map_of(kinds.STRING, kinds.DYN))
CAPACITY: Final = map_of(kinds.STRING, map_of(kinds.STRING, kinds.QUANTITY))
DEVICE_FIELDS: Final[Mapping[str, CelType]] = {
    "driver": kinds.STRING,
    "attributes": ATTRIBUTES,
    "capacity": CAPACITY,
    "allowMultipleAllocations": kinds.BOOL,
}
"""Attributes are dyn, since some may be lists (KEP-5491)."""
VARIABLES: Final[Mapping[str, CelType]] = {"device": kinds.DEVICE}
TYPE_NAMES: Final[Mapping[str, CelType]] = {
    **{each.name: type_of(each) for each in (kinds.BOOL, kinds.INT, kinds.UINT, kinds.DOUBLE, kinds.STRING)},
    **{each.name: type_of(each) for each in (kinds.BYTES, kinds.NULL, kinds.DURATION, kinds.TIMESTAMP)},
    "list": type_of(list_of(kinds.DYN)),
    "map": type_of(map_of(kinds.DYN, kinds.DYN)),
    "type": type_of(CelType("type", "type")),
    "net.IP": type_of(kinds.IP),
    "net.CIDR": type_of(kinds.CIDR),
    kinds.OPTIONAL_NAME: type_of(kinds.optional_of(kinds.DYN)),
}
LOGICAL: Final = frozenset({"_&&_", "_||_"})


@cache
def functions() -> Functions:
    """What `declarations.txt` lists."""
    text = pkgutil.get_data(__package__, "declarations.txt")
    assert text is not None
    rows = [_read(line) for line in text.decode().splitlines() if line and not line.startswith("# ")]
    by_name: dict[str, tuple[Overload, ...]] = {}
    for name, overload in rows:
        by_name[name] = (*by_name.get(name, ()), overload)
    return Functions(by_name, {overload.id: overload for _, overload in rows})


def _read(line: str) -> tuple[str, Overload]:
    name, identifier, signature = line.split(" ", 2)
    taken, _, result = signature.rpartition(" -> ")
    target, method, arguments = taken.rpartition(".(")
    if not method:
        arguments = taken.removeprefix("(")
    types = [*([target] if method else []), *split_types(arguments.removesuffix(")"))]
    kinds_taken = tuple(map(named, types))
    parameters = frozenset(name for kind in (*kinds_taken, named(result)) for name in _parameters(kind))
    return name, Overload(identifier, bool(method), kinds_taken, named(result), parameters)


def _parameters(kind: CelType) -> frozenset[str]:
    if kind.kind == "parameter":
        return frozenset({kind.name})
    return frozenset(name for inner in kind.of for name in _parameters(inner))
