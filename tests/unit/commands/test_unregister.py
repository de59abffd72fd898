"""`unregister`: both webhook configurations go, after a confirmation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.unit.commands.api_server import ApiServer, serving
from tests.unit.commands.runner import Ran

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
    tables: ApiServer, cluster: list[str], ran: Ran
) -> None:
    code, printed, _ = ran("unregister", *cluster)
    assert (code, [name for name in BOTH if f"  {name}\n" not in printed], tables.sent) == (1, [], [])
    assert printed.endswith("to delete them: device-taint-webhook unregister --yes\n")


def test_with_yes_it_sends_deletions_and_nothing_else_and_may_be_repeated(
    tables: ApiServer, cluster: list[str], ran: Ran
) -> None:
    """The account of the chart's hook may do no more than delete these two."""
    code, printed, _ = ran("unregister", *cluster, "--yes")
    assert (code, "".join(f"  {name}\n" for name in BOTH) in printed, tables.objects) == (0, True, {})
    assert [(method, target) for method, target, _ in tables.sent] == [("DELETE", f"{_PREFIX}{name}") for name in BOTH]
    assert len(tables.asked) == len(BOTH)
    nothing = "nothing to delete: API servers do not call the webhook\n"
    assert ran("unregister", *cluster, "--yes") == (0, nothing, "")


def test_one_that_is_left_is_deleted(tables: ApiServer, cluster: list[str], ran: Ran) -> None:
    del tables.objects[f"{_PREFIX}{BOTH[0]}"]
    code, printed, _ = ran("unregister", *cluster, "--yes")
    assert (code, tables.objects, [name in printed for name in BOTH]) == (0, {}, [False, True])


def test_refusal_of_the_api_server_is_an_error(tables: ApiServer, cluster: list[str], ran: Ran) -> None:
    tables.objects[f"{_PREFIX}{BOTH[1]}"] = 403
    code, _, error = ran("unregister", *cluster, "--yes")
    assert (code, error.startswith("device-taint-webhook unregister: ")) == (2, True)
