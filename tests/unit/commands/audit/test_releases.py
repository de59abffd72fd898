"""`audit --kubernetes-version`: what stored rules and slices would do on servers of another version."""

from __future__ import annotations

import json

import pytest

from tests.builders import (
    NOW,
    NOW_TEXT,
    make_claim,
    make_device,
    make_result,
    make_rule,
    make_scheduler_claim,
    make_slice,
    make_status,
    make_taint,
    make_toleration,
)
from tests.unit.commands.audit_runner import AuditRunner
from webhook.api.servers import UNKNOWN, facts_of
from webhook.commands.audit import ReleaseAudit
from webhook.commands.shared.flags import KubernetesVersion
from webhook.files.read import Manifest
from webhook.files.spots import NOWHERE
from webhook.validation.releases import RELEASES

EVICTS = make_rule(taint=make_taint(effect="NoExecute"), meta={"name": "evicts"})
EVICTS["spec"]["taint"]["timeAdded"] = NOW_TEXT
MISSING = make_rule(selector=None, taint=make_taint(effect="NoSchedule"), meta={"name": "missing"})
HARMLESS = make_rule(taint=make_taint(effect="None"), meta={"name": "harmless"})
SLICE = make_slice([make_device("gpu-0", [make_taint(effect="NoExecute")]), make_device("gpu-1")])
COVERED = make_claim(meta={"name": "covered", "namespace": "ml"})
COVERED["status"] = {
    **make_status(make_result([make_toleration(effect=None)], "gpu-0")),
    "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
}
EXTENDED = make_scheduler_claim("x", "node-0/gpu-0")
NEEDS_GATE = "acts there without a feature gate, and evicts 1 pod unless it acts today"
TAINT, DEVICES, SELECTOR = "spec.taint", "spec.devices", "spec.deviceSelector"
NONE_UNKNOWN = "has a taint with effect None, which that release does not know: remove it before you go there"


def more(*pods: str) -> str:
    number = "1 pod" if len(pods) == 1 else f"{len(pods)} pods"
    return f"evicts {number} there that it leaves alone today: {', '.join(pods)}"


def changes(today: str, then: str) -> set[tuple[str, str, str]]:
    """Name of the object, path and sentence."""
    objects = [EVICTS, MISSING, HARMLESS, SLICE, COVERED, EXTENDED]
    manifests = [Manifest("dump.yaml", number, value, NOWHERE) for number, value in enumerate(objects, 1)]
    version = KubernetesVersion(RELEASES[int(then.split(".")[1])], facts_of([then]))
    audit = ReleaseAudit(manifests, facts_of([today]) if today else UNKNOWN, version, NOW)
    return {
        (each.value["metadata"]["name"], entry.field, entry.message)
        for each in manifests
        for entry in audit.entries(each)
    }


@pytest.mark.parametrize(
    ("today", "then", "expected"),
    [
        ("1.37.2", "1.37.2", set()),
        ("1.37.1", "1.37.2", {("evicts", TAINT, more("ml/x")), ("node-0-gpu", DEVICES, more("ml/x"))}),
        ("1.37.0", "1.37.1", {("missing", SELECTOR, "is missing: that release selects nothing for it")}),
        ("1.37.2", "1.37.0", {("missing", SELECTOR, "is missing: that release closes 2 devices for it")}),
        ("1.38.0", "1.37.2", {("evicts", TAINT, more("ml/p")), ("node-0-gpu", DEVICES, more("ml/p"))}),
        ("1.37.2", "1.38.0", set()),
        ("1.36.3", "1.37.0", {("evicts", TAINT, NEEDS_GATE)}),
        ("1.37.0", "1.34.4", {("harmless", TAINT, NONE_UNKNOWN)}),
        (
            "",
            "1.37.2",
            {
                ("evicts", TAINT, more("ml/p", "ml/x")),
                ("evicts", TAINT, NEEDS_GATE.replace("1 pod", "2 pods")),
                ("node-0-gpu", DEVICES, more("ml/p", "ml/x")),
                ("node-0-gpu", DEVICES, NEEDS_GATE.replace("1 pod", "2 pods")),
                ("missing", SELECTOR, "is missing: that release selects nothing for it"),
            },
        ),
    ],
)
def test_what_another_version_reads_otherwise(today: str, then: str, expected: set[tuple[str, str, str]]) -> None:
    assert changes(today, then) == expected


def test_version_is_compared_beside_everything_else(run_audit: AuditRunner) -> None:
    code, output = run_audit(
        "-o", "json", "--allow-empty", "--time", NOW_TEXT, "--kubernetes-version", "1.34", dump=[HARMLESS, COVERED]
    )
    (found,) = [each for each in json.loads(output)["findings"] if each["reason"] == "release"]
    assert (code, found["name"], found["severity"], found["message"]) == (1, "harmless", "error", NONE_UNKNOWN)


OLD_VERSION = ("--allow-empty", "-o", "json", "--time", NOW_TEXT, "--kubernetes-version", "1.33")
NEW = make_claim(meta={"name": "new", "namespace": "ml"})
CLASS = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
PLACED = 'Unsupported value: "resource.k8s.io/v1": supported values: '


def test_versions_that_the_release_does_not_serve_are_errors(run_audit: AuditRunner) -> None:
    """M8: as `check` reports them."""
    objects = [NEW, make_rule(), SLICE, CLASS]
    code, output = run_audit(*OLD_VERSION, dump=objects)
    document = json.loads(output)
    found = {each["kind"]: each["message"] for each in document["findings"] if each["field"] == "apiVersion"}
    assert code == 1
    unserved = [each["result"] for each in document["objects"] if each["kind"] in {"DeviceTaintRule", "ResourceSlice"}]
    assert unserved == ["denied", "denied"]
    assert {*found} == {"ResourceClaim", "DeviceTaintRule", "ResourceSlice", "DeviceClass"}
    assert all(text.startswith(PLACED) for text in found.values()), found


def test_objects_without_a_readable_kind_are_passed_over(run_audit: AuditRunner) -> None:
    odd: list[dict[str, object]] = [{"apiVersion": 5, "kind": ["a"]}, {"kind": {}}]
    assert run_audit("--allow-empty", "--time", NOW_TEXT, dump=odd)[0] == 0


def test_a_namespace_narrows_the_pods_and_leaves_the_rules(run_audit: AuditRunner) -> None:
    there = make_claim(meta={"name": "there", "namespace": "web"})
    there["status"] = {
        **make_status(make_result([make_toleration(effect=None)], "gpu-0")),
        "reservedFor": [{"resource": "pods", "name": "q", "uid": "uid-q"}],
    }
    words = ("--allow-empty", "-o", "json", "--time", NOW_TEXT, "--kubernetes-version", "1.37.2")
    for namespace, pods in (((), ("ml/p", "web/q")), (("-n", "ml"), ("ml/p",))):
        _, output = run_audit(*words, *namespace, dump=[EVICTS, SLICE, COVERED, there])
        told = json.loads(output)
        assert more(*pods) in [each["message"] for each in told["findings"]]
        counted = [note for note in told["notes"] if "only pods in namespace ml are counted" in note]
        assert len(counted) == len(namespace) // 2


@pytest.mark.parametrize("lacking", ["ResourceSlices", "DeviceTaintRules"])
def test_a_dump_without_what_another_version_reads_says_so(lacking: str, run_audit: AuditRunner) -> None:
    dump = [COVERED, *[each for each in (EVICTS, SLICE) if each["kind"] + "s" != lacking]]
    for version, noted in ((("--kubernetes-version", "1.38"), True), ((), False)):
        notes = json.loads(run_audit("--allow-empty", "-o", "json", *version, dump=dump)[1])["notes"]
        assert any(note.startswith(f"the dump has no {lacking}, so") for note in notes) is noted
