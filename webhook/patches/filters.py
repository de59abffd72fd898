"""Filters of patches: the tests that a filter makes of a device, those of its class first, and their CEL selectors.

Names in a filter are not among them: who has the pools by name need not look at each device for these.
Source: KEP-5027; `semantics.md` P-2, P-16, P-17.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from webhook.api.rules import DeviceSelector
from webhook.api.slices import DeviceClassSelectors
from webhook.expressions.selectors.faults import SelectorFault, StepBudget
from webhook.expressions.selectors.selector import Reads, SelectedDevice, Selector, compile_selector
from webhook.expressions.values import EvaluationError
from webhook.inventory.targets import DeviceId
from webhook.patches.published import PublishedDevice


class CannotCompileError(Exception):
    """A CEL expression cannot be used for any device."""


class CannotMatchError(Exception):
    """A CEL expression has no answer for a device: a runtime error, or a result that is neither true nor false."""


class CannotFilterError(Exception):
    """A filter selects nothing because it cannot be judged, such as one that names a class that is missing."""


class DeviceTest(NamedTuple):
    """A CEL expression as a test of devices. `selects` raises: CannotMatchError."""

    selects: Callable[[PublishedDevice], bool]
    reads: Reads | None = None
    """As in `Selector.reads`."""


CompilesSelectors: TypeAlias = Callable[[str], DeviceTest]
"""Makes tests of devices from CEL expressions; each of a patch or class is compiled once a pass. Raises:
CannotCompileError."""


class PlacedTest(NamedTuple):
    """A selector of a filter or of its class: its expression, and what it tests.

    `where` it stands: `selector #0`, or `selector #0 of device class gpu`.
    """

    where: str
    expression: str
    test: DeviceTest


def placed_expressions(
    selector: DeviceSelector, classes: Mapping[str, DeviceClassSelectors]
) -> tuple[tuple[str, str], ...]:
    """Return where the selectors of a filter stand, its class's first, and each text. Raises: CannotFilterError."""
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
    """Return the tests of a filter, those of its class first. Raises: CannotFilterError."""
    found: list[PlacedTest] = []
    for where, expression in placed_expressions(selector, classes):
        try:
            found.append(PlacedTest(where, expression, compiles(expression)))
        except CannotCompileError as error:
            raise CannotFilterError(f"{where} cannot be used: {error}") from None
    return tuple(found)


Answer: TypeAlias = bool | tuple[str, str]
"""Whether a selector or a filter selects a device. Where a selector fails, the device is left out (P-16): which one it
was, as `PlacedTest.where`, and how it failed."""


def answer_of(device: PublishedDevice, placed: PlacedTest) -> Answer:
    """Ask a selector about a device."""
    try:
        return placed.test.selects(device)
    except CannotMatchError as error:
        return placed.where, str(error)


EVALUATION_STEPS: Final = 2000
"""Of one selector for one device: a millisecond or two at most. Usual ones take ten. An API server allows 1,000,000,
but for the devices of one node. The limit is for each evaluation by itself, so that a filter selects the same devices
whatever was evaluated before."""


class DeviceSelectors:
    """Compiles the selectors of one pass over the devices. What selectors see of a device is made once a pass.

    An evaluation that takes more than EVALUATION_STEPS fails. When all of them together have taken `steps`, if that is
    given, further ones fail as well.
    """

    def __init__(self, steps: int | None = None, shared: SharedSelectors | None = None) -> None:
        self._left = math.inf if steps is None else steps
        self._budget = StepBudget(0)
        self._shared = shared or SharedSelectors()

    def __call__(self, expression: str) -> DeviceTest:
        """Make the test of devices that the expression is. Raises: CannotCompileError."""
        selector = compile_selector(expression)
        if isinstance(selector, SelectorFault):
            raise CannotCompileError(selector.detail)
        return DeviceTest(partial(self._matches, selector), selector.reads)

    def _matches(self, selector: Selector, device: PublishedDevice) -> bool:
        budget = self._budget
        allowed = budget.left = EVALUATION_STEPS if self._left > EVALUATION_STEPS else int(self._left)
        try:
            return selector.matches(self._shared.seen(device), budget)
        except EvaluationError as error:
            raise CannotMatchError(str(error)) from None
        finally:
            self._left -= allowed - budget.left


class SharedSelectors:
    """Makes the selectors of many filters that look at the same devices; these are shown to them once."""

    def __init__(self) -> None:
        self._seen: dict[DeviceId, SelectedDevice] = {}

    def make(self) -> DeviceSelectors:
        """Return those of one filter."""
        return DeviceSelectors(shared=self)

    def seen(self, device: PublishedDevice) -> SelectedDevice:
        """Return a device as the selectors see it."""
        address = device.address
        seen = self._seen.get(address)
        if seen is None:
            seen = self._seen[address] = SelectedDevice(
                address.driver,
                device.attributes,
                device.capacity,
                allow_multiple_allocations=device.allow_multiple_allocations,
            )
        return seen

    def forget(self) -> None:
        """Forget what was seen: devices of the same names may be others from now on."""
        self._seen.clear()
