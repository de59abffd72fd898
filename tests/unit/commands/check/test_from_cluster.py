"""`check` by the policy that a cluster has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.commands.api_server import ApiServer, serving
from tests.unit.commands.audit_runner import BROKEN, HEADER, NO_BROKEN, claim
from tests.unit.commands.check_runner import CheckRunner
from webhook.commands import check
from webhook.commands.explain import command as explain
from webhook.commands.shared.main import main_of

NAME = "device-taint-webhook/device-taint-webhook-policy"
PATH = "/api/v1/namespaces/device-taint-webhook/configmaps/device-taint-webhook-policy"
FLAGS = ("--policy-configmap", NAME, "--kubeconfig", "kubeconfig")


@pytest.fixture
def api_server(run: CheckRunner) -> Iterator[ApiServer]:
    tables = ApiServer()
    metadata = {"name": "device-taint-webhook-policy", "namespace": "device-taint-webhook"}
    policy = {**HEADER, "rules": [NO_BROKEN]}
    tables.objects = {PATH: {"metadata": metadata, "data": {"policy.yaml": json.dumps(policy)}}}
    with serving(tables, run.folder):
        yield tables


def test_m9_files_are_judged_by_the_policy_of_a_cluster(api_server: ApiServer, run: CheckRunner) -> None:
    code, output = run(*FLAGS, "--context", "here", claim=claim(BROKEN))
    assert (code, "(rule no-broken)" in output) == (1, True)
    assert output.endswith("1 file, 1 object: 1 error, 0 warnings\n")
    assert api_server.asked == [PATH], "and nothing else is asked for"


def test_m9_explain_asks_the_policy_of_a_cluster(
    api_server: ApiServer, run: CheckRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    (run.folder / "claim.yaml").write_text(json.dumps(claim(BROKEN)))
    assert main_of(explain, [*FLAGS, "--user", "dana", "claim.yaml"]) == 1
    assert "no-broken (deny): matches, refuses and decides\n" in capsys.readouterr().out
    api_server.objects[PATH] = 403
    assert main_of(explain, [*FLAGS, "--user", "dana", "claim.yaml"]) == 2
    assert capsys.readouterr().err.startswith("device-taint-webhook explain: ")


def test_m9_that_policy_alone_is_checked(api_server: ApiServer, run: CheckRunner) -> None:
    assert run(*FLAGS)[0] == 0
    api_server.objects[PATH]["data"]["policy.yaml"] = json.dumps({**HEADER, "rules": 3})
    code, output = run(*FLAGS)
    assert (code, "data[policy.yaml].rules" in output) == (1, True)


@pytest.mark.parametrize(
    ("found", "why"), [(404, f"there is no ConfigMap {NAME}"), (403, "403: "), ({"data": {"x": "y"}}, "contains no ")]
)
def test_m9_without_that_policy_nothing_is_judged(
    found: Any, why: str, api_server: ApiServer, run: CheckRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    api_server.objects[PATH] = found
    (run.folder / "claim.yaml").write_text(json.dumps(claim(BROKEN)))
    assert main_of(check, [*FLAGS, "claim.yaml"]) == 2
    said = capsys.readouterr()
    assert why in said.err + said.out
