"""docs/runbooks.md and docs/integrations.md: their commands beside an installation that needs repair."""

from __future__ import annotations

import re
import textwrap
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.pages.following import INTEGRATIONS, RUNBOOKS, RUNBOOKS_TOP, Reader, blocks, section
from tests.apiserver.pages.shell import LABELLED
from tests.builders import make_patch, make_rule, make_slice
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until
from webhook.patches.published import ORIGINALS

pytestmark = pytest.mark.whole

RULES: Final = path("resource.k8s.io/v1", "devicetaintrules")
SLICES: Final = path("resource.k8s.io/v1", "resourceslices")
PATCHES: Final = path("devicetaint.io/v1alpha1", "resourceslicepatches")
SECRET: Final = path("v1", "secrets", namespace="device-taint-webhook", name="device-taint-webhook-ca")
OVERRIDDEN: Final = '{"version": 1, "devices": {"gpu-0": {"attributes": {"model": {"now": null}}}}}'
POLICY: Final = """apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
rules:
- name: no-maintenance
  action: deny
  match: {tolerations: {keys: [maint.example.com/*]}}
"""
TAINT_RULES: Final = """taintRules:
- name: no-gpus
  action: deny
  match: {drivers: [gpu.example.com], taints: {effects: [NoSchedule, NoExecute]}}
"""


def _inline(heading: str) -> list[str]:
    """The commands in the running text of a section."""
    text = re.sub(r"^ *```.*?^ *```$", "", section(RUNBOOKS, heading), flags=re.MULTILINE | re.DOTALL)
    return [" ".join(each.split()) for each in re.findall(r"`(kubectl [^`]+)`", text)]


def _look(reader: Reader, line: str) -> None:
    """`doctor` finds no webhook that answers, and no kubelet gives the logs of pods; everything else has to work."""
    if " logs " in line:
        assert "no preferred addresses found" in reader.run(line, codes={1}), "the pods were found"
    else:
        reader.run(line, codes={0, 1} if "device-taint-webhook doctor" in line else {0})


def _condition(kind: str, reason: str, message: str) -> dict[str, Any]:
    time = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": "False", "reason": reason, "message": message, "lastTransitionTime": time}


def _installed(reader: Reader) -> None:
    """With `evict`, and the kind of patches; no program runs in the pods."""
    reader.run("kubectl apply -f manifests/components/patches/definition.yaml")
    wait_until(lambda: reader.client.get(PATCHES).ok, "patches are served")
    reader.kustomize("evict-observe")
    reader.run("kubectl apply -k deploy")
    for name in ("device-taint-webhook", "device-taint-webhook-evict"):
        reader.run(f"kubectl -n device-taint-webhook rollout status deployment {name}")


def test_commands_for_alerts_show_what_is_stuck(reader: Reader) -> None:
    _ = reader.client.create(RULES, make_rule(meta={"name": "stuck"})).object
    blocked = _condition("devicetaint.io/Eviction", "Blocked", "budgets")
    _ = reader.client.patch(f"{RULES}/stuck/status", {"status": {"conditions": [blocked]}}).object
    _installed(reader)
    _ = reader.client.create(PATCHES, make_patch(meta={"name": "firmware"})).object
    expanded = _condition("Expanded", "TooManyRules", "300-rules")
    _ = reader.client.patch(f"{PATCHES}/firmware/status", {"status": {"conditions": [expanded]}}).object

    (shown,) = blocks(RUNBOOKS, "DeviceTaintWebhookEvictionStuck")
    assert reader.run(shown).split() == ["NAME", "EFFECT", "WHY", "TEXT", "stuck", "NoSchedule", "Blocked", "budgets"]
    (shown,) = blocks(RUNBOOKS, "DeviceTaintWebhookPatchesNotExpanded")
    assert reader.run(shown).split() == ["NAME", "RULES", "SLICES", "firmware", "300-rules", "<none>"]

    (first,) = blocks(RUNBOOKS, "Alerts")
    for line in first.splitlines():
        if "POD" not in line:  # it would have to run
            _look(reader, line)
    (scale,) = [each for each in _inline("If it refuses the wrong things") if " scale " in each]
    assert "scaled" in reader.run(scale)
    (empty,) = [each for each in _inline("DeviceTaintWebhookCertificateNotRenewed") if " patch " in each]
    reader.run(empty)
    assert "data" not in reader.client.get(SECRET).object

    reader.run(blocks(RUNBOOKS, RUNBOOKS_TOP)[0])  # rules are not refused any longer
    wait_until(lambda: reader.client.delete(f"{RULES}/stuck").code in {200, 404}, "the rule is gone")
    reader.client.delete(f"{PATCHES}/firmware")


def test_patches_leave_slices(reader: Reader) -> None:
    reader.run("kubectl apply -f manifests/components/patches/definition.yaml")
    wait_until(lambda: reader.client.get(PATCHES).ok, "patches are served")
    _ = reader.client.create(PATCHES, make_patch(meta={"name": "firmware"})).object
    meta = {"name": "patched", "annotations": {ORIGINALS: OVERRIDDEN}}
    _ = reader.client.create(SLICES, make_slice(meta=meta)).object

    indented = re.compile(r"^ {3}```\n(.*?)^ {3}```$", re.MULTILINE | re.DOTALL)
    remove, query = map(textwrap.dedent, indented.findall(section(RUNBOOKS, "If patches have changed slices")))
    write, annotate = _inline("If patches have changed slices")
    reader.run(remove)
    assert reader.client.get(PATCHES).items == []
    assert reader.run(query).split() == ["patched"]
    reader.run(write.replace(" NAME ", " patched "))
    reader.run(annotate)
    assert reader.run(query) == ""
    reader.client.delete(f"{SLICES}/patched")


def test_bug_report_has_what_it_needs(reader: Reader) -> None:
    _installed(reader)
    _dump, collect = blocks(RUNBOOKS, "Debugging")
    for line in collect.splitlines():
        _look(reader, line)
    assert '"checks"' in (reader.folder / "doctor.txt").read_text()
    kinds = {each["kind"] for each in yaml.safe_load((reader.folder / "installation.yaml").read_text())["items"]}
    assert {"Deployment", "ConfigMap"} <= kinds
    assert yaml.safe_load((reader.folder / "devices.yaml").read_text())["kind"] == "List"
    assert (reader.folder / "webhook.log").is_file()


def test_exported_policies_are_applied_pruned_and_removed(reader: Reader) -> None:
    export, prune, remove, static = blocks(INTEGRATIONS, "Enforce a policy without the webhook")
    count = f"kubectl get validatingadmissionpolicy {LABELLED} -o name"
    reader.write("policy.yaml", POLICY + TAINT_RULES)
    reader.run(export)
    before = reader.run(count).split()
    assert before
    reader.write("policy.yaml", POLICY)
    reader.run(f"{export.splitlines()[0]}\n{prune}")
    assert 0 < len(reader.run(count).split()) < len(before)
    reader.write("policy.yaml", f"{POLICY}mode: 'off'\n")
    assert "nothing to export" in reader.run(export.splitlines()[0])
    reader.run(remove)
    assert reader.run(count).split() in ([], ["No", "resources", "found"])
    reader.write("policy.yaml", POLICY)
    reader.run(static.replace("/etc/kubernetes/admission", "files"))
    assert (reader.folder / "files/validating/device-taint-webhook.yaml").is_file()
