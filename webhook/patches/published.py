"""Published devices with everything that a patch may select them by or change: attributes, capacity, taints.

Source: resource.k8s.io/v1 Device; `semantics.md` P-4, P-15.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

import msgspec

from webhook.api.field import JSON
from webhook.api.slices import ResourceSlice
from webhook.api.taints import DeviceTaint
from webhook.inventory.pools import Pool, PoolId
from webhook.inventory.targets import DeviceId
from webhook.patches.originals import (
    ATTRIBUTES,
    CAPACITY,
    ORIGINALS,
    content_of,
    kept_in,
    published_settings,
    settings_of,
    with_settings,
    written_devices,
)


class PublishedDevice(msgspec.Struct, frozen=True):
    """A device as its driver publishes it.

    Attributes (`{"int": 1}`) and capacities (`{"value": "40Gi"}`) are JSON by fully qualified name: what a slice lists
    without a domain is in the driver's. They are empty where slices are kept without them.
    """

    address: DeviceId
    attributes: Mapping[str, JSON] = {}
    capacity: Mapping[str, JSON] = {}
    taints: tuple[DeviceTaint, ...] = ()
    allow_multiple_allocations: bool = False


def published_devices(identity: PoolId, pool: Pool) -> Iterator[PublishedDevice]:
    """Yield the devices of a pool's newest generation, each name once, with the taints that the slices put on them.

    What patches override in the slices themselves is not published (P-15): there the driver's own values count.
    """
    return chain.from_iterable(published_by_slice(identity, pool))


def published_by_slice(identity: PoolId, pool: Pool) -> Iterator[list[PublishedDevice]]:
    """Yield the same slice by slice. Each is read when it is asked for, which may take some milliseconds."""
    driver, name = identity
    newest, taints = pool.newest, pool.devices
    last = {device.name: value for value in newest for device in value.devices}
    for value in newest:
        yield [
            PublishedDevice(
                DeviceId(driver, name, device),
                _qualified(driver, _entries(content, ATTRIBUTES)),
                _qualified(driver, [(name, _capacity(value)) for name, value in _entries(content, CAPACITY)]),
                taints[device],
                content.get("allowMultipleAllocations") is True,
            )
            for device, content in dict(_contents(value)).items()
            if last[device] is value
        ]


def _contents(value: ResourceSlice) -> Iterator[tuple[str, dict[str, JSON]]]:
    """Yield each device's name and what stands in it, a level deeper in v1beta1; nothing where that was not kept."""
    overridden = kept_in(value.meta.annotations.get(ORIGINALS))
    for name, raw in written_devices(value):
        content = content_of(raw)
        if name in overridden:
            content = with_settings(content, published_settings(settings_of(content), overridden[name]))
        yield name, content


def _entries(content: Mapping[str, JSON], field: str) -> list[tuple[str, JSON]]:
    values = content.get(field)
    return list(values.items()) if isinstance(values, dict) else []


def _qualified(driver: str, entries: list[tuple[str, JSON]]) -> dict[str, JSON]:
    """Return values by qualified name; what is no object is left out.

    Of a name that is given both with and without the driver's domain the former counts.
    """
    found = [(name, value) for name, value in entries if isinstance(value, dict)]
    short = {qualified_name(driver, name): value for name, value in found if "/" not in name}
    return short | {name: value for name, value in found if "/" in name}


def qualified_name(driver: str, name: str) -> str:
    """Return the name of an attribute or capacity with its domain."""
    return name if "/" in name else f"{driver}/{name}"


def _capacity(value: JSON) -> JSON:
    """Return a capacity as an object; before v1beta1 it was the quantity itself."""
    return value if isinstance(value, dict) else {"value": value}
