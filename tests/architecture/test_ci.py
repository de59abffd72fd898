"""What CI runs: its script, with every program that it calls played by one that only notes the call."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("buildah", "debootstrap", "promtool", "qemu-aarch64-static")


def called(folder: Path, *there: str) -> list[str]:
    """The calls that .ci/run makes where these tools are there, as root on Debian."""
    notes = folder / "calls"
    programs = folder / "bin"
    programs.mkdir()
    for name in ("bash", "env", "dirname"):
        found = shutil.which(name)
        assert found
        (programs / name).symlink_to(found)
    (programs / "id").write_text("#!/bin/sh\necho 0\n")
    for name in ("apt-get", "make", *there):
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $1" >> {notes}\n')
    for program in programs.iterdir():
        if not program.is_symlink():
            program.chmod(0o755)
    subprocess.run([ROOT / ".ci" / "run"], env={"PATH": str(programs)}, check=True, timeout=60)
    return notes.read_text().splitlines()


@pytest.mark.parametrize("there", [(), ("promtool",), ("buildah", "debootstrap"), TOOLS], ids=" ".join)
def test_ci_installs_its_tools_where_one_is_missing(tmp_path: Path, there: tuple[str, ...]) -> None:
    """L4: with one of three there, the tests of the image were skipped."""
    installs = [] if there == TOOLS else ["apt-get update", "apt-get install"]
    assert called(tmp_path, *there) == [*installs, "make test"]
