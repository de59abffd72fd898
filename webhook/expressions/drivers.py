"""The drivers that a DeviceClass' selectors leave. Only what makes a driver impossible counts; the rest may be any."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

from webhook.api.remembered import remembered
from webhook.expressions.selectors.faults import SelectorError
from webhook.expressions.selectors.reader import read_selector
from webhook.expressions.selectors.syntax import Constant, Field, Ident, Invocation, ListOf, Node

# Parsing takes 2 ms a KiB. The API server allows a selector of 10 KiB; those that people write have a tenth.
READ_MAX_CHARACTERS: Final = 4 * 1024


def drivers_of(expressions: Sequence[str]) -> frozenset[str] | None:
    """The drivers whose devices all the expressions can select; None where that cannot be read, so any.

    Reads `device.driver == "x"` and `device.driver in ["x", "y"]`, joined by `&&` and `||`. An expression without them,
    or too long to be read, leaves any driver.
    Source: resource.k8s.io/v1 CELDeviceSelector.
    """
    if sum(map(len, expressions)) > READ_MAX_CHARACTERS:
        return None
    return _narrowed([_drivers(expression) for expression in expressions])


def drivers_in_manifest(device_class: Any) -> frozenset[str] | None:
    """The drivers whose devices a DeviceClass, given as raw JSON, can select; None: any, or no class at all.

    Selectors that are not CEL, and values of a wrong type, are skipped.
    """
    spec = device_class.get("spec") if isinstance(device_class, dict) else None
    selectors = spec.get("selectors") if isinstance(spec, dict) else None
    if not isinstance(selectors, list):
        return None
    cel = [selector.get("cel") for selector in selectors if isinstance(selector, dict)]
    expressions = [each.get("expression") for each in cel if isinstance(each, dict)]
    return drivers_of([expression for expression in expressions if isinstance(expression, str)])


@remembered(256, READ_MAX_CHARACTERS)
def _drivers(expression: str) -> frozenset[str] | None:
    try:
        return _allowed(read_selector(expression))
    except SelectorError:
        return None


def _allowed(node: Node) -> frozenset[str] | None:
    """The drivers for which the node is not false for certain."""
    match node:
        case Invocation(function="_==_", arguments=[left, Constant(value=str(driver))]) if _is_driver(left):
            return frozenset({driver})
        case Invocation(function="_==_", arguments=[Constant(value=str(driver)), right]) if _is_driver(right):
            return frozenset({driver})
        case Invocation(function="@in", arguments=[left, ListOf(entries=entries)]) if _is_driver(left):
            texts = [entry.value for entry in entries if isinstance(entry, Constant) and isinstance(entry.value, str)]
            return frozenset(texts) if len(texts) == len(entries) else None
        case Invocation(function="_&&_", arguments=operands):
            return _narrowed([_allowed(operand) for operand in operands])
        case Invocation(function="_||_", arguments=operands):
            return _widened([_allowed(operand) for operand in operands])
        case _:
            return None


def _is_driver(node: Node) -> bool:
    match node:
        case Field(operand=Ident(name="device"), name="driver", test=False):
            return True
        case _:
            return False


def _narrowed(sets: Sequence[frozenset[str] | None]) -> frozenset[str] | None:
    """What all of them allow; None allows any."""
    known = [drivers for drivers in sets if drivers is not None]
    return reduce(frozenset.intersection, known) if known else None


def _widened(sets: Sequence[frozenset[str] | None]) -> frozenset[str] | None:
    """What one of them allows."""
    known = [drivers for drivers in sets if drivers is not None]
    return frozenset().union(*known) if len(known) == len(sets) else None
