"""What is left out of the image, and that the program does not miss it."""

from __future__ import annotations

import csv
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from release.contents import (
    BACKEND,
    GENERATED,
    collect_licenses,
    is_generated,
    leave_out,
    main,
    platforms,
    tools,
    without_debug_information,
)

ROOT = Path(__file__).parents[3]
# Imports every module of ours and loads a kubeconfig, then prints the files of all modules.
_IMPORT_ALL = """
import asyncio, importlib, json, pkgutil, sys
import webhook
for module in pkgutil.walk_packages(webhook.__path__, "webhook."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from webhook.cluster.client.credentials import KubeConfig
asyncio.run(KubeConfig(sys.argv[1]).load())
for module in list(sys.modules.values()):
    print(getattr(module, "__file__", None) or "")
"""
_KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "https://one.test"}}]
users: [{name: a, user: {token: abc}}]
"""


def test_the_program_imports_no_generated_client(tmp_path: Path) -> None:
    """The rule by which they are left out; a new import of one fails here before an image is built."""
    (tmp_path / "config").write_text(_KUBECONFIG)
    command = [sys.executable, "-c", _IMPORT_ALL, str(tmp_path / "config")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    below = [line.partition("site-packages/")[2] for line in done.stdout.splitlines()]
    assert "kubernetes/aio/client/rest.py" in below
    assert [path for path in below if is_generated(path)] == []
    assert [path for path in below if path.startswith("pydantic/v1/") or "/tests/" in path] == []


def test_generated_clients_are_where_the_library_has_them() -> None:
    """Should it move them, the image would grow."""
    spec = importlib.util.find_spec("kubernetes")
    assert spec is not None
    assert spec.origin is not None
    site_packages = Path(spec.origin).parents[1]
    for folder in GENERATED:
        assert (site_packages / folder / "__init__.py").is_file()
    assert is_generated("kubernetes/client/models/v1_pod.py")
    assert not is_generated("kubernetes/client/models/__init__.py")
    assert not is_generated("kubernetes/aio/client/rest.py")


def test_libraries_load_without_debug_information(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("uvloop.loop")
    assert spec is not None
    assert spec.origin is not None
    before = Path(spec.origin).read_bytes()
    after = without_debug_information(before)
    assert len(after) <= len(before)
    assert without_debug_information(after) == after
    library = tmp_path / Path(spec.origin).name
    library.write_bytes(after)
    code = (
        "import importlib.util, sys, uvloop\n"
        "spec = importlib.util.spec_from_file_location('uvloop.loop', sys.argv[1])\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "loop = module.Loop()\n"
        "async def answer(): return 42\n"
        "print(loop.run_until_complete(answer()))\n"
        "loop.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, library], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout == "42\n", done


def _package(site_packages: Path, name: str, *files: str, fields: str = "License-Expression: MIT\n") -> Path:
    folder = site_packages / f"{name}-1.0.dist-info"
    (folder / "licenses").mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{fields}\n")
    for file in files:
        (site_packages / file).parent.mkdir(parents=True, exist_ok=True)
        (site_packages / file).write_text("x")
    with (folder / "RECORD").open("w", newline="") as record:
        csv.writer(record).writerows([file, "sha256=abc", "1"] for file in files)
    return folder


def test_what_is_left_out_leaves_the_records_too(tmp_path: Path) -> None:
    left = ("kubernetes/client/models/__init__.py", "kubernetes/client/rest.py", "kubernetes/client/models/a.txt")
    gone = ("kubernetes/client/models/v1_pod.py", "kubernetes/tests/test_a.py", "kubernetes/a.pyi", "bin/a")
    folder = _package(tmp_path, "kubernetes", *left, *gone)
    leave_out(tmp_path)
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} == {
        *left,
        *(f"{folder.name}/{name}" for name in ("METADATA", "RECORD")),
    }
    assert (folder / "RECORD").read_text() == "".join(f"{name},sha256=abc,1\n" for name in left)


def test_licenses_are_collected_and_listed(tmp_path: Path) -> None:
    site_packages = tmp_path / "site"
    for name, fields in (
        ("a", "License-Expression: MIT\n"),
        ("b", "License: words\nClassifier: License :: OSI Approved :: BSD License\n"),
        ("c", "License: MPL-2.0\n"),
        ("d", ""),
    ):
        folder = _package(site_packages, name, fields=fields)
        (folder / "licenses" / "LICENSE.txt").write_text(f"terms of {name}")
    collect_licenses(site_packages, tmp_path / "licenses")
    index = (tmp_path / "licenses" / "index.txt").read_text()
    assert index == "a 1.0: MIT\nb 1.0: BSD License\nc 1.0: MPL-2.0\nd 1.0: see its files\n"
    assert (tmp_path / "licenses" / "b" / "LICENSE.txt").read_text() == "terms of b"


def test_package_without_a_license_fails_the_build(tmp_path: Path) -> None:
    _package(tmp_path / "site", "a")
    with pytest.raises(ValueError, match=r"a 1\.0 has no license file"):
        collect_licenses(tmp_path / "site", tmp_path)


def test_wheels_are_those_that_the_glibc_of_the_base_can_load() -> None:
    assert list(platforms("arm64", 18)) == [
        f"--platform={tag}_aarch64" for tag in ("manylinux_2_18", "manylinux_2_17", "manylinux2014", "linux")
    ]
    assert "--platform=manylinux_2_41_x86_64" in platforms("amd64", 41)
    with pytest.raises(KeyError):
        platforms("s390x", 41)


def test_the_build_backend_comes_from_the_lock_with_its_hashes() -> None:
    text = "".join(tools((ROOT / "requirements-dev.lock").read_text()))
    assert set(re.findall(r"(?m)^([a-z-]+)==", text)) == set(BACKEND)
    assert text.count("--hash=sha256:") >= len(BACKEND)


def test_anything_else_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["finish", "one"]) == 2
    assert "contents.py finish FOLDER LICENSES" in capsys.readouterr().err
