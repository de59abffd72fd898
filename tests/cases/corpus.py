"""The case files of this folder, as values. README.md says what stands in a file.

Anything in a header that is not known here is an error: a misspelt expectation must not pass as none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
import pytest
import yaml

from tests.builders import USER, make_review
from tests.controlplane import versions
from webhook.api.field import ErrorType
from webhook.api.meta import GROUP, GroupVersionKind
from webhook.validation.kinds import BY_KIND
from webhook.validation.releases import NEWEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FOLDER: Final = Path(__file__).parent
MINORS: Final = (33, 34, 35, 36, 37, 38)
"""Releases whose verdicts the corpus tells. 1.33 knew the same rules as 1.34, so cases that mean it say so."""
NEWEST_MINOR: Final = NEWEST.minor
NOW: Final = "now"

_RANGE: Final = re.compile(r"1\.([0-9]+)(?:(\+)|-1\.([0-9]+))?")

JSON = Any
Errors = tuple[tuple[str, str], ...]
"""(field, type) of each error, sorted. What is wrong in two ways stands there twice."""


class _Loader(yaml.CSafeLoader):
    """YAML as kubectl reads it: a time is text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Error(msgspec.Struct, forbid_unknown_fields=True):
    field: str
    type: ErrorType


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    """The first document of a file."""

    case: str
    operation: Literal["CREATE", "UPDATE"]
    expect: Literal["allowed", "refused"]
    subresource: Literal["", "status"] = ""
    user: str = ""
    kubernetes: str = "1.34+"
    errors: list[_Error] = []
    warnings: list[Annotated[str, msgspec.Meta(pattern="^DT[0-9]{3}$")]] = []
    sets: dict[str, JSON] | None = None
    strict: list[str] = []
    ours: bool = False
    served: bool = True
    ids: list[Annotated[str, msgspec.Meta(pattern="^[TLRSDMNPVEK]-[0-9]+$")]] = []


@dataclass(frozen=True)
class Case:
    """One request, and what is to become of it."""

    path: str
    """Below the folder, without the suffix."""
    sentence: str
    operation: str
    sub_resource: str
    user: str
    minors: tuple[int, ...]
    """The releases in which this is the verdict, of those that serve the object's version."""
    allowed: bool
    errors: Errors
    warnings: tuple[str, ...]
    """Codes, sorted."""
    sets: dict[str, JSON] | None
    """JSON pointer -> what `/mutate` sets there; None: not told."""
    strict: tuple[str, ...]
    """Fields that strict field validation refuses, and `check` with it."""
    ours: bool
    """We decide otherwise than released servers."""
    served: bool
    """An API server can be asked about it."""
    ids: tuple[str, ...]
    object: JSON
    old: JSON

    @property
    def kind(self) -> GroupVersionKind:
        """As the object says."""
        return GroupVersionKind.parse(self.object["apiVersion"], self.object["kind"])

    @property
    def undecodable(self) -> bool:
        """A value has another type than its field, which servers answer with 400 and without causes."""
        return any(error == ErrorType.TYPE_INVALID for _, error in self.errors)

    def manifest(self) -> bytes:
        """The object's document, as it stands in the file."""
        return _documents(FOLDER / f"{self.path}.yaml")[1].encode()


def _documents(file: Path) -> list[str]:
    return re.split(r"^---\n", file.read_text(), flags=re.MULTILINE)


def _read(file: Path) -> Case:
    first, manifest, *older = [yaml.load(text, _Loader) for text in _documents(file)]
    path = str(file.relative_to(FOLDER).with_suffix(""))
    try:
        header = msgspec.convert(first, _Header)
    except msgspec.ValidationError as e:
        raise AssertionError(f"{path}: {e}") from None
    assert len(older) == (header.operation == "UPDATE"), f"{path}: an update has an old object, nothing else has"
    assert (header.expect == "refused") == bool(header.errors), f"{path}: a refusal has its errors"
    minors = _minors(header.kubernetes)
    if header.served:
        kind = GroupVersionKind.parse(manifest["apiVersion"], manifest["kind"])
        minors = tuple(minor for minor in minors if is_served(kind, minor))
    assert minors, f"{path}: no release that is meant serves it"
    return Case(
        path=path,
        sentence=header.case,
        operation=header.operation,
        sub_resource=header.subresource,
        user=header.user,
        minors=minors,
        allowed=header.expect == "allowed",
        errors=told((each.field, each.type) for each in header.errors),
        warnings=tuple(sorted(header.warnings)),
        sets=header.sets,
        strict=tuple(sorted(header.strict)),
        ours=header.ours,
        served=header.served,
        ids=tuple(header.ids),
        object=manifest,
        old=older[0] if older else None,
    )


def _minors(text: str) -> tuple[int, ...]:
    """Of `1.34`, `1.34-1.36`, `1.35+`."""
    match = _RANGE.fullmatch(text)
    assert match, f"{text!r} must look like 1.34, 1.34-1.36 or 1.35+"
    first = int(match[1])
    last = MINORS[-1] if match[2] else int(match[3] or first)
    return tuple(minor for minor in MINORS if first <= minor <= last)


def is_served(kind: GroupVersionKind, minor: int) -> bool:
    """Whether servers of the release have the kind in this version."""
    return kind.group == GROUP and kind.kind in versions.SERVED[minor].get(kind.version, ())


@cache
def cases() -> tuple[Case, ...]:
    """All of them, by path."""
    return tuple(_read(file) for file in sorted(FOLDER.rglob("*.yaml")))


def each_case(holds: Callable[[Case], bool] = lambda _: True) -> pytest.MarkDecorator:
    """Parametrizes a test over the cases that `holds` is true of; their paths are the ids."""
    chosen = [case for case in cases() if holds(case)]
    return pytest.mark.parametrize("case", chosen, ids=[case.path for case in chosen])


def review_of(case: Case) -> JSON:
    """What an API server would send."""
    operation, sub_resource = case.operation, case.sub_resource or None
    return make_review(case.object, case.old, operation=operation, sub_resource=sub_resource, user=case.user or USER)


def told(errors: Iterable[tuple[str, str]]) -> Errors:
    """Errors in the order in which a case holds them."""
    return tuple(sorted((field, str(error)) for field, error in errors))


def with_sets(obj: JSON, sets: dict[str, JSON], now: str) -> JSON:
    """The object with what a case says is set in it; what is missing on the way is made."""
    result = _copy(obj)
    for pointer, value in sets.items():
        *steps, last = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
        at = result
        for step in steps:
            at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
        at[last] = now if value == NOW else value
    return result


def _copy(value: JSON) -> JSON:
    """Aliases of a file become values of their own, as they would on the wire."""
    if isinstance(value, dict):
        return {key: _copy(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_copy(entry) for entry in value]
    return value


def rows_without_a_clean_case() -> set[str]:
    """Kinds and versions of which no case shows a clean object."""
    clean = {case.kind for case in cases() if case.operation == "CREATE" and case.allowed and not case.warnings}
    return {str(kind) for kind in BY_KIND if kind not in clean}
