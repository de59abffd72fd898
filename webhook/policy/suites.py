"""A test suite for a policy as data: who asks for what, and what should come of it. Running it is done elsewhere.

`suite.schema.json` describes the same for editors, and is published as docs/suite.schema.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.api.decode import Reader
from webhook.api.field import JSON, FieldError, Path, duplicate, forbidden, invalid, not_supported, required
from webhook.api.taints import EQUAL, DeviceToleration, decode_toleration
from webhook.policy.names import Requester
from webhook.policy.requesters import authenticated

if TYPE_CHECKING:
    from collections.abc import Iterator

API_VERSION: Final = "policy.devicetaint.io/v1alpha1"
KIND: Final = "DeviceTaintPolicyTest"
_OPERATIONS: Final = ("CREATE", "UPDATE")


class Word(StrEnum):
    """What becomes of a request. Advice (codes `DTnnn`) is no warning of the policy's."""

    ALLOWED = "allowed"
    DENIED = "denied"
    WARNED = "warned"


class Expectation(msgspec.Struct, frozen=True):
    """What should come of a case; None is not looked at. `rules` are all those that speak, in any order."""

    decision: Word
    rules: frozenset[str] | None = None
    message: str | None = None
    field: str | None = None
    defaulted: tuple[DeviceToleration, ...] | None = None


class Case(msgspec.Struct, frozen=True):
    """One request. The object is given, or the name of the file that holds it.

    `author` wrote the template of a claim that is generated; the runner signs in their name.
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


class Suite(msgspec.Struct, frozen=True):
    """`policy` is the name of a file, or the document itself. Namespaces and classes that are not named are unknown."""

    name: str
    policy: str | dict[str, JSON]
    namespace: str
    namespaces: Mapping[str, Mapping[str, str]]
    device_classes: Mapping[str, frozenset[str] | None]
    cases: tuple[Case, ...]


class _Defaults(msgspec.Struct, frozen=True):
    requester: Requester | None = None
    namespace: str = "default"
    time: datetime | None = None


def read_suite(document: JSON) -> tuple[Suite | None, tuple[FieldError, ...]]:
    """The suite in a document, or every mistake at its path."""
    errors: list[FieldError] = []
    reader = Reader.of(document, errors)
    if errors:
        return None, tuple(errors)
    errors.extend(_unknown(reader, FIELDS["suite"]))
    for name, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if reader.text(name) != expected:
            errors.append(not_supported(reader.path.child(name), reader.raw.get(name), [expected]))
    policy = reader.raw.get("policy")
    if not isinstance(policy, str | dict) or policy == "":
        errors.append(required(reader.path.child("policy"), "the name of a file, or the policy itself"))
        policy = ""
    defaults = _defaults(reader)
    cases = _cases(reader, defaults)
    suite = Suite(
        reader.meta().name,
        policy,
        defaults.namespace,
        _namespaces(reader),
        _device_classes(reader),
        cases,
    )
    return (None if errors else suite), tuple(errors)


def _defaults(reader: Reader) -> _Defaults:
    below = reader.child("defaults")
    if below is None:
        return _Defaults()
    reader.errors.extend(_unknown(below, FIELDS["defaults"]))
    return _Defaults(_requester(below, "requester"), below.text("namespace") or "default", below.time("time"))


def _namespaces(reader: Reader) -> dict[str, Mapping[str, str]]:
    found = {}
    for name, below in reader.entries("namespaces"):
        reader.errors.extend(_unknown(below, FIELDS["namespace"]))
        found[name] = below.text_map("labels")
    return found


def _device_classes(reader: Reader) -> dict[str, frozenset[str] | None]:
    classes = reader.child_or_empty("deviceClasses")
    return {name: None if drivers is None else frozenset(classes.texts(name)) for name, drivers in classes.raw.items()}


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
    path, errors, raw = reader.path, reader.errors, reader.raw
    errors.extend(_unknown(reader, FIELDS["case"]))
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
    author = _requester(reader, "author")
    requester = _requester(reader, "requester") or (None if author else defaults.requester)
    if requester is None and author is None and "requester" not in raw:
        errors.append(required(path.child("requester"), "must be given here or in defaults, unless author is"))
    time = reader.time("time") or defaults.time
    name, expect = reader.text("name"), _expectation(reader)
    return Case(path, name, expect, value, file, old, operation, requester, author, time)


def _requester(reader: Reader, name: str) -> Requester | None:
    """Somebody: a user by name, or a service account as `namespace/name`; groups that every user is in are added."""
    below = reader.child(name)
    if below is None:
        return None
    below.errors.extend(_unknown(below, FIELDS["requester"]))
    username, account, groups = below.text("username"), below.text("serviceAccount"), below.texts("groups")
    if bool(username) == bool(account):
        text = "either username or serviceAccount must be given, and not both"
        below.errors.append(required(below.path.child("username"), text))
    if account:
        namespace, slash, plain = account.partition("/")
        if not slash or not namespace or not plain or "/" in plain:
            below.errors.append(invalid(below.path.child("serviceAccount"), account, "must be namespace/name"))
        username = f"system:serviceaccount:{namespace}:{plain}"
    return authenticated(username, groups)


def _expectation(reader: Reader) -> Expectation:
    below = reader.child("expect")
    if below is None:
        reader.errors.append(required(reader.path.child("expect")))
        return Expectation(Word.ALLOWED)
    below.errors.extend(_unknown(below, FIELDS["expect"]))
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
    )


def _tolerations(reader: Reader) -> Iterator[DeviceToleration]:
    for each in reader.each("defaulted"):
        each.errors.extend(_unknown(each, FIELDS["toleration"]))
        toleration = decode_toleration(each)
        yield msgspec.structs.replace(toleration, operator=toleration.operator or EQUAL)


# --- unknown fields -----------------------------------------------------------------------------

FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "suite": frozenset(
        {"apiVersion", "kind", "metadata", "policy", "namespaces", "deviceClasses", "defaults", "cases"}
    ),
    "defaults": frozenset({"requester", "namespace", "time"}),
    "namespace": frozenset({"labels"}),
    "case": frozenset({"name", "object", "file", "oldObject", "operation", "requester", "author", "time", "expect"}),
    "requester": frozenset({"username", "groups", "serviceAccount"}),
    "expect": frozenset({"decision", "rules", "message", "field", "defaulted"}),
    "toleration": frozenset({"key", "operator", "value", "effect", "tolerationSeconds"}),
}
"""The fields of each object of the format. A test compares them with the schema."""


def _unknown(reader: Reader, fields: frozenset[str]) -> Iterator[FieldError]:
    for name in reader.raw:
        if name not in fields:
            known = ", ".join(sorted(fields))
            yield forbidden(reader.path.child(name), f"unknown field; known are {known}")
