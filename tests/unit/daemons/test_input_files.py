"""Files that the flags of a workload name: what is wrong with them ends it before it starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from webhook import cli

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
BROKEN = f"{HEAD}rules: [{{name: x, action: forbid}}]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that flags are relative to."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ended(*words: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What it says when it ends at once."""
    assert cli.main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    return said.err.splitlines()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff", "not UTF-8"),
        (b"", ": Required value: must be a document of kind DeviceTaintPolicy"),
        (b"a: [", "line 2, column 1: not YAML"),
        (BROKEN.encode(), 'rules[0].action: Unsupported value: "forbid"'),
    ],
)
@pytest.mark.parametrize(
    "words",
    [["serve", "--standalone", "--cert-dir=."], ["evict", "--mode=delegated"], ["patch"]],
    ids=["serve", "evict", "patch"],
)
def test_b2_a_policy_file_that_cannot_be_loaded_ends_the_start(
    words: list[str], content: bytes | None, why: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (folder / "p.yaml").write_bytes(content)
    (line,) = ended(*words, "--policy-file=p.yaml", capsys=capsys)
    assert line.startswith(f"device-taint-webhook {words[0]}: --policy-file: p.yaml: ")
    assert why in line


@pytest.mark.parametrize(
    "words", [["serve", "--standalone", "--cert-dir=."], ["evict", "--mode=delegated"]], ids=["serve", "evict"]
)
@pytest.mark.parametrize("kind", ["a pipe", "an endless file", "a folder"])
def test_f12_a_policy_file_must_be_a_regular_file(
    words: list[str], kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "p.yaml"
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    (line,) = ended(*words, "--policy-file=p.yaml", capsys=capsys)
    why = "Is a directory" if kind == "a folder" else "not a regular file"
    assert line == f"device-taint-webhook {words[0]}: --policy-file: p.yaml: cannot be read: {why}"


def test_f12_a_huge_policy_file_is_refused_for_its_length(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (folder / "p.yaml").open("wb") as stream:
        stream.truncate(1024**4)  # a terabyte of zeros that takes no room
    (line,) = ended("evict", "--policy-file=p.yaml", capsys=capsys)
    assert "Too long: may not be more than 524288 bytes" in line


def test_b2_of_a_policy_with_a_hundred_faults_the_first_ones_are_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = "".join(f"- {{name: r{number}, action: forbid}}\n" for number in range(40))
    (folder / "p.yaml").write_text(f"{HEAD}rules:\n{rules}")
    lines = ended("evict", "--policy-file=p.yaml", capsys=capsys)
    assert len(lines) == 17
    assert lines[-1].endswith("and 24 more; `check --policy p.yaml` shows all")


@pytest.mark.parametrize(
    "flags", [["--cert-dir={}"], ["--tls-cert-file={}/a.crt", "--tls-private-key-file={}/a.key"]], ids=["dir", "files"]
)
def test_b2_a_folder_of_certificates_that_is_not_there_ends_the_start(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "typo"
    (line,) = ended("serve", "--standalone", *(flag.format(folder) for flag in flags), capsys=capsys)
    assert line == f"device-taint-webhook serve: --cert-dir or --tls-cert-file: {folder}: no such directory"
    folder.write_text("")
    (line,) = ended("serve", "--standalone", *(flag.format(folder) for flag in flags), capsys=capsys)
    assert line.endswith(f"{folder}: not a directory")
