"""The table in table/: requests as data, the objects and identities that they stand for, and what is expected."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.controlplane.client import path
from tests.controlplane.versions import GROUP

Json = dict[str, Any]

FOLDER: Final = Path(__file__).parent
POLICY: Final[Json] = yaml.safe_load((FOLDER / "policy.yaml").read_text())
CLUSTER: Final[Json] = yaml.safe_load((FOLDER / "table" / "cluster.yaml").read_text())
_NO_TABLE: Final = {"cluster.yaml"}
_TOLERATION: Final = re.compile(r"(?P<key>[^:=]+)(?:=(?P<value>[^:]+))?(?::(?P<effect>[^:]+))?(?::(?P<seconds>\d+))?")


class Identity(NamedTuple):
    """Who sends a request; the API server adds group system:authenticated, and so do we offline."""

    user: str
    groups: tuple[str, ...]

    @classmethod
    def of(cls, user: str = "", groups: tuple[str, ...] = (), serviceAccount: str = "") -> Identity:  # noqa: N803 -- as the tables write it
        """As a table writes it; a service account, `namespace/name`, brings its own groups."""
        if not serviceAccount:
            return cls(user, tuple(groups))
        namespace, _, name = serviceAccount.partition("/")
        everyone = "system:serviceaccounts"
        return cls(f"system:serviceaccount:{namespace}:{name}", (everyone, f"{everyone}:{namespace}"))


DANA: Final = Identity("dana", ())
"""Somebody without any role."""


@dataclass(frozen=True)
class Expected:
    verdict: str
    rules: tuple[str, ...]
    path: str = ""
    text: str = ""
    asked: bool = True
    """Whether the registration has anybody asked at all."""
    kubectl: str = ""

    @property
    def told(self) -> bool:
        """Whether the requester gets to read anything."""
        return self.verdict != "allowed"


@dataclass(frozen=True)
class Row:
    """One request. Its fields are explained in table/README.md."""

    name: str
    file: str
    expected: Expected
    requester: Identity = DANA
    namespace: str = "lab"
    kind: str = "claim"
    version: str = "v1"
    shape: str = "exactly"
    operation: str = "create"
    device_class: str = "gpu.example.com"
    tolerations: tuple[Json, ...] = ()
    request: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"

    @property
    def manifest(self) -> Json:
        """The object, under a name that no other row has."""
        metadata: Json = {"name": re.sub(r"[^a-z0-9]+", "-", str(self).lower()), "namespace": self.namespace}
        if self.labels:
            metadata["labels"] = dict(self.labels)
        spec: Json = {"devices": {"requests": [self._request()]}}
        template = self.kind == "template"
        return {
            "apiVersion": f"{GROUP}/{self.version}",
            "kind": "ResourceClaimTemplate" if template else "ResourceClaim",
            "metadata": metadata,
            "spec": {"spec": spec} if template else spec,
        }

    @property
    def collection(self) -> str:
        """Where the object is created."""
        plural = "resourceclaimtemplates" if self.kind == "template" else "resourceclaims"
        return path(f"{GROUP}/{self.version}", plural, namespace=self.namespace)

    @property
    def url(self) -> str:
        """Where the object is once it has been created."""
        return f"{self.collection}/{self.manifest['metadata']['name']}"

    def _request(self) -> Json:
        plain = {"deviceClassName": self.device_class, **self.request}
        wanted = {**plain, "tolerations": list(self.tolerations)} if self.tolerations else plain
        if self.shape == "flat":
            return {"name": "r", **wanted}
        if self.shape == "exactly":
            return {"name": "r", "exactly": wanted}
        return {"name": "r", "firstAvailable": [{"name": "best", **plain}, {"name": "second", **wanted}]}


def make_toleration(text: str) -> Json:
    """key[=value][:effect[:seconds]]; `*` is no key, and without value the operator is Exists."""
    parts = _TOLERATION.fullmatch(text)
    assert parts, text
    toleration: Json = {} if parts["key"] == "*" else {"key": parts["key"]}
    toleration |= {"operator": "Equal", "value": parts["value"]} if parts["value"] else {"operator": "Exists"}
    toleration |= {"effect": parts["effect"]} if parts["effect"] else {}
    return toleration | ({"tolerationSeconds": int(parts["seconds"])} if parts["seconds"] else {})


def rows() -> Iterator[Row]:
    """All rows of all files."""
    for file in sorted((FOLDER / "table").glob("*.yaml")):
        if file.name not in _NO_TABLE:
            for raw in yaml.safe_load(file.read_text()):
                yield _row(file.stem, raw)


def _row(file: str, raw: Json) -> Row:
    given = dict(raw)
    expected = given.pop("expected")
    if "class" in given:
        given["device_class"] = given.pop("class")
    if "requester" in given:
        given["requester"] = Identity.of(**given["requester"])
    given["tolerations"] = tuple(make_toleration(text) for text in given.get("tolerations", ()))
    return Row(file=file, expected=Expected(**{**expected, "rules": tuple(expected["rules"])}), **given)


ROWS: Final = tuple(rows())
