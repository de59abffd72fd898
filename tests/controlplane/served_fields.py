"""The fields that an API server serves, from its OpenAPI documents: what webhook/api/fields is made of.

Each release publishes these documents with its source, so no server is needed to write the files:  make openapi
A test compares the file of its release with what a running server answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.controlplane import versions
from tests.controlplane.client import Client

FOLDER = Path(__file__).parents[2] / "webhook/api/fields"
RELEASES = ("1.33.4", "1.34.4", "1.35.4", "1.36.3", "1.37.2", "1.38.0-beta.0")

KINDS = ("DeviceTaintRule", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
_NAMED = "DeviceClass"
"""A kind that is named without its fields: `check` asks only whether it is served."""
_SCALARS = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "raw",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "raw",
}
"""What is defined like a type and read as one value. `raw` is any JSON at all."""

Schemas = dict[str, Any]
Types = dict[str, dict[str, str]]


def file_of(version: str) -> Path:
    return FOLDER / f"1.{versions.minor(version)}.json"


def fields_in(documents: Mapping[str, Schemas], version: str) -> dict[str, Any]:
    """The content of a file: kinds by `apiVersion kind`, and types with what each of their fields holds.

    That is the name of another type (`v1.DeviceTaint`), or one of `string`, `int64`, `int32`, `boolean`, `quantity`,
    `time` and `raw`; in brackets for a list of them (`[string]`), in braces for a map (`{quantity}`). `documents` holds
    the schemas of each version of the group.
    """
    kinds: dict[str, str] = {}
    types: Types = {}
    for schemas in documents.values():
        for name, schema in schemas.items():
            for served in schema.get("x-kubernetes-group-version-kind", ()):
                if served["group"] == versions.GROUP and served["kind"] in (*KINDS, _NAMED):
                    kinds[f"{served['group']}/{served['version']} {served['kind']}"] = _short(name)
                    if served["kind"] != _NAMED:
                        _add(types, schemas, name)
    return {"kubernetes": version, "kinds": dict(sorted(kinds.items())), "types": dict(sorted(types.items()))}


def served_documents(client: Client, version: str) -> dict[str, Schemas]:
    """The schemas as a running server has them."""
    return {name: _schemas_of(client, name) for name in versions.api_versions(version)}


def published_documents(version: str) -> dict[str, Schemas]:
    """The schemas as they stand beside the release's source, which Go's module cache holds."""
    command = ["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"]
    environment = {**os.environ, "GOTOOLCHAIN": "auto"}  # Go unpacks no module that asks for a newer Go
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/", env=environment)
    found = json.loads(done.stdout)
    folder = Path(found["Dir"]) / "api/openapi-spec/v3"
    names = versions.api_versions(version)
    texts = {name: (folder / f"apis__{versions.GROUP}__{name}_openapi.json").read_text() for name in names}
    return {name: json.loads(text)["components"]["schemas"] for name, text in texts.items()}


def encoded(fields: dict[str, Any]) -> str:
    """As the file has it: one line per type, so that a change of the API reads well as a difference."""
    parts = [f' "kubernetes": {json.dumps(fields["kubernetes"])}']
    for name in ("kinds", "types"):
        lines = ",\n".join(
            f"  {json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in fields[name].items()
        )
        parts.append(f' "{name}": {{\n{lines}\n }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _schemas_of(client: Client, api_version: str) -> Schemas:
    reply = client.get(f"/openapi/v3/apis/{versions.GROUP}/{api_version}")
    assert reply.ok, reply
    # served as text/plain unless a client negotiates
    document = json.loads(reply.body) if isinstance(reply.body, str) else reply.body
    schemas: Schemas = document["components"]["schemas"]
    return schemas


def _add(types: Types, schemas: Schemas, name: str) -> None:
    """The type, and all that its fields refer to."""
    if _short(name) in types:
        return
    fields: dict[str, str] = {}
    types[_short(name)] = fields
    for field, schema in schemas[name]["properties"].items():
        fields[field], below = _held(schema)
        if below:
            _add(types, schemas, below)


def _held(schema: dict[str, Any]) -> tuple[str, str]:
    """What a field holds, as text, and the full name of the type with fields in it; empty if there is none."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return (_SCALARS[name], "") if name in _SCALARS else (_short(name), name)
    if "allOf" in schema:
        return _held(schema["allOf"][0])
    for keyword, wrapped in (("items", "[{}]"), ("additionalProperties", "{{{}}}")):
        if isinstance(schema.get(keyword), dict):
            inner, name = _held(schema[keyword])
            assert inner[0] not in "[{", f"nested containers: {schema}"
            return wrapped.format(inner), name
    if schema["type"] == "integer":
        return str(schema["format"]), ""
    assert schema["type"] in ("string", "boolean"), schema
    return str(schema["type"]), ""


def _short(name: str) -> str:
    """`v1.DeviceTaint` for `io.k8s.api.resource.v1.DeviceTaint`, `core.v1...` and `meta.v1...` for the others."""
    for prefix in ("io.k8s.api.resource.", "io.k8s.api.", "io.k8s.apimachinery.pkg.apis."):
        name = name.removeprefix(prefix)
    return name


def main() -> int:
    """Writes the files of all releases. Needs Go, which fetches the sources it does not have yet."""
    FOLDER.mkdir(exist_ok=True)
    for version in RELEASES:
        file_of(version).write_text(encoded(fields_in(published_documents(version), version)))
        print(file_of(version))
    return 0


if __name__ == "__main__":
    sys.exit(main())
