"""Field rules of the tolerations in ResourceClaim and ResourceClaimTemplate.

`semantics.md` L-9 to L-13. Requests are named by the normalized path, whatever shape was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import json, structs

from webhook.api.claims import DeviceRequest, ExactRequest, ResourceClaim, ResourceClaimTemplate
from webhook.api.field import JSON, FieldError, Path, invalid
from webhook.api.quantities import parse_quantity
from webhook.api.taints import EQUAL, DeviceToleration
from webhook.validation.formats import object_meta_errors
from webhook.validation.releases import Release
from webhook.validation.taints import toleration_list_errors, tolerations_are_fine

SPEC: Final = Path.root().child("spec")
TEMPLATE_SPEC: Final = SPEC.child("spec")
_RESULTS: Final = Path.root().child("status", "allocation", "devices", "results")
_DEFAULTS: Final = {"operator": (EQUAL,), "allocationMode": ("ExactCount",), "count": (0, 1)}
_DEFAULTS_OF_ALL: Final = {**_DEFAULTS, "count": (0,)}


def claim_errors(new: ResourceClaim, old: ResourceClaim | None, release: Release) -> Iterator[FieldError]:
    """A claim that is created; an update can only be refused for touching the spec (L-11)."""
    yield from object_meta_errors(new.meta, created=old is None)
    if old is not None:
        if not _same_spec(new.spec, old.spec):
            yield invalid(SPEC, "", "field is immutable")
        if release.ratchets:
            return
    yield from request_errors(SPEC, new.requests, release)


def template_errors(
    new: ResourceClaimTemplate, old: ResourceClaimTemplate | None, release: Release
) -> Iterator[FieldError]:
    """A template; on update the stored rules hold as well, also on 1.37 (L-11)."""
    yield from object_meta_errors(new.meta, created=old is None)
    if old is not None and not _same_spec(new.spec, old.spec):
        yield invalid(SPEC, "", "field is immutable")
    if old is None or not release.declarative:
        yield from request_errors(TEMPLATE_SPEC, new.requests, release)
        return
    # What was there before is judged after the conversion only, so it is reported at the normalized path (V-5).
    stored = {_defaulted(tolerations) for _, tolerations in toleration_lists(TEMPLATE_SPEC, old.requests)}
    for path, tolerations in toleration_lists(TEMPLATE_SPEC, new.requests):
        known = _defaulted(tolerations) in stored
        for error in toleration_list_errors(path, tolerations, release):
            yield replace(error, declarative=False) if known else error


def _same_spec(new: JSON, old: JSON) -> bool:
    # Equal text is the usual case and a hundred times faster to compare; as text, since 1 and true are equal here.
    return json.encode(new) == json.encode(old) or semantic(new) == semantic(old)


def _defaulted(tolerations: tuple[DeviceToleration, ...]) -> tuple[DeviceToleration, ...]:
    return tuple([structs.replace(entry, operator=entry.operator or EQUAL) for entry in tolerations])


def claim_status_errors(new: ResourceClaim, old: ResourceClaim | None, release: Release) -> Iterator[FieldError]:
    """A claim's status: an allocation is checked when it appears and cannot change (L-13)."""
    if new.allocation is None:
        return
    if old is not None and old.allocation is not None:
        if new.allocation != old.allocation:
            yield invalid(Path.root().child("status", "allocation"), "", "field is immutable")
        return
    if not release.allocations_checked:
        return
    for position, result in enumerate(new.allocation):
        yield from toleration_list_errors(_RESULTS.index(position).child("tolerations"), result.tolerations, release)


def request_errors(spec: Path, requests: tuple[DeviceRequest, ...], release: Release) -> Iterator[FieldError]:
    """The tolerations of all requests and alternatives."""
    for path, tolerations in toleration_lists(spec, requests):
        if not tolerations_are_fine(tolerations, release):
            yield from toleration_list_errors(path, tolerations, release)


class Asked(NamedTuple):
    """What a claim asks for in one place: an exact request or an alternative, and where it stands."""

    path: Path
    exact: ExactRequest
    position: int
    alternative: int | None = None

    @property
    def tolerations(self) -> Path:
        """Where its tolerations stand."""
        return self.path.child("tolerations")

    def toleration(self, position: int) -> Path:
        """Where one of them stands."""
        return self.tolerations.index(position)


def everything_asked(spec: Path, requests: tuple[DeviceRequest, ...]) -> Iterator[Asked]:
    """Each exact request and alternative, in order (L-9, L-10). `spec` is SPEC or TEMPLATE_SPEC."""
    of_template = spec is TEMPLATE_SPEC
    for position, request in enumerate(requests):
        if request.exactly is not None:
            yield Asked(_exactly_path(of_template, position, request.flat), request.exactly, position)
        for index, alternative in enumerate(request.first_available):
            yield Asked(_alternative_path(of_template, position, index), alternative, position, index)


def toleration_lists(
    spec: Path, requests: tuple[DeviceRequest, ...]
) -> Iterator[tuple[Path, tuple[DeviceToleration, ...]]]:
    """Each list of tolerations that is not empty, with its path. `spec` is SPEC or TEMPLATE_SPEC."""
    of_template = spec is TEMPLATE_SPEC
    for position, request in enumerate(requests):
        exact = request.exactly
        if exact is not None and exact.tolerations:
            yield tolerations_path(of_template, position, None, request.flat), exact.tolerations
        for index, alternative in enumerate(request.first_available):
            if alternative.tolerations:
                yield tolerations_path(of_template, position, index), alternative.tolerations


@lru_cache(maxsize=512)
def tolerations_path(of_template: bool, position: int, index: int | None, flat: bool = False) -> Path:  # noqa: FBT001, FBT002 -- keys of the cache
    """Where the list of a request stands, or, with an `index`, that of one of its alternatives."""
    if index is None:
        return _exactly_path(of_template, position, flat).child("tolerations")
    return _alternative_path(of_template, position, index).child("tolerations")


@lru_cache(maxsize=512)
def _exactly_path(of_template: bool, position: int, flat: bool) -> Path:  # noqa: FBT001 -- keys of the cache
    path = _request_path(of_template, position)
    return path.only_normalized("exactly") if flat else path.child("exactly")


@lru_cache(maxsize=512)
def _alternative_path(of_template: bool, position: int, index: int) -> Path:  # noqa: FBT001 -- keys of the cache
    return _request_path(of_template, position).child("firstAvailable").index(index)


def _request_path(of_template: bool, position: int) -> Path:  # noqa: FBT001 -- keys of the cache
    return (TEMPLATE_SPEC if of_template else SPEC).child("devices", "requests").index(position)


def _reduced(key: str, value: JSON, inside: str) -> object:
    if key == "parameters":  # of a driver: compared as they stand, types and all
        return json.encode(value, order="deterministic")
    if key in {"labels", "annotations"}:
        return value
    if (inside, key) == ("capacity", "requests") and isinstance(value, dict):
        numbers = {name: parse_quantity(text) for name, text in value.items()}
        return {name: value[name] if number is None else number for name, number in numbers.items()}
    if (inside, key) == ("quantity", "value") and value:
        number = parse_quantity(value)
        return value if number is None else number
    return semantic(value, "quantity" if inside in {"capacity", "counters"} else key)


def semantic(value: JSON, inside: str = "") -> object:
    """The value with everything left out that the API server treats as if it were missing.

    Null, empty lists, maps and strings, and defaults spelt out compare equal to their absence (L-11); so do quantities
    that spell the same number.
    """
    if isinstance(value, dict):
        reduced = {key: _reduced(key, entry, inside) for key, entry in value.items()}
        defaults = _DEFAULTS_OF_ALL if reduced.get("allocationMode") == "All" else _DEFAULTS
        return {
            key: entry
            for key, entry in reduced.items()
            if entry is not None and entry not in ("", [], {}) and entry not in defaults.get(key, ())
        }
    if isinstance(value, list):
        return [semantic(entry, inside) for entry in value]
    return value
