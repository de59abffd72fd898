"""What certs/dev/make-certs.py refuses, and which files of an earlier run do not hold."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.certificates.test_make_certs import SCRIPT, make


@pytest.mark.parametrize("flag", ["--name=bücher.example", "--days=nan", "--days=1e9"])
def test_what_no_certificate_can_have_is_one_line(tmp_path: Path, flag: str) -> None:
    made = make(tmp_path, flag)
    assert (made.returncode, list(tmp_path.iterdir())) == (2, [])
    assert made.stderr.startswith("make-certs.py: --name or --days: ")
    assert made.stderr.count("\n") == 1


def test_key_of_another_pair_does_not_hold(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    make(here)
    make(there)
    shutil.copy(there / "tls.key", here / "tls.key")
    assert make(here).returncode == 2
    assert make(here, "--force").returncode == 0


def test_laptop_needs_no_package_but_cryptography(tmp_path: Path) -> None:
    """Also when the files of an earlier run are looked at."""
    code = f"import runpy, sys; sys.modules['msgspec'] = None; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    for _ in range(2):
        made = subprocess.run(
            [sys.executable, "-c", code, f"--out={tmp_path}"], capture_output=True, text=True, timeout=60, check=False
        )
        assert made.returncode == 0, made.stderr
    assert "are there, valid until" in made.stderr
