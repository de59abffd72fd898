"""CEL selectors of devices: `compile_selector` makes one, `Selector.matches` asks it.

selector = compile_selector('device.driver == "gpu.example.com"')
if isinstance(selector, SelectorFault): ...  # what is wrong with it
selector.matches(SelectedDevice.of_json("gpu.example.com", slice["spec"]["devices"][0]))  # or EvaluationError
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from webhook.expressions.selectors.builder import built
from webhook.expressions.selectors.checker import check
from webhook.expressions.selectors.cost import MAX_COST, worst_cost
from webhook.expressions.selectors.faults import FaultKind, SelectorError, SelectorFault
from webhook.expressions.selectors.frame import CostExceededError, Frame, StepBudget
from webhook.expressions.selectors.native import native
from webhook.expressions.selectors.reader import read_selector
from webhook.expressions.selectors.values import truth
from webhook.expressions.values import EvaluationError

if TYPE_CHECKING:
    from webhook.expressions.selectors.builder import Step
    from webhook.expressions.selectors.device import SelectedDevice
    from webhook.expressions.selectors.native import Test

__all__ = ["CostExceededError", "EvaluationError", "Selector", "SelectorFault", "StepBudget", "compile_selector"]

MAX_BYTES: Final = 10 * 1024
"""Of source, in UTF-8."""


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


@lru_cache(maxsize=512)
def compile_selector(expression: str) -> Selector | SelectorFault:
    """A selector of a DeviceClass, of a request or of a patch; or the first fault in it.

    Checked as Kubernetes 1.37 checks new expressions, with every feature of Dynamic Resource Allocation on: syntax,
    names, types, patterns, and the estimated cost of the worst case, at most MAX_COST. A fault of the kind UNSUPPORTED
    says nothing about what the API server does: it is one of this evaluator. Results are remembered.

    Source: CompileCELExpression of k8s.io/dynamic-resource-allocation/cel; `semantics.md` R-10, P-17.
    """
    try:
        return _compiled(expression)
    except SelectorError as error:
        return error.fault
    except RecursionError:
        return SelectorFault(FaultKind.UNSUPPORTED, "not supported here: nested too deep for the stack")


def _compiled(expression: str) -> Selector:
    size = len(expression.encode(errors="surrogatepass"))
    if size > MAX_BYTES:
        raise SelectorError.invalid(f"too long: {size} bytes, must be at most {MAX_BYTES}")
    node = read_selector(expression)
    kind = check(node)
    if kind.kind not in {"bool", "dyn"}:
        raise SelectorError(FaultKind.INVALID, f"must evaluate to bool or the unknown type, not {kind}")
    cost = worst_cost(node)
    try:
        run = built(node)
    except SelectorError as error:
        # The API server estimates the cost last.
        if error.fault.kind is not FaultKind.UNSUPPORTED or cost <= MAX_COST:
            raise
    if cost > MAX_COST:
        raise SelectorError(FaultKind.TOO_EXPENSIVE, "too complex, exceeds cost limit")
    return Selector(expression, cost, run, native(node))
