"""The part of a DeviceClass that says which devices are in it. Source: resource.k8s.io/v1 DeviceClass."""

from __future__ import annotations

import msgspec

from webhook.api.decode import Reader
from webhook.api.rules import CELSelector, decode_cel_selectors


class DeviceClassSelectors(msgspec.Struct, frozen=True):
    """A class by name, with the selectors that a device of it must satisfy, all of them."""

    name: str
    selectors: tuple[CELSelector, ...] = ()


def decode_device_class(reader: Reader) -> DeviceClassSelectors:
    """A DeviceClass of any version."""
    return DeviceClassSelectors(reader.meta().name, decode_cel_selectors(reader.child_or_empty("spec")))
