"""CEL selectors of devices: `compile_selector` makes one, `Selector.matches` asks it.

selector = compile_selector('device.driver == "gpu.example.com"')
if isinstance(selector, SelectorFault): ...  # what is wrong with it
selector.matches(SelectedDevice("gpu.example.com", {"model": {"string": "a100"}}))  # or EvaluationError
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, Self

import msgspec

from webhook.api.field import JSON
from webhook.expressions.selectors.builder import Frame, Step, built
from webhook.expressions.selectors.checker import check
from webhook.expressions.selectors.cost import MAX_COST, worst_cost
from webhook.expressions.selectors.faults import (
    AbortedError,
    Charge,
    CostExceededError,
    FaultKind,
    SelectorError,
    SelectorFault,
    StepBudget,
    free,
    unwatched,
)
from webhook.expressions.selectors.functions import constant_entries, is_member
from webhook.expressions.selectors.kinds import BOOL, DYN, INT, SEMVER, STRING, CelType, list_of
from webhook.expressions.selectors.measures import quantity_of, version_of
from webhook.expressions.selectors.reader import read_selector
from webhook.expressions.selectors.syntax import Constant, Field, Ident, Invocation, ListOf, Node, children, walk
from webhook.expressions.selectors.values import DomainMap, differ, equal, truth
from webhook.expressions.values import EvaluationError

Reads = frozenset[tuple[str, str]]
"""`("attributes", "example.com/model")` or `("capacity", ...)`. The driver and whether there may be several allocations
are always read, and so is whether everything else of the device has a value."""

__all__ = ["CostExceededError", "EvaluationError", "Selector", "SelectorFault", "StepBudget", "compile_selector"]

MAX_BYTES: Final = 10 * 1024
"""Of source, in UTF-8."""
COMPILE_STEPS: Final = 250_000
"""To compile a selector, or all those of a turn: 0.2 s and 16 MiB. A usual one takes some hundred."""
READ_STEPS: Final = 4
"""To read a byte."""
REMEMBERED_MAX_CHARACTERS: Final = 1024
"""Of a source whose result is remembered."""
REMEMBERED_MAX_STEPS: Final = 8000
"""To compile one that is remembered; 256 of them take up to 50 MiB."""


class Selector(msgspec.Struct, frozen=True, eq=False):
    """A selector that was checked. Does not change; may be shared between threads."""

    source: str
    cost: int
    """The most that one evaluation costs by the API server's estimate."""
    _run: Step
    _native: Test | None
    _native_steps: int
    reads: Reads | None
    """For devices that are alike in it, results, errors and steps are equal; None if that is not known."""

    def matches(self, device: SelectedDevice, budget: StepBudget | None = None) -> bool:
        """Return whether it selects the device.

        A `budget` is for all evaluations of a pass together: how many steps they may take, each about a unit of cost
        and 0.3 µs. Without one, an evaluation may take as many as the API server allows it.

        Raises: EvaluationError, if it has no value for this device, such as for an attribute that is missing, or one
        that is no truth value; its kind CostExceededError, if the steps are used up.
        """
        if self._native is not None:
            if budget is not None:
                budget.charge(self._native_steps)
            return self._native(device)
        return self.interpreted(device, budget)

    def interpreted(self, device: SelectedDevice, budget: StepBudget | None = None) -> bool:
        """As `matches`, without the short cut."""
        try:
            return truth(self._run(Frame(device.variables, budget or StepBudget(MAX_COST))))
        except RecursionError:
            raise EvaluationError("nested too deep for the stack") from None

    def __repr__(self) -> str:
        return f"Selector({self.source!r})"


def compile_selector(expression: str) -> Selector | SelectorFault:
    """A selector of a DeviceClass, of a request or of a patch; or the first fault in it.

    Checked as Kubernetes 1.37 checks new expressions, with every feature of Dynamic Resource Allocation on: syntax,
    names, types, patterns, and the estimated cost of the worst case, at most MAX_COST. A fault of the kind UNSUPPORTED
    says nothing about what the API server does: it is one of this evaluator. Results are remembered.

    Source: CompileCELExpression of k8s.io/dynamic-resource-allocation/cel; `semantics.md` R-10.
    """
    asker = _ASKER.get()
    return _selector(expression, StepBudget(COMPILE_STEPS)) if asker is None else asker.compiled(expression)


def derived_cost(expression: str) -> int | SelectorFault:
    """Return the worst cost of the expression of a derived attribute (KEP-5491), or the fault in it.

    One that is too expensive is no fault: the costs of a claim count together. Neither is one that is only UNSUPPORTED.
    """
    try:
        return _checked(expression, lambda kind: kind in _DERIVABLE, _DERIVED, StepBudget(COMPILE_STEPS)).cost
    except SelectorError as error:
        return error.fault


class Compiling:
    """What is compiled for one asker, such as a review, wherever the call is: a turn is a `with` block.

    What it has compiled before takes no steps. While a selector is being compiled `expression` has it, and also when a
    turn was ended by that.
    """

    __slots__ = ("_found", "_left", "_look", "_token", "expression")

    def __init__(self) -> None:
        self._found: dict[str, Selector | SelectorFault] = {}
        self.expression = ""

    def turn(self, look: Callable[[], None] = unwatched, steps: float = COMPILE_STEPS) -> Self:
        """Begins one, of at most `steps` for all selectors together. `look` may raise to end it."""
        self._look, self._left, self.expression = look, steps, ""
        return self

    def __enter__(self) -> None:
        self._token: Token[Compiling | None] = _ASKER.set(self)

    def __exit__(self, *_: object) -> None:
        _ASKER.reset(self._token)

    def compiled(self, expression: str) -> Selector | SelectorFault:
        """As `compile_selector`. Raises what `look` raises."""
        found = self._found.get(expression)
        if found is None:
            self.expression = expression
            budget = StepBudget(int(max(min(COMPILE_STEPS, self._left), 0)), self._look)
            allowed = budget.left
            found = self._found[expression] = _selector(expression, budget)
            self._left -= allowed - budget.left
            self.expression = ""
        return found


_ASKER: Final[ContextVar[Compiling | None]] = ContextVar("asker", default=None)


def _too_long() -> SelectorError:
    return SelectorError.unsupported("takes too long to check; use fewer selectors, or simpler ones")


def _selector(expression: str, budget: StepBudget) -> Selector | SelectorFault:
    known = _remembered(expression) if len(expression) <= REMEMBERED_MAX_CHARACTERS else None
    if known is None:
        return _measured(expression, budget)
    try:
        budget.charge(known[1])
    except CostExceededError:
        return _too_long().fault
    return known[0]


@lru_cache(maxsize=256)
def _remembered(expression: str) -> tuple[Selector | SelectorFault, int] | None:
    """With the steps that it took; None for one that takes more than others."""
    budget = StepBudget(REMEMBERED_MAX_STEPS)
    found = _measured(expression, budget)
    return None if budget.left < 0 else (found, REMEMBERED_MAX_STEPS - budget.left)


class _Checked(NamedTuple):
    """What is known before the cost is judged: `run` is the fault where it cannot be evaluated here."""

    node: Node
    cost: int
    run: Step | SelectorError


def _measured(expression: str, budget: StepBudget) -> Selector | SelectorFault:
    try:
        node, cost, run = _checked(expression, lambda kind: kind in {BOOL, DYN}, "bool or the unknown type", budget)
    except SelectorError as error:
        return error.fault
    if cost > MAX_COST:
        return SelectorFault(FaultKind.TOO_EXPENSIVE, "too complex, exceeds cost limit")
    if isinstance(run, SelectorError):
        return run.fault
    # A step for each test of three or four parts, such as `device.driver == "x"`.
    return Selector(expression, cost, run, native(node), max(sum(1 for _ in walk(node)) // 4, 1), _reads(node))


def _checked(expression: str, is_right: Callable[[CelType], bool], wanted: str, budget: StepBudget) -> _Checked:
    size = len(expression.encode(errors="surrogatepass"))
    if size > MAX_BYTES:
        raise SelectorError.invalid(f"too long: {size} bytes, must be at most {MAX_BYTES}")
    try:
        budget.charge(READ_STEPS * size)
        node = read_selector(expression)
        kind = check(node, budget.charge)
        if not is_right(kind):
            raise SelectorError(FaultKind.INVALID, f"must evaluate to {wanted}, not {kind}")
        cost = worst_cost(node)
        return _Checked(node, cost, _built(node))
    except RecursionError:
        raise SelectorError.unsupported("nested too deep for the stack") from None
    except CostExceededError:
        raise _too_long() from None


def _built(node: Node) -> Step | SelectorError:
    """As `built`; the API server estimates the cost before it would come to what is only unsupported here."""
    try:
        return built(node)
    except SelectorError as error:
        if error.fault.kind is FaultKind.UNSUPPORTED:
            return error
        raise


_PRIMITIVES: Final = (BOOL, INT, STRING, DYN, SEMVER)
_DERIVABLE: Final = frozenset({*_PRIMITIVES, *map(list_of, _PRIMITIVES)})
_DERIVED: Final = "a primitive scalar (string, integer, boolean, semver) or a list of these scalars"


def _reads(node: Node) -> Reads | None:
    """Return what a tree reads of the device; None if that is a whole map, or under a name that is computed."""
    found, waiting = set(), [node]
    while waiting:
        part = waiting.pop()
        match part:
            case Field(operand=Ident(name="device" | ".device"), name="driver" | "allowMultipleAllocations"):
                continue
            case (
                Field(operand=domain, name=str(identifier))
                | Invocation(function="_[_]" | "_[?_]" | "_?._", arguments=[domain, Constant(value=str(identifier))])
            ) if (place := _domain(domain)) is not None:
                found.add((place[0], f"{place[1]}/{identifier}"))
            case Ident(name="device" | ".device"):
                return None
            case _:
                waiting.extend(children(part))
    return frozenset(found)


def _domain(node: Node) -> tuple[str, str] | None:
    """Return the field and the domain of `device.attributes["example.com"]`, and of capacity."""
    match node:
        case Invocation(
            function="_[_]",
            arguments=[
                Field(operand=Ident(name="device" | ".device"), name="attributes" | "capacity" as field, test=False),
                Constant(value=str(domain)),
            ],
        ):
            return field, domain
        case _:
            return None


# --- devices ------------------------------------------------------------------------------------
# Source: DeviceMatches of k8s.io/dynamic-resource-allocation/cel.


class SelectedDevice:
    """The driver, attributes and capacity of a device. What a selector sees of them is made once, when it is needed.

    `attributes` and `capacity` are as in resource.k8s.io/v1: `{"model": {"string": "a100"}}`, `{"memory": {"value":
    "40Gi"}}`. Names without a domain belong to that of the driver. Both must not change afterwards.
    """

    def __init__(
        self,
        driver: str,
        attributes: Mapping[str, Mapping[str, JSON]] | None = None,
        capacity: Mapping[str, Mapping[str, JSON]] | None = None,
        *,
        allow_multiple_allocations: bool = False,
    ) -> None:
        self.driver = driver
        self.attributes = attributes or {}
        self.capacity = capacity or {}
        self.allow_multiple_allocations = allow_multiple_allocations

    @cached_property
    def variables(self) -> Mapping[str, Any]:
        """The variables of an expression. Raises EvaluationError, if an attribute has no value that can be read."""
        return {
            "device": {
                "driver": self.driver,
                "allowMultipleAllocations": self.allow_multiple_allocations,
                "attributes": self._by_domain(self.attributes, _attribute_value),
                "capacity": self._by_domain(self.capacity, _capacity_value),
            }
        }

    def _by_domain(self, values: Mapping[str, Mapping[str, JSON]], read: Callable[..., Any]) -> DomainMap:
        found = DomainMap()
        for name, value in values.items():
            domain, identifier = _split_name(name, self.driver)
            found.setdefault(domain, {})[identifier] = read(name, value)
        return found

    def attribute(self, domain: str, identifier: str) -> Any:
        """What `device.attributes[domain].identifier` is. Raises EvaluationError, if there is none."""
        try:
            return self.variables["device"]["attributes"][domain][identifier]
        except KeyError:
            raise EvaluationError(f"no such key: {identifier}") from None


def _split_name(name: str, driver: str) -> tuple[str, str]:
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def _version(name: str, text: Any) -> Any:
    found = version_of(text) if isinstance(text, str) else None
    if found is None:
        raise EvaluationError(f"attribute {name}: parse semantic version")
    return found


def _listed(name: str, values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise EvaluationError(f"attribute {name}: unsupported attribute value")
    return list(values)


_READ: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    **dict.fromkeys(("ints", "bools", "strings"), _listed),
    "versions": lambda name, values: [_version(name, value) for value in _listed(name, values)],
    **dict.fromkeys(("int", "bool", "string"), lambda _, value: value),
    "version": _version,
}
"""In the order in which the server looks for a value."""


def _attribute_value(name: str, attribute: Mapping[str, JSON]) -> Any:
    for kind, read in _READ.items():
        value = attribute.get(kind)
        if value is not None:
            return read(name, value)
    raise EvaluationError(f"attribute {name}: unsupported attribute value")


def _capacity_value(name: str, capacity: Mapping[str, JSON]) -> Any:
    value = capacity.get("value")
    found = quantity_of(value if isinstance(value, str) else str(value or 0))
    if found is None:
        raise EvaluationError(f"capacity {name}: not a quantity")
    return found


# --- short cuts -----------------------------------------------------------------------------------
# `device.driver == "x"`, `device.attributes["d"].name == "v"` (also with `!=`, `in [...]`, or after `!`), and
# `&&` of those need neither frames nor closures a node. They give the same results and the same errors, except that
# one of the driver alone looks at no attribute: to see that all have a value takes 20 times as long.

Fact = Callable[[SelectedDevice], Any]
Test = Callable[[SelectedDevice], bool]


def native(node: Node) -> Test | None:  # noqa: PLR0911 -- one case a shape
    """The function of a checked tree, if it is one of these shapes."""
    match node:
        case Invocation(function="_&&_", arguments=operands):
            tests = [native(operand) for operand in operands]
            return _all([test for test in tests if test is not None]) if None not in tests else None
        case Invocation(function="_==_" | "_!=_" as operator, arguments=[one, Constant(value=value)]):
            return _compared(_fact(one), value, equal if operator == "_==_" else differ)
        case Invocation(function="_==_" | "_!=_" as operator, arguments=[Constant(value=value), one]):
            compare = equal if operator == "_==_" else differ
            return _compared(_fact(one), value, lambda found, value, charge: compare(value, found, charge))
        case Invocation(function="@in", arguments=[one, ListOf(entries=[_, *_])]):
            return _member(_fact(one), constant_entries(node))
        case Invocation(function="!_", arguments=[operand]):
            test = native(operand)
            return None if test is None else lambda device: not test(device)
        case Field() | Invocation(function="_[_]"):
            fact = _fact(node)
            return None if fact is None else lambda device: truth(fact(device))
        case _:
            return None


def _compared(fact: Fact | None, value: Any, compare: Callable[[Any, Any, Charge], bool]) -> Test | None:
    if fact is None:
        return None
    if isinstance(value, str) and compare is equal:
        return lambda device: found == value if isinstance(found := fact(device), str) else equal(found, value, free)
    return lambda device: compare(fact(device), value, free)


def _member(fact: Fact | None, entries: Sequence[Any] | None) -> Test | None:
    if fact is None or entries is None:
        return None
    return lambda device: is_member(entries, free, fact(device))


def _all(tests: Sequence[Test]) -> Test:
    def run(device: SelectedDevice) -> bool:
        failed: EvaluationError | None = None
        for test in tests:
            try:
                if not test(device):
                    return False
            except AbortedError:
                raise
            except EvaluationError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return True

    return run


def _fact(node: Node) -> Fact | None:
    """What a part of the device is."""
    match node:
        case Field(operand=Ident(name="device"), name="driver", test=False):
            return lambda device: device.driver
        case Field(operand=Ident(name="device"), name="allowMultipleAllocations", test=False):
            return lambda device: device.allow_multiple_allocations
        case (
            Field(operand=domain, name=str(identifier), test=False)
            | Invocation(function="_[_]", arguments=[domain, Constant(value=str(identifier))])
        ):
            return _attribute(domain, identifier)
        case _:
            return None


def _attribute(node: Node, identifier: str) -> Fact | None:
    match node:
        case Invocation(
            function="_[_]",
            arguments=[Field(operand=Ident(name="device"), name="attributes", test=False), Constant(value=str(domain))],
        ):
            return lambda device: device.attribute(domain, identifier)
        case _:
            return None
