"""CEL selectors of patches and device classes, as tests of published devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.inventory.patching import CannotCompileError

if TYPE_CHECKING:
    from webhook.inventory.patching import DeviceTest


def compile_for_devices(expression: str) -> DeviceTest:
    """A test of devices. CEL is not evaluated on devices yet, so a filter with CEL selects none, and says why.

    Raises: CannotCompileError, always.
    """
    raise CannotCompileError(f"CEL is not evaluated on devices yet: {expression}")
