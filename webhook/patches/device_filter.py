"""Filters of patches: the tests that a filter makes of a device, those of its class first.

Names in a filter are not among them: who has the pools by name need not look at each device for these.
Source: KEP-5027; `semantics.md` P-2, P-16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from webhook.api.device_classes import DeviceClassSelectors
from webhook.api.rules import DeviceSelector
from webhook.expressions.selectors.selector import Reads
from webhook.patches.published import PublishedDevice


class CannotCompileError(Exception):
    """A CEL expression cannot be used for any device."""


class CannotMatchError(Exception):
    """A CEL expression has no answer for a device: a runtime error, or a result that is neither true nor false."""


class CannotFilterError(Exception):
    """A filter selects nothing because it cannot be judged, such as one that names a class that is missing."""


class FailedSelectorError(Exception):
    """A selector failed on a device, which the filter leaves out (P-16).

    `where` is the selector: `selector #0`, or `selector #0 of device class gpu`.
    """

    def __init__(self, where: str, detail: str) -> None:
        super().__init__(f"{where}: {detail}")
        self.where = where
        self.detail = detail


class DeviceTest(NamedTuple):
    """A CEL expression as a test of devices. `selects` raises: CannotMatchError."""

    selects: Callable[[PublishedDevice], bool]
    reads: Reads | None = None
    """As in `Selector.reads`."""


class CompilesSelectors(Protocol):
    """Makes tests of devices from CEL expressions; each expression of a patch or class is compiled once a pass."""

    def __call__(self, expression: str) -> DeviceTest:
        """Raises: CannotCompileError."""


class PlacedTest(NamedTuple):
    """A selector of a filter or of its class: where it stands, its expression, and what it tests."""

    where: str
    expression: str
    test: DeviceTest


def placed_expressions(
    selector: DeviceSelector, classes: Mapping[str, DeviceClassSelectors]
) -> tuple[tuple[str, str], ...]:
    """Where the selectors of a filter stand, those of its class first, and what they are. Raises: CannotFilterError."""
    wanted = selector.device_class_name
    if selector.unknown:
        fields = ", ".join(field for field, _ in selector.unknown)
        raise CannotFilterError(f"the filter has fields that are not known: {fields}")
    if wanted is not None and wanted not in classes:
        raise CannotFilterError(f"device class {wanted} does not exist")
    of_class = classes[wanted].selectors if wanted is not None else ()
    placed = [
        *[(f"selector #{at} of device class {wanted}", each.expression) for at, each in enumerate(of_class)],
        *[(f"selector #{at}", each.expression) for at, each in enumerate(selector.selectors)],
    ]
    for where, expression in placed:
        if expression is None:
            raise CannotFilterError(f"{where} cannot be used: it has no CEL expression")
    return tuple([(where, expression) for where, expression in placed if expression is not None])


def tests_of(
    selector: DeviceSelector, classes: Mapping[str, DeviceClassSelectors], compiles: CompilesSelectors
) -> tuple[PlacedTest, ...]:
    """The tests of a filter, those of its class first. Raises: CannotFilterError."""
    found: list[PlacedTest] = []
    for where, expression in placed_expressions(selector, classes):
        try:
            found.append(PlacedTest(where, expression, compiles(expression)))
        except CannotCompileError as error:
            raise CannotFilterError(f"{where} cannot be used: {error}") from None
    return tuple(found)


def satisfies(device: PublishedDevice, tests: Sequence[PlacedTest]) -> bool:
    """Whether all tests select the device; none after the first that does not. Raises: FailedSelectorError."""
    for where, _, test in tests:
        try:
            if not test.selects(device):
                return False
        except CannotMatchError as error:
            raise FailedSelectorError(where, str(error)) from None
    return True
