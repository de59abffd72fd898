"""`kubectl-dtaint` in one file: in an empty folder, without a network, and called by a real kubectl."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from release.bases import ARCHITECTURES, NotHereError, base, native, need_mounts
from release.bill import pins_of
from release.emulation import enable
from release.plugin import PROGRAM
from release.wheels import PLATFORMS, PYTHONS, Platform
from tests.chroot import DEVICES, TEMPORARY, Mount, chrooted
from tests.controlplane.assets import Assets
from tests.release.releasing import ROOT, this_platform
from tests.release.test_package import RULE
from webhook import __version__

# sh takes no more of the file than this, by blocks.
SHELL_BYTES = 256 * 1024


class UnpackedPlugin:
    """The program alone in a folder, for a user whose home is empty."""

    def __init__(self, archive: Path, folder: Path) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.home = folder / "home"
        self.home.mkdir()
        with tarfile.open(archive) as unpacked:
            unpacked.extractall(self.folder, filter="data")
        self.program = self.folder / PROGRAM

    def run(self, command: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
        """With this Python on PATH, and the program's folder before it."""
        found = f"{self.folder}:{Path(sys.executable).resolve().parent}:/usr/bin:/bin"
        environment = {"HOME": str(self.home), "PATH": found}
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
        )


def _archive(files: Path, platform: Platform) -> Path:
    return files / f"{PROGRAM}-{__version__}-{platform.system}-{platform.architecture}.tar.gz"


@pytest.fixture(scope="module")
def plugin(files: Path) -> Iterator[UnpackedPlugin]:
    """Of this machine, started once."""
    with tempfile.TemporaryDirectory(prefix="plugin-") as made:
        unpacked = UnpackedPlugin(_archive(files, this_platform()), Path(made))
        first = unpacked.run([*_without_network(), unpacked.program, "--version"], unpacked.home)
        assert (first.returncode, first.stdout) == (0, f"kubectl dtaint {__version__}\n"), first.stderr
        yield unpacked


@cache
def _without_network() -> tuple[str, ...]:
    """In a namespace of its own, where no interface is up; nothing on a machine that refuses that."""
    apart = ("unshare", "--net")
    allowed = (
        shutil.which("unshare") and not subprocess.run([*apart, "true"], capture_output=True, check=False).returncode
    )
    return apart if allowed else ()


def test_it_checks_a_file_in_an_empty_folder_without_a_network(plugin: UnpackedPlugin, tmp_path: Path) -> None:
    (tmp_path / "rule.yaml").write_text(RULE)
    fine = plugin.run([*_without_network(), plugin.program, "check", "rule.yaml"], tmp_path)
    assert (fine.returncode, fine.stderr) == (0, ""), fine.stdout
    (tmp_path / "rule.yaml").write_text(RULE.replace("key: example.com", "key: _"))
    assert plugin.run([*_without_network(), plugin.program, "check", "rule.yaml"], tmp_path).returncode == 1


def test_kubectl_finds_runs_and_completes_it(plugin: UnpackedPlugin, assets: Assets, tmp_path: Path) -> None:
    kubectl = assets.program("kubectl")
    (tmp_path / "rule.yaml").write_text(RULE)
    listed = plugin.run([kubectl, "plugin", "list"], tmp_path)
    assert str(plugin.program) in listed.stdout
    assert "warning" not in listed.stdout + listed.stderr
    done = plugin.run([kubectl, "dtaint", "check", "rule.yaml"], tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "usage: kubectl dtaint check" in plugin.run([kubectl, "dtaint", "check", "--help"], tmp_path).stdout
    assert plugin.run([kubectl, "__complete", "dtaint", "schem"], tmp_path).stdout.startswith("schema\t")


def test_a_later_start_reads_nothing_of_the_file_but_its_first_lines(plugin: UnpackedPlugin, tmp_path: Path) -> None:
    """What makes it start within 0.25 s: sh goes straight to the venv in the cache, and opens no archive."""
    stump = tmp_path / PROGRAM
    with plugin.program.open("rb") as file:
        stump.write_bytes(file.read(SHELL_BYTES))
    stump.chmod(0o755)
    assert stump.stat().st_size < plugin.program.stat().st_size
    again = plugin.run([stump, "--version"], tmp_path)
    assert (again.returncode, again.stdout) == (0, f"kubectl dtaint {__version__}\n"), again.stderr


@pytest.mark.skipif(
    os.environ.get("EMULATION") != "all",
    reason="EMULATION is not all: `make test-matrix` unpacks the plugin under emulation, which takes minutes",
)
def test_it_starts_on_the_other_processor(files: Path, tmp_path: Path) -> None:
    """Emulated, below Debian 13 with its Python. That of macOS starts nowhere here; the next test has what is in it."""
    other = next(each for each in ARCHITECTURES if each != native())
    try:
        enable(other)
        root = base(other)
        need_mounts()
    except NotHereError as error:
        pytest.skip(f"not started on {other}: {error}")
    platform = next(each for each in PLATFORMS if (each.system, each.architecture) == ("linux", other))
    UnpackedPlugin(_archive(files, platform), tmp_path)
    (tmp_path / "rule.yaml").write_text(RULE)
    environment = {"HOME": "/mnt/home", "PATH": "/mnt/bin:/usr/bin:/bin"}
    mounts = [Mount(tmp_path, "/mnt"), DEVICES, TEMPORARY]
    done = []
    for arguments in (("--version",), ("check", "/mnt/rule.yaml")):
        command = chrooted(root, PROGRAM, *arguments, environment=environment, mounts=mounts)
        apart = [*_without_network(), *command]
        done.append(subprocess.run(apart, capture_output=True, text=True, timeout=600, check=False))
    assert [(each.returncode, each.stderr) for each in done] == [(0, ""), (0, "")]
    assert done[0].stdout == f"kubectl dtaint {__version__}\n"


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda each: each.name)
def test_it_holds_each_locked_package_for_each_python_with_the_hash_of_the_lock(
    files: Path, platform: Platform
) -> None:
    locked = {name: hashes for name, _, hashes in pins_of((ROOT / "requirements.lock").read_text())}
    (ours,) = files.glob("*.whl")
    locked["device-taint-webhook"] = [hashlib.sha256(ours.read_bytes()).hexdigest()]
    held: dict[str, set[str]] = {name: set() for name in locked}
    with zipfile.ZipFile(io.BytesIO(_program_in(_archive(files, platform)))) as pex:
        for path in [each for each in pex.namelist() if each.startswith(".deps/") and each.endswith(".whl")]:
            name, _, tags = Path(path).name.removesuffix(".whl").partition("-")
            project = re.sub(r"[-_.]+", "-", name).lower()
            assert hashlib.sha256(pex.read(path)).hexdigest() in locked[project], path
            held[project] |= _pythons_of(tags)
    assert {name for name, pythons in held.items() if pythons != {f"{a}.{b}" for a, b in PYTHONS}} == set()


def _program_in(archive: Path) -> bytes:
    with tarfile.open(archive) as unpacked:
        file = unpacked.extractfile(PROGRAM)
        assert file is not None
        return file.read()


def _pythons_of(tags: str) -> set[str]:
    """Those that a wheel is for, of PYTHONS, by its file name: a release each, from one on, or any."""
    interpreter, abi, _ = tags.rsplit("-", 2)
    found = re.fullmatch(r"cp3(\d+)", interpreter)
    first = int(found[1]) if found else 0
    return {f"3.{minor}" for _, minor in PYTHONS if minor == first or (minor > first and (abi == "abi3" or not found))}
