"""Standard streams that are closed or full: one line, and an exit code that does not mean findings."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.commands.check_runner import RULE

FULL = "device-taint-webhook: standard output: No space left on device\n"
CLOSED = "device-taint-webhook: standard output is closed\n"


def shell(line: str, folder: Path) -> tuple[int, str]:
    """Exit code and standard error of a line for a shell, in which `dtw` is the program."""
    program = f'dtw() {{ {shlex.quote(sys.executable)} -m webhook "$@"; }}'
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ended = subprocess.run(
        ["/bin/sh", "-c", f"{program}\n{line}"],
        cwd=folder,
        env={**environment, "PYTHONPATH": os.getcwd()},  # noqa: PTH109 -- of the repository
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ended.returncode, ended.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")  # noqa: PTH110 -- a device
@pytest.mark.parametrize("words", ["check rule.yaml", "check -o json rule.yaml", "--help", "check --help"])
def test_b5_a_full_disk_is_two_and_one_line(words: str, tmp_path: Path) -> None:
    (tmp_path / "rule.yaml").write_text(RULE)
    assert shell(f"dtw {words} >/dev/full", tmp_path) == (2, FULL)


@pytest.mark.parametrize("words", ["check rule.yaml", "--version", "check --help"])
def test_b5_a_closed_output_is_two_and_one_line(words: str, tmp_path: Path) -> None:
    (tmp_path / "rule.yaml").write_text(RULE)
    assert shell(f"dtw {words} >&-", tmp_path) == (2, CLOSED)


def test_b5_verbs_that_print_nothing_need_no_output(tmp_path: Path) -> None:
    code, error = shell("dtw serve >&-", tmp_path)
    assert (code, "standard output" in error) == (2, False)
    assert "--cert-dir: Required value" in error


def test_b5_a_closed_error_stream_changes_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "rule.yaml").write_text(RULE)
    assert shell("dtw check rule.yaml 2>&-", tmp_path)[0] == 0
    assert shell("dtw check gone.yaml 2>&-", tmp_path)[0] == 2
    assert shell("dtw chekc 2>&-", tmp_path)[0] == 2


def test_b5_a_closed_input_is_unreadable(tmp_path: Path) -> None:
    assert shell("dtw check - <&-", tmp_path) == (2, "")


@pytest.mark.parametrize(
    ("text", "code"), [(RULE, 0), ("---\n".join([RULE.replace("NoSchedule", "x")] * 2000), 1)], ids=["fine", "errors"]
)
def test_b5_a_pipe_that_nothing_reads_any_more_is_no_fault(text: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "rule.yaml").write_text(text)
    assert shell("{ dtw check rule.yaml; echo $? >code; } | true; cat code >&2", tmp_path) == (0, f"{code}\n")


def test_c3_a_pipe_that_is_named_is_read_to_its_end(tmp_path: Path) -> None:
    """As a shell's `<(helm template ...)` names one."""
    (tmp_path / "rule.yaml").write_text(RULE)
    assert shell("mkfifo p; cat rule.yaml >p & dtw check p; code=$?; wait; exit $code", tmp_path) == (0, "")


ENDLESS = """\
import sys
from webhook.commands.shared.output import write_more
while (code := write_more("x" * 4096)) is None:
    pass
sys.exit(code)
"""


def test_writing_more_ends_without_fault_when_the_reader_has_enough(tmp_path: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(ENDLESS)}"
    assert shell(f"({command}; echo $? >code) | head -c 1 >/dev/null", tmp_path) == (0, "")
    assert (tmp_path / "code").read_text() == "0\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")  # noqa: PTH110 -- a device
def test_writing_more_to_a_full_disk_is_two_and_one_line(tmp_path: Path) -> None:
    assert shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(ENDLESS)} >/dev/full", tmp_path) == (2, FULL)
