"""A checked selector as a function of a device. Source: cel-go interpreter/.

Every part becomes a closure, which takes a step before it looks at its operands, as those may fail. An error is an
exception, until a loop or `&&` and `||` settle the matter without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from webhook.expressions.selectors.faults import AbortedError, Charge, SelectorError, StepBudget
from webhook.expressions.selectors.functions import (
    constant_entries,
    dispatched,
    evaluated,
    folded,
    functions,
    is_member,
    is_no_key,
    program_of,
)
from webhook.expressions.selectors.kinds import TYPE_NAMES
from webhook.expressions.selectors.syntax import (
    ACCUMULATOR,
    Constant,
    Field,
    Fold,
    Ident,
    Invocation,
    ListOf,
    MapOf,
    Node,
)
from webhook.expressions.selectors.texts import searching
from webhook.expressions.selectors.values import (
    DomainMap,
    Optional,
    Semver,
    TypeName,
    differ,
    entry_of,
    equal,
    key_value,
    literal_key,
    no_overload,
    optional_entry_of,
    present,
    size_of,
)
from webhook.expressions.values import EvaluationError

_SIZED: Final[frozenset[type]] = frozenset({str, bytes, list, dict, DomainMap, Semver})
_INDEXES: Final = frozenset({"_[_]", "_[?_]"})
_MEASURES: Final = frozenset({"string_to_quantity", "string_to_semver", "string_bool_to_semver"})
_FATAL: Final = ("list_distinct", "list_flatten_int", "list_int_sort", "list_string_sort", "list_double_sort")
"""Overloads whose cost the API server takes from operands without a look at whether they are errors."""


class Frame:
    """The variables of one place in an expression; those around it are in the frames around it."""

    __slots__ = ("around", "budget", "variables")

    def __init__(self, variables: Mapping[str, Any], budget: StepBudget, around: Frame | None = None) -> None:
        self.variables = variables
        self.budget = budget
        self.around = around

    def inner(self, variables: Mapping[str, Any]) -> Frame:
        """A frame with some variables more."""
        return Frame(variables, self.budget, self)

    def charge(self, steps: int) -> None:
        """Take some steps. Raises CostExceededError."""
        budget = self.budget
        budget.left -= steps
        if budget.left < budget.mark:
            budget.pass_mark()

    def charge_for(self, value: Any) -> None:
        """Take the steps for a call that looks at a value. Raises CostExceededError."""
        budget = self.budget
        budget.left -= 1 + size_of(value) if type(value) in _SIZED else 1
        if budget.left < budget.mark:
            budget.pass_mark()

    def variable(self, name: str, *, outermost: bool = False) -> Any:
        """The innermost variable of that name, or the outermost. Raises the EvaluationError that it holds."""
        self.charge(1)
        found: Any = None
        frame: Frame | None = self
        while frame is not None:
            if name in frame.variables:
                found = frame.variables[name]
                if not outermost:
                    break
            frame = frame.around
        if isinstance(found, Later):
            return found.value()
        if isinstance(found, EvaluationError):
            raise found
        return found


class Later:
    """A value that is found when it is asked for, once."""

    __slots__ = ("_error", "_found", "_frame", "_step")

    def __init__(self, step: Callable[[Frame], Any], frame: Frame) -> None:
        self._step: Callable[[Frame], Any] | None = step
        self._frame = frame
        self._found: Any = None
        self._error: EvaluationError | None = None

    def value(self) -> Any:
        """The value. Raises EvaluationError, the same one each time."""
        if self._step is not None:
            step, self._step = self._step, None
            try:
                self._found = step(self._frame)
            except EvaluationError as error:
                self._error = error
        if self._error is not None:
            raise self._error
        return self._found


Step = Callable[[Frame], Any]


def built(node: Node) -> Step:  # noqa: PLR0911 -- one case a kind of node
    """The function of a checked tree. Raises SelectorError for functions and constants that cannot be evaluated."""
    match node:
        case Constant(value=value):
            return lambda _: value
        case Ident():
            return _ident(node)
        case Field():
            return _field(node)
        case Invocation():
            return _call(node)
        case ListOf():
            return _list(node)
        case MapOf():
            return _map(node)
        case Fold():
            return _bind(node) if node.binds else _fold(node)
        case _:
            raise SelectorError.unsupported("messages")


def _ident(node: Ident) -> Step:
    name = node.name.removeprefix(".")
    if node.type.kind == "type":  # of a variable, too, as in planCheckedIdent of cel-go's interpreter/planner.go
        if name not in TYPE_NAMES:
            raise SelectorError.internal(f"reference to undefined type: {name}")
        value = TypeName(name)
        return lambda _: value
    outermost = name != node.name
    return lambda frame: frame.variable(name, outermost=outermost)


def _field(node: Field) -> Step:
    if node.names_type:
        value = TypeName(node.type.of[0].name)
        return lambda _: value
    operand, name = built(node.operand), node.name
    find: Callable[[Any, str], Any] = present if node.test else entry_of

    def run(frame: Frame) -> Any:
        frame.charge(1)
        return find(operand(frame), name)

    return run


# --- calls --------------------------------------------------------------------------------------


def _call(node: Invocation) -> Step:  # noqa: C901, PLR0911 -- one case a sort of call
    special = _SPECIAL.get(node.function)
    if node.function in _INDEXES and is_no_key(node.arguments[1]):
        raise SelectorError.internal("invalid qualifier type")
    operands = [node.target, *node.arguments] if node.target is not None else node.arguments
    if special is not None and node.overloads:
        return special([built(operand) for operand in operands])
    constant = folded(node)
    if constant is not None:
        value = constant.value
        return lambda _: value
    if node.overloads[0] in _MEASURES and all(isinstance(operand, Constant) for operand in operands):
        return _measure(node, operands)
    steps = [built(operand) for operand in operands]
    overloads = evaluated(node.overloads)
    if not overloads:
        raise SelectorError.unsupported(f"{node.function}()")
    program = program_of(node, operands)
    if program is not None:
        return _applied(searching(overloads[0].run, program), steps, counted=True)
    if _appends(node):
        return _appended(*steps)
    if node.function == "@in":
        listed = constant_entries(node)
        if listed is not None:
            return _applied(partial(is_member, listed), steps[:1], counted=True) if listed else lambda _: False
    function = dispatched(overloads, [each.type for each in operands])
    if node.overloads[0].startswith(_FATAL) and len(node.overloads) == 1:
        return _fatal(function, steps)
    return _applied(function, steps, counted=any(each.counted for each in overloads))


def _measure(node: Invocation, operands: Sequence[Node]) -> Step:
    """A quantity or a version that is written out, which is read once; what cannot be read fails when it is used."""
    given = [operand.value for operand in operands if isinstance(operand, Constant)]
    found = failed = None
    try:
        found = functions().by_id[node.overloads[0]].run(*given)
    except EvaluationError as error:
        failed = str(error)

    def run(frame: Frame) -> Any:
        frame.charge(1)
        if failed is not None:
            raise EvaluationError(failed)
        return found

    return run


def _appends(node: Invocation) -> bool:
    """Whether a loop makes a list here: it is made longer in place, as copies would take the square of its size."""
    if node.overloads != ("add_list",):
        return False
    so_far, entries = node.arguments
    return isinstance(so_far, Ident) and so_far.name == ACCUMULATOR and isinstance(entries, ListOf)


def _appended(so_far: Step, entries: Step) -> Step:
    def run(frame: Frame) -> Any:
        frame.charge(1)
        found = so_far(frame)
        found.extend(entries(frame))
        return found

    return run


def _applied(function: Callable[..., Any], steps: Sequence[Step], *, counted: bool = False) -> Step:
    """`counted`: the function is given what takes steps first."""
    if len(steps) == 1 and not counted:
        [one] = steps

        def run_unary(frame: Frame) -> Any:
            frame.charge(1)
            value = one(frame)
            frame.charge_for(value)
            return function(value)

        return run_unary

    def run(frame: Frame) -> Any:
        frame.charge(1)
        values = [step(frame) for step in steps]
        for value in values:
            frame.charge_for(value)
        return function(frame.charge, *values) if counted else function(*values)

    return run


def _fatal(function: Callable[..., Any], steps: Sequence[Step]) -> Step:
    """A call that the API server cannot price when an operand fails or is no list: its evaluation ends there."""

    def run(frame: Frame) -> Any:
        frame.charge(1)
        try:
            values = [step(frame) for step in steps]
        except EvaluationError as error:
            raise AbortedError(str(error)) from error
        for value in values:
            frame.charge_for(value)
        if not isinstance(values[0], list):
            raise AbortedError(str(no_overload(*values)))
        return function(frame.charge, *values)

    return run


# --- calls that need not evaluate all their operands, or look at the types of values -------------


def _logical(steps: Sequence[Step], *, stop: bool) -> Step:
    """`&&` stops at false, `||` at true."""

    def run(frame: Frame) -> bool:
        failed: EvaluationError | None = None
        for step in steps:
            frame.charge(1)
            try:
                value = step(frame)
            except AbortedError:
                raise
            except EvaluationError as error:
                failed = failed or error
                continue
            if not isinstance(value, bool):
                failed = failed or no_overload(value)
            elif value is stop:
                return value
        if failed is not None:
            raise failed
        return not stop

    return run


def _conditional(steps: Sequence[Step]) -> Step:
    condition, then, otherwise = steps

    def run(frame: Frame) -> Any:
        frame.charge(1)
        chosen = condition(frame)
        if not isinstance(chosen, bool):
            raise no_overload(chosen)
        return then(frame) if chosen else otherwise(frame)

    return run


def _not_strictly_false(steps: Sequence[Step]) -> Step:
    [step] = steps

    def run(frame: Frame) -> bool:
        try:
            value = step(frame)
        except AbortedError:
            raise
        except EvaluationError:
            return True
        return value is not False

    return run


def _compared(steps: Sequence[Step], compare: Callable[[Any, Any, Charge], bool]) -> Step:
    one, other = steps

    def run(frame: Frame) -> bool:
        frame.charge(1)
        left, right = one(frame), other(frame)
        return compare(left, right, frame.charge)

    return run


def _indexed(steps: Sequence[Step], find: Callable[[Any, Any], Any]) -> Step:
    operand, key = steps

    def run(frame: Frame) -> Any:
        frame.charge(1)
        return find(operand(frame), key(frame))

    return run


def _first_present(steps: Sequence[Step], result: Callable[[Optional], Any]) -> Step:
    first, second = steps

    def run(frame: Frame) -> Any:
        frame.charge(1)
        optional = first(frame)
        if not isinstance(optional, Optional):
            raise no_overload(optional)
        return result(optional) if optional.present else second(frame)

    return run


_SPECIAL: Final[dict[str, Callable[[Sequence[Step]], Step]]] = {
    "_&&_": partial(_logical, stop=False),
    "_||_": partial(_logical, stop=True),
    "_?_:_": _conditional,
    "@not_strictly_false": _not_strictly_false,
    "_==_": partial(_compared, compare=equal),
    "_!=_": partial(_compared, compare=differ),
    "_[_]": partial(_indexed, find=entry_of),
    "_[?_]": partial(_indexed, find=optional_entry_of),
    "_?._": partial(_indexed, find=optional_entry_of),
    "or": partial(_first_present, result=lambda optional: optional),
    "orValue": partial(_first_present, result=lambda optional: optional.value),
}


# --- literals and loops -------------------------------------------------------------------------


def _list(node: ListOf) -> Step:
    steps = [(built(entry), position in node.optional) for position, entry in enumerate(node.entries)]
    if all(isinstance(entry, Constant) for entry in node.entries) and not node.optional:
        entries = [entry.value for entry in node.entries if isinstance(entry, Constant)]
        return lambda _: entries

    def run(frame: Frame) -> list[Any]:
        frame.charge(1 + len(steps))
        found = []
        for step, optional in steps:
            value = step(frame)
            if not optional:
                found.append(value)
            elif not isinstance(value, Optional):
                raise no_overload(value)
            elif value.present:
                found.append(value.value)
        return found

    return run


def _map(node: MapOf) -> Step:
    steps = [(built(key), built(value), at in node.optional) for at, (key, value) in enumerate(node.entries)]
    _ = folded(node)  # which may be what the API server cannot make

    def run(frame: Frame) -> dict[Any, Any]:
        frame.charge(1 + len(steps))
        found: dict[Any, Any] = {}
        for key_step, value_step, optional in steps:
            key, value = literal_key(key_step(frame)), value_step(frame)
            if optional and not isinstance(value, Optional):
                raise no_overload(value)
            if optional and not value.present:
                continue
            found[key] = value.value if optional else value
        return found

    return run


def _bind(node: Fold) -> Step:
    start, result, name = built(node.start), built(node.result), node.accumulator
    _ = built(node.step)  # the variable; it is never evaluated, but may be what cannot be built

    def run(frame: Frame) -> Any:
        frame.charge(1)
        return result(frame.inner({name: Later(start, frame)}))

    return run


def _fold(node: Fold) -> Step:
    items, start, condition, step, result = map(built, (node.items, node.start, node.condition, node.step, node.result))
    accumulator, variable, second = node.accumulator, node.variable, node.second

    def run(frame: Frame) -> Any:
        frame.charge(1)
        whole = items(frame)
        first_value = start(frame)
        state: dict[str, Any] = {accumulator: [] if first_value == [] else first_value}
        inner = frame.inner(state)
        loop = inner.inner(bound := {})
        for first, other in _entries(whole, two=second is not None):
            frame.charge(1)
            bound[variable] = first
            if second is not None:
                bound[second] = other
            if condition(loop) is not True:
                break
            try:
                state[accumulator] = step(loop)
            except AbortedError:
                raise
            except EvaluationError as error:
                state[accumulator] = error
        return result(inner)

    return run


def _entries(whole: Any, *, two: bool) -> Iterable[tuple[Any, Any]]:
    if isinstance(whole, list):
        return enumerate(whole) if two else ((entry, None) for entry in whole)
    if isinstance(whole, dict):
        return ((key_value(key), value) for key, value in whole.items())
    raise EvaluationError(f"got {type(whole).__name__}, expected iterable type")
