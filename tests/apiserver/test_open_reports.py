"""OpenReports on a real API server with the kinds as their project publishes them: ten thousand findings."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.apiserver.evicting import EvictProcess
from tests.builders import make_claim, make_meta, make_request, make_rule, make_toleration
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.client import Client
    from tests.controlplane.plane import ControlPlane

pytestmark = [pytest.mark.apiserver, pytest.mark.whole]

DEFINITIONS: Final = Path(__file__).parents[1] / "controlplane" / "openreports"
CRDS: Final = path("apiextensions.k8s.io/v1", "customresourcedefinitions")
CLUSTER_REPORTS: Final = path("openreports.io/v1alpha1", "clusterreports")
NAMESPACE: Final = "open-reports"
REPORTS: Final = path("openreports.io/v1alpha1", "reports", namespace=NAMESPACE)
ENDING: Final = "open-reports-ending"
"""It is being deleted; no controller runs here that would complete that."""
CLAIMS: Final = 210
TOLERATIONS: Final = 3 * 16
MEBIBYTE: Final = 1024 * 1024
POLICY: Final = """
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
rules:
- name: no-broken
  action: %s
  match: {namespaces: {names: [open-reports, open-reports-ending]}}
"""


@pytest.fixture
def client(plane: ControlPlane) -> Iterator[Client]:
    """Of a cluster with many claims, and without the kinds until a test adds them."""
    client, namespaces = plane.client, path("v1", "namespaces")
    for name in (NAMESPACE, ENDING):
        _ = client.create(namespaces, {"metadata": {"name": name}}).object
    version = versions.api_versions(plane.server_version)[0]
    collection, ending = (
        path(f"{versions.GROUP}/{version}", "resourceclaims", namespace=name) for name in (NAMESPACE, ENDING)
    )
    _ = client.create(ending, claim_of(0, version, ENDING)).object
    assert client.delete(f"{namespaces}/{ENDING}").ok
    rules = path(f"{versions.GROUP}/{versions.rule_versions(plane.server_version)[0]}", "devicetaintrules")
    replies = client.each(lambda number: client.create(collection, claim_of(number, version)), range(CLAIMS))
    assert all(reply.ok for reply in replies), replies[0]
    rule = make_rule(selector={}, version=rules.split("/")[3], meta=make_meta(NAMESPACE))
    rule["spec"]["taint"]["effect"] = "None"
    assert (reply := client.create(rules, rule)).ok, reply
    yield client
    client.delete(collection)
    client.delete(ending)
    client.delete(f"{rules}/{NAMESPACE}")
    for definition in definitions():
        client.delete(f"{CRDS}/{definition['metadata']['name']}")


def definitions() -> list[dict[str, Any]]:
    return [yaml.safe_load(file.read_text()) for file in sorted(DEFINITIONS.glob("*.yaml"))]


def claim_of(number: int, version: str, namespace: str = NAMESPACE) -> Any:
    """A claim of one of the policy's namespaces with as many tolerations as there may be."""
    tolerations = [make_toleration(f"broken.example.com/key-{key}") for key in range(16)]
    requests = [make_request(f"gpu-{each}", tolerations) for each in range(3)]
    meta = make_meta(f"claim-{number}", namespace=namespace)
    return make_claim(requests=requests, meta=meta, version=version)


def stored(client: Client, collection: str) -> dict[str, Any]:
    reply = client.get(collection)
    return {each["metadata"]["name"]: each for each in reply.items} if reply.ok else {}


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Names of reports that were written in between."""
    revisions = [
        {name: each["metadata"]["resourceVersion"] for name, each in found.items()} for found in (before, after)
    ]
    return {name for name in before.keys() | after.keys() if revisions[0].get(name) != revisions[1].get(name)}


class Keeper(EvictProcess):
    """`evict` with what it says of its reports; a list of them is 8 MB, so it is read rarely."""

    def passes(self) -> float:
        """When the last whole pass of the audit ended."""
        return self.metric("device_taint_webhook_audit_completed_timestamp_seconds")[""]

    def actions(self, action: str = "written") -> float:
        """Objects written since the start, or what else became of them."""
        return self.metric("device_taint_webhook_reports_actions_total")[f'{{action="{action}"}}']

    def wait_all_written(self, results: int) -> None:
        """Until a pass with that many results has nothing left to write. Other tests leave objects with findings."""
        found = partial(self.metric, "device_taint_webhook_reports_results")
        wait_until(lambda: found()[""] >= results and self.actions() > 0, "ten thousand results", seconds=300)
        written = -1.0
        while written < (written := self.actions()):
            self._wait_pass()

    def _wait_pass(self) -> None:
        last = self.passes()
        wait_until(lambda: self.passes() > last, "another pass", seconds=240)

    def errors(self) -> list[str]:
        """Why reports were not written, except that the API server was not ready for a new kind."""
        errors = [line["error"] for line in self.lines("reports not written")]
        return [error for error in errors if "storage is (re)initializing" not in error]


def test_findings_are_reports_of_bounded_size_and_only_what_changes_is_written(
    plane: ControlPlane, client: Client
) -> None:
    flags, wanted = ["--open-reports", "--audit-interval=10s"], CLAIMS * TOLERATIONS
    with Keeper(plane, "observe", *flags, policy=POLICY % "deny") as process:
        process.wait_working()
        wait_until(lambda: process.passes() > 0, "a pass without the kinds")
        assert process.metric("device_taint_webhook_reports_served") == {"": 0.0}
        assert process.lines("reports not written") == []
        for definition in definitions():
            _ = client.create(CRDS, definition).object
        process.wait_all_written(wanted + 1)
        before = _assert_right(client, wanted)
        collection = path(f"{versions.GROUP}/v1", "resourceclaims", namespace=NAMESPACE)
        _ = client.delete(f"{collection}/claim-7").object
        known, began = process.actions(), process.passes()
        wait_until(lambda: process.actions() > known, "it is noticed", seconds=240)
        wait_until(lambda: process.passes() > began + 20, "two more passes", seconds=240)
        after = stored(client, REPORTS)
        assert len(changed(before, after)) == 1 == process.actions() - known
        assert sum(len(each["results"]) for each in after.values()) == wanted - TOLERATIONS
        process.set_policy(POLICY % "allow")
        wait_until(lambda: stored(client, REPORTS) == {}, "no finding, no report", seconds=240)
        assert process.errors() == []
        assert process.actions("skipped") > 0
        assert stored(client, CLUSTER_REPORTS) != {}


def _assert_right(client: Client, wanted: int) -> dict[str, Any]:
    """The reports. Whatever the worker wrote is stored: the API server drops fields that the kind does not have."""
    reports = stored(client, REPORTS)
    assert len(reports) > 4
    sizes = [len(json.dumps(each, ensure_ascii=False).encode()) for each in reports.values()]
    print(f"{len(reports)} reports of {min(sizes)} to {max(sizes)} bytes")
    for name, report in reports.items():
        assert len(json.dumps(report, ensure_ascii=False).encode()) < MEBIBYTE, name
        assert report["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "device-taint-webhook"
        assert report["source"] == "device-taint-webhook"
        assert report["summary"]["fail"] == len(report["results"])
    found = [result for each in reports.values() for result in each["results"]]
    assert len({(each["resources"][0]["name"], each["message"]) for each in found}) == len(found) == wanted
    one = found[0]
    assert (one["policy"], one["rule"], one["result"], one["severity"]) == (
        "DeviceTaintPolicy",
        "no-broken",
        "fail",
        "high",
    )
    assert one["resources"][0]["kind"] == "ResourceClaim"
    assert one["timestamp"]["seconds"] > 0
    assert one["properties"]["reason"] == "refused"
    of_cluster = [result for each in stored(client, CLUSTER_REPORTS).values() for result in each["results"]]
    assert {each["rule"] for each in of_cluster if each["resources"][0]["name"] == NAMESPACE} == {"DT011"}
    return reports
