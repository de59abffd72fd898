"""The fields that objects of each kind and version have, and what each holds: what typos are measured against.

The files in `fields`, one a release, are made from the API's OpenAPI documents (`make openapi`); a test compares
them with a running server. Our own kind, and what only the source documents have, is written here.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from webhook.api.meta import GROUP, OWN_GROUP, GroupVersionKind

Fields = Mapping[str, str]
"""Each field with what it holds: `T`, `[T]` for a list of T, `{T}` for a map; empty where that is not said.

T is a type with fields of its own (`v1.DeviceTaint`), or one of SCALARS.
"""
SCALARS: Final = frozenset({"string", "int64", "int32", "boolean", "quantity", "time", "raw"})
"""What is read as one value. `raw` is any JSON at all."""
RELEASES: Final = range(33, 39)
"""The minor releases of Kubernetes that have a file; newer ones are judged by the last, older ones by the first."""

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
    "own.ResourceSlicePatchStatus": {
        "conditions": "[meta.v1.Condition]",
        "observedGeneration": "",
        "selectedDevices": "",
        "patchedDevices": "",
        "taintedDevices": "",
        "rules": "",
    },
    "own.DevicePatch": {
        "filter": "own.DevicePatchFilter",
        "priority": "",
        "attributes": "{own.NullableDeviceAttribute}",
        "capacity": "{own.PatchedCapacity}",
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
    "own.PatchedCapacity": {"value": ""},
    "own.PatchTaint": {"key": "", "value": "", "effect": "", "timeAdded": "", **DOCUMENTED_TAINT_FIELDS},
    "own.SliceTaint": {"device": "", "taint": "v1.DeviceTaint"},
}
_OWN_KINDS: Final[Mapping[str, str]] = {
    f"{OWN_GROUP}/v1alpha1 ResourceSlicePatch": "own.ResourceSlicePatch",
    f"{GROUP}/v1alpha3 ResourceSlicePatch": "own.ResourceSlicePatch",
}


class Served(msgspec.Struct, frozen=True):
    """The content of a file in `fields`."""

    kubernetes: str
    kinds: Mapping[str, str]
    types: Mapping[str, Fields]


class Reference(NamedTuple):
    """What a field holds: one `type`, or a list or a map of it."""

    type: str
    container: str = ""

    @classmethod
    def parse(cls, text: str) -> Reference | None:
        """From the text that `Fields` has; None where that says nothing."""
        if not text:
            return None
        return cls(text[1:-1], text[0]) if text[0] in "[{" else cls(text)

    @property
    def has_fields(self) -> bool:
        """Whether the type has fields of its own."""
        return self.type not in SCALARS


def served(minor: int = RELEASES[-1]) -> Served:
    """What the release has."""
    return _read(min(max(minor, RELEASES[0]), RELEASES[-1]))


@lru_cache(maxsize=len(RELEASES))
def _read(minor: int) -> Served:
    name = f"fields/1.{minor}.json"
    content = pkgutil.get_data(__package__, name)  # part of the code, however it is packaged
    if content is None:
        raise FileNotFoundError(name)
    return msgspec.json.decode(content, type=Served)


def api_versions_of(kind: str, minors: tuple[int, ...]) -> frozenset[str]:
    """Each `group/version` in which one of the releases serves a kind; what no release has, our own kind, is always."""
    names = [*_OWN_KINDS, *(name for minor in minors for name in served(minor).kinds)]
    return frozenset(version for version, _, each in (name.partition(" ") for name in names) if each == kind)


def type_of(kind: GroupVersionKind, minor: int = RELEASES[-1]) -> str | None:
    """The type of a kind's objects, from the last release that has it if this one does not; None for unknown kinds."""
    name = f"{kind.api_version} {kind.kind}"
    found = (served(each).kinds.get(name) for each in (minor, *reversed(RELEASES)))
    return _OWN_KINDS.get(name) or next(filter(None, found), None)


def fields_of(type_name: str, minor: int = RELEASES[-1]) -> Fields:
    """The fields of a type; those of the last release that has it if this one does not."""
    own = _OWN_TYPES.get(type_name)
    if own is not None:
        return own
    found = (served(each).types for each in (minor, *reversed(RELEASES)))
    return next(types[type_name] for types in found if type_name in types)


@lru_cache(maxsize=4096)
def held_by(type_name: str, minor: int) -> Mapping[str, Reference]:
    """The types that the fields of a type hold, where `Fields` has them."""
    fields = fields_of(type_name, minor).items()
    return {name: held for name, text in fields if (held := Reference.parse(text)) is not None}


def release_with(type_name: str, field: str, minor: int) -> int | None:
    """The first release after `minor` whose type has the field; None if there is none."""
    return next((each for each in RELEASES if each > minor and field in served(each).types.get(type_name, ())), None)


def base_name(type_name: str) -> str:
    """The type's name in all versions."""
    return type_name.rpartition(".")[2]
