"""Fixtures for tests of commands."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.commands.api_server import serving
from tests.unit.commands.audit_runner import AuditRunner
from tests.unit.commands.check_runner import CheckRunner
from tests.unit.commands.preview_runner import PreviewRunner
from tests.unit.commands.rule_server import RuleServer, VerbRunner
from tests.unit.commands.runner import Ran
from tests.unit.commands.status_runner import StatusRunner
from webhook import cli


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which the verb runs."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    def once(*words: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = cli.main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return once


@pytest.fixture
def run(alone: Path, capsys: pytest.CaptureFixture[str]) -> CheckRunner:
    return CheckRunner(alone, capsys)


@pytest.fixture
def run_audit(alone: Path, capsys: pytest.CaptureFixture[str]) -> AuditRunner:
    return AuditRunner(alone, capsys)


@pytest.fixture
def run_preview(alone: Path, capsys: pytest.CaptureFixture[str]) -> PreviewRunner:
    return PreviewRunner(alone, capsys)


@pytest.fixture
def run_status(alone: Path, capsys: pytest.CaptureFixture[str]) -> StatusRunner:
    return StatusRunner(alone, capsys)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What happens between two looks, which are seven seconds apart; then the user interrupts."""
    left: list[Callable[[], None]] = []

    def sleep(seconds: float) -> None:
        assert seconds == 7
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    monkeypatch.setattr(time, "sleep", sleep)
    return left


@pytest.fixture
def rule_server(tmp_path: Path) -> Iterator[RuleServer]:
    """An API server that keeps rules."""
    tables = RuleServer()
    with serving(tables, tmp_path):
        yield tables


@pytest.fixture
def verb(
    rule_server: RuleServer, alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> VerbRunner:
    """Runs verbs as `kubectl dtaint`, with that server as their cluster."""
    monkeypatch.setenv("KUBECONFIG", str(alone / "kubeconfig"))
    monkeypatch.setattr("sys.argv", ["/home/dana/.krew/bin/kubectl-dtaint"])
    return VerbRunner(rule_server, capsys)
