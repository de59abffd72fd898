"""`audit -n -o openreports`: it writes the Report of that namespace alone, and says all that is known of it."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.builders import make_claim, make_meta
from tests.unit.commands.audit_runner import BROKEN, PLAIN, POLICY, AuditRunner, claim

# The policy warns of an exception that has ended.
EXPIRED: Final = {"name": "x", "rules": ["no-broken"], "match": {"namespaces": {"names": ["lab"]}}}
WARNED: Final = {
    **POLICY,
    "exceptions": [{**EXPIRED, "expiresAt": "2020-01-02T00:00:00Z", "owner": "a", "reason": "b"}],
}
DUMP: Final[list[Any]] = [
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "device-taint-webhook-policy", "namespace": "device-taint-webhook"},
        "data": {"policy.yaml": json.dumps(WARNED)},
    },
    make_claim([BROKEN], meta=make_meta("own", namespace="device-taint-webhook")),
    claim(PLAIN),
]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], {"device-taint-webhook": ["fail", "warn"]}),
        (["-n", "ml"], {"ml": []}),
        (["-n", "device-taint-webhook"], {"device-taint-webhook": ["fail", "warn"]}),
    ],
)
def test_reports_of_other_namespaces_are_not_replaced(
    words: list[str], found: dict[str, list[str]], run_audit: AuditRunner
) -> None:
    """That of the policy's namespace would take back the findings of the last audit of all."""
    code, output = run_audit(*words, "-o", "openreports", dump=DUMP)
    reports = {each["metadata"]["namespace"]: each["results"] for each in json.loads(output)["items"]}
    assert (code, {name: [each["result"] for each in results] for name, results in reports.items()}) == (0, found)
