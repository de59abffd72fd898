"""What strict field validation refuses: fields that no server has, or none of today's.

A server without it drops such fields, and what is left may mean something else. On a cluster a webhook sees none of
this (V-2); it is for manifests.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from webhook.api.field import JSON, Finding, Path, Severity, forbidden
from webhook.api.meta import OWN_GROUP, SERVED_VERSIONS, GroupVersionKind
from webhook.api.schema import (
    DOCUMENTED_SLICE_FIELDS,
    DOCUMENTED_TAINT_FIELDS,
    RETIRED_SELECTOR_FIELDS,
    SELECTOR,
    SLICE_SPEC,
    TAINT,
    Fields,
    Reference,
    base_name,
    fields_of,
    release_with,
    served,
    type_of,
)
from webhook.validation.releases import Release

RETIRED: Final = "DT016"
NEVER_SERVED: Final = "DT017"
LINTED_AS_WELL: Final = frozenset({"DT015", RETIRED, NEVER_SERVED})
"""Lint codes whose advice is not needed where a finding from here stands at the same path."""

_ANNOTATIONS: Final = {
    "data": f"{OWN_GROUP}/data",
    "description": f"{OWN_GROUP}/description",
    "evictionsPerSecond": f"{OWN_GROUP}/evictions-per-second",
}
_SIMILARITY: Final = 0.75
_DEPTH: Final = 4
_NAMED_MOST: Final = 2
_TELLING: Final = 4
"""Letters that two names must have in common to be taken for each other."""


class _Place(NamedTuple):
    """An object on the way down, with its type and how one gets there."""

    value: dict[str, JSON]
    type: str
    path: Path
    above: _Place | None
    minor: int

    @property
    def fields(self) -> Fields:
        """What it may have in the release."""
        return fields_of(self.type, self.minor)


def strict_findings(
    value: JSON, kind: GroupVersionKind, release: Release, path: Path | None = None
) -> Iterator[Finding]:
    """A finding for each field that the kind lacks, of an object at `path`. Fields of the documents only warn."""
    root = type_of(kind, release.minor)
    if root is not None and isinstance(value, dict):
        yield from _walk(_Place(value, root, path or Path.root(), None, release.minor), release)


def _walk(place: _Place, release: Release) -> Iterator[Finding]:
    fields = place.fields
    for name, value in place.value.items():
        held = fields.get(name)
        if held is None:
            held = yield from _unserved(place, name, release)
        below = Reference.parse(held)
        if below is not None and below.has_fields:
            path = place.path.child(name)
            for entry, at in _objects(value, below.container, path):
                yield from _walk(_Place(entry, below.type, at, place, place.minor), release)


def _objects(value: JSON, container: str, path: Path) -> Iterator[tuple[dict[str, JSON], Path]]:
    """The objects that a field holds. What has another type is left to the decoder."""
    if container == "[" and isinstance(value, list):
        for position, entry in enumerate(value):
            if isinstance(entry, dict):
                yield entry, path.index(position)
    elif container == "{" and isinstance(value, dict):
        for key, entry in value.items():
            if isinstance(entry, dict):
                yield entry, path.key(key)
    elif not container and isinstance(value, dict):
        yield value, path


def _unserved(place: _Place, name: str, release: Release) -> Generator[Finding, None, str]:
    """A field that the type does not have: yield the finding, and return the type that it holds, if known."""
    base = base_name(place.type)
    path = place.path.child(name)
    if base == SELECTOR and name in RETIRED_SELECTOR_FIELDS:
        if not release.class_selectors:
            yield Finding(Severity.DENY, forbidden(path, _retired_text(place.value)), RETIRED)
        return RETIRED_SELECTOR_FIELDS[name]
    if base == TAINT and name in DOCUMENTED_TAINT_FIELDS:
        yield Finding(Severity.WARN, forbidden(path, _annotation_text(place, name)), NEVER_SERVED)
        return DOCUMENTED_TAINT_FIELDS[name]
    if base == SLICE_SPEC and name in DOCUMENTED_SLICE_FIELDS:
        text = "no released server has it: they drop the taints; set them in devices[], or make a DeviceTaintRule"
        yield Finding(Severity.WARN, forbidden(path, text), NEVER_SERVED)
        return DOCUMENTED_SLICE_FIELDS[name]
    yield Finding(Severity.DENY, forbidden(path, f"unknown field{_suggestion(place, name)}"))
    return ""


def _retired_text(selector: dict[str, JSON]) -> str:
    text = "servers from 1.35 on drop it"
    if all(name in RETIRED_SELECTOR_FIELDS or value is None for name, value in selector.items()):
        text += ", which leaves an EMPTY selector: every device of every driver"
    return f"{text}; use driver, pool, device"


def _annotation_text(place: _Place, name: str) -> str:
    in_rule = place.above is not None and base_name(place.above.type) == "DeviceTaintRuleSpec"
    where = "use annotation" if in_rule else "on a DeviceTaintRule use annotation"
    return f"no released server has it: they drop it; {where} {_ANNOTATIONS[name]}"


def _suggestion(place: _Place, name: str) -> str:
    """What the field may have been meant to be, or which servers or versions have it."""
    later = release_with(place.type, name, place.minor)
    if later is not None:
        return f": servers have it from 1.{later} on"
    meant = next(filter(None, _meant(place, name)), [])
    meant = [each for each in meant if each.count("[]") == min(other.count("[]") for other in meant)]
    if not 0 < len(meant) <= _NAMED_MOST:
        return _of_another_version(place, name)
    return f", did you mean {' or '.join(meant)}?"


def _meant(place: _Place, name: str) -> Iterator[list[str]]:
    """In quotes, fields beside it that are called nearly so; then whole paths below it, above it and beside those."""
    from difflib import get_close_matches  # noqa: PLC0415 -- only for mistakes; its import takes longer than a file

    free = [field for field in place.fields if field not in place.value]
    yield [f'"{each}"' for each in get_close_matches(name, free, 1, _SIMILARITY)]
    word = name.lower()
    alike = [
        each
        for each in free
        if min(len(each), len(word)) >= _TELLING and (word in each.lower() or each.lower() in word)
    ]
    yield [f'"{each}"' for each in alike] if len(alike) == 1 else []
    below = _below(place.type, name, place.path.written, place.minor)
    given = tuple(f'"{place.path.child(field).written}' for field in place.value)
    yield [each for each in below if each.startswith(given)] or below
    above = place.above
    while above is not None:
        path = above.path.written
        if name in above.fields:
            yield [f'"{path}.{name}"' if path else f'"{name}" at the top']
        yield _below(above.type, name, path, place.minor)
        above = above.above


def _below(root: str, name: str, path: str, minor: int) -> list[str]:
    """In quotes, the paths of the fields of that name that are nearest below a type."""
    level = [(root, path)]
    for _ in range(_DEPTH):
        level = [
            (below.type, f"{path}.{field}".lstrip(".") + ("[]" if below.container else ""))
            for kind, path in level
            for field, held in fields_of(kind, minor).items()
            if field != "status" and (below := Reference.parse(held)) is not None and below.has_fields
        ]
        if found := [f'"{path}.{name}"' for kind, path in level if name in fields_of(kind, minor)]:
            return found
    return []


def _of_another_version(place: _Place, name: str) -> str:
    """That it is a field in other versions that the release has; empty if it is in none."""
    version, _, base = place.type.partition(".")
    types = served(place.minor).types
    known = [each for each in reversed(SERVED_VERSIONS) if f"{each}.{base}" in types]
    having = [each for each in known if name in types[f"{each}.{base}"]]
    if not having:
        return ""
    later = version in known and known.index(having[-1]) > known.index(version)
    text = f": {name} is a field of {having[0] if later else having[-1]}"
    return text + (f" and {'later' if later else 'earlier'}" if len(having) > 1 else "")
