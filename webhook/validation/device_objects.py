"""What an API server refuses in a slice beyond driver and taints, and in its devices.

Source: pkg/apis/resource/validation of Kubernetes 1.37 (validateResourceSliceSpec and below), and the declarative
validation of resource/v1. Counter sets: validateCounterSet; how many there may be in a slice of 1.34 and older is not
checked. Node selectors: pkg/apis/core/validation (ValidateNodeSelector). How many devices a slice may have is judged in
`slices`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Final

from webhook.api.field import (
    JSON,
    FieldError,
    Path,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_many,
)
from webhook.api.meta import FLAT_VERSIONS
from webhook.api.quantities import parse_quantity
from webhook.validation.formats import (
    VALUE_MAX_BYTES,
    dns1123_label,
    dns1123_subdomain,
    each_invalid,
    fully_qualified_name,
    label_key,
    label_value,
    length_errors,
    pool_name,
    qualified_name,
    semantic_version,
)
from webhook.validation.nodes import Node, key_path, list_errors, request_policy_errors, text_list_errors
from webhook.validation.releases import MAX_DEVICES, NEWEST, Release

ATTRIBUTES_AND_CAPACITIES_MAX: Final = 32
ATTRIBUTE_VALUES_MAX: Final = 48
CONSUMPTIONS_MAX: Final = 2
GROUPS_MAX: Final = 2
CONDITIONS_MAX: Final = 4
_SINGLE: Final = ("int", "bool", "string", "version")
_LISTS: Final = ("ints", "bools", "strings", "versions")
_PLACES: Final = ("nodeName", "nodeSelector", "allNodes")
_ONE_PLACE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
_NO_PLACE: Final = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "
    "ResourceSlice spec"
)
_FLAGS: Final = ("allNodes", "perDeviceNodeSelection")
_SLICE_PLACES: Final = ("nodeName", "nodeSelector", *_FLAGS)
_ONE_SLICE_PLACE: Final = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_OPERATIONS: Final = ("*", "NodePrepareResources", "NodeUnprepareResources")
_BASIC: Final = "basic"


def device_errors(device: Node, name: str, release: Release, *, per_device: bool) -> Iterator[FieldError]:
    """A device, whose name v1beta1 has a level above the rest. `per_device`: each says on which nodes it is."""
    yield from each_invalid(device.at("name"), name, dns1123_label(name))
    yield from count_errors(device)
    for key, attribute in device.items("attributes"):
        yield from qualified_name(key_path(device.at("attributes"), key, release), key, release)
        yield from _attribute_errors(attribute, Path(device.at("attributes"), f"[{key}]"), release)
    yield from capacity_errors(device, release)
    yield from list_errors(
        device,
        "consumesCounters",
        CONSUMPTIONS_MAX if release.counters_apart else None,
        lambda each: _consumption_errors(each, release),
        release,
        "counterSet",
    )
    yield from _place_errors(device, release, per_device=per_device)
    yield from _binding_errors(device, release)
    yield from _node_resource_errors(device, release)


def count_errors(device: Node) -> Iterator[FieldError]:
    """How many attributes and capacities there are."""
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    count = len(attributes) + len(capacity)
    if count > ATTRIBUTES_AND_CAPACITIES_MAX:
        detail = f"the total number of attributes and capacities must not exceed {ATTRIBUTES_AND_CAPACITIES_MAX}"
        yield invalid(device.path, count, detail)
    values = sum(sum(len((each or {}).get(name) or ()) for name in _LISTS) or 1 for each in attributes.values())
    if values > ATTRIBUTE_VALUES_MAX:
        yield invalid(
            device.path, values, f"the total number of attribute values must not exceed {ATTRIBUTE_VALUES_MAX}"
        )


def _attribute_errors(attribute: Node, written: Path, release: Release) -> Iterator[FieldError]:
    """An attribute, which has one value or one list of values; `written` is its path with the whole of the key."""
    if attribute.has("string"):
        yield from length_errors(attribute.at("string"), attribute.text("string"), VALUE_MAX_BYTES)
    if attribute.has("version"):
        yield from _version_errors(attribute.at("version"), attribute.text("version"), release)
    for name in _LISTS:
        if attribute.has(name) and not attribute.get(name):
            yield invalid(attribute.at(name), [], "must not be empty if specified")
    for position, text in enumerate(attribute.texts("strings")):
        yield from length_errors(attribute.at("strings").index(position), text, VALUE_MAX_BYTES)
    for position, text in enumerate(attribute.texts("versions")):
        yield from _version_errors(attribute.at("versions").index(position), text, release)
    given = sum(attribute.has(name) for name in (*_SINGLE, *_LISTS))
    filled = sum(attribute.has(name) for name in _SINGLE) + sum(bool(attribute.get(name)) for name in _LISTS)
    if release.declarative and filled != 1:
        yield _union_error(written, filled, (*_SINGLE, *_LISTS))
    elif given != 1:
        yield invalid(attribute.path, "", "exactly one value must be specified")


def _union_error(path: Path, given: int, names: tuple[str, ...]) -> FieldError:
    words = "must specify exactly one of" if given else "must specify one of"
    return invalid(path, "", f"{words}: {', '.join(f'`{name}`' for name in names)}", declarative=True)


def _version_errors(path: Path, text: str, release: Release) -> Iterator[FieldError]:
    yield from each_invalid(path, text, semantic_version(text, short=release.short_version_numbers))
    yield from length_errors(path, text, VALUE_MAX_BYTES)


def capacity_errors(device: Node, release: Release) -> Iterator[FieldError]:
    """The names of capacities, and how much of each a request may take."""
    shared = device.get("allowMultipleAllocations") is True
    for key, held in (device.get("capacity") or {}).items():
        yield from qualified_name(key_path(device.at("capacity"), key, release), key, release)
        capacity = Node(held if isinstance(held, dict) else {}, device.at("capacity").key(key))  # v1alpha3: a quantity
        if not capacity.has("requestPolicy"):
            continue
        if shared:
            yield from request_policy_errors(capacity.child("requestPolicy"), capacity.get("value"), release)
        else:
            yield forbidden(capacity.at("requestPolicy"), "allowMultipleAllocations must be true")


def _consumption_errors(consumption: Node, release: Release) -> Iterator[FieldError]:
    yield from counter_map_errors(consumption, "counterSet", release)
    yield from text_list_errors(
        consumption,
        "compatibilityGroups",
        GROUPS_MAX,
        lambda path, text: each_invalid(path, text, dns1123_label(text), declarative=True),
        release,
    )


def _place_errors(device: Node, release: Release, *, per_device: bool) -> Iterator[FieldError]:
    if not per_device:
        if any(device.has(name) for name in _PLACES):
            yield invalid(device.path, None, _NO_PLACE)
        return
    single = release.one_term_per_device
    given = yield from _given_places(device, _PLACES, "must not be empty", single=single)
    if not given:
        yield required(device.path, _ONE_PLACE)
    elif len(given) > 1:
        yield invalid(device.path, f"{{{', '.join(given)}}}", _ONE_PLACE)


def _given_places(
    holder: Node, places: tuple[str, ...], empty_name: str, *, single: bool
) -> Generator[FieldError, None, list[str]]:
    """Judge each of the places of a slice or a device by itself, and return those that are given, in backticks."""
    name = holder.get("nodeName")
    if name == "":
        yield invalid(holder.at("nodeName"), "", empty_name)
    elif name is not None:
        yield from each_invalid(holder.at("nodeName"), name, dns1123_subdomain(name))
    if holder.has("nodeSelector"):
        yield from _node_selector_errors(holder.child("nodeSelector"), single=single)
    for flag in _FLAGS:
        if flag in places and holder.get(flag) is False:
            yield invalid(holder.at(flag), False, "must be either unset or set to true")  # noqa: FBT003 -- the value
    return [f"`{each}`" for each in places if holder.get(each) not in (None, "", False)]


def _binding_errors(device: Node, release: Release) -> Iterator[FieldError]:
    """Conditions that a claim waits for before its pod is bound."""
    lists = {name: device.texts(name) for name in ("bindingConditions", "bindingFailureConditions")}
    for name, texts in lists.items():
        path = device.at(name)
        if len(texts) > CONDITIONS_MAX:
            yield too_many(path, len(texts), CONDITIONS_MAX, declarative=release.declarative)
        for position, text in enumerate(texts):
            if len(texts) <= CONDITIONS_MAX:
                yield from each_invalid(path.index(position), text, label_key(text))
            if text in texts[:position]:
                yield duplicate(path.index(position), text)
    wanted, failed = lists.values()
    for position, text in enumerate(failed):
        if text in wanted:
            at = device.at("bindingFailureConditions").index(position)
            yield invalid(at, text, "bindingFailureConditions must not overlap with bindingConditions")
    for name, other in (lists, reversed(lists)):
        if not lists[name] and lists[other]:
            yield invalid(device.at(name), [], f"{name} are required to use {other}")


def _node_resource_errors(device: Node, release: Release) -> Iterator[FieldError]:
    """What of a node's own resources the device stands for (1.36, alpha)."""
    for key, held in (device.get("nodeAllocatableResources") or {}).items():
        resource = Node(held or {}, Path(device.at("nodeAllocatableResources"), f"[{key}]"))  # the whole of the key
        if key not in ("cpu", "memory") and not key.startswith("hugepages-"):
            yield invalid(resource.path, key, "must be a node allocatable resource name")
        if not resource.has("mapping") and not resource.has("overhead"):
            yield required(resource.path, "at least one of mapping or overhead must be set")
        if resource.has("mapping"):
            yield from _mapping_errors(resource.child("mapping"), device.get("capacity") or {}, release)
        if resource.has("overhead"):
            yield from _overhead_errors(resource.child("overhead"))


def _mapping_errors(mapping: Node, capacity: dict[str, object], release: Release) -> Iterator[FieldError]:
    key = mapping.get("capacityKey")
    wrong = list(qualified_name(mapping.at("capacityKey"), key, release)) if key and release.one_slash else []
    if key == "":
        yield invalid(mapping.at("capacityKey"), "", "capacityKey must not be an empty string")
    elif wrong:
        yield from wrong
    elif key is not None and key not in capacity:
        yield not_found(mapping.at("capacityKey"), key)
    for name in ("capacityMultiplier", "deviceMultiplier"):
        number = parse_quantity(mapping.get(name))
        if (
            mapping.has(name)
            and (name != "capacityMultiplier" or key is not None)
            and number is not None
            and number <= 0
        ):
            yield invalid(mapping.at(name), mapping.get(name), "must be positive")
    if key is not None and not mapping.has("capacityMultiplier"):
        yield required(mapping.at("capacityMultiplier"), "capacityMultiplier is required when capacityKey is set")
    if key is None and mapping.has("capacityMultiplier"):
        yield required(mapping.at("capacityKey"), "capacityKey is required when capacityMultiplier is set")
    given = (key is not None) + mapping.has("deviceMultiplier")
    if given != 1:
        yield _union_error(mapping.path, given, ("capacityKey", "deviceMultiplier"))


def _overhead_errors(overhead: Node) -> Iterator[FieldError]:
    if not overhead.has("perPod") and not overhead.has("perContainer"):
        yield invalid(overhead.path, "", "at least one of perPod or perContainer must be set")
    for name in ("perPod", "perContainer"):
        number = parse_quantity(overhead.get(name))
        if number is not None and number < 0:
            yield invalid(overhead.at(name), overhead.get(name), "must be non-negative")


# --- counters ------------------------------------------------------------------------------------

COUNTERS_MAX: Final = 32
SETS_MAX: Final = 8


def counter_map_errors(holder: Node, name_field: str, release: Release) -> Iterator[FieldError]:
    """A set of counters, or what a device takes of one: its name and its map of counters."""
    declarative = release.declarative
    name = holder.text(name_field)
    if not name:
        yield required(holder.at(name_field), declarative=declarative)
    else:
        yield from each_invalid(holder.at(name_field), name, dns1123_label(name), declarative=declarative)
    counters, path = holder.get("counters") or {}, holder.at("counters")
    if not counters:
        yield required(path, declarative=declarative)
    crowded = len(counters) > COUNTERS_MAX and release.counters_apart
    if crowded:
        yield too_many(path, len(counters), COUNTERS_MAX)
    if not crowded or declarative:
        for key in counters:
            yield from each_invalid(key_path(path, key, release), key, dns1123_label(key), declarative=declarative)


# --- nodes ---------------------------------------------------------------------------------------

_LISTED: Final = frozenset({"In", "NotIn"})
_BARE: Final = frozenset({"Exists", "DoesNotExist"})
_COMPARED: Final = frozenset({"Gt", "Lt"})


def _node_selector_errors(selector: Node, *, single: bool) -> Iterator[FieldError]:
    """A node selector: its terms, or its only one if `single`, and every requirement in them."""
    terms = selector.entries("nodeSelectorTerms")
    if not terms:
        yield required(selector.at("nodeSelectorTerms"), "must have at least one node selector term")
    for term in terms:
        for requirement in term.entries("matchExpressions"):
            yield from _expression_errors(requirement)
        for requirement in term.entries("matchFields"):
            yield from _field_errors(requirement)
    if single and len(terms) != 1:
        yield invalid(selector.at("nodeSelectorTerms"), len(terms), "must have exactly one node selector term")


def _expression_errors(requirement: Node) -> Iterator[FieldError]:
    operator, values, path = requirement.text("operator"), requirement.texts("values"), requirement.at("values")
    if operator in _LISTED:
        if not values:
            yield required(path, "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in _BARE:
        if values:
            yield forbidden(path, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in _COMPARED:
        if len(values) != 1:
            yield required(path, "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield invalid(requirement.at("operator"), operator, "not a valid selector operator")
    yield from each_invalid(requirement.at("key"), requirement.text("key"), label_key(requirement.text("key")))
    for position, value in enumerate(values):
        yield from each_invalid(path.index(position), value, label_value(value))


def _field_errors(requirement: Node) -> Iterator[FieldError]:
    operator, values, path = requirement.text("operator"), requirement.texts("values"), requirement.at("values")
    if operator not in _LISTED:
        yield invalid(requirement.at("operator"), operator, "not a valid selector operator")
    elif len(values) != 1:
        yield required(path, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
    if requirement.text("key") != "metadata.name":
        yield invalid(requirement.at("key"), requirement.text("key"), "not a valid field selector key")
        return
    for position, value in enumerate(values):
        yield from each_invalid(path.index(position), value, dns1123_subdomain(value))


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
    yield from _slice_place_errors(Node(plain, spec.path) if version in FLAT_VERSIONS else spec)
    yield from _device_list_errors(spec, version, release)
    yield from list_errors(
        spec,
        "sharedCounters",
        SETS_MAX if release.counters_apart else None,
        lambda each: counter_map_errors(each, "name", release),
        release,
        "name",
    )
    if spec.has("partitionTypeAttribute"):
        yield from partition_type_errors(spec, version, release)
    yield from _skipped_operation_errors(spec, release)


def _slice_place_errors(spec: Node) -> Iterator[FieldError]:
    empty_name = "must be either unset or set to a non-empty string"
    given = yield from _given_places(spec, _SLICE_PLACES, empty_name, single=True)
    if not given:
        yield required(spec.path, _ONE_SLICE_PLACE)
    elif len(given) > 1:
        yield invalid(spec.path, f"{{{', '.join(given)}}}", f"{_ONE_SLICE_PLACE}, but multiple fields are set")


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
            or (device.get("consumesCounters") and release.counters_apart)
            or (
                release.as_since_1_36
                and any(attribute.has(name) for _, attribute in device.items("attributes") for name in _LISTS)
            )
        ):
            return release.devices_with_taints
    return MAX_DEVICES


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
        lambda path, text: () if text in _OPERATIONS else (not_supported(path, text, _OPERATIONS),),
        release,
    )
    if "NodePrepareResources" in operations and not {"NodeUnprepareResources", "*"} & set(operations):
        detail = "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped"
        yield invalid(spec.at("skipNodeOperations"), operations, detail)


def device_faults(spec: dict[str, JSON]) -> Callable[[dict[str, JSON]], list[str]]:
    """For the `spec` of a slice of the right types: what would be wrong with it by such a change of a device.

    Values are right by themselves: they come from a patch or from a driver. Of the `spec` only `driver` and
    `partitionTypeAttribute` matter.
    """
    named = spec.get("partitionTypeAttribute") is not None

    def faults(device: dict[str, JSON]) -> list[str]:
        basic = isinstance(device.get("basic"), dict)
        content = Node.of(device["basic"] if basic else device)
        found = [*count_errors(content), *capacity_errors(content, NEWEST)]
        if named:
            alone = Node.of({**spec, "devices": [device]})
            found += partition_type_errors(alone, "v1beta1" if basic else "v1", NEWEST)
        return [str(error) for error in found]

    return faults
