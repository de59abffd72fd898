"""A ResourceSlice as text of which only some is read: attributes and capacity are most of it, and no review needs them.

Reading them would take two thirds of the time of a review. What is left as text stands in its place in the object as a
`msgspec.Raw`, so one decoder (`api.slices`) makes the same value of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

if TYPE_CHECKING:
    from webhook.api.field import JSON

LEFT_AS_TEXT: Final = ("taints", "attributes", "capacity")
"""Fields of a device that are read when they are asked for."""
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Raised for what is no JSON, or nested too deeply."""

_decode: Final = msgspec.json.Decoder().decode


class _Spec(msgspec.Struct, rename="camel"):
    """All fields of every version; a server drops any other before it asks."""

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


class SliceText(msgspec.Struct, rename="camel"):
    """What msgspec makes of the text; anything that is of another shape is no value of this type."""

    api_version: Any = UNSET
    kind: Any = UNSET
    metadata: Any = UNSET
    spec: _Spec | UnsetType | None = UNSET

    def to_object(self) -> dict[str, JSON]:
        """The object, with LEFT_AS_TEXT in its devices. Raises one of UNREADABLE."""
        found: dict[str, JSON] = {"apiVersion": self.api_version, "kind": self.kind, "metadata": self.metadata}
        spec = self.spec
        if isinstance(spec, _Spec):
            for device in spec.devices or ():
                if device is not None:
                    _read_most(device)
            values = {name: getattr(spec, field) for field, name in _SPEC_FIELDS}
            found["spec"] = {name: value for name, value in values.items() if value is not UNSET}
        else:
            found["spec"] = spec
        return {name: value for name, value in found.items() if value is not UNSET}


def _read_most(device: dict[str, Any]) -> None:
    for name, text in device.items():
        if name not in LEFT_AS_TEXT:
            device[name] = _decode(text)


def read_rest(device: JSON) -> None:
    """Reads, in its place, what was left as text in a device. What is no JSON stays text: a value of a wrong type."""
    if device.__class__ is not dict:
        return
    for name in LEFT_AS_TEXT:
        text = device.get(name)
        if text.__class__ is Raw:
            try:
                device[name] = _decode(text)
            except UNREADABLE:
                continue


def have_single_values(attributes: Raw) -> bool:
    """Whether attributes are a map without a list in it, by a look at the text; False if that is not certain."""
    text = bytes(attributes)
    return text[:1] == b"{" and b"[" not in text
