"""The shipped registrations, evaluated without an API server: which paths a request would be sent to.

The expressions are evaluated by cel-python. That an API server reads them in the same way is the subject of
tests/apiserver/registration.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import celpy
import yaml
from celpy.adapter import json_to_cel
from celpy.celtypes import BoolType

from tests.controlplane.registration import configurations
from webhook.api.meta import GroupVersionResource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from celpy.evaluation import CELFunction

Json = dict[str, Any]

MANIFESTS: Final = Path(__file__).parents[1] / "manifests"
_ADDED: Final = (
    "default-tolerations/entry.yaml",
    "patches/mutating-entry.yaml",
    "patches/validating-entry.yaml",
    "slice-attributes/entry.yaml",
)


class Entry(NamedTuple):
    """One entry of a webhook configuration, as far as the request decides whether it is called."""

    name: str
    path: str
    """/validate or /mutate."""
    operations: frozenset[str]
    resources: frozenset[GroupVersionResource]
    conditions: tuple[str, ...]

    def is_for(self, operation: str, resource: GroupVersionResource) -> bool:
        """Whether its rules hold."""
        return operation in self.operations and resource in self.resources

    def asks(self, new: Json, old: Json | None, user: str) -> bool:
        """Whether all its matchConditions hold.

        Raises: celpy.CELEvalError, if one of them cannot be evaluated.
        """
        return all(holds(condition, new, old, user) for condition in self.conditions)


@cache
def entries() -> tuple[Entry, ...]:
    """Those of the base, and then those that components add."""
    shipped = [each for configuration in configurations(MANIFESTS) for each in configuration["webhooks"]]
    files = [MANIFESTS / "components" / name for name in _ADDED]
    added = [operation["value"] for file in files for operation in yaml.safe_load(file.read_text())]
    return tuple(_entry(each) for each in [*shipped, *added])


def _entry(given: Json) -> Entry:
    (rule,) = given["rules"]
    listed = [
        GroupVersionResource(group, version, resource)
        for group in rule["apiGroups"]
        for version in rule["apiVersions"]
        for resource in rule["resources"]
    ]
    return Entry(
        given["name"],
        given["clientConfig"]["service"]["path"],
        frozenset(rule["operations"]),
        frozenset(listed),
        tuple(each["expression"] for each in given["matchConditions"]),
    )


def asked(
    among: Iterable[Entry],
    path: str,
    resource: GroupVersionResource,
    new: Json,
    old: Json | None,
    user: str = "someone",
) -> list[str]:
    """The names of the entries that send a create (`old` is None) or update of that user to the path."""
    operation = "CREATE" if old is None else "UPDATE"
    return [
        each.name
        for each in among
        if each.path == path and each.is_for(operation, resource) and each.asks(new, old, user)
    ]


def holds(condition: str, new: Json, old: Json | None, user: str = "someone") -> bool:
    """Whether a condition on object, oldObject and the user is true.

    Evaluating takes milliseconds, so what the condition cannot see is taken out of the objects first, and the answer
    for what is left is remembered: of specs that are only compared it is left whether they are the same.
    """
    seen: dict[str, Json | None] = {"object": new, "oldObject": old}
    if "oldObject" not in condition:
        del seen["oldObject"]
    elif "spec" not in _COMPARED.sub("", condition):
        seen = _with_specs_named(seen)
    if "request.userInfo" in condition:
        seen["request"] = {"userInfo": {"username": user}}
    return _evaluated(condition, json.dumps(seen, sort_keys=True))


_COMPARED: Final = re.compile(r"has\((?:object|oldObject)\.spec\)|object\.spec != oldObject\.spec")


def _with_specs_named(seen: dict[str, Json | None]) -> dict[str, Json | None]:
    """The objects, each with the position of the first equal spec in place of its own."""
    texts: list[str] = []
    named: dict[str, Json | None] = {}
    for name, each in seen.items():
        if each is None or "spec" not in each:
            named[name] = each
            continue
        texts.append(json.dumps(each["spec"], sort_keys=True))
        named[name] = {**each, "spec": texts.index(texts[-1])}
    return named


@lru_cache(maxsize=16384)
def _evaluated(condition: str, variables: str) -> bool:
    return bool(_program(condition).evaluate({name: json_to_cel(each) for name, each in json.loads(variables).items()}))


@lru_cache(maxsize=64)
def _program(expression: str) -> celpy.Runner:
    limit = sys.getrecursionlimit()
    try:
        environment = celpy.Environment()
        equality: dict[str, CELFunction] = {"_==_": _equal, "_!=_": _unequal}
        return environment.program(environment.compile(expression), functions=equality)
    finally:
        sys.setrecursionlimit(limit)  # celpy raises it


def _equal(one: Any, other: Any) -> BoolType:
    """As CEL has it since heterogeneous equality: values of different types differ. celpy finds no overload."""
    return BoolType(type(one) is type(other) and one == other)


def _unequal(one: Any, other: Any) -> BoolType:
    return BoolType(not _equal(one, other))


def with_meta(manifest: Mapping[str, Any], **fields: Any) -> Json:
    """The object with these fields of its metadata; None takes one away."""
    meta = {**manifest.get("metadata", {}), **fields}
    return {**manifest, "metadata": {name: value for name, value in meta.items() if value is not None}}
