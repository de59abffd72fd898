"""CEL expressions about devices: selectors, and attributes that are derived. `semantics.md` R-10."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.api.field import forbidden, internal_error, invalid, too_long
from webhook.expressions.selectors.cost import MAX_COST
from webhook.expressions.selectors.faults import FaultKind, SelectorFault
from webhook.expressions.selectors.selector import compile_selector, derived_cost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.api.field import FieldError, Path

SELECTORS_MAX: Final = 32
EXPRESSION_MAX_BYTES: Final = 10 * 1024
COMPILED_MAX_BYTES: Final = 16 * 1024
"""What is compiled of one list of selectors together, which takes up to 0.3 s; what follows is not judged."""
_TOO_COMPLEX: Final = "too complex, exceeds cost limit"


class ExpressionBudget:
    """Judges the expressions of one list, up to COMPILED_MAX_BYTES of them."""

    def __init__(self) -> None:
        self._left_bytes = COMPILED_MAX_BYTES

    def selector_errors(self, path: Path, text: str, *, evaluated: bool = False) -> Iterator[FieldError]:
        """One selector. `evaluated`: here and not by the API server, so that what is unsupported here is refused."""
        if not self._fits(text):
            yield from _length_errors(path, text)
            return
        found = compile_selector(text)
        if isinstance(found, SelectorFault):
            yield from fault_errors(path, text, found, evaluated=evaluated)

    def derived_costs(self, path: Path, text: str) -> Iterator[FieldError | int]:
        """One derived attribute: its errors, and what it costs."""
        if not self._fits(text):
            yield from _length_errors(path, text)
            return
        found = derived_cost(text)
        if isinstance(found, SelectorFault):
            yield from fault_errors(path, text, found, evaluated=False)
            return
        if found > MAX_COST:
            yield forbidden(path, _TOO_COMPLEX)
        yield found

    def _fits(self, text: str) -> bool:
        size = _size_bytes(text)
        if size > EXPRESSION_MAX_BYTES:
            return False
        self._left_bytes -= size
        return self._left_bytes >= 0


def _length_errors(path: Path, text: str) -> Iterator[FieldError]:
    if _size_bytes(text) > EXPRESSION_MAX_BYTES:
        yield too_long(path, EXPRESSION_MAX_BYTES)


def fault_errors(path: Path, text: str, fault: SelectorFault, *, evaluated: bool) -> Iterator[FieldError]:
    """The error that the API server reports of a fault, if it does."""
    match fault.kind:
        case FaultKind.INVALID:
            yield invalid(path, text, fault.detail)
        case FaultKind.INTERNAL:
            yield internal_error(path, fault.detail)
        case FaultKind.TOO_EXPENSIVE:
            yield forbidden(path, fault.detail)
        case FaultKind.UNSUPPORTED:
            if evaluated:
                yield invalid(path, text, fault.detail)


def _size_bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))
