"""What a cluster has beside what it should have: exported objects, and the policy that proves authors of templates."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from webhook.api.names import PROGRAM
from webhook.policy.vap.objects import EXPORT_LABELS

AUTHOR_POLICY: Final = f"{PROGRAM}-authors"
"""The name of the ValidatingAdmissionPolicy that proves authors, and of its binding."""


class FallbackState(StrEnum):
    """How an object of the fallback is in a cluster."""

    IN_SYNC = "in_sync"
    MISSING = "missing"
    CHANGED = "changed"
    FOREIGN = "foreign"
    """It has the name of one of ours and is not ours."""
    LEFT_OVER = "left_over"
    """It was exported, and the policy does not have it."""


class AdmissionObjectKey(NamedTuple):
    """An object without a namespace."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class StoredObject(NamedTuple):
    """The part of an object in a cluster that is compared."""

    key: AdmissionObjectKey
    labels: Mapping[str, str]
    spec: Mapping[str, Any]

    @property
    def ours(self) -> bool:
        """Tell whether it is an export."""
        return all(self.labels.get(name) == value for name, value in EXPORT_LABELS.items())


class Comparison(NamedTuple):
    """One object that should be there, or is."""

    key: AdmissionObjectKey
    state: FallbackState
    fields: tuple[str, ...] = ()
    """Of its spec, those that differ."""

    def __str__(self) -> str:
        different = f": {_listed_fields(self.fields)}" if self.fields else ""
        return f"{self.key} is {self.state.value.replace('_', ' ')}{different}"


def key_of(obj: Mapping[str, Any]) -> AdmissionObjectKey:
    """Of a manifest."""
    return AdmissionObjectKey(obj["kind"], obj["metadata"]["name"])


def compare(wanted: Iterable[dict[str, Any]], stored: Mapping[AdmissionObjectKey, StoredObject]) -> list[Comparison]:
    """Every object that should be there, and every other one that is ours."""
    expected = {key_of(obj): obj["spec"] for obj in wanted}
    found = [_comparison(key, spec, stored.get(key)) for key, spec in expected.items()]
    for key, each in sorted(stored.items()):
        if key not in expected and each.ours:
            found.append(Comparison(key, FallbackState.LEFT_OVER))
    return found


def _comparison(key: AdmissionObjectKey, spec: Mapping[str, Any], stored: StoredObject | None) -> Comparison:
    if stored is None:
        return Comparison(key, FallbackState.MISSING)
    if not stored.ours:
        return Comparison(key, FallbackState.FOREIGN)
    different = _different(spec, stored.spec)
    return Comparison(key, FallbackState.CHANGED if different else FallbackState.IN_SYNC, different)


def _different(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(name for name in {*one, *other} if one.get(name) != other.get(name)))


def _listed_fields(names: Iterable[str]) -> str:
    return f"spec.{', spec.'.join(names)}"


@cache
def shipped() -> Mapping[str, Mapping[str, Any]]:
    """The specs of both objects by kind, as manifests/base/author-policy.yaml has them."""
    text = pkgutil.get_data(__package__, "author_policy.json")
    assert text is not None  # part of the package
    return msgspec.json.decode(text, type=dict[str, dict[str, Any]])


def unproved(specs: Mapping[str, Mapping[str, Any]]) -> str:
    """Why API servers do not prove authors; empty if they do. `specs` are in force, by kind; they must equal ours."""
    found = []
    for kind, wanted in shipped().items():
        spec = specs.get(kind)
        if spec is None:
            found.append(f"{kind} {AUTHOR_POLICY} is missing")
        elif spec != wanted:
            found.append(f"{kind} {AUTHOR_POLICY} is not as shipped: {_listed_fields(_different(spec, wanted))}")
    return "; ".join(found)
