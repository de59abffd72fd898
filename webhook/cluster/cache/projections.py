"""From objects on the wire to the values that policy knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from webhook.cluster.cache.wire import WireValue
from webhook.expressions.drivers import drivers_of
from webhook.policy.ports import NamespaceFacts

if TYPE_CHECKING:
    from collections.abc import Mapping


class PartialObject(WireValue, frozen=True):
    """Metadata and nothing else: what is asked for as PartialObjectMetadata."""


class _CELSelector(msgspec.Struct, frozen=True, gc=False):
    expression: str = ""


class _Selector(msgspec.Struct, frozen=True, gc=False):
    cel: _CELSelector | None = None


class _DeviceClassSpec(msgspec.Struct, frozen=True):
    selectors: list[_Selector] | None = None


class DeviceClass(WireValue, frozen=True):
    """The same in every version that was ever served, as far as it is read."""

    spec: _DeviceClassSpec | None = None


class ConfigMap(WireValue, frozen=True):
    """Text only; nobody here reads binaryData."""

    data: dict[str, str] | None = None


def class_drivers(device_class: DeviceClass) -> frozenset[str] | None:
    """The drivers whose devices the class can give; None if that cannot be read from its selectors, so any.

    A selector of another sort than CEL is one that we cannot read; others still narrow the class down.
    """
    selectors = (device_class.spec.selectors if device_class.spec else None) or ()
    return drivers_of([selector.cel.expression for selector in selectors if selector.cel])


def namespace_facts(namespace: PartialObject, known: NamespaceFacts | None) -> NamespaceFacts:
    """The known facts themselves while labels are the same: what was remembered for them stays findable."""
    labels: Mapping[str, str] = namespace.metadata.labels or {}
    if known is not None and known.labels == labels:
        return known
    return NamespaceFacts(namespace.metadata.name, labels)
