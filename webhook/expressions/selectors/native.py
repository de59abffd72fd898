"""Short cuts for the selectors that most people write.

`device.driver == "x"`, `device.attributes["d"].name == "v"` (also with `!=`, `in [...]`, on its own or after `!`), and
`&&` of those need neither frames nor closures a node. They give the same results and the same errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from webhook.expressions.selectors.constants import constant_entries, is_member
from webhook.expressions.selectors.device import SelectedDevice
from webhook.expressions.selectors.syntax import Constant, Field, Ident, Invocation, ListOf, Node
from webhook.expressions.selectors.values import AbortedError, Charge, differ, equal, free, truth
from webhook.expressions.values import EvaluationError

Fact = Callable[[SelectedDevice], Any]
Test = Callable[[SelectedDevice], bool]


def native(node: Node) -> Test | None:  # noqa: PLR0911 -- one case a shape
    """The function of a checked tree, if it is one of those shapes."""
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
        case Field(operand=domain, name=str(identifier), test=False):
            return _attribute(domain, identifier)
        case Invocation(function="_[_]", arguments=[domain, Constant(value=str(identifier))]):
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
