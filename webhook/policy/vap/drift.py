"""Exported objects beside those in a cluster: which differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from webhook.policy.vap.objects import EXPORT_LABELS

Json = dict[str, Any]


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
        different = f": spec.{', spec.'.join(self.fields)}" if self.fields else ""
        return f"{self.key} is {self.state.value.replace('_', ' ')}{different}"


def key_of(obj: Json) -> AdmissionObjectKey:
    """Of a manifest."""
    return AdmissionObjectKey(obj["kind"], obj["metadata"]["name"])


def compare(wanted: Iterable[Json], stored: Mapping[AdmissionObjectKey, StoredObject]) -> list[Comparison]:
    """Every object that should be there, and every other one that is ours."""
    expected = {key_of(obj): obj for obj in wanted}
    found = [_comparison(key, obj, stored.get(key)) for key, obj in expected.items()]
    for key, each in sorted(stored.items()):
        if key not in expected and each.ours:
            found.append(Comparison(key, FallbackState.LEFT_OVER))
    return found


def _comparison(key: AdmissionObjectKey, obj: Json, stored: StoredObject | None) -> Comparison:
    if stored is None:
        return Comparison(key, FallbackState.MISSING)
    if not stored.ours:
        return Comparison(key, FallbackState.FOREIGN)
    names = {*obj["spec"], *stored.spec}
    different = tuple(sorted(name for name in names if obj["spec"].get(name) != stored.spec.get(name)))
    return Comparison(key, FallbackState.CHANGED if different else FallbackState.IN_SYNC, different)
