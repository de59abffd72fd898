"""The bill of materials: valid, complete, and about the lock file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from release.bill import pins_of, write_bill
from release.source import ReleaseError, Source
from tests.release.releasing import EPOCH, REVISION, ROOT
from webhook import __version__

OURS = f"pkg:pypi/device-taint-webhook@{__version__}"


@pytest.fixture(scope="module")
def text(files: Path) -> str:
    return (files / f"device-taint-webhook-{__version__}.cdx.json").read_text()


@pytest.fixture(scope="module")
def bill(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    return document


@pytest.mark.whole
def test_it_is_valid_by_the_schema_of_cyclonedx(text: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text.replace('"library"', '"book"', 1)) is not None


def test_it_has_each_locked_package_with_its_hashes_and_a_licence(bill: dict[str, Any]) -> None:
    locked = {
        name: (version, set(hashes)) for name, version, hashes in pins_of((ROOT / "requirements.lock").read_text())
    }
    assert len(locked) > 30
    assert {
        each["name"]: (each["version"], {hash_["content"] for hash_ in each["externalReferences"][0]["hashes"]})
        for each in bill["components"]
    } == locked
    for each in bill["components"]:
        assert each["licenses"], each["name"]
        assert each["purl"] == f"pkg:pypi/{each['name']}@{each['version']}"


def test_everything_in_it_is_there_because_something_needs_it(bill: dict[str, Any]) -> None:
    needs = {each["ref"]: set(each.get("dependsOn", [])) for each in bill["dependencies"]}
    assert bill["metadata"]["component"]["bom-ref"] == OURS
    reached, new = set[str](), {OURS}
    while new:
        reached |= new
        new = {needed for each in new for needed in needs[each]} - reached
    assert reached == {OURS, *(each["bom-ref"] for each in bill["components"])}


def test_its_time_is_that_of_the_commit(bill: dict[str, Any]) -> None:
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    assert EPOCH == 1_700_000_000


def test_a_package_that_is_not_installed_here_in_its_version_ends_the_release(tmp_path: Path, files: Path) -> None:
    lock = (ROOT / "requirements.lock").read_text()
    (wheel,) = files.glob("*.whl")
    for changed in (lock.replace("aiohttp==", "aiohttp==99."), lock.replace("aiohttp==", "no-such-package==")):
        (tmp_path / "requirements.lock").write_text(changed)
        with pytest.raises(ReleaseError, match=r"is locked and not installed here"):
            write_bill(Source(tmp_path, __version__, REVISION, EPOCH), wheel, tmp_path)
