"""Wire structs of device classes and ConfigMaps, and the values that policy makes of them."""

from __future__ import annotations

import msgspec

from webhook.api.device_classes import DeviceClassSelectors
from webhook.api.rules import CELSelector
from webhook.cluster.cache.wire import WireValue
from webhook.expressions.drivers import drivers_of


class _CELSelector(msgspec.Struct, frozen=True, gc=False):
    expression: str = ""


class _Selector(msgspec.Struct, frozen=True, gc=False):
    cel: _CELSelector | None = None


class _DeviceClassSpec(msgspec.Struct, frozen=True):
    selectors: list[_Selector] | None = None


class DeviceClass(WireValue, frozen=True):
    """The same in every version that was ever served, as far as it is read."""

    spec: _DeviceClassSpec | None = None


class ConfigMap(WireValue, frozen=True, rename="camel"):
    """Of binaryData only the keys are of use: a policy there is a mistake that must be reported."""

    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


def class_drivers(device_class: DeviceClass) -> frozenset[str] | None:
    """The drivers whose devices the class can select; None if that cannot be read from its selectors, so any.

    A selector of another sort than CEL is one that we cannot read; others still narrow the class down.
    """
    selectors = (device_class.spec.selectors if device_class.spec else None) or ()
    return drivers_of([selector.cel.expression for selector in selectors if selector.cel])


def class_selectors(device_class: DeviceClass) -> DeviceClassSelectors:
    """What a device of the class must satisfy; a selector of another sort than CEL is one without an expression."""
    selectors = (device_class.spec.selectors if device_class.spec else None) or ()
    found = [CELSelector(selector.cel.expression if selector.cel else None) for selector in selectors]
    return DeviceClassSelectors(device_class.meta.name, tuple(found))
