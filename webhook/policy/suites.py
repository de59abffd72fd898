"""A policy test suite as data: who asks for what, and the expected result. Running it is done elsewhere.

`suite.schema.json` describes the same for editors, and is published as docs/suite.schema.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from webhook.api.decode import Reader
from webhook.api.field import JSON, FieldError, Path, duplicate, forbidden, invalid, not_supported, required
from webhook.api.meta import YEARS
from webhook.api.taints import EQUAL, DeviceToleration, decode_toleration
from webhook.policy.match import SERVICE_ACCOUNT, Requester, authenticated

API_VERSION: Final = "policy.devicetaint.io/v1alpha1"
KIND: Final = "DeviceTaintPolicyTest"
_OPERATIONS: Final = ("CREATE", "UPDATE")
_STEP_SECONDS: Final = range(7 * 86400 + 1)
_STEP_RANGE: Final = "must be between 0 and 604800 (a week)"


class PriorRule(msgspec.Struct, frozen=True):
    """A rule that was admitted `seconds_ago`, counted back from the time of the case. Objects as in a case."""

    path: Path
    seconds_ago: int
    object: JSON = None
    file: str = ""
    old_object: JSON = None
    operation: str = "CREATE"
    requester: Requester | None = None


class InventorySource(msgspec.Struct, frozen=True):
    """What the cluster holds: objects, and names of files and folders with more of them."""

    objects: tuple[JSON, ...] = ()
    files: tuple[str, ...] = ()


class Case(msgspec.Struct, frozen=True):
    """One request. The object is given, or the name of the file that holds it.

    `author` wrote the template of a claim that is generated. `before` are rules that were admitted shortly before, the
    earliest first.
    """

    path: Path
    name: str
    expect: Expectation
    object: JSON = None
    file: str = ""
    old_object: JSON = None
    operation: str = "CREATE"
    requester: Requester | None = None
    author: Requester | None = None
    time: datetime | None = None
    before: tuple[PriorRule, ...] = ()


class Suite(msgspec.Struct, frozen=True):
    """`policy` is the name of a file, or the document itself. Namespaces and classes that are not named are unknown.

    Without an inventory impacts are not judged; with one every case has a time.
    """

    name: str
    policy: str | dict[str, JSON]
    namespace: str
    namespaces: Mapping[str, Mapping[str, str]]
    device_classes: Mapping[str, frozenset[str] | None]
    cases: tuple[Case, ...]
    inventory: InventorySource | None = None


class _Defaults(msgspec.Struct, frozen=True):
    requester: Requester | None = None
    namespace: str = "default"
    time: datetime | None = None


class _Sent(NamedTuple):
    """The given objects of a request."""

    value: JSON
    file: str
    old: JSON
    operation: str


def read_suite(document: JSON) -> tuple[Suite | None, tuple[FieldError, ...]]:
    """The suite in a document, or every mistake at its path."""
    errors: list[FieldError] = []
    reader = Reader.of(document, errors)
    if errors:
        return None, tuple(errors)
    errors.extend(unknown_fields(reader, FIELDS["suite"]))
    for name, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if reader.text(name) != expected:
            errors.append(not_supported(reader.path.child(name), reader.raw.get(name), [expected]))
    policy = reader.raw.get("policy")
    if not isinstance(policy, str | dict) or policy == "":
        errors.append(required(reader.path.child("policy"), "the name of a file, or the policy itself"))
        policy = ""
    defaults = _defaults(reader)
    inventory = _inventory(reader)
    cases = _cases(reader, defaults)
    errors.extend(_timeless(reader.path, cases, known=reader.has("inventory")))
    suite = Suite(
        reader.meta().name, policy, defaults.namespace, _namespaces(reader), _device_classes(reader), cases, inventory
    )
    return (None if errors else suite), tuple(errors)


def _defaults(reader: Reader) -> _Defaults:
    below = reader.child("defaults")
    if below is None:
        return _Defaults()
    reader.errors.extend(unknown_fields(below, FIELDS["defaults"]))
    return _Defaults(_requester(below, "requester"), below.text("namespace") or "default", _time(below))


def _time(reader: Reader) -> datetime | None:
    time = reader.time("time")
    if time is not None and not YEARS[0] <= time.year <= YEARS[1]:
        text = f"must be a time between {YEARS[0]} and {YEARS[1]}"
        reader.errors.append(invalid(reader.path.child("time"), reader.raw["time"], text))
    return time


def _namespaces(reader: Reader) -> dict[str, Mapping[str, str]]:
    found = {}
    for name, below in reader.entries("namespaces"):
        reader.errors.extend(unknown_fields(below, FIELDS["namespace"]))
        found[name] = below.text_map("labels")
    return found


def _device_classes(reader: Reader) -> dict[str, frozenset[str] | None]:
    classes = reader.child_or_empty("deviceClasses")
    return {name: None if drivers is None else frozenset(classes.texts(name)) for name, drivers in classes.raw.items()}


def _inventory(reader: Reader) -> InventorySource | None:
    below = reader.child("inventory")
    if below is None:
        return None
    below.errors.extend(unknown_fields(below, FIELDS["inventory"]))
    found = InventorySource(tuple([each.raw for each in below.each("objects")]), below.texts("files"))
    if not found.objects and not found.files:
        text = "objects or files must be given: without slices no rule hits anything"
        below.errors.append(required(below.path.child("objects"), text))
    for position, name in enumerate(found.files):
        if not name:
            below.errors.append(required(below.path.child("files").index(position), "the name of a file or folder"))
    return found


def _timeless(path: Path, cases: tuple[Case, ...], *, known: bool) -> Iterator[FieldError]:
    """What needs an inventory and has none; and cases with one whose time would be that of the run."""
    for position, case in enumerate(cases):
        at = path.child("cases").index(position)
        if known and case.time is None:
            yield required(at.child("time"), "must be given here or in defaults: an impact depends on it")
        if known:
            continue
        text = "needs an inventory in the suite"
        if case.before:
            yield forbidden(at.child("before"), text)
        for name in ("impact", "reasons", "softened"):
            if getattr(case.expect, name) is not None:
                yield forbidden(at.child("expect", name), text)


def _cases(reader: Reader, defaults: _Defaults) -> tuple[Case, ...]:
    cases = tuple([_case(each, defaults) for each in reader.each("cases")])
    if not cases:
        reader.errors.append(required(reader.path.child("cases"), "must have at least one entry"))
    seen: set[str] = set()
    for case in cases:
        if case.name in seen:
            reader.errors.append(duplicate(case.path.child("name"), case.name))
        elif not case.name:
            reader.errors.append(required(case.path.child("name")))
        seen.add(case.name)
    return cases


def _case(reader: Reader, defaults: _Defaults) -> Case:
    path, errors = reader.path, reader.errors
    errors.extend(unknown_fields(reader, FIELDS["case"]))
    sent = _sent(reader)
    author = _requester(reader, "author")
    requester = _requester(reader, "requester") or (None if author else defaults.requester)
    if requester is None and author is None and not reader.has("requester"):
        errors.append(required(path.child("requester"), "must be given here or in defaults, unless author is"))
    time = _time(reader) or defaults.time
    name, expect, before = reader.text("name"), expectation_in(reader), _steps(reader, defaults)
    return Case(path, name, expect, *sent, requester, author, time, before)


def _sent(reader: Reader) -> _Sent:
    path, errors, raw = reader.path, reader.errors, reader.raw
    value, old, file = raw.get("object"), raw.get("oldObject"), reader.text("file")
    for name in ("object", "oldObject"):
        reader.child(name)  # notes what is no object
    if (value is None) == (not file):
        errors.append(required(path.child("object"), "either object or file must be given, and not both"))
    operation = reader.text("operation") or ("CREATE" if old is None else "UPDATE")
    if operation not in _OPERATIONS:
        errors.append(not_supported(path.child("operation"), operation, _OPERATIONS))
    elif (operation == "UPDATE") != (old is not None):
        text = "must be given for UPDATE" if old is None else "has a meaning for UPDATE only"
        errors.append(required(path.child("oldObject"), text))
    return _Sent(value, file, old, operation)


def _steps(reader: Reader, defaults: _Defaults) -> tuple[PriorRule, ...]:
    steps: list[PriorRule] = []
    most = _STEP_SECONDS[-1]
    for below in reader.each("before"):
        path, errors = below.path, below.errors
        errors.extend(unknown_fields(below, FIELDS["step"]))
        ago = below.integer("secondsAgo")
        if ago is None or ago not in _STEP_SECONDS:
            given = below.raw.get("secondsAgo")
            missing = required(path.child("secondsAgo"), "seconds before the time of the case")
            errors.append(missing if given is None else invalid(path.child("secondsAgo"), given, _STEP_RANGE))
            ago = most  # and the next entry is compared with the one before
        elif ago > most:
            errors.append(invalid(path.child("secondsAgo"), ago, "must not be more than that of the entry before"))
        most = ago
        requester = _requester(below, "requester") or defaults.requester
        if requester is None and not below.has("requester"):
            errors.append(required(path.child("requester"), "must be given here or in defaults"))
        steps.append(PriorRule(path, ago, *_sent(below), requester))
    return tuple(steps)


def _requester(reader: Reader, name: str) -> Requester | None:
    """A requester: a user by name, or a service account as `namespace/name`; groups of every user are added."""
    below = reader.child(name)
    if below is None:
        return None
    below.errors.extend(unknown_fields(below, FIELDS["requester"]))
    username, account, groups = below.text("username"), below.text("serviceAccount"), below.texts("groups")
    if bool(username) == bool(account):
        text = "either username or serviceAccount must be given, and not both"
        below.errors.append(required(below.path.child("username"), text))
    if account:
        namespace, _, plain = account.partition("/")
        if not namespace or not plain or "/" in plain:
            below.errors.append(invalid(below.path.child("serviceAccount"), account, "must be namespace/name"))
        username = f"{SERVICE_ACCOUNT}{namespace}:{plain}"
    return authenticated(username, groups)


# --- expectations --------------------------------------------------------------------------------

FIGURES: Final = ("devices", "claims", "pods", "namespaces", "pendingPods")
"""What an impact is measured in, and what limits are about."""


class Word(StrEnum):
    """The decision on a request. Advice (codes `DTnnn`) does not count as a warning of the policy."""

    ALLOWED = "allowed"
    DENIED = "denied"
    WARNED = "warned"


class Expectation(msgspec.Struct, frozen=True):
    """The expected result of a case; None is not compared. `rules` are all rules that must be reported, in any order.

    `impact` has some of FIGURES; `reasons` are all those for which the impact is too much, one for each figure.
    """

    decision: Word
    rules: frozenset[str] | None = None
    message: str | None = None
    field: str | None = None
    defaulted: tuple[DeviceToleration, ...] | None = None
    impact: Mapping[str, int] | None = None
    reasons: frozenset[str] | None = None
    softened: bool | None = None
    """Whether /mutate turns the rule into NoSchedule with `/evict`."""


def expectation_in(reader: Reader) -> Expectation:
    """The expectation of a case; mistakes are noted by the reader."""
    below = reader.child("expect")
    if below is None:
        reader.errors.append(required(reader.path.child("expect")))
        return Expectation(Word.ALLOWED)
    below.errors.extend(unknown_fields(below, FIELDS["expect"]))
    word = below.text("decision")
    if word not in set(Word):
        below.errors.append(not_supported(below.path.child("decision"), word, Word))
        word = Word.ALLOWED
    return Expectation(
        Word(word),
        frozenset(below.texts("rules")) if below.has("rules") else None,
        below.optional_text("message"),
        below.optional_text("field"),
        tuple(_tolerations(below)) if below.has("defaulted") else None,
        _figures(below),
        frozenset(below.texts("reasons")) if below.has("reasons") else None,
        below.boolean("softened"),
    )


def _figures(reader: Reader) -> Mapping[str, int] | None:
    below = reader.child("impact")
    if below is None:
        return None
    below.errors.extend(unknown_fields(below, FIELDS["impact"]))
    found = {name: number for name in FIGURES if (number := below.integer(name)) is not None}
    for name, number in found.items():
        if number < 0:
            below.errors.append(invalid(below.path.child(name), number, "must be 0 or more"))
    return found


def _tolerations(reader: Reader) -> Iterator[DeviceToleration]:
    for each in reader.each("defaulted"):
        each.errors.extend(unknown_fields(each, FIELDS["toleration"]))
        yield toleration_in(each)


def toleration_in(reader: Reader) -> DeviceToleration:
    """A toleration that was added by default, with its operator spelled out."""
    toleration = decode_toleration(reader)
    return msgspec.structs.replace(toleration, operator=toleration.operator or EQUAL)


def unknown_fields(reader: Reader, fields: frozenset[str]) -> Iterator[FieldError]:
    """Fields of an object of the format that it does not have."""
    for name in reader.raw:
        if name not in fields:
            known = ", ".join(sorted(fields))
            yield forbidden(reader.path.child(name), f"unknown field; known are {known}")


# --- unknown fields -----------------------------------------------------------------------------

FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "suite": frozenset(
        {"apiVersion", "kind", "metadata", "policy", "namespaces", "deviceClasses", "defaults", "inventory", "cases"}
    ),
    "defaults": frozenset({"requester", "namespace", "time"}),
    "namespace": frozenset({"labels"}),
    "inventory": frozenset({"objects", "files"}),
    "case": frozenset(
        {"name", "object", "file", "oldObject", "operation", "requester", "author", "time", "before", "expect"}
    ),
    "step": frozenset({"secondsAgo", "object", "file", "oldObject", "operation", "requester"}),
    "requester": frozenset({"username", "groups", "serviceAccount"}),
    "expect": frozenset({"decision", "rules", "message", "field", "defaulted", "impact", "reasons", "softened"}),
    "impact": frozenset(FIGURES),
    "toleration": frozenset({"key", "operator", "value", "effect", "tolerationSeconds"}),
}
"""The fields of each object of the format. A test compares them with the schema."""
