"""check is not green for what an API server rejects, wherever it stands (A1)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import (
    make_alternatives,
    make_claim,
    make_device,
    make_meta,
    make_slice,
    make_toleration,
)
from tests.tables import table
from tests.unit.commands.check_runner import CheckRunner, findings

CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: ok
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpu.example.com
        count: 1
"""


@pytest.mark.parametrize(
    ("before", "after", "reported"),
    [
        ("count: 1", "count: two", "11:16: error: spec.devices.requests[0].exactly.count: Invalid value"),
        (
            "name: ok",
            "name: ok\n  labels: {a: 1}",
            "5:15: error: metadata.labels[a]: Invalid value: 1: must be a string",
        ),
        (
            "    - name: gpu\n      exactly",
            "    - exactly",
            '8:7: error: spec.devices.requests[0].name: Invalid value: ""',
        ),
        (
            "count: 1",
            'count: 1\n        selectors: [{cel: {expression: "device.driver =="}}]',
            "exactly.selectors[0].cel.expression: Invalid value",
        ),
        (
            "count: 1\n",
            "count: 1\n    - {name: gpu, exactly: {deviceClassName: a}}\n",
            '12:7: error: spec.devices.requests[1]: Duplicate value: "gpu"',
        ),
    ],
)
def test_a_claim_that_a_server_refuses_is_refused_where_it_is_wrong(
    before: str, after: str, reported: str, run: CheckRunner
) -> None:
    assert run(claim=CLAIM)[0] == 0
    assert before in CLAIM
    code, output = run(claim=CLAIM.replace(before, after))
    assert code == 1
    assert reported in output


def test_a_wrong_type_is_reported_once(run: CheckRunner) -> None:
    claim = make_claim([make_toleration(tolerationSeconds="5")], meta=make_meta("x", annotations={"a": True}))
    code, output = run("-o", "json", claim=claim)
    reported = [field for severity, field, _ in findings(output) if severity == "error"]
    assert (code, sorted(reported)) == (
        1,
        ["metadata.annotations[a]", "spec.devices.requests[0].exactly.tolerations[0].tolerationSeconds"],
    )


def test_of_a_list_that_is_too_long_only_that_is_reported(run: CheckRunner) -> None:
    wrong = make_alternatives(*[[make_toleration(key="a b")]] * 9, name="x")
    code, output = run("-o", "json", claim=make_claim(requests=[wrong]))
    reported = [field for severity, field, _ in findings(output) if severity == "error"]
    assert (code, reported) == (1, ["spec.devices.requests[0].firstAvailable"])


def test_the_fields_are_those_of_the_release_that_is_named(run: CheckRunner) -> None:
    slice_ = make_slice([make_device(attributes={"a": {"strings": ["x"]}})])
    assert run(slice=slice_)[0] == 0
    code, output = run("--kubernetes-version", "1.35", slice=slice_)
    assert code == 1
    assert "spec.devices[0].attributes[a].strings: Forbidden: unknown field: servers have it from 1.36 on" in output


def test_an_update_is_judged_by_what_it_changes(run: CheckRunner) -> None:
    old = make_slice([make_device("GPU")])
    assert [run(slice=old)[0], run(slice=old, old=old)[0]] == [1, 0]


PAST = "2020-01-01T00:00:00Z"


def _rule(
    effect: str = "NoExecute", annotations: dict[str, str] | None = None, added: str = "", **spec: Any
) -> dict[str, Any]:
    taint = {"key": "gpu.example.com/broken", "effect": effect} | ({"timeAdded": added} if added else {})
    metadata = {"name": "r", "annotations": annotations or {}}
    spec = {"deviceSelector": {"driver": "gpu.example.com"}} | spec
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": metadata,
        "spec": {**{name: value for name, value in spec.items() if value is not None}, "taint": taint},
    }


@table(
    "rule, policy, errors",
    {
        "empty": (_rule(deviceSelector={}), "", ["spec.deviceSelector"]),
        "empty, NoSchedule": (_rule("NoSchedule", deviceSelector={}), "", ["spec.deviceSelector"]),
        "missing": (_rule(deviceSelector=None), "", ["spec.deviceSelector"]),
        "that does nothing": (_rule("None", deviceSelector={}), "", []),
        "past, and renewed": (_rule("NoSchedule", {"devicetaint.io/evict": "true"}, PAST), "", []),
        "past": (_rule(added=PAST), "", ["spec.deviceSelector"]),
        "past, and evicts no pod": (_rule("NoSchedule", added=PAST), "", []),
        "of which the cluster knows more": (_rule(), "", []),
        "expired": (
            _rule(annotations={"devicetaint.io/expires-at": PAST}),
            "",
            ["metadata.annotations[devicetaint.io/expires-at]"],
        ),
        "empty, and the policy warns": (_rule(deviceSelector={}), "mode: warn", []),
        "empty, and the policy is off": (_rule(deviceSelector={}), "mode: off", []),
        "empty, by a member of break-glass": (_rule(deviceSelector={}), "impact: {breakGlassGroups: [ops]}", []),
    },
)
def test_what_the_webhook_refuses_whatever_a_cluster_holds_is_an_error(
    run: CheckRunner, rule: dict[str, Any], policy: str, errors: list[str]
) -> None:
    """M1: what has to be confirmed, and carries no text."""
    flags = []
    if policy:
        head = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
        (run.folder / "policy.yaml").write_text(f"{head}{policy}\n")
        flags = ["--policy=policy.yaml", "--user=dana", "--group=ops"]
    code, output = run("-o", "json", *flags, rule=rule)
    assert [field for severity, field, _ in findings(output) if severity == "error"] == errors
    assert code == (1 if errors else 0)


def test_rule_that_did_no_less_before_is_no_error(run: CheckRunner) -> None:
    """M1: the webhook does not judge it again."""
    assert run("-o", "json", rule=_rule(deviceSelector={}), old=_rule(added=PAST, deviceSelector={}))[0] == 0
    assert run("-o", "json", rule=_rule(deviceSelector={}), old=_rule(added=PAST))[0] == 1
