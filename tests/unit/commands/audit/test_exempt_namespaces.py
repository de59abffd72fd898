"""Namespaces about which the registered webhook is never asked: `audit` finds nothing there that could be mended."""

from __future__ import annotations

import json

import pytest

from tests.tables import table
from tests.unit.commands.audit_runner import BROKEN, DANA, POLICY, AuditRunner, claim, template


@table(
    "words, exempt",
    {
        "as shipped": ([], {"kube-system"}),
        "where the policy is": (["--policy-configmap=mine/policy"], {"kube-system"}),
        "others as well": (["--exempt-namespaces=kube-system,infra"], {"kube-system", "infra"}),
        "none": (["--exempt-namespaces="], set()),
    },
)
def test_what_is_stored_in_exempt_namespaces_is_no_finding(
    words: list[str], exempt: set[str], run_audit: AuditRunner
) -> None:
    namespaces = {"ml", "kube-system", "mine", "infra"}
    stored = [claim(BROKEN), template(BROKEN, author=DANA), {**claim(), "spec": 7}]
    objects = [{**each, "metadata": {**each["metadata"], "namespace": name}} for name in namespaces for each in stored]
    code, output = run_audit("-o", "json", *words, dump=objects, policy=POLICY)
    report = json.loads(output)
    assert code == 1
    assert {each["namespace"] for each in report["findings"]} == namespaces - exempt
    assert len(report["findings"]) == report["summary"]["objects"] == 3 * len(namespaces - exempt)
    left_out = "claims and templates in exempt namespaces are left out: "
    assert [each for each in report["notes"] if "exempt" in each] == [f"{left_out}{3 * len(exempt)}"] * bool(exempt)


@pytest.mark.parametrize("text", ["kube-system,,infra", "Infra", ","])
def test_what_names_no_namespace_is_refused(text: str, run_audit: AuditRunner) -> None:
    assert run_audit(f"--exempt-namespaces={text}", dump=[claim()])[0] == 2
