"""The CustomResourceDefinition alone, on a real API server: what it accepts, refuses, and leaves to the webhook."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.apiserver.patches.values import BAD, COLLECTION, GOOD, LEFT_TO_THE_WEBHOOK, TAINT, VERSION, patch
from tests.builders import decoded, field_errors, kind_of
from tests.cases.corpus import Case, cases, each_case
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from webhook.api.meta import OWN_GROUP

ONLY_THE_WEBHOOK: Final = {
    "resourceslicepatch/filter/cel-syntax",
}
"""Refused cases that the definition accepts."""


def _created(case: Case) -> bool:
    return case.operation == "CREATE" and case.kind.group == OWN_GROUP and case.kind.kind == "ResourceSlicePatch"


@pytest.mark.parametrize("devices", GOOD.values(), ids=GOOD.keys())
def test_definition_accepts_what_the_webhook_accepts(defined: ControlPlane, devices: Any) -> None:
    """P-2 to P-9, P-11, P-20, N-7 to N-11: the limits themselves."""
    assert decoded(patch(devices))[1] == []
    assert field_errors(patch(devices)) == []
    reply = defined.client.create(COLLECTION, patch(devices), dry_run=True, field_validation="Strict")
    assert reply.ok, reply.message
    stored = reply.object["spec"]["devices"]
    given = {**devices}
    if devices.get("taints", [{}])[0].get("timeAdded", "") is None:
        given["taints"] = [{key: value for key, value in devices["taints"][0].items() if value is not None}]
    assert stored == given


@pytest.mark.parametrize(("devices", "field"), BAD.values(), ids=BAD.keys())
def test_definition_refuses_without_the_webhook(defined: ControlPlane, devices: Any, field: str) -> None:
    """P-3 to P-9, P-20, N-7 to N-11: one beyond each limit. The webhook, and so `check`, refuses the same."""
    reply = defined.client.create(COLLECTION, patch(devices), dry_run=True)
    assert reply.code == 422, reply.message
    assert any(cause.field.startswith(field) for cause in reply.causes), reply.causes
    assert decoded(patch(devices))[1] or field_errors(patch(devices)), "ours"


@pytest.mark.parametrize("devices", LEFT_TO_THE_WEBHOOK.values(), ids=LEFT_TO_THE_WEBHOOK.keys())
def test_definition_leaves_the_rest_to_the_webhook(defined: ControlPlane, devices: Any) -> None:
    assert defined.client.create(COLLECTION, patch(devices), dry_run=True).ok
    assert field_errors(patch(devices)) != []


@each_case(_created)
def test_definition_agrees_with_the_corpus(defined: ControlPlane, case: Case) -> None:
    reply = defined.client.create(COLLECTION, case.object, dry_run=True)
    assert reply.ok == (case.allowed or case.path in ONLY_THE_WEBHOOK), reply.message


def test_list_of_what_the_definition_cannot_say_names_refused_cases() -> None:
    assert {case.path for case in cases() if not case.allowed and _created(case)} >= ONLY_THE_WEBHOOK


def test_patch_is_cluster_scoped_and_its_generation_counts_changes_of_the_spec(defined: ControlPlane) -> None:
    """P-1; a change of the status or of the metadata does not count."""
    client, where = defined.client, f"{COLLECTION}/generation"
    try:
        first = client.create(COLLECTION, patch({"taints": [TAINT]}, "generation")).object
        assert "namespace" not in first["metadata"]
        assert first["metadata"]["generation"] == 1
        counts = {"observedGeneration": 1, "selectedDevices": 8, "patchedDevices": 0, "taintedDevices": 8, "rules": 1}
        condition = {
            "type": "devicetaint.io/Expanded",
            "status": "True",
            "reason": "Expanded",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
        status = {**counts, "conditions": [condition]}
        kept = client.replace(f"{where}/status", {**first, "spec": {}, "status": status}).object
        assert (kept["spec"], kept["status"], kept["metadata"]["generation"]) == (first["spec"], status, 1)
        labelled = client.patch(where, {"metadata": {"labels": {"a": "b"}}, "status": None}).object
        assert (labelled["status"], labelled["metadata"]["generation"]) == (status, 1)
        assert client.patch(where, {"spec": {"devices": {"priority": 1}}}).object["metadata"]["generation"] == 2
    finally:
        client.delete(where)


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"selectedDevices": -1}, id="a count below zero"),
        pytest.param({"conditions": [{"type": "a", "status": "True"}]}, id="a condition without reason"),
        pytest.param({"conditions": [{"type": "a", "status": "yes", "reason": "b"}]}, id="another status"),
    ],
)
def test_status_has_limits_of_its_own(defined: ControlPlane, status: Any) -> None:
    client, where = defined.client, f"{COLLECTION}/status-limits"
    try:
        stored = client.create(COLLECTION, patch({}, "status-limits")).object
        assert client.replace(f"{where}/status", {**stored, "status": status}, dry_run=True).code == 422
    finally:
        client.delete(where)


def test_kubectl_shows_columns_under_the_short_name(defined: ControlPlane) -> None:
    devices = {"filter": {"deviceClassName": "gpu", "driver": "gpu.example.com", "pool": "node-1"}, "priority": 7}
    defined.wait_discovered("devicetaint.io", "resourceslicepatches")
    try:
        stored = defined.client.create(COLLECTION, patch(devices, "shown")).object
        status = {"selectedDevices": 8, "taintedDevices": 3}
        _ = defined.client.replace(f"{COLLECTION}/shown/status", {**stored, "status": status}).object
        done = defined.kubectl("get", "rsp", "shown")
        header, row = done.stdout.splitlines()
        assert header.split() == ["NAME", "CLASS", "DRIVER", "PRIORITY", "SELECTED", "TAINTED", "AGE"]
        assert row.split()[:-1] == ["shown", "gpu", "gpu.example.com", "7", "8", "3"]
        wide = defined.kubectl("get", "rsp", "shown", "-o", "wide").stdout.splitlines()
        assert "POOL" in wide[0].split()
        assert "node-1" in wide[1].split()
        text = "Only devices that the selectors of this DeviceClass select."
        explain = "explain", "rsp.spec.devices.filter.deviceClassName"
        wait_until(
            lambda: text in defined.kubectl(*explain).stdout, "it is explained"
        )  # a schema comes later than a kind
    finally:
        defined.client.delete(f"{COLLECTION}/shown")


def test_change_is_judged_as_well(defined: ControlPlane) -> None:
    client, where = defined.client, f"{COLLECTION}/changed"
    try:
        _ = client.create(COLLECTION, patch({"taints": [TAINT]}, "changed")).object
        assert client.patch(where, {"spec": {"devices": {"filter": {"driver": ""}}}}).code == 422
        assert client.patch(where, {"spec": {"devices": {"filter": {"driver": "gpu.example.com"}}}}).ok
    finally:
        client.delete(where)


def test_kind_in_the_objects_is_the_one_that_check_reads() -> None:
    assert kind_of(patch({})).api_version == VERSION
