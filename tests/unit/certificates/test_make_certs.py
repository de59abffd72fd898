"""certs/dev/make-certs.py, run as a developer runs it."""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from tests.unit.certificates import odd
from webhook.certificates.authority import Authority
from webhook.certificates.source import usable_leaf

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "certs" / "dev" / "make-certs.py"
FILES = ["ca.crt", "tls.crt", "tls.key"]


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), f"--out={folder}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_files_are_made_fit_to_serve_and_private(tmp_path: Path) -> None:
    made = make(tmp_path / "new", "--name=webhook.test", "--name=192.0.2.7")
    assert (made.returncode, made.stdout) == (0, "")
    files = contents(tmp_path / "new")
    assert list(files) == FILES
    assert ((tmp_path / "new" / "tls.key").stat().st_mode & 0o777) == 0o600
    leaf = x509.load_pem_x509_certificate(files["tls.crt"])
    usable_leaf(files["tls.crt"], files["tls.key"], leaf.not_valid_before_utc)
    leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(files["ca.crt"]))
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "host.docker.internal", "webhook.test"} <= set(names.get_values_for_type(x509.DNSName))
    assert {"127.0.0.1", "::1", "192.0.2.7"} <= {str(ip) for ip in names.get_values_for_type(x509.IPAddress)}


@pytest.mark.parametrize("left", FILES)
def test_nothing_is_overwritten_without_force(tmp_path: Path, left: str) -> None:
    (tmp_path / left).write_text("mine")
    made = make(tmp_path)
    assert (made.returncode, contents(tmp_path)) == (2, {left: b"mine"})
    assert made.stderr == f"make-certs.py: {tmp_path / left}: exists; --force makes a new one in its place\n"
    assert make(tmp_path, "--force").returncode == 0
    assert b"mine" not in contents(tmp_path).values()


def test_c9_a_second_run_keeps_what_still_holds(tmp_path: Path) -> None:
    """The README's lines can be pasted twice."""
    assert make(tmp_path).returncode == 0
    before = contents(tmp_path)
    again = make(tmp_path)
    assert (again.returncode, contents(tmp_path)) == (0, before)
    assert f"{tmp_path}: ca.crt, tls.crt, tls.key are there, valid until 20" in again.stderr
    assert make(tmp_path, "--name=webhook.test").returncode == 2, "they are not for that name"
    assert contents(tmp_path) == before


def test_c9_files_that_have_ended_are_not_kept(tmp_path: Path) -> None:
    """Nor are they overwritten."""
    assert make(tmp_path).returncode == 0
    leaf = x509.load_pem_x509_certificate((tmp_path / "tls.crt").read_bytes())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    past, day = datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=1)
    authority = Authority.create("device-taint-webhook development CA", now=past, lifetime=day)
    pair = authority.serving_pair([str(name.value) for name in names], now=past, lifetime=day)
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    before = contents(tmp_path)
    assert (make(tmp_path).returncode, contents(tmp_path)) == (2, before)
    assert make(tmp_path, "--force").returncode == 0
    assert make(tmp_path).returncode == 0


@pytest.mark.parametrize("fault", odd.CERTIFICATES)
def test_odd_certificate_of_an_earlier_run_is_neither_kept_nor_overwritten(tmp_path: Path, fault: str) -> None:
    """F6."""
    now, day = datetime.now(UTC), timedelta(days=1)  # noqa: TID251 -- the script judges by today
    authority = Authority.create("device-taint-webhook development CA", now=now, lifetime=day)
    pair = authority.serving_pair(["localhost"], now=now, lifetime=day)
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    (tmp_path / "tls.crt").write_bytes(odd.CERTIFICATES[fault][0](pair.certificate))
    (tmp_path / "tls.key").write_bytes(pair.key)
    before = contents(tmp_path)
    made = make(tmp_path)
    assert (made.returncode, contents(tmp_path)) == (2, before)
    assert "Traceback" not in made.stderr


def test_ca_bundle_is_printed_for_files_that_are_there(tmp_path: Path) -> None:
    first = make(tmp_path, "--ca-bundle")
    before = contents(tmp_path)
    second = make(tmp_path, "--ca-bundle")
    assert base64.b64decode(first.stdout) == base64.b64decode(second.stdout) == before["ca.crt"]
    assert contents(tmp_path) == before


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = make(tmp_path / "file" / "deeper")
    assert (made.returncode, made.stderr.count("\n")) == (2, 1)
    assert made.stderr.startswith(f"make-certs.py: {tmp_path / 'file'}")


def test_no_key_in_the_folder_can_be_committed() -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    paths = [f"certs/dev/{name}" for name in [*FILES, "ca.key", "deeper/tls.key"]]
    ignored = subprocess.run([git, "check-ignore", *paths], capture_output=True, text=True, check=False, cwd=ROOT)
    assert ignored.stdout.splitlines() == paths
    script = subprocess.run([git, "check-ignore", "certs/dev/make-certs.py"], check=False, cwd=ROOT)
    assert script.returncode == 1
