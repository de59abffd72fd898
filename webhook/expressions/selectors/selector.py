"""CEL selectors of devices: `compile_selector` makes one, `Selector.matches` asks it.

selector = compile_selector('device.driver == "gpu.example.com"')
if isinstance(selector, SelectorFault): ...  # what is wrong with it
selector.matches(SelectedDevice.of_json("gpu.example.com", slice["spec"]["devices"][0]))  # or EvaluationError
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.expressions.selectors.builder import built
from webhook.expressions.selectors.checker import check
from webhook.expressions.selectors.cost import MAX_COST, worst_cost
from webhook.expressions.selectors.faults import FaultKind, SelectorError, SelectorFault
from webhook.expressions.selectors.frame import CostExceededError, Frame, StepBudget
from webhook.expressions.selectors.kinds import BOOL, DYN, INT, SEMVER, STRING
from webhook.expressions.selectors.native import native
from webhook.expressions.selectors.reader import read_selector
from webhook.expressions.selectors.values import truth
from webhook.expressions.values import EvaluationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.expressions.selectors.builder import Step
    from webhook.expressions.selectors.device import SelectedDevice
    from webhook.expressions.selectors.kinds import CelType
    from webhook.expressions.selectors.native import Test
    from webhook.expressions.selectors.syntax import Node

__all__ = ["CostExceededError", "EvaluationError", "Selector", "SelectorFault", "StepBudget", "compile_selector"]

MAX_BYTES: Final = 10 * 1024
"""Of source, in UTF-8."""
REMEMBERED_MAX_CHARACTERS: Final = 1024
"""Of a source whose result is remembered; 256 of them take up to 25 MiB."""


class Selector:
    """A selector that was checked. Does not change; may be shared between threads."""

    __slots__ = ("_native", "_run", "cost", "source")

    source: str
    cost: int
    """The most that one evaluation costs by the API server's estimate."""

    def __init__(self, source: str, cost: int, run: Step, test: Test | None) -> None:
        self.source = source
        self.cost = cost
        self._run = run
        self._native = test

    def matches(self, device: SelectedDevice, budget: StepBudget | None = None) -> bool:
        """Whether it selects the device.

        A `budget` is for all evaluations of a pass together: how many steps they may take, each about a unit of cost
        and 0.3 µs. Without one, an evaluation may take as many as the API server allows it.

        Raises: EvaluationError, if it has no value for this device, such as for an attribute that is missing, or one
        that is no truth value; its kind CostExceededError, if the steps are used up.
        """
        if self._native is not None:
            if budget is not None:
                budget.charge(1)
            return self._native(device)
        return self.interpreted(device, budget)

    def interpreted(self, device: SelectedDevice, budget: StepBudget | None = None) -> bool:
        """As `matches`, without the short cut."""
        own = StepBudget(MAX_COST if budget is None else max(min(MAX_COST, budget.left), 0))
        allowed = own.left
        try:
            return truth(self._run(Frame(device.variables, own)))
        except RecursionError:
            raise EvaluationError("nested too deep for the stack") from None
        finally:
            if budget is not None:
                budget.left -= allowed - own.left

    def __repr__(self) -> str:
        return f"Selector({self.source!r})"


def compile_selector(expression: str) -> Selector | SelectorFault:
    """A selector of a DeviceClass, of a request or of a patch; or the first fault in it.

    Checked as Kubernetes 1.37 checks new expressions, with every feature of Dynamic Resource Allocation on: syntax,
    names, types, patterns, and the estimated cost of the worst case, at most MAX_COST. A fault of the kind UNSUPPORTED
    says nothing about what the API server does: it is one of this evaluator. Results are remembered.

    Source: CompileCELExpression of k8s.io/dynamic-resource-allocation/cel; `semantics.md` R-10.
    """
    return _remembered(expression) if len(expression) <= REMEMBERED_MAX_CHARACTERS else _selector(expression)


def derived_cost(expression: str) -> int | SelectorFault:
    """What the expression of a derived attribute (KEP-5491) costs at worst, or the fault in it; checked likewise.

    One that is too expensive is no fault: the costs of a claim count together. Neither is one of the kind UNSUPPORTED
    of which everything else is right.
    """
    try:
        return _checked(expression, _is_derivable, _DERIVED).cost
    except SelectorError as error:
        return error.fault


def _selector(expression: str) -> Selector | SelectorFault:
    try:
        return _compiled(expression)
    except SelectorError as error:
        return error.fault


_remembered = lru_cache(maxsize=256)(_selector)


class _Checked(NamedTuple):
    """What is known before the cost is judged: `run` is the fault where it cannot be evaluated here."""

    node: Node
    cost: int
    run: Step | SelectorError


def _compiled(expression: str) -> Selector:
    node, cost, run = _checked(expression, _is_truth, "bool or the unknown type")
    if cost > MAX_COST:
        raise SelectorError(FaultKind.TOO_EXPENSIVE, "too complex, exceeds cost limit")
    if isinstance(run, SelectorError):
        raise run
    return Selector(expression, cost, run, native(node))


def _checked(expression: str, is_right: Callable[[CelType], bool], wanted: str) -> _Checked:
    size = len(expression.encode(errors="surrogatepass"))
    if size > MAX_BYTES:
        raise SelectorError.invalid(f"too long: {size} bytes, must be at most {MAX_BYTES}")
    try:
        node = read_selector(expression)
        kind = check(node)
        if not is_right(kind):
            raise SelectorError(FaultKind.INVALID, f"must evaluate to {wanted}, not {kind}")
        cost = worst_cost(node)
        return _Checked(node, cost, _built(node))
    except RecursionError:
        raise SelectorError.unsupported("nested too deep for the stack") from None


def _built(node: Node) -> Step | SelectorError:
    """As `built`; the API server estimates the cost before it would come to what is only unsupported here."""
    try:
        return built(node)
    except SelectorError as error:
        if error.fault.kind is FaultKind.UNSUPPORTED:
            return error
        raise


def _is_truth(kind: CelType) -> bool:
    return kind in {BOOL, DYN}


def _is_derivable(kind: CelType) -> bool:
    return kind in _DERIVABLE or (kind.kind == "list" and kind.of[0] in _DERIVABLE)


_DERIVABLE: Final = frozenset({BOOL, INT, STRING, DYN, SEMVER})
_DERIVED: Final = "a primitive scalar (string, integer, boolean, semver) or a list of these scalars"
