"""Exported objects beside those in a cluster: which differ, and in which order to write what is to be written."""

from __future__ import annotations

import graphlib
from collections import defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.policy.vap.objects import EXPORT_LABELS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Json = dict[str, Any]

MANAGED_LABEL: Final = "app.kubernetes.io/managed-by"
VALIDATING: Final = "ValidatingAdmissionPolicy"
MUTATING: Final = "MutatingAdmissionPolicy"
_BINDING: Final = "Binding"
KINDS: Final = (VALIDATING, VALIDATING + _BINDING, MUTATING, MUTATING + _BINDING)
_DENY: Final = "Deny"


class FallbackState(StrEnum):
    """How an object of the fallback is in a cluster."""

    IN_SYNC = "in_sync"
    MISSING = "missing"
    CHANGED = "changed"
    SURPLUS = "surplus"
    """It is kept in sync, and the policy has it no longer."""
    FOREIGN = "foreign"
    """It has the name of one of ours and is not ours."""
    LEFT_OVER = "left_over"
    """It was exported by hand, and the policy does not have it."""


class AdmissionObjectKey(NamedTuple):
    """An object without a namespace."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class StoredObject(NamedTuple):
    """An object as a cluster has it, as far as it matters here."""

    key: AdmissionObjectKey
    labels: Mapping[str, str]
    spec: Mapping[str, Any]
    uid: str
    generation: int
    resource_version: str

    @property
    def ours(self) -> bool:
        """Whether it is an export, by hand or kept in sync."""
        return all(self.labels.get(name) == value for name, value in EXPORT_LABELS.items())

    @property
    def managed(self) -> bool:
        """Whether it is kept in sync."""
        return self.ours and self.labels.get(MANAGED_LABEL) == EXPORT_LABELS["app.kubernetes.io/name"]


class Comparison(NamedTuple):
    """One object that should be there, or is."""

    key: AdmissionObjectKey
    state: FallbackState
    fields: tuple[str, ...] = ()
    """Of its spec, those that differ."""

    def __str__(self) -> str:
        different = f": spec.{', spec.'.join(self.fields)}" if self.fields else ""
        return f"{self.key} is {self.state.value.replace('_', ' ')}{different}"


class FallbackWrite(NamedTuple):
    """One request: an object to apply, or to delete, which has no `wanted`."""

    key: AdmissionObjectKey
    wanted: Json | None
    stored: StoredObject | None = None


def key_of(obj: Json) -> AdmissionObjectKey:
    """Of a manifest."""
    return AdmissionObjectKey(obj["kind"], obj["metadata"]["name"])


def managed(obj: Json) -> Json:
    """An exported object with the label of those that are kept in sync."""
    metadata = obj["metadata"]
    labels = {**metadata["labels"], MANAGED_LABEL: EXPORT_LABELS["app.kubernetes.io/name"]}
    return {**obj, "metadata": {**metadata, "labels": labels}}


def compare(wanted: Iterable[Json], stored: Mapping[AdmissionObjectKey, StoredObject]) -> list[Comparison]:
    """Every object that should be there, and every other one that is ours."""
    expected = {key_of(obj): obj for obj in wanted}
    found = [_comparison(key, obj, stored.get(key)) for key, obj in expected.items()]
    for key, each in sorted(stored.items()):
        if key not in expected and each.ours:
            state = FallbackState.SURPLUS if each.managed else FallbackState.LEFT_OVER
            found.append(Comparison(key, state))
    return found


def _comparison(key: AdmissionObjectKey, obj: Json, stored: StoredObject | None) -> Comparison:
    if stored is None:
        return Comparison(key, FallbackState.MISSING)
    if not stored.ours:
        return Comparison(key, FallbackState.FOREIGN)
    names = {*obj["spec"], *stored.spec}
    different = tuple(sorted(name for name in names if obj["spec"].get(name) != stored.spec.get(name)))
    return Comparison(key, FallbackState.CHANGED if different else FallbackState.IN_SYNC, different)


# --- what to write, and in which order ----------------------------------------------------------


def writes_for(
    wanted: Sequence[Json],
    stored: Mapping[AdmissionObjectKey, StoredObject],
    *,
    settled: Iterable[AdmissionObjectKey] = (),
) -> list[FallbackWrite]:
    """What makes the cluster's objects the wanted ones; nothing touches what is not ours.

    `settled` are objects that differ only in what the API server made of them. No request that is refused before and
    after passes in between, unless parts of a topic trade rules with each other: what takes a rule over is written
    before what loses it, what refuses is bound after its policy and set to warn before it, and what goes, goes last.
    """
    ready = {each.key for each in compare(wanted, stored) if each.state is FallbackState.IN_SYNC} | set(settled)
    manifests = {
        key_of(obj): obj
        for obj in wanted
        if key_of(obj) not in ready or not stored[key_of(obj)].managed
        if key_of(obj) not in stored or stored[key_of(obj)].ours
    }
    applied = [FallbackWrite(key, manifests[key], stored.get(key)) for key in _in_order(manifests, stored)]
    expected = {key_of(obj) for obj in wanted}
    surplus = [each for key, each in sorted(stored.items()) if key not in expected and each.managed]
    surplus.sort(key=lambda each: not each.key.kind.endswith(_BINDING))
    deleted = [FallbackWrite(each.key, None, each) for each in surplus]
    adding = [each for each in deleted if each.key.kind.startswith(MUTATING)]
    return [*adding, *applied, *(each for each in deleted if each not in adding)]


def _in_order(
    manifests: Mapping[AdmissionObjectKey, Json], stored: Mapping[AdmissionObjectKey, StoredObject]
) -> Iterator[AdmissionObjectKey]:
    """Default tolerations come first if there are only fewer of them: what is added must not be refused."""
    kinds = {kind: [key for key in manifests if key.kind == kind] for kind in KINDS}
    bindings = kinds[VALIDATING + _BINDING]
    milder = [key for key in bindings if _milder(manifests[key], stored.get(key))]
    # A part that takes rules over is bound before another one loses them.
    new = {key.name: key for key in bindings if key not in stored}
    policies = _takers_first(kinds[VALIDATING], manifests, stored)
    validating = [*milder]
    for key in policies:
        validating += [key, *([new.pop(key.name)] if key.name in new else [])]
    validating += [key for key in bindings if key not in validating]
    mutating = [*kinds[MUTATING], *kinds[MUTATING + _BINDING]]
    fewer = all(_adds_less(manifests[key], stored.get(key)) for key in kinds[MUTATING])
    yield from (*mutating, *validating) if fewer else (*validating, *mutating)


def _milder(binding: Json, stored: StoredObject | None) -> bool:
    """Whether a binding that refused is to refuse no longer."""
    before = () if stored is None else stored.spec.get("validationActions") or ()
    return _DENY in before and _DENY not in binding["spec"]["validationActions"]


def _adds_less(policy: Json, stored: StoredObject | None) -> bool:
    """Whether all variables of a policy that adds are those it has, but for some that are gone."""
    if stored is None:
        return False
    new, old = (_variables(spec) for spec in (policy["spec"], stored.spec))
    return new.keys() <= old.keys() and new.get("defaults", "")[1:-1] in old.get("defaults", "")


def _variables(spec: Mapping[str, Any]) -> dict[str, str]:
    return {each["name"]: each["expression"] for each in spec.get("variables") or ()}


def _takers_first(
    keys: Sequence[AdmissionObjectKey],
    manifests: Mapping[AdmissionObjectKey, Json],
    stored: Mapping[AdmissionObjectKey, StoredObject],
) -> list[AdmissionObjectKey]:
    """Policies in an order in which one that takes a validation over comes before the one that loses it."""
    gained: dict[str, list[AdmissionObjectKey]] = defaultdict(list)
    lost: dict[AdmissionObjectKey, set[str]] = {}
    for key in keys:
        new = _validations(manifests[key]["spec"])
        old = _validations(stored[key].spec) if key in stored else set()
        lost[key] = old - new
        for expression in new - old:
            gained[expression].append(key)
    before = {key: {taker for text in lost[key] for taker in gained.get(text, ())} for key in keys}
    try:
        return [*graphlib.TopologicalSorter(before).static_order()]
    except graphlib.CycleError:  # they trade rules: what gains most comes first, as nothing better is to be had
        return sorted(keys, key=lambda key: len(lost[key]))


def _validations(spec: Mapping[str, Any]) -> set[str]:
    return {each["expression"] for each in spec.get("validations") or ()}
