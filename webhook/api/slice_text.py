"""A ResourceSlice as text that is read in part: attributes and capacity are most of it, and no review needs them.

What is left as text stands in its place in the object as a `msgspec.Raw`, so one decoder (`api.slices`) makes the same
value of both (ADR 29).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from webhook.api.field import JSON
from webhook.api.lenient_json import UNREADABLE
from webhook.api.taints import known_list, remember_list

FEW_DEVICES: Final = 64
"""Up to here no limit depends on what the devices are like, so attributes need no look (S-2)."""
_MOST_DEVICES: Final = 128
_MOST_FIELDS: Final = 32
"""Of one device. What has more of either is refused, or soon will be, and would take longer to read in this way."""

_USUAL_FIELDS: Final = 3
"""Name, attributes and capacity."""
_BRACKET: Final = ord("[")
"""To look for a number in bytes takes a fifth of the time that it takes to look for bytes."""
_decode: Final = msgspec.json.Decoder().decode


class _Spec(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """All fields of every version."""

    devices: list[dict[str, Raw] | None] | UnsetType | None = UNSET
    driver: Any = UNSET
    pool: Any = UNSET
    node_name: Any = UNSET
    node_selector: Any = UNSET
    all_nodes: Any = UNSET
    per_device_node_selection: Any = UNSET
    shared_counters: Any = UNSET
    taints: Any = UNSET
    partition_type_attribute: Any = UNSET
    skip_node_operations: Any = UNSET


_SPEC_FIELDS: Final = tuple(zip(_Spec.__struct_fields__, _Spec.__struct_encode_fields__, strict=True))


class SliceText(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The text as msgspec decodes it. Decoding fails for any other shape."""

    api_version: Any = UNSET
    kind: Any = UNSET
    metadata: Any = UNSET
    spec: _Spec | UnsetType | None = UNSET

    def to_object(self) -> dict[str, JSON] | None:
        """The object, in part as text; None for one that is to be read whole. Raises one of UNREADABLE.

        Text are capacity, attributes unless they may count (S-2), and taints that are known by their text.
        """
        found: dict[str, JSON] = {"apiVersion": self.api_version, "kind": self.kind, "metadata": self.metadata}
        spec = self.spec
        if isinstance(spec, _Spec):
            devices = spec.devices or ()
            if len(devices) > _MOST_DEVICES:
                return None
            crowded = len(devices) > FEW_DEVICES
            for device in devices:
                if device is not None and not (_read_name(device, crowded) or _read_most(device, crowded)):
                    return None
            values = {name: getattr(spec, field) for field, name in _SPEC_FIELDS}
            found["spec"] = {name: value for name, value in values.items() if value is not UNSET}
        else:
            found["spec"] = spec
        return {name: value for name, value in found.items() if value is not UNSET}


# Arguments have no names in the calls of these two: there are 128 devices.
def _read_name(device: dict[str, Any], crowded: bool) -> bool:  # noqa: FBT001 -- see above
    """Reads the name of a device that has attributes and capacity besides, as most do; false for any other."""
    name, attributes = device.get("name"), device.get("attributes")
    if name is None or attributes is None or len(device) != _USUAL_FIELDS or "capacity" not in device:
        return False
    if crowded and not have_single_values(attributes):
        return False
    device["name"] = _decode(name)
    return True


def _read_most(device: dict[str, Any], crowded: bool) -> bool:  # noqa: FBT001 -- see above
    """Reads what the decoder will ask for, in its place. Returns whether it has done so."""
    if len(device) > _MOST_FIELDS:
        return False
    for name, text in device.items():
        if name == "taints":
            if known_list(text) is None:
                entries = _decode(text)
                if not remember_list(text, entries):
                    device[name] = entries
        elif name == "attributes":
            if crowded and not have_single_values(text):
                device[name] = _decode(text)
        elif name != "capacity":
            device[name] = _decode(text)
    return True


def have_single_values(attributes: Raw) -> bool:
    """Whether attributes are a map without a list in it, by a look at the text; False if that is not certain."""
    text = bytes(attributes)
    return text.startswith(b"{") and _BRACKET not in text


def read_taints(device: JSON) -> None:
    """Reads, in its place, a list of taints that is known by its text no longer."""
    if device.__class__ is dict and device.get("taints").__class__ is Raw:
        device["taints"] = _decode(device["taints"])


def read_rest(device: JSON) -> None:
    """Reads, in its place, all that was left as text in a device. What is no JSON stays text."""
    if device.__class__ is not dict:
        return
    for name, text in device.items():
        if text.__class__ is Raw:
            try:
                device[name] = _decode(text)
            except UNREADABLE:
                continue
