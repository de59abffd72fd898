"""The functions that selectors may call: each overload is a row, with its types, its cost and what evaluates it.

`call_costs` says what a row has. Those that can be evaluated are beside what evaluates them, in `arithmetic`, `lists`,
`texts` and `measures`; those here are evaluated by `builder` itself, or only checked. A test compares their types with
those of Kubernetes 1.37, in the environment for new expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from webhook.expressions.selectors import call_costs as costs
from webhook.expressions.selectors import kinds
from webhook.expressions.selectors.arithmetic import CONVERSIONS, OPERATORS
from webhook.expressions.selectors.call_costs import Estimate, Estimator, Function, Operands
from webhook.expressions.selectors.faults import AbortedError, Charge, SelectorError
from webhook.expressions.selectors.kinds import TYPE_NAMES, CelType, named, split_types
from webhook.expressions.selectors.lists import LISTS, OPTIONALS
from webhook.expressions.selectors.measures import MEASURES
from webhook.expressions.selectors.syntax import Constant, Field, Ident, Invocation, ListOf, MapOf, Node, children
from webhook.expressions.selectors.texts import PATTERNS, TEXTS, PatternFault, compiled_pattern
from webhook.expressions.selectors.values import (
    NAMES,
    TypeName,
    check_hashable,
    is_equal,
    is_number,
    key_value,
    literal_key,
    no_overload,
)
from webhook.expressions.values import EvaluationError

_NAME_PATTERN_MAX: Final = 128
_FORMAT_MAX: Final = 64
_ADDRESS: Final = costs.fixed(16)

# --- costs --------------------------------------------------------------------------------------


def _validate_cost(given: Operands) -> Estimate:
    return Estimate(given[1].size.scaled(costs.TRAVERSAL).scaled(_NAME_PATTERN_MAX * costs.PATTERN))


def _address_cost(*, cidr: bool, text: bool) -> Estimator:
    cost = _ADDRESS.plus(_ADDRESS).scaled(costs.TRAVERSAL)
    if cidr:
        cost = cost.plus(_ADDRESS.scaled(costs.TRAVERSAL)).plus(costs.ONE)
    return lambda given: Estimate(cost.plus(given[1].size.scaled(costs.TRAVERSAL)) if text else cost)


def _equal_cost(given: Operands) -> Estimate:
    one, other = given
    if one.type == other.type:
        if one.type in {kinds.IP, kinds.CIDR, kinds.QUANTITY, kinds.SEMVER}:
            return Estimate(costs.ONE)
        if one.type == kinds.NAMED_FORMAT:
            return Estimate(costs.fixed(_FORMAT_MAX).scaled(costs.TRAVERSAL))
        if one.type == kinds.URL:
            most = other.size.most if other.size != costs.UNKNOWN else 1
            return Estimate(costs.fixed(most).scaled(costs.TRAVERSAL))
    return costs.compare(given)


_SPECIAL: Final = (
    Function("@not_strictly_false not_strictly_false (bool) -> bool"),
    Function("_!=_ not_equals (A, A) -> bool", cost=costs.compare),
    Function("_&&_ logical_and (bool, bool) -> bool", cost=lambda _: Estimate(costs.NONE)),
    Function("_==_ equals (A, A) -> bool", cost=_equal_cost),
    Function("_?._ select_optional_field (dyn, string) -> optional_type(V)"),
    Function("_?_:_ conditional (bool, A, A) -> A"),
    Function("_[?_] list_optindex_optional_int (list(V), int) -> optional_type(V)"),
    Function("_[?_] optional_list_optindex_optional_int (optional_type(list(V)), int) -> optional_type(V)"),
    Function("_[?_] map_optindex_optional_value (map(K, V), K) -> optional_type(V)"),
    Function("_[?_] optional_map_optindex_optional_value (optional_type(map(K, V)), K) -> optional_type(V)"),
    Function("_[_] index_list (list(A), int) -> A"),
    Function("_[_] index_map (map(A, B), A) -> B"),
    Function("_[_] optional_list_index_int (optional_type(list(V)), int) -> optional_type(V)"),
    Function("_[_] optional_map_index_value (optional_type(map(K, V)), K) -> optional_type(V)"),
    Function("_||_ logical_or (bool, bool) -> bool", cost=lambda _: Estimate(costs.NONE)),
    Function("or optional_or_optional optional_type(V).(optional_type(V)) -> optional_type(V)"),
    Function("orValue optional_orValue_value optional_type(V).(V) -> V"),
)
"""What `builder` evaluates. The cost of `_?_:_` is in `cost`, as that of its dearer branch counts."""
_ADDRESSES: Final = (
    Function("cidr string_to_cidr (string) -> CIDR", cost=costs.look()),
    Function("containsCIDR cidr_contains_cidr_string CIDR.(string) -> bool", cost=_address_cost(cidr=True, text=True)),
    Function("containsCIDR cidr_contains_cidr CIDR.(CIDR) -> bool", cost=_address_cost(cidr=True, text=False)),
    Function("containsIP cidr_contains_ip_string CIDR.(string) -> bool", cost=_address_cost(cidr=False, text=True)),
    Function("containsIP cidr_contains_ip_ip CIDR.(IP) -> bool", cost=_address_cost(cidr=False, text=False)),
    Function("family ip_family IP.() -> int"),
    Function("ip string_to_ip (string) -> IP", cost=costs.look()),
    Function("ip cidr_ip CIDR.() -> IP"),
    Function("ip.isCanonical ip_is_canonical (string) -> bool", cost=costs.look(times=2)),
    Function("isCIDR is_cidr (string) -> bool", cost=costs.look()),
    Function("isGlobalUnicast ip_is_global_unicast IP.() -> bool"),
    Function("isIP is_ip (string) -> bool", cost=costs.look()),
    Function("isLinkLocalMulticast ip_is_link_local_multicast IP.() -> bool"),
    Function("isLinkLocalUnicast ip_is_link_local_unicast IP.() -> bool"),
    Function("isLoopback ip_is_loopback IP.() -> bool"),
    Function("isUnspecified ip_is_unspecified IP.() -> bool"),
    Function("masked cidr_masked CIDR.() -> CIDR"),
    Function("prefixLength cidr_prefix_length CIDR.() -> int"),
    Function("getEscapedPath url_get_escaped_path URL.() -> string"),
    Function("getHost url_get_host URL.() -> string"),
    Function("getHostname url_get_hostname URL.() -> string"),
    Function("getPort url_get_port URL.() -> string"),
    Function("getQuery url_get_query URL.() -> map(string, list(string))"),
    Function("getScheme url_get_scheme URL.() -> string"),
    Function("isURL is_url_string (string) -> bool"),
    Function("url string_to_url (string) -> URL", cost=costs.keep),
)
_NAMED_FORMATS: Final = (
    *("byte", "date", "datetime", "dns1035Label", "dns1035LabelPrefix", "dns1123Label", "dns1123LabelPrefix"),
    *("dns1123Subdomain", "dns1123SubdomainPrefix", "labelValue", "qualifiedName", "uri", "uuid"),
)
_FORMATS: Final = (
    Function("format string_format string.(list(dyn)) -> string", cost=costs.look()),
    *[Function(f"format.{name} format.{name} () -> NamedFormat") for name in _NAMED_FORMATS],
    Function("format.named format-named (string) -> optional_type(NamedFormat)"),
    Function("validate format-validate NamedFormat.(string) -> optional_type(list(string))", cost=_validate_cost),
)
_PARTS_OF_DURATIONS: Final = ("Hours hours", "Minutes minutes", "Seconds seconds", "Milliseconds milliseconds")
_PARTS_OF_TIMES: Final = (
    *("Date day_of_month_1_based", "DayOfMonth day_of_month", "DayOfWeek day_of_week", "DayOfYear day_of_year"),
    *("FullYear year", "Month month", *_PARTS_OF_DURATIONS),
)
_GETTERS: Final = [f"get{part.replace(' ', ' timestamp_to_')}" for part in _PARTS_OF_TIMES]
_TIMES: Final = (
    *[Function(f"{getter} timestamp.() -> int") for getter in _GETTERS],
    *[Function(f"{each}{'_tz' if 'Sec' in each else '_with_tz'} timestamp.(string) -> int") for each in _GETTERS],
    *[Function(f"get{part.replace(' ', ' duration_to_')} duration.() -> int") for part in _PARTS_OF_DURATIONS],
)


class Overload(NamedTuple):
    """A row as it is used; `arguments` begins with the target where it is a `method`, `run` may be None."""

    id: str
    method: bool
    arguments: tuple[CelType, ...]
    result: CelType
    run: Any
    cost: Estimator
    counted: bool


class Functions(NamedTuple):
    """All overloads, by the function's name and by their own."""

    by_name: Mapping[str, tuple[Overload, ...]]
    by_id: Mapping[str, Overload]


@cache
def functions() -> Functions:
    """The table, read."""
    rows = (*_SPECIAL, *OPERATORS, *CONVERSIONS, *LISTS, *OPTIONALS, *TEXTS, *MEASURES)
    by_name: dict[str, tuple[Overload, ...]] = {}
    for row in (*rows, *_ADDRESSES, *_FORMATS, *_TIMES):
        name, identifier, types = row.declared.split(" ", 2)
        taken, _, result = types.rpartition(" -> ")
        target, method, arguments = taken.removesuffix(")").rpartition(".(")
        spelt = [target, *split_types(arguments)] if method else split_types(arguments.removeprefix("("))
        overload = Overload(identifier, bool(method), tuple(map(named, spelt)), named(result), *row[1:])
        by_name[name] = (*by_name.get(name, ()), overload)
    return Functions(by_name, {overload.id: overload for known in by_name.values() for overload in known})


# --- what a call runs ---------------------------------------------------------------------------

_CLASSES: Final = {name: kind for kind, name in NAMES.items() if name not in {"list", "map"}}


def takes(kind: CelType, value: Any) -> bool:
    """Whether a value is of a type; of lists and maps the first entry counts, as in cel-go."""
    match kind.kind:
        case "dyn" | "any" | "parameter":
            return True
        case "list":
            return isinstance(value, list) and (not value or takes(kind.of[0], value[0]))
        case "map":
            if not isinstance(value, dict):
                return False
            return not value or all(map(takes, kind.of, next((key_value(key), item) for key, item in value.items())))
        case _:
            return type(value) is _CLASSES.get(kind.name)


def evaluated(overloads: Sequence[str]) -> list[Overload]:
    """Those of them that can be evaluated."""
    known = functions().by_id
    return [known[name] for name in overloads if known[name].run is not None]


def dispatched(overloads: Sequence[Overload], given: Sequence[CelType] = ()) -> Callable[..., Any]:
    """The function that calls the overload which takes the arguments; if one is counted, what takes steps comes first.

    `given` are the types of the arguments that the checker knows: those that fit need no look at the values.
    Raises, when it is called: EvaluationError.
    """
    choices = [_Choice(overload) for overload in overloads]
    if len(choices) == 1 and (choices[0].takes_anything or choices[0].kinds == tuple(given)):
        return choices[0].run

    def run(*values: Any) -> Any:
        for choice in choices:
            if choice.takes(values):
                return choice.run(*values)
        raise no_overload(*values)

    def run_counted(charge: Charge, *values: Any) -> Any:
        for choice in choices:
            if choice.takes(values):
                return choice.run(charge, *values) if choice.counted else choice.run(*values)
        raise no_overload(*values)

    return run_counted if any(choice.counted for choice in choices) else run


class _Choice:
    """An overload with its function; `classes` tell most values apart without a look at their types."""

    __slots__ = ("classes", "counted", "kinds", "looks_inside", "run", "takes_anything")

    def __init__(self, overload: Overload) -> None:
        self.kinds = kinds = overload.arguments
        self.run: Callable[..., Any] = overload.run
        self.counted = overload.counted
        self.classes = tuple([_CLASSES.get(kind.name) for kind in kinds])
        self.takes_anything = all(kind.kind in {"dyn", "parameter"} for kind in kinds)
        self.looks_inside = any(kind.kind in {"list", "map"} for kind in kinds)

    def takes(self, values: tuple[Any, ...]) -> bool:
        if len(values) != len(self.classes):
            return False
        for wanted, value in zip(self.classes, values, strict=True):
            if wanted is not None and value.__class__ is not wanted:
                return False
        return not self.looks_inside or all(map(takes, self.kinds, values))


# --- constants ----------------------------------------------------------------------------------
# What they are when a selector is compiled, which ones no evaluation can use, and sets of them.
# Source: cel-go interpreter/decorators.go

_CONVERSIONS: Final = frozenset(row.declared.partition(" ")[0] for row in CONVERSIONS)
_HASHED: Final = (bool, int, float, str)


def folded(node: Node) -> Constant | None:
    """A literal, the name of a type, or the conversion of one, which the API server evaluates when it compiles.

    Found once for each node. Raises: SelectorError, if that fails.
    """
    if node.folded is UNSET:
        node.folded = _folded(node)
    return node.folded


def _folded(node: Node) -> Constant | None:
    match node:
        case Constant():
            return node
        case Ident(name=name) if node.type.kind == "type" and name.removeprefix(".") in TYPE_NAMES:
            return Constant(value=TypeName(name.removeprefix(".")), type=node.type)
        case Field() if node.names_type:
            return Constant(value=TypeName(node.type.of[0].name), type=node.type)
        case ListOf() | MapOf():
            return _folded_literal(node)
        case Invocation(arguments=[argument]) if node.function in _CONVERSIONS:
            return _converted(node, folded(argument))
        case _:
            return None


def _converted(node: Invocation, argument: Constant | None) -> Constant | None:
    overloads = evaluated(node.overloads)
    if argument is None or not overloads:
        return None
    try:
        return Constant(value=dispatched(overloads)(argument.value), type=node.type)
    except EvaluationError as error:
        raise SelectorError.internal(str(error)) from None


def _folded_literal(node: ListOf | MapOf) -> Constant | None:
    parts = [folded(part) for part in children(node)]
    values = [part.value for part in parts if part is not None]
    if len(values) < len(parts) or node.optional:
        return None
    if isinstance(node, ListOf):
        return Constant(value=values, type=node.type)
    try:
        keys = [literal_key(key) for key in values[::2]]
    except AbortedError as error:
        raise SelectorError.internal(str(error)) from None
    return Constant(value=dict(zip(keys, values[1::2], strict=True)), type=node.type)


def is_no_key(node: Node) -> bool:
    """Whether an index is a constant that no list and no map has an entry for."""
    if isinstance(node, Invocation) and node.function == "dyn":
        return is_no_key(node.arguments[0])
    constant = folded(node)
    return constant is not None and not isinstance(constant.value, bool | int | float | str)


def program_of(node: Invocation, operands: Sequence[Node]) -> Any:
    """The program of a call's constant pattern; else None. Raises SelectorError, for a constant that is no pattern."""
    position = PATTERNS.get(node.function)
    pattern = operands[position] if position is not None else None
    if not isinstance(pattern, Constant) or not isinstance(pattern.value, str):
        return None
    program = compiled_pattern(pattern.value)
    if program is PatternFault.ILLEGAL:
        raise SelectorError.internal("error parsing regexp")
    if isinstance(program, PatternFault):
        raise SelectorError.unsupported(program.value)
    return program


# --- `x in [...]` where all entries are literals (maybeOptimizeSetMembership) --------------------


def constant_entries(node: Invocation) -> tuple[Any, ...] | None:
    """The entries, if they are all literals that the API server puts into a set; None if it does not."""
    entries = node.arguments[1]
    if not isinstance(entries, ListOf) or entries.optional:
        return None
    values = [entry.value for entry in entries.entries if isinstance(entry, Constant)]
    if len(values) < len(entries.entries) or not all(isinstance(value, _HASHED) for value in values):
        return None
    return tuple(values)


def is_member(entries: Sequence[Any], charge: Charge, value: Any) -> bool:
    """Whether the value is among them. Raises AbortedError, for versions and bytes, as the API server does."""
    charge(len(entries))
    check_hashable(value)
    if is_number(value):
        return any(is_number(entry) and _has_number(value, entry) for entry in entries)
    return any(is_equal(value, entry, charge) for entry in entries)


def _has_number(value: Any, entry: Any) -> bool:
    """Whether the set of an entry has the value: integers add their nearest double, doubles only an equal integer."""
    return value == float(entry) if isinstance(value, float) else value == entry
