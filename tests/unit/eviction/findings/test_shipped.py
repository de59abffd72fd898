"""What is shipped beside the code: alerts and manifests."""

from __future__ import annotations

from pathlib import Path

import yaml

MANIFESTS = Path(__file__).parents[4] / "manifests"
EVICT = MANIFESTS / "components/evict"


def test_alert_about_evictions_that_are_stuck_goes_by_the_oldest_pod_that_is_due() -> None:
    """H4: evictions for one rule do not hide that another one is stuck, and pods blocked by budgets count as well."""
    text = (MANIFESTS / "components/monitoring/alerts.yaml").read_text()
    _, _, alert = text.partition("alert: DeviceTaintWebhookEvictionStuck")
    assert "oldest_due_seconds" in alert.partition("- alert:")[0]


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
