"""`audit -o openreports`: applied, its Reports replace the last ones, so they must not leave out what is so."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.builders import make_device, make_rule, make_slice, make_taint
from tests.tables import table
from tests.unit.commands.audit_runner import BROKEN, PLAIN, POLICY, AuditRunner, claim
from webhook.commands import audit
from webhook.commands.shared.main import main_of

FAULTY: Final = {**POLICY, "rules": [{"name": "x", "action": "dney"}]}
DUMP: Final = [claim(BROKEN)]
NAMESPACE: Final = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
TAINTED: Final = make_slice([make_device("gpu-0", [make_taint(effect="None")])])
RULE: Final = make_rule(taint=make_taint(effect="None"))


def config_map(metadata: Any, **data: Any) -> Any:
    texts = {f"{name}.yaml": json.dumps(each) for name, each in data.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": texts}


@table(
    "files, said",
    {
        "a faulty policy": ({"dump": DUMP, "policy": FAULTY, "candidate": POLICY}, "dney"),
        "a faulty candidate": ({"dump": DUMP, "policy": POLICY, "candidate": FAULTY}, "dney"),
        "a faulty candidate in the dump": (
            {"dump": [*DUMP, config_map({"name": "p"}, policy=POLICY, candidate=FAULTY)]},
            "dney",
        ),
        "half a dump": ({"dump": json.dumps(DUMP[0]) + "\n---\n{", "policy": POLICY}, "dump.yaml:4:1: error: not YAML"),
        "nothing to check": ({"dump": [NAMESPACE], "policy": POLICY}, "nothing was checked"),
    },
)
def test_without_all_of_it_there_are_no_reports_and_the_fault_is_told(
    files: Any, said: str, run_audit: AuditRunner
) -> None:
    flags = [f"--{stem}={run_audit.write(stem, content)}" for stem, content in files.items()]
    code, output, errors = run_audit.said(main_of(audit, ["-o", "openreports", *flags]))
    assert (code, output, said in errors, "no reports unless all is read" in errors) == (2, "", True, True)


@pytest.mark.parametrize("manifest", [TAINTED, RULE], ids=["slice", "rule"])
def test_what_is_in_no_namespace_is_in_no_report(manifest: Any, run_audit: AuditRunner) -> None:
    words, dump = ("--kubernetes-version", "1.34"), [claim(PLAIN), NAMESPACE, manifest]
    assert run_audit(*words, dump=dump, policy=POLICY)[1].count(" error: ") > 0
    _, output = run_audit(*words, "-o", "openreports", dump=dump, policy=POLICY)
    assert [(each["metadata"]["namespace"], each["results"]) for each in json.loads(output)["items"]] == [("ml", [])]


def test_a_policy_with_a_text_for_metadata_judges(run_audit: AuditRunner) -> None:
    assert run_audit(dump=[*DUMP, config_map("x", policy=POLICY)])[0] == 1
