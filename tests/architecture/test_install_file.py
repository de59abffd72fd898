"""`make install.yaml` with stand-ins for kubectl and kustomize: what it needs, and what it says when that is missing.

What the real kubectl makes of it is compared in tests/apiserver/manifests/test_rendered.py.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from tests.architecture.test_documents import ROOT

if TYPE_CHECKING:
    from pathlib import Path

IMAGE: Final = "registry.example.com:5000/taints/webhook@sha256:0123"
# All that may be there beside kubectl or kustomize: no Go, no Python, no network.
NEEDED: Final = ("bash", "make", "mv", "rm", "sed")
_PRINTS: Final = '#!/bin/bash\necho "program: {name} $*"\necho "        image: device-taint-webhook"\n'


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH with the few programs that every machine has."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        assert found is not None, name
        (folder / name).symlink_to(found)
    return folder


def _script(folder: Path, name: str, text: str = _PRINTS) -> Path:
    program = folder / name
    program.write_text(text.format(name=name))
    program.chmod(0o755)
    return program


def _make(programs: Path, file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(programs / "make"), "install.yaml", f"INSTALL={file}", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={"PATH": str(programs)}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("there", "used"), [(("kubectl", "kustomize"), "kubectl kustomize"), (("kustomize",), "kustomize build")]
)
def test_h3_it_renders_with_what_is_on_path_and_needs_neither_go_nor_python(
    programs: Path, tmp_path: Path, there: tuple[str, ...], used: str
) -> None:
    """A2: `make install.yaml` asks for nothing that installing does not need anyway."""
    for name in there:
        _script(programs, name)
    file = tmp_path / "install.yaml"
    done = _make(programs, file, f"IMAGE={IMAGE}", "OVERLAY=production")
    assert (done.returncode, done.stderr) == (0, "")
    assert file.read_text() == f"program: {used} manifests/overlays/production\n        image: {IMAGE}\n"


@pytest.mark.parametrize(("variable", "used"), [("KUBECTL", "mine kustomize"), ("KUSTOMIZE", "mine build")])
def test_h3_a_program_that_is_named_is_used_instead(programs: Path, tmp_path: Path, variable: str, used: str) -> None:
    _script(programs, "kubectl")
    mine = _script(tmp_path, "mine")
    file = tmp_path / "install.yaml"
    done = _make(programs, file, f"IMAGE={IMAGE}", f"{variable}={mine}")
    assert (done.returncode, done.stderr) == (0, "")
    assert file.read_text().startswith(f"program: {used} manifests/overlays/self-managed\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), ("IMAGE must be given", "docker build -t", "make install.yaml IMAGE=")),
        (("IMAGE=two words",), ("IMAGE=two words is not the name of an image",)),
        (("IMAGE=REGISTRY/device-taint-webhook:1",), ("placeholder REGISTRY", "put your registry in its place")),
        ((f"IMAGE={IMAGE}", "OVERLAY=nope"), ('no overlay "nope"', "cert-manager", "production", "self-managed")),
        (
            (f"IMAGE={IMAGE}", "OVERLAY="),
            ("one of: cert-manager production self-managed; manifests/README.md",),
        ),
        ((f"IMAGE={IMAGE}", "KUBECTL=./no-such-program"), ("no-such-program",)),
        ((f"IMAGE={IMAGE}", "KUBECTL=false"), ()),
    ],
    ids=[
        "no image",
        "not an image",
        "a placeholder",
        "a wrong overlay",
        "no overlay",
        "no such kubectl",
        "a kubectl that fails",
    ],
)
def test_h3_what_cannot_be_rendered_leaves_no_file_and_exit_code_2(
    programs: Path, tmp_path: Path, arguments: tuple[str, ...], says: tuple[str, ...]
) -> None:
    """And the file of an earlier run stays as it was."""
    _script(programs, "kubectl")
    (programs / "false").symlink_to(shutil.which("false") or "")
    folder = tmp_path / "out"
    folder.mkdir()
    file = folder / "install.yaml"
    file.write_text("of yesterday")
    done = _make(programs, file, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    for text in says:
        assert text in done.stderr
    assert [each.name for each in folder.iterdir()] == ["install.yaml"]
    assert file.read_text() == "of yesterday"


def test_h3_without_kubectl_and_kustomize_it_names_both_and_builds_nothing(programs: Path, tmp_path: Path) -> None:
    file = tmp_path / "install.yaml"
    done = _make(programs, file, f"IMAGE={IMAGE}")
    assert done.returncode == 2
    assert "neither kubectl nor kustomize is on PATH; set KUBECTL or KUSTOMIZE" in done.stderr
    assert not file.exists()
