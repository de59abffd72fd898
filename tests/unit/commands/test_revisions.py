"""`check` and `preview` read what each of the source documents describes, patches included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.builders import DRIVER, NOW_TEXT, make_device, make_meta, make_slice
from webhook.commands import check
from webhook.commands.preview import command as preview
from webhook.commands.shared.main import main_of

FOLDER: Final = Path(__file__).parent / "revisions"
CLUSTER: Final = make_slice([make_device("gpu-0"), make_device("gpu-1")], meta=make_meta("node-0-gpu"))


def file_of(document: str) -> str:
    return str(FOLDER / f"{document}.yaml")


def checked(document: str, release: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    words = [file_of(document), "-o", "json", "--kubernetes-version", release, "--time", NOW_TEXT]
    code = main_of(check, words)
    return code, json.loads(capsys.readouterr().out)["findings"]


@pytest.mark.parametrize(
    ("document", "release", "codes"),
    [
        ("newest", "1.37", set()),
        ("slice-taints", "1.34", {"DT016", "DT017"}),
        ("attributes", "1.37", set()),
        ("node-taints", "1.37", {"DT019"}),
    ],
)
def test_check_accepts_each_document(
    document: str, release: str, codes: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, findings = checked(document, release, capsys)
    assert [each for each in findings if each["severity"] == "error"] == []
    assert code == 0
    assert {each["code"] for each in findings if each["severity"] == "warning"} == codes


def test_slices_of_the_first_revision_are_in_a_version_that_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    """V-3: never released, and 1.33 has four taints at most. Its patches are a kind that only we have."""
    [gone] = [each for each in checked("first", "1.37", capsys)[1] if each["severity"] == "error"]
    assert (gone["kind"], gone["field"]) == ("ResourceSlice", "apiVersion")
    [crowded] = [each for each in checked("first", "1.33", capsys)[1] if each["severity"] == "error"]
    assert (crowded["kind"], crowded["field"]) == ("ResourceSlice", "spec.devices[0].taints")


def test_check_warns_of_what_later_servers_drop(capsys: pytest.CaptureFixture[str]) -> None:
    """V-2: to a server of 1.37 that rule has an empty selector, so there it is an error."""
    code, findings = checked("slice-taints", "1.37", capsys)
    errors = {each["field"] for each in findings if each["severity"] == "error"}
    assert (code, errors) == (1, {"spec.deviceSelector.deviceClassName", "spec.deviceSelector.selectors"})


@pytest.mark.parametrize(
    ("document", "previews"),
    [
        ("newest", [("ResourceSlice", 1, 1), ("DeviceTaintRule", 2, 1)]),
        ("slice-taints", [("ResourceSlice", 1, 1), ("DeviceTaintRule", 2, 1)]),
        ("first", [("ResourceSlice", 1, 8), ("ResourceSlicePatch", 1, 2)]),
        ("attributes", [("ResourceSlicePatch", 1, 0)]),
        ("node-taints", [("DeviceTaintRule", 1, 1)]),
    ],
)
def test_preview_reads_each_document(
    document: str, previews: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kind, devices, and taints that are judged; other kinds are left aside."""
    dump = tmp_path / "dump.yaml"
    dump.write_text(yaml.safe_dump(CLUSTER))
    release = "1.33" if document == "first" else "1.37"
    words = ["--dump", str(dump), "-o", "json", "--time", NOW_TEXT, "--kubernetes-version", release]
    main_of(preview, [file_of(document), *words])
    found = json.loads(capsys.readouterr().out)["previews"]
    assert [(each["kind"], each["summary"]["devices"], len(each["taints"])) for each in found] == previews


def test_preview_shows_what_a_patch_of_kep_5027_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    devices = [{"name": "gpu-0", "attributes": {"serial": {"string": "abc"}, "slots": {"int": 8}}}]
    dump = tmp_path / "dump.yaml"
    dump.write_text(yaml.safe_dump(make_slice(devices)))
    assert main_of(preview, [file_of("attributes"), "--dump", str(dump), "-o", "json"]) == 0
    [item] = json.loads(capsys.readouterr().out)["previews"]
    changes = {each["name"].partition("/")[2]: (each["before"], each["after"]) for each in item["patch"]["changes"]}
    assert changes == {
        "model": (None, {"string": "a100"}),
        "firmware": (None, {"version": "1.2.3"}),
        "healthy": (None, {"bool": False}),
        "slots": ({"int": 8}, {"int": 7}),
        "serial": ({"string": "abc"}, None),
        "memory": (None, {"value": "40Gi"}),
    }
    assert {each["driver"] for each in item["patch"]["changes"]} == {DRIVER}
