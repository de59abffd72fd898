"""CEL selectors of patches and device classes, as tests of published devices. Source: `semantics.md` P-16, P-17."""

from __future__ import annotations

import math
from functools import partial
from typing import Final

from webhook.expressions.selectors.device import SelectedDevice
from webhook.expressions.selectors.frame import StepBudget
from webhook.expressions.selectors.selector import EvaluationError, Selector, SelectorFault, compile_selector
from webhook.inventory.fates import DeviceId
from webhook.patches.device_filter import CannotCompileError, CannotMatchError, DeviceTest
from webhook.patches.published import PublishedDevice

EVALUATION_STEPS: Final = 2000
"""Of one selector for one device: a millisecond or two at most. Usual ones take ten. An API server allows 1,000,000,
but for the devices of one node. The limit is for each evaluation by itself, so that a filter selects the same devices
whatever was evaluated before."""


class SeenDevices:
    """What selectors see of devices, made once for all selectors that are asked about one."""

    def __init__(self) -> None:
        self._seen: dict[DeviceId, SelectedDevice] = {}

    def of(self, device: PublishedDevice) -> SelectedDevice:
        """The device as selectors see it."""
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
        """Devices of a name that was seen may be others from now on."""
        self._seen.clear()


class DeviceSelectors:
    """Compiles the selectors of one pass over the devices. What selectors see of a device is made once a pass.

    An evaluation that takes more than EVALUATION_STEPS fails. When all of them together have taken `steps`, if that is
    given, further ones fail as well.
    """

    def __init__(self, steps: int | None = None, seen: SeenDevices | None = None) -> None:
        self._left = math.inf if steps is None else steps
        self._budget = StepBudget(0)
        self._seen = seen or SeenDevices()

    def __call__(self, expression: str) -> DeviceTest:
        """The test of devices that the expression is. Raises: CannotCompileError."""
        selector = compile_selector(expression)
        if isinstance(selector, SelectorFault):
            raise CannotCompileError(selector.detail)
        return DeviceTest(partial(self._matches, selector), selector.reads)

    def _matches(self, selector: Selector, device: PublishedDevice) -> bool:
        budget = self._budget
        allowed = budget.left = EVALUATION_STEPS if self._left > EVALUATION_STEPS else int(self._left)
        try:
            return selector.matches(self._seen.of(device), budget)
        except EvaluationError as error:
            raise CannotMatchError(str(error)) from None
        finally:
            self._left -= allowed - budget.left


class SharedSelectors:
    """Makes the selectors of many filters that look at the same devices."""

    def __init__(self) -> None:
        self._seen = SeenDevices()

    def make(self) -> DeviceSelectors:
        """Those of one filter."""
        return DeviceSelectors(seen=self._seen)

    def seen(self, device: PublishedDevice) -> SelectedDevice:
        """A device as the selectors see it."""
        return self._seen.of(device)

    def forget(self) -> None:
        """The devices that are asked about from now on are others."""
        self._seen.forget()
