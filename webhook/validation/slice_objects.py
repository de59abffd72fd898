"""What an API server refuses in a slice beyond driver and taints.

Source: pkg/apis/resource/validation of Kubernetes 1.37 (validateResourceSliceSpec), and the declarative validation of
resource/v1. How many devices a slice may have is judged in `slices`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.api.field import FieldError, Path, duplicate, invalid, not_supported, required
from webhook.api.meta import FLAT_VERSIONS
from webhook.validation.device_objects import (
    SETS_MAX,
    counter_map_errors,
    device_errors,
    node_name_errors,
    node_selector_errors,
)
from webhook.validation.formats import fully_qualified_name, pool_name, qualified_name
from webhook.validation.nodes import Node, list_errors, text_list_errors
from webhook.validation.releases import MAX_DEVICES, Release

if TYPE_CHECKING:
    from collections.abc import Iterator

_FLAGS: Final = ("allNodes", "perDeviceNodeSelection")
_PLACES: Final = ("nodeName", "nodeSelector", *_FLAGS)
_ONE_PLACE: Final = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_OPERATIONS: Final = ("*", "NodePrepareResources", "NodeUnprepareResources")
_LISTS: Final = ("bools", "ints", "strings", "versions")
_BASIC: Final = "basic"


def slice_spec_errors(spec: Node, version: str, release: Release) -> Iterator[FieldError]:
    """The `spec` of a slice, in any version."""
    pool = spec.child("pool")
    yield from pool_name(pool.at("name"), pool.text("name"))
    if pool.number("resourceSliceCount") <= 0:
        yield invalid(pool.at("resourceSliceCount"), pool.number("resourceSliceCount"), "must be greater than zero")
    if pool.number("generation") < 0:
        yield invalid(pool.at("generation"), pool.number("generation"), "must be greater than or equal to zero")
    # In the flat versions these two are no pointers: empty and false are the same as missing.
    plain = {name: value for name, value in spec.value.items() if name not in ("nodeName", "allNodes") or value}
    yield from _place_errors(Node(plain, spec.path) if version in FLAT_VERSIONS else spec)
    yield from _device_list_errors(spec, version, release)
    yield from list_errors(
        spec,
        "sharedCounters",
        SETS_MAX if release.counters_halve_devices else None,
        lambda each: counter_map_errors(each, "name", release),
        release,
        "name",
    )
    if spec.has("partitionTypeAttribute"):
        yield from partition_type_errors(spec, version, release)
    yield from _skipped_operation_errors(spec, release)


def _place_errors(spec: Node) -> Iterator[FieldError]:
    """On which nodes the devices are."""
    yield from node_name_errors(spec, "must be either unset or set to a non-empty string")
    if spec.has("nodeSelector"):
        yield from node_selector_errors(spec.child("nodeSelector"), single=True)
    for name in _FLAGS:
        if spec.get(name) is False:
            yield invalid(spec.at(name), False, "must be either unset or set to true")  # noqa: FBT003 -- the value
    given = [f"`{name}`" for name in _PLACES if spec.get(name) not in (None, "", False)]
    if not given:
        yield required(spec.path, _ONE_PLACE)
    elif len(given) > 1:
        yield invalid(spec.path, f"{{{', '.join(given)}}}", f"{_ONE_PLACE}, but multiple fields are set")


def _devices(spec: Node, version: str) -> list[tuple[Node, str]]:
    """Each device with its name; in the flat versions the rest of it lies a level deeper."""
    devices = []
    for each in spec.entries("devices"):
        content = each
        if version in FLAT_VERSIONS:
            content = Node(each.get(_BASIC) or {}, each.path.only_written(_BASIC))
        devices.append((content, each.text("name")))
    return devices


def _device_list_errors(spec: Node, version: str, release: Release) -> Iterator[FieldError]:
    devices = _devices(spec, version)
    crowded = release.long_lists_end_the_look and len(devices) > _maximum(devices, release)
    per_device = spec.get("perDeviceNodeSelection") is True
    seen: set[str] = set()
    for position, (device, name) in enumerate(devices):
        for error in device_errors(device, name, release, per_device=per_device):
            # Of a list that is too long only that is seen which is checked before the conversion.
            if not crowded or error.declarative:
                yield error
        if name in seen and not crowded:
            at = spec.at("devices").index(position)
            yield duplicate(at if release.long_lists_end_the_look else at.child("name"), name)
        seen.add(name)


def _maximum(devices: list[tuple[Node, str]], release: Release) -> int:
    """How many devices there may be (S-2)."""
    for device, _ in devices:
        if (
            device.get("taints")
            or (device.get("consumesCounters") and release.counters_halve_devices)
            or (release.list_attributes_halve_devices and _has_list_attributes(device))
        ):
            return release.devices_with_taints
    return MAX_DEVICES


def _has_list_attributes(device: Node) -> bool:
    return any(attribute.has(name) for _, attribute in device.items("attributes") for name in _LISTS)


def partition_type_errors(spec: Node, version: str, release: Release) -> Iterator[FieldError]:
    """The attribute by which partitions of hardware are distinguished (1.37, alpha)."""
    path, name = spec.at("partitionTypeAttribute"), spec.text("partitionTypeAttribute")
    yield from fully_qualified_name(path, name, release)
    consuming = [
        (position, device)
        for position, (device, _) in enumerate(_devices(spec, version))
        if device.get("consumesCounters")
    ]
    if not consuming:
        yield invalid(path, name, "may only be set on a slice which declares devices that consume counters")
    if "/" not in name or any(qualified_name(path, name, release)):
        return  # no device can have it
    bare = name.removeprefix(f"{spec.text('driver')}/")
    for _, device in consuming:
        attributes = device.get("attributes") or {}
        at = Path(device.at("attributes"), f"[{name}]")  # the whole of it, however long
        found = attributes.get(name, attributes.get(bare))
        if name not in attributes and bare not in attributes:
            detail = "device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set"
            yield required(at, detail)
        elif (found or {}).get("string") is None:
            yield invalid(at, "", "must be a string value because `partitionTypeAttribute` names this attribute")


def _skipped_operation_errors(spec: Node, release: Release) -> Iterator[FieldError]:
    """What the kubelet need not do for these devices (1.37, alpha)."""
    operations = spec.texts("skipNodeOperations")
    yield from text_list_errors(
        spec,
        "skipNodeOperations",
        len(operations),
        lambda path, text: iter(() if text in _OPERATIONS else (not_supported(path, text, _OPERATIONS),)),
        release,
    )
    if "NodePrepareResources" in operations and not {"NodeUnprepareResources", "*"} & set(operations):
        detail = "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped"
        yield invalid(spec.at("skipNodeOperations"), operations, detail)
