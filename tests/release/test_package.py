"""The wheel and the source distribution, in an empty folder without a checkout and without a network."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from release.source import Source
from release.wheels import locked_wheels
from tests.release.releasing import EPOCH, REPOSITORY, REVISION, ROOT, this_platform
from webhook import __version__

RULE = """\
apiVersion: resource.k8s.io/v1beta2
kind: DeviceTaintRule
metadata: {name: maintenance}
spec:
  deviceSelector: {driver: gpu.example.com, pool: rack-7}
  taint: {key: example.com/maintenance, effect: NoSchedule}
"""


@pytest.fixture(scope="module")
def installed(files: Path) -> Iterator[Path]:
    """The bin folder of a fresh venv with the wheel and the locked packages, all from files."""
    with tempfile.TemporaryDirectory(prefix="fresh-") as made:
        _install(files, Path(made))
        yield Path(made, "venv", "bin")


def _install(files: Path, folder: Path) -> None:
    venv.create(folder / "venv", with_pip=False)
    wheels = folder / "wheels"
    wheels.mkdir()
    for each in locked_wheels(Source(ROOT, __version__, REVISION, EPOCH), this_platform()):
        (wheels / each.name).symlink_to(each)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv/bin/python"), "--disable-pip-version-check"]
    from_files = ["install", "--quiet", "--no-index", "--no-compile", f"--find-links={wheels}"]
    (wheel,) = files.glob("*.whl")
    subprocess.run([*pip, *from_files, str(wheel)], cwd=folder, check=True, timeout=600)


def _run(program: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], cwd=folder, env={}, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_installed_wheel_knows_its_version_under_both_names(installed: Path, tmp_path: Path) -> None:
    for name, called in (("device-taint-webhook", "device-taint-webhook"), ("kubectl-dtaint", "kubectl dtaint")):
        assert _run(installed / name, "--version", folder=tmp_path).stdout == f"{called} {__version__}\n"


def test_the_installed_wheel_checks_a_file(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "rule.yaml").write_text(RULE)
    fine = _run(installed / "device-taint-webhook", "check", "rule.yaml", folder=tmp_path)
    assert (fine.returncode, fine.stderr) == (0, ""), fine.stdout
    (tmp_path / "rule.yaml").write_text(RULE.replace("NoSchedule", "Never"))
    wrong = _run(installed / "device-taint-webhook", "check", "rule.yaml", folder=tmp_path)
    assert wrong.returncode == 1
    assert "rule.yaml:6:" in wrong.stdout
    sarif = _run(installed / "device-taint-webhook", "check", "-o", "sarif", "rule.yaml", folder=tmp_path)
    assert f'"informationUri": "{REPOSITORY}/blob/v{__version__}/docs/ci.md"' in sarif.stdout


def test_the_installed_wheel_has_its_data(installed: Path, tmp_path: Path) -> None:
    """A verb whose answer is a file of the package."""
    explained = _run(installed / "device-taint-webhook", "explain", "DT001", folder=tmp_path)
    assert (explained.returncode, explained.stdout.startswith("DT001")) == (0, True), explained.stderr


def test_the_source_distribution_makes_the_same_wheel(files: Path, tmp_path: Path) -> None:
    (archive,) = files.glob("device_taint_webhook-*.tar.gz")
    with tarfile.open(archive) as unpacked:
        unpacked.extractall(tmp_path, filter="data")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "built")]
    environment = {"SOURCE_DATE_EPOCH": str(EPOCH), "LC_ALL": "C.UTF-8"}
    folder = tmp_path / archive.name.removesuffix(".tar.gz")
    subprocess.run(build, cwd=folder, env=environment, check=True, capture_output=True, timeout=300)
    (again,) = (tmp_path / "built").iterdir()
    (wheel,) = files.glob("*.whl")
    assert again.read_bytes() == wheel.read_bytes()
