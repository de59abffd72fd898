"""`unregister`: both webhook configurations go, after a confirmation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.unit.commands.api_server import ApiServer, serving
from webhook.commands import unregister
from webhook.commands.shared.main import main_of

_PREFIX: Final = "/apis/admissionregistration.k8s.io/v1/"
BOTH: Final = tuple(f"{each}webhookconfigurations/device-taint-webhook" for each in ("validating", "mutating"))


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[ApiServer]:
    made = ApiServer()
    made.objects = {f"{_PREFIX}{name}": {} for name in BOTH}
    with serving(made, tmp_path):
        yield made


@pytest.fixture
def cluster(tmp_path: Path) -> list[str]:
    return ["--kubeconfig", str(tmp_path / "kubeconfig")]


def test_without_yes_it_prints_what_it_would_delete_and_the_command(
    tables: ApiServer, cluster: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_of(unregister, cluster) == 1
    printed = capsys.readouterr().out
    assert all(f"  {name}\n" in printed for name in BOTH)
    assert printed.endswith("to delete them: device-taint-webhook unregister --yes\n")
    assert tables.sent == []


def test_with_yes_it_sends_deletions_and_nothing_else_and_may_be_repeated(
    tables: ApiServer, cluster: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The account of the chart's hook may do no more than delete these two."""
    assert main_of(unregister, [*cluster, "--yes"]) == 0
    assert "".join(f"  {name}\n" for name in BOTH) in capsys.readouterr().out
    assert tables.objects == {}
    assert [(method, target) for method, target, _ in tables.sent] == [("DELETE", f"{_PREFIX}{name}") for name in BOTH]
    assert len(tables.asked) == len(BOTH)
    assert main_of(unregister, [*cluster, "--yes"]) == 0
    assert capsys.readouterr().out == "nothing to delete: API servers do not call the webhook\n"


def test_one_that_is_left_is_deleted(tables: ApiServer, cluster: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    del tables.objects[f"{_PREFIX}{BOTH[0]}"]
    assert main_of(unregister, [*cluster, "--yes"]) == 0
    assert tables.objects == {}
    printed = capsys.readouterr().out
    assert BOTH[1] in printed
    assert BOTH[0] not in printed


def test_refusal_of_the_api_server_is_an_error(
    tables: ApiServer, cluster: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    tables.objects[f"{_PREFIX}{BOTH[1]}"] = 403
    assert main_of(unregister, [*cluster, "--yes"]) == 2
    assert capsys.readouterr().err.startswith("device-taint-webhook unregister: ")
