"""The provenance statement, read by the library of in-toto."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement

from tests.release.releasing import REGISTRY, REPOSITORY, REVISION, ROOT
from webhook import __version__


@pytest.fixture(scope="module")
def statement(files: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((files / "provenance.intoto.json").read_text())
    return document


def test_it_is_an_in_toto_statement_with_provenance_of_slsa(statement: dict[str, Any]) -> None:
    """Unknown fields are errors to both parsers."""
    Statement.copy_from_pb(json_format.ParseDict(statement, statement_pb2.Statement())).validate()
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    provenance = json_format.ParseDict(statement["predicate"], provenance_pb2.Provenance())
    assert provenance.run_details.builder.id.startswith(REPOSITORY)
    assert provenance.build_definition.resolved_dependencies[0].digest["gitCommit"] == REVISION
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict({**statement["predicate"], "level": 3}, provenance_pb2.Provenance())


def test_its_subjects_are_all_files_of_the_release_but_itself_and_the_sums(
    statement: dict[str, Any], files: Path
) -> None:
    apart = {"provenance.intoto.json", "SHA256SUMS"}
    assert {each["name"]: each["digest"]["sha256"] for each in statement["subject"]} == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files.iterdir() if path.name not in apart
    }


def test_it_says_what_the_release_was_made_from(statement: dict[str, Any]) -> None:
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {
        "version": __version__,
        "registry": REGISTRY,
        "repository": REPOSITORY,
        "downloads": f"{REPOSITORY}/releases/download/v{__version__}",
        "platforms": ["linux/amd64", "linux/arm64", "darwin/arm64"],
        "images": [],
    }
    _, *locks = definition["resolvedDependencies"]
    assert {each["uri"].rpartition("/")[2]: each["digest"]["sha256"] for each in locks} == {
        name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
        for name in ("requirements.lock", "requirements-dev.lock")
    }
