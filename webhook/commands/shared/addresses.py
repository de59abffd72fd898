"""Devices as the command line names them: `DRIVER`, `DRIVER/POOL` or `DRIVER/POOL/DEVICE`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.rules import DeviceSelector
from webhook.validation.formats import dns1123_label, dns1123_subdomain

if TYPE_CHECKING:
    from collections.abc import Iterable

_FORM: Final = "must be DRIVER, DRIVER/POOL or DRIVER/POOL/DEVICE, such as gpu.example.com/node-7/gpu-0"


class DeviceAddress(NamedTuple):
    """One device, all devices of a pool, or all of a driver; what is empty is not named."""

    driver: str
    pool: str = ""
    device: str = ""

    @property
    def selector(self) -> DeviceSelector:
        """The selector of a rule for just these devices."""
        return DeviceSelector(self.driver, self.pool or None, self.device or None)

    def covers(self, driver: str, pool: str, device: str) -> bool:
        """Whether a device is one of them."""
        return driver == self.driver and self.pool in ("", pool) and self.device in ("", device)

    def __str__(self) -> str:
        if not self.device:
            # The names of some pools contain slashes; one more at the end says that the last part is no device.
            return f"{self.driver}/{self.pool}" + ("/" if "/" in self.pool else "") if self.pool else self.driver
        return f"{self.driver}/{self.pool}/{self.device}"


def as_device_address(text: str) -> DeviceAddress:
    """An address. Of three parts and more the last is the device, unless a slash follows. Raises ValueError."""
    driver, *rest = text.split("/")
    device = rest.pop() if len(rest) > 1 else ""
    pool = "/".join(rest)
    named: Iterable[str] = (driver, *rest)
    if any(map(dns1123_subdomain, named)) or (device and dns1123_label(device)):
        raise ValueError(_FORM)
    return DeviceAddress(driver, pool, device)
