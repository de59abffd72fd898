"""CEL selectors of patches and device classes, as tests of published devices. Source: `semantics.md` P-16, P-17."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from webhook.expressions.selectors.device import SelectedDevice
from webhook.expressions.selectors.frame import StepBudget
from webhook.expressions.selectors.selector import EvaluationError, SelectorFault, compile_selector
from webhook.inventory.device_filter import CannotCompileError, CannotMatchError

if TYPE_CHECKING:
    from webhook.expressions.selectors.selector import Selector
    from webhook.inventory.device_filter import DeviceTest
    from webhook.inventory.published import DeviceId, PublishedDevice


PASS_STEPS: Final = 100_000_000
"""Of all evaluations of a pass together: half a minute at most. Usual selectors take ten for each device."""


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

    When all evaluations together have taken `steps`, further ones fail.
    """

    def __init__(self, steps: int = PASS_STEPS, seen: SeenDevices | None = None) -> None:
        self._steps = steps
        self._budget = StepBudget(steps)
        self._seen = seen or SeenDevices()

    def __call__(self, expression: str) -> DeviceTest:
        """The test of devices that the expression is. Raises: CannotCompileError."""
        selector = compile_selector(expression)
        if isinstance(selector, SelectorFault):
            raise CannotCompileError(selector.detail)
        return partial(self._matches, selector)

    def renew(self) -> None:
        """A new pass begins, with all of its steps."""
        self._budget.left = self._steps

    def _matches(self, selector: Selector, device: PublishedDevice) -> bool:
        try:
            return selector.matches(self._seen.of(device), self._budget)
        except EvaluationError as error:
            raise CannotMatchError(str(error)) from None


class SharedSelectors:
    """Makes the selectors of many filters, each with steps of its own, that look at the same devices."""

    def __init__(self, steps: int = PASS_STEPS) -> None:
        self._steps = steps
        self._seen = SeenDevices()

    def make(self) -> DeviceSelectors:
        """Those of one filter."""
        return DeviceSelectors(self._steps, self._seen)

    def forget(self) -> None:
        """The devices that are asked about from now on are others."""
        self._seen.forget()
