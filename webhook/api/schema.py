"""The fields that objects of each kind and version have: what a typo is told from.

`fields.json` is made from an API server's OpenAPI documents (tests/controlplane/served_fields.py); a test compares it
with a running server. Our own kind, and what only the source documents or old releases have, is written here.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

import msgspec

from webhook.api.meta import GROUP, OWN_GROUP, GroupVersionKind

Fields = Mapping[str, str]
"""Each field with its type: empty without fields of its own, else `T`, `[T]` for a list of T, `{T}` for a map."""

TAINT: Final = "DeviceTaint"
SELECTOR: Final = "DeviceTaintSelector"
SLICE_SPEC: Final = "ResourceSliceSpec"

RETIRED_SELECTOR_FIELDS: Final[Fields] = {"deviceClassName": "", "selectors": "[v1.DeviceSelector]"}
"""What 1.33 and 1.34 have in the selector of a DeviceTaintRule (R-9, R-10)."""
DOCUMENTED_TAINT_FIELDS: Final[Fields] = {"data": "", "description": "", "evictionsPerSecond": ""}
"""What the 1.35-era revision has in a taint (N-9 to N-12)."""
DOCUMENTED_SLICE_FIELDS: Final[Fields] = {"taints": "[own.SliceTaint]"}
"""And in a slice (N-1)."""

_OWN_TYPES: Final[Mapping[str, Fields]] = {
    "own.ResourceSlicePatch": {
        "apiVersion": "",
        "kind": "",
        "metadata": "meta.v1.ObjectMeta",
        "spec": "own.ResourceSlicePatchSpec",
        "status": "own.ResourceSlicePatchStatus",
    },
    "own.ResourceSlicePatchSpec": {"devices": "own.DevicePatch"},
    "own.ResourceSlicePatchStatus": {"conditions": "[meta.v1.Condition]"},
    "own.DevicePatch": {
        "filter": "own.DevicePatchFilter",
        "priority": "",
        "attributes": "{own.NullableDeviceAttribute}",
        "capacity": "{v1.DeviceCapacity}",
        "taints": "[own.PatchTaint]",
    },
    "own.DevicePatchFilter": {
        "deviceClassName": "",
        "driver": "",
        "pool": "",
        "device": "",
        "selectors": "[v1.DeviceSelector]",
    },
    "own.NullableDeviceAttribute": {"int": "", "bool": "", "string": "", "version": "", "null": "own.NullValue"},
    "own.NullValue": {},
    "own.PatchTaint": {"key": "", "value": "", "effect": "", "timeAdded": "", **DOCUMENTED_TAINT_FIELDS},
    "own.SliceTaint": {"device": "", "taint": "v1.DeviceTaint"},
}
_OWN_KINDS: Final[Mapping[str, str]] = {
    f"{OWN_GROUP}/v1alpha1 ResourceSlicePatch": "own.ResourceSlicePatch",
    f"{GROUP}/v1alpha3 ResourceSlicePatch": "own.ResourceSlicePatch",
    # The first revision's slices; what they have is what v1beta1 kept.
    f"{GROUP}/v1alpha3 ResourceSlice": "v1beta1.ResourceSlice",
}


class Served(msgspec.Struct, frozen=True):
    """The content of fields.json."""

    kubernetes: str
    kinds: Mapping[str, str]
    types: Mapping[str, Fields]


class Reference(NamedTuple):
    """What a field holds: one `type`, or a list or a map of it."""

    type: str
    container: str = ""

    @classmethod
    def parse(cls, text: str) -> Reference | None:
        """From the text that `Fields` has; None where nothing has fields of its own."""
        if not text:
            return None
        return cls(text[1:-1], text[0]) if text[0] in "[{" else cls(text)


@cache
def served() -> Served:
    """The fields of the release that fields.json was made from."""
    content = pkgutil.get_data(__package__, "fields.json")  # part of the code, however it is packaged
    if content is None:
        raise FileNotFoundError("fields.json")
    return msgspec.json.decode(content, type=Served)


def type_of(kind: GroupVersionKind) -> str | None:
    """The type of a kind's objects, or None for kinds that are not known."""
    name = f"{kind.api_version} {kind.kind}"
    return _OWN_KINDS.get(name) or served().kinds.get(name)


def fields_of(type_name: str) -> Fields:
    """The fields of a type."""
    own = _OWN_TYPES.get(type_name)
    return served().types[type_name] if own is None else own


def base_name(type_name: str) -> str:
    """The type's name in all versions."""
    return type_name.rpartition(".")[2]
