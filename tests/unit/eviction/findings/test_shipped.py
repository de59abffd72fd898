"""What is shipped beside the code: alerts, manifests, and the schema of the policy."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.unit.policy.documents import make_document
from webhook.api.field import Path as FieldPath
from webhook.policy.document import load

MANIFESTS = Path(__file__).parents[4] / "manifests"
EVICT = MANIFESTS / "components/evict"
LABELS_WITH_THE_NAME = ("name", "instance", "part-of")


def documents() -> list[dict[str, object]]:
    """All objects in the manifests; those of the chart are made of them."""
    files = sorted(file for file in MANIFESTS.rglob("*.yaml") if "helm" not in file.relative_to(MANIFESTS).parts)
    return [each for file in files for each in yaml.safe_load_all(file.read_text()) if isinstance(each, dict)]


def test_alert_about_evictions_that_are_stuck_goes_by_the_oldest_pod_that_is_due() -> None:
    """H4: evictions for one rule do not hide that another one is stuck, and pods blocked by budgets count as well."""
    text = (MANIFESTS / "components/monitoring/alerts.yaml").read_text()
    _, _, alert = text.partition("alert: DeviceTaintWebhookEvictionStuck")
    assert "oldest_due_seconds" in alert.partition("- alert:")[0]


def test_requests_for_the_lease_have_a_flow_schema() -> None:
    """L9: renewals of the lease are not queued behind the workloads of the cluster, nor behind our own evictions."""
    assert "FlowSchema" in [each.get("kind") for each in documents()]


def test_flow_schema_is_for_exactly_what_the_role_allows_on_leases() -> None:
    """L9: the account of the worker, its namespace, and no other request of it, such as an eviction."""
    assert "flow-schema.yaml" in yaml.safe_load((EVICT / "kustomization.yaml").read_text())["resources"]
    schema = yaml.safe_load((EVICT / "flow-schema.yaml").read_text())
    objects = [each for each in yaml.safe_load_all((EVICT / "access.yaml").read_text()) if each]
    [account] = [each["metadata"] for each in objects if each["kind"] == "ServiceAccount"]
    [role] = [each for each in objects if each["kind"] == "Role"]
    leases = [each for each in role["rules"] if each["resources"] == ["leases"]]
    assert schema["spec"]["priorityLevelConfiguration"] == {"name": "leader-election"}
    [rule] = schema["spec"]["rules"]
    assert rule["subjects"] == [
        {"kind": "ServiceAccount", "serviceAccount": {"name": account["name"], "namespace": account["namespace"]}}
    ]
    [requests] = rule["resourceRules"]
    assert set(requests["verbs"]) == {verb for each in leases for verb in each["verbs"]}
    assert (requests["apiGroups"], requests["resources"]) == (leases[0]["apiGroups"], ["leases"])
    assert requests["namespaces"] == [role["metadata"]["namespace"]]


@pytest.mark.parametrize("folder", ["evict", "patch-controller"])
def test_flow_schema_moves_with_the_namespace(folder: str) -> None:
    """L9: kustomize knows no namespace in it; tests/apiserver/manifests render it."""
    schema = yaml.safe_load((MANIFESTS / "components" / folder / "flow-schema.yaml").read_text())
    transformer = yaml.safe_load((MANIFESTS / "transformers/namespace/replacements.yaml").read_text())
    name = schema["metadata"]["name"]
    [target] = [each for each in transformer["replacements"][0]["targets"] if each["select"].get("name") == name]
    assert target["select"]["kind"] == "FlowSchema"
    for path in target["fieldPaths"]:
        value = schema
        for part in path.split("."):
            value = value[int(part)] if isinstance(value, list) else value[part]
        assert value == "device-taint-webhook"
    assert str(schema).count("'device-taint-webhook'") - len(LABELS_WITH_THE_NAME) == len(target["fieldPaths"])
    scoped = yaml.safe_load((MANIFESTS / "transformers/namespace/cluster-scoped.yaml").read_text())["target"]
    assert schema["kind"] in scoped["kind"].split("|")
    assert schema["apiVersion"].partition("/")[0] in scoped["group"].split("|")


def test_grace_period_of_zero_is_refused_or_gets_a_warning() -> None:
    """L6: a deletion by force frees a device that containers still hold, so it takes a period of a second at least."""
    loaded = load(make_document(eviction=[{"gracePeriodSeconds": 0}]), FieldPath.root())
    found = [*loaded.errors, *[warning.error for warning in loaded.warnings]]
    assert any("gracePeriodSeconds" in str(error.field) for error in found)
