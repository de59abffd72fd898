"""Fixtures for tests of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.commands.api_server import serving
from tests.unit.commands.audit_runner import AuditRunner
from tests.unit.commands.check_runner import CheckRunner
from tests.unit.commands.preview_runner import PreviewRunner
from tests.unit.commands.rule_server import RuleServer, VerbRunner
from tests.unit.commands.status_runner import StatusRunner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CheckRunner:
    """Runs check in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return CheckRunner(tmp_path, capsys)


@pytest.fixture
def run_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> AuditRunner:
    """Runs audit in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return AuditRunner(tmp_path, capsys)


@pytest.fixture
def run_preview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> PreviewRunner:
    """Runs preview in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return PreviewRunner(tmp_path, capsys)


@pytest.fixture
def run_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> StatusRunner:
    """Runs status in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return StatusRunner(tmp_path, capsys)


@pytest.fixture
def rule_server(tmp_path: Path) -> Iterator[RuleServer]:
    """An API server that keeps rules."""
    tables = RuleServer()
    with serving(tables, tmp_path):
        yield tables


@pytest.fixture
def verb(
    rule_server: RuleServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> VerbRunner:
    """Runs verbs as `kubectl dtaint`, with that server as their cluster."""
    del rule_server
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr("sys.argv", ["/home/dana/.krew/bin/kubectl-dtaint"])
    return VerbRunner(capsys)
