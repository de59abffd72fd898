"""Field rules of DeviceTaint and DeviceToleration. `semantics.md` T-*, L-*; `seeds.md` N-9 to N-11."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from webhook.api.field import FieldError, Path, invalid, not_supported, outline, required, too_long, too_many
from webhook.api.remembered import remembered
from webhook.api.taints import EQUAL, EXISTS, DeviceTaint, DeviceToleration, TaintExtras
from webhook.validation.formats import each_invalid, label_key, label_value, length_errors
from webhook.validation.releases import NEWEST, Release

OPERATORS: Final = frozenset({EQUAL, EXISTS})
DATA_MAX_BYTES: Final = 10 * 1024
DESCRIPTION_MAX_BYTES: Final = 1024


def taint_list_errors(
    path: Path, taints: Sequence[DeviceTaint], release: Release, *, maximum: int | None = None
) -> Iterator[FieldError]:
    """A device's taints: how many, and each of them (S-1)."""
    if maximum is None:
        maximum = release.taints_per_device
    crowded = len(taints) > maximum
    if crowded:
        yield too_many(path, len(taints), maximum)
    unseen = crowded and release.long_lists_end_the_look
    for position, taint in enumerate(taints):
        at = path.index(position)
        if not unseen:
            yield from name_errors(at, taint)
        if not unseen or release.declarative:  # effects are also checked before the conversion (S-1)
            yield from effect_errors(at, taint, release)
        yield from extras_errors(at, taint.extras)


def taint_errors(path: Path, taint: DeviceTaint, release: Release) -> Iterator[FieldError]:
    """One taint, judged as new."""
    yield from name_errors(path, taint)
    yield from effect_errors(path, taint, release)
    yield from extras_errors(path, taint.extras)


def taint_is_fine(taint: DeviceTaint, release: Release) -> bool:
    """Whether a taint has no errors, decided without building paths and cached, as slices repeat their taints."""
    if taint.effect not in release.effects or taint.extras is not None:
        return False
    return _names_are_fine(taint.key, taint.value)


@remembered(4096)
def _names_are_fine(key: str, value: str) -> bool:
    return not any(name_errors(Path.root(), DeviceTaint(key, value)))


def name_errors(path: Path, taint: DeviceTaint) -> Iterator[FieldError]:
    """Key and value (T-1 to T-7)."""
    if messages := label_key(taint.key):
        yield from each_invalid(path.child("key"), taint.key, messages)
    if taint.value and (messages := label_value(taint.value)):
        yield from each_invalid(path.child("value"), taint.value, messages)


def effect_errors(path: Path, taint: DeviceTaint, release: Release) -> Iterator[FieldError]:
    """The effect (T-8)."""
    if not taint.effect:
        yield required(path.child("effect"), declarative=release.declarative)
    elif taint.effect not in release.effects:
        yield not_supported(path.child("effect"), taint.effect, release.effects, declarative=release.declarative)


def extras_errors(path: Path, extras: TaintExtras | None) -> Iterator[FieldError]:
    """The fields of the 1.35-era revision: data, description, rate (N-9 to N-11)."""
    if extras is None:
        return
    if extras.data is not None:
        yield from data_errors(path.child("data"), extras.data, len(msgspec.json.encode(extras.data)))
    if extras.description is not None:
        yield from description_errors(path.child("description"), extras.description)
    rate = extras.evictions_per_second
    if rate is not None and rate <= 0:
        yield invalid(path.child("evictionsPerSecond"), rate, "must be greater than zero")


def data_errors(path: Path, data: object, size_bytes: int) -> Iterator[FieldError]:
    """Free-form JSON beside a taint: an object of at most 10 KiB (N-9)."""
    if not isinstance(data, dict):
        yield invalid(path, outline(data), "must be a JSON object")
    if size_bytes > DATA_MAX_BYTES:
        yield too_long(path, DATA_MAX_BYTES)


def description_errors(path: Path, description: str) -> Iterator[FieldError]:
    """Free text beside a taint (N-10)."""
    yield from length_errors(path, description, DESCRIPTION_MAX_BYTES)


def toleration_list_errors(
    path: Path, tolerations: Sequence[DeviceToleration], release: Release
) -> Iterator[FieldError]:
    """The tolerations of a request, an alternative or an allocation result (L-9)."""
    for position, toleration in enumerate(tolerations):
        if not _toleration_is_fine(toleration, release):
            yield from toleration_errors(path.index(position), toleration, release)


def tolerations_are_fine(tolerations: Sequence[DeviceToleration], release: Release) -> bool:
    """Whether no toleration of a list has errors: most lists, and they are passed over without a path."""
    for toleration in tolerations:  # noqa: SIM110 -- each claim comes here, and a generator costs as much as a look
        if not _toleration_is_fine(toleration, release):
            return False
    return True


def _toleration_is_fine(toleration: DeviceToleration, release: Release) -> bool:
    """Whether a toleration has no errors, decided without building paths, and cached while it is short."""
    key, operator, value, effect = toleration.key, toleration.operator, toleration.value, toleration.effect
    if effect and effect not in release.effects:
        return False
    return _names_of_toleration_are_fine(key, operator, value)


@remembered(4096)
def _names_of_toleration_are_fine(key: str, operator: str, value: str) -> bool:
    return not any(toleration_errors(Path.root(), DeviceToleration(key, operator, value), NEWEST))


def toleration_errors(path: Path, toleration: DeviceToleration, release: Release) -> Iterator[FieldError]:
    """One toleration (L-1 to L-6). What the documents ask beyond that is in `documented`."""
    declarative = release.declarative
    if toleration.key:
        messages = label_key(toleration.key)
        if messages:
            yield from each_invalid(path.child("key"), toleration.key, messages, declarative=declarative)
    if toleration.operator == EXISTS:
        if toleration.value:
            yield invalid(path.child("value"), toleration.value, "must be empty for operator `Exists`")
    elif toleration.operator in ("", EQUAL):  # the API server defaults it before it looks (D-6)
        messages = label_value(toleration.value)
        if messages:
            yield from each_invalid(path.child("value"), toleration.value, messages)
    else:
        yield not_supported(path.child("operator"), toleration.operator, OPERATORS, declarative=declarative)
    if toleration.effect and toleration.effect not in release.effects:
        yield not_supported(path.child("effect"), toleration.effect, release.effects, declarative=declarative)
