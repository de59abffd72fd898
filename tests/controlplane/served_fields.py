"""The fields that an API server serves, from its OpenAPI documents: what webhook/api/fields.json is made of.

As a command it writes that file anew:  python -m tests.controlplane.served_fields
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.controlplane import assets, versions
from tests.controlplane.plane import ControlPlane

if TYPE_CHECKING:
    from tests.controlplane.client import Client

FILE = Path(__file__).parents[2] / "webhook/api/fields.json"

KINDS = ("DeviceTaintRule", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")

Types = dict[str, dict[str, str]]


def served_fields(client: Client, version: str) -> dict[str, Any]:
    """The content of the file: kinds by `apiVersion kind`, and types with the type of each field.

    A field's type is empty for values without fields of their own (text, numbers, free-form JSON), else the name
    of another type: `T` for an object, `[T]` for a list of them, `{T}` for a map of them.
    """
    kinds: dict[str, str] = {}
    types: Types = {}
    for api_version in versions.api_versions(version):
        schemas = _schemas(client, api_version)
        for name, schema in schemas.items():
            for served in schema.get("x-kubernetes-group-version-kind", ()):
                if served["group"] == versions.GROUP and served["kind"] in KINDS:
                    kinds[f"{served['group']}/{served['version']} {served['kind']}"] = _short(name)
                    _add(types, schemas, name)
    return {"kubernetes": version, "kinds": dict(sorted(kinds.items())), "types": dict(sorted(types.items()))}


def encoded(fields: dict[str, Any]) -> str:
    """As the file has it: one line per type, so that a change of the API reads well as a difference."""
    parts = [f' "kubernetes": {json.dumps(fields["kubernetes"])}']
    for name in ("kinds", "types"):
        lines = ",\n".join(
            f"  {json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in fields[name].items()
        )
        parts.append(f' "{name}": {{\n{lines}\n }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _schemas(client: Client, api_version: str) -> dict[str, Any]:
    reply = client.get(f"/openapi/v3/apis/{versions.GROUP}/{api_version}")
    assert reply.ok, reply
    # served as text/plain unless a client negotiates
    document = json.loads(reply.body) if isinstance(reply.body, str) else reply.body
    schemas: dict[str, Any] = document["components"]["schemas"]
    return schemas


def _add(types: Types, schemas: dict[str, Any], name: str) -> None:
    """The type, and all that its fields refer to."""
    if _short(name) in types:
        return
    fields: dict[str, str] = {}
    types[_short(name)] = fields
    for field, schema in schemas[name]["properties"].items():
        wrapped, below = _reference(schema)
        has_fields = bool(below) and "properties" in schemas[below]
        fields[field] = wrapped.format(_short(below)) if has_fields else ""
        if has_fields:
            _add(types, schemas, below)


def _reference(schema: dict[str, Any]) -> tuple[str, str]:
    """How a field holds another type, and that type's name; empty if it holds none."""
    if "$ref" in schema:
        return "{}", schema["$ref"].rpartition("/")[2]
    if "allOf" in schema:
        return _reference(schema["allOf"][0])
    for keyword, wrapped in (("items", "[{}]"), ("additionalProperties", "{{{}}}")):
        if isinstance(schema.get(keyword), dict):
            inner, name = _reference(schema[keyword])
            assert inner == "{}" or not name, f"nested containers: {schema}"
            return wrapped, name
    return "{}", ""


def _short(name: str) -> str:
    """`v1.DeviceTaint` for `io.k8s.api.resource.v1.DeviceTaint`, `core.v1...` and `meta.v1...` for the others."""
    for prefix in ("io.k8s.api.resource.", "io.k8s.api.", "io.k8s.apimachinery.pkg.apis."):
        name = name.removeprefix(prefix)
    return name


def main() -> int:
    """Starts an API server and writes the file."""
    with ControlPlane(assets.find(versions.DEFAULT)) as plane:
        FILE.write_text(encoded(served_fields(plane.client, plane.server_version)))
    print(FILE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
