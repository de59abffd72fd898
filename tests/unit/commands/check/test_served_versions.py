"""A kind in a version that a release does not serve is an error, one that it serves is not: every pair of both.

What is served is the table of tests/controlplane/versions.py; tests/apiserver/test_served_fields.py compares it with
the discovery of a running server.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any, Final

import pytest

from tests.builders import (
    make_basic_device,
    make_claim,
    make_device,
    make_flat_request,
    make_patch,
    make_review,
    make_rule,
    make_slice,
    make_template,
)
from tests.controlplane.versions import GROUP, SERVED
from tests.unit.commands.check_runner import CheckRunner, findings
from tests.unit.commands.preview_runner import PreviewRunner
from webhook.api.meta import FLAT_VERSIONS
from webhook.commands.explain import command as explain
from webhook.commands.shared.main import main_of
from webhook.validation.releases import RELEASES

VERSIONS: Final = ("v1", "v1beta2", "v1beta1", "v1alpha3", "v1alpha2", "v2")
KINDS: Final = ("DeviceClass", "DeviceTaintRule", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
REFUSED: Final = ("error", "apiVersion", None)


def manifest(kind: str, version: str) -> Any:
    """An object without fault, in the shape that the version has."""
    flat = version in FLAT_VERSIONS
    requests = [make_flat_request()] if flat else None
    if kind == "ResourceClaim":
        return make_claim(requests=requests, version=version)
    if kind == "ResourceClaimTemplate":
        return make_template(requests=requests, version=version)
    if kind == "ResourceSlice":
        capacity = {"memory": "80Gi" if version == "v1alpha3" else {"value": "80Gi"}}
        return make_slice(
            [make_basic_device(capacity=capacity) if flat else make_device(capacity=capacity)], version=version
        )
    if kind == "DeviceTaintRule":
        return make_rule(version=version)
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": {"name": "gpu"}, "spec": {}}


def served(kind: str, minor: int) -> list[str]:
    return [version for version, kinds in SERVED[minor].items() if kind in kinds]


def message(kind: str, version: str, minor: int) -> str:
    known = ", ".join(f'"{GROUP}/{each}"' for each in sorted(served(kind, minor)))
    return f'apiVersion: Unsupported value: "{GROUP}/{version}": supported values: {known}'


@pytest.mark.parametrize("minor", SERVED)
@pytest.mark.parametrize("kind", KINDS)
def test_release_serves_a_kind_in_some_versions(kind: str, minor: int, run: CheckRunner) -> None:
    for version in VERSIONS:
        code, output = run("--kubernetes-version", f"1.{minor}", "--allow-empty", object=manifest(kind, version))
        if version in served(kind, minor):
            assert (code, "error:" in output) == (0, False), f"{version}: {output}"
        else:
            assert (code, output.splitlines()[0]) == (1, f"object.yaml:1:13: error: {message(kind, version, minor)}")


def test_table_is_of_every_release_that_is_judged() -> None:
    assert set(SERVED) == set(RELEASES)


@pytest.mark.parametrize("minor", SERVED)
def test_kinds_of_our_own_are_not_the_servers_to_serve(minor: int, run: CheckRunner) -> None:
    planned = {**make_patch(), "apiVersion": f"{GROUP}/v1alpha3"}  # KEP-5027's name for it
    assert run("--kubernetes-version", f"1.{minor}", patch=[make_patch(), planned])[0] == 0


def test_each_object_of_a_file_and_of_a_list_is_asked(run: CheckRunner) -> None:
    old, new = manifest("ResourceClaim", "v1beta1"), manifest("ResourceClaim", "v1")
    bare = {name: value for name, value in new.items() if name not in ("apiVersion", "kind")}
    items = {
        "documents": [old, new],
        "list": {"apiVersion": "v1", "kind": "List", "items": [old, new]},
        "nested": {"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "List", "items": [new]}]},
        "served": {"apiVersion": f"{GROUP}/v1", "kind": "ResourceClaimList", "metadata": {}, "items": [bare]},
        "review": make_review(new),
    }
    for name, value in items.items():
        code, output = run("--kubernetes-version", "1.33", "-o", "json", **{name: value})
        assert (code, findings(output)) == (1, [REFUSED]), name


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("v1", "ResourceClaim"),
        ("v1", "DeviceTaintRule"),
        ("devicetaint.io/v1", "DeviceTaintRule"),
        ("v1", "DeviceClass"),
    ],
)
def test_a_kind_of_the_group_is_in_no_other(version: str, kind: str, run: CheckRunner) -> None:
    code, output = run(rule={**manifest(kind, "v1"), "apiVersion": version})
    assert (code, f'"{GROUP}/v1"' in output.splitlines()[0]) == (1, True), output


def test_kinds_of_others_may_be_called_the_same(run: CheckRunner) -> None:
    other = {**manifest("ResourceClaim", "v1"), "apiVersion": "claims.example.com/v1"}
    assert run("--allow-empty", other=other) == (
        0,
        "1 file, 0 objects: 0 errors, 0 warnings; skipped: 1 of other kinds\n",
    )


def test_old_object_may_be_in_a_version_that_is_gone(run: CheckRunner) -> None:
    """During an upgrade: the cluster still gives v1beta1, the file is for the next release."""
    old, new = manifest("ResourceSlice", "v1beta1"), manifest("ResourceSlice", "v1")
    assert run("--kubernetes-version", "1.38", old=old, slice=new)[0] == 0


# --- the other verbs ----------------------------------------------------------------------------


def test_explain_says_the_same(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy, file = tmp_path / "policy.yaml", tmp_path / "claim.json"
    policy.write_text("apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n")
    file.write_text(json.dumps(manifest("ResourceClaim", "v1")))
    words = ["--policy", str(policy), str(file), "--kubernetes-version"]
    assert main_of(explain, [*words, "1.34"]) == 0
    capsys.readouterr()
    assert main_of(explain, [*words, "1.33"]) == 1
    assert message("ResourceClaim", "v1", 33) in capsys.readouterr().out


@pytest.mark.parametrize("minor", SERVED)
@pytest.mark.parametrize("kind", ["DeviceTaintRule", "ResourceSlice"])
def test_preview_of_a_dump_says_the_same(kind: str, minor: int, run_preview: PreviewRunner) -> None:
    for version in VERSIONS:
        words = ("--kubernetes-version", f"1.{minor}")
        code, output = run_preview(manifest(kind, version), *words, dump=[make_slice()])
        expected = (0, False) if version in served(kind, minor) else (2, True)
        assert (code, message(kind, version, minor) in output) == expected, output
