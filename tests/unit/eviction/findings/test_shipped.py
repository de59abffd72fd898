"""What is shipped beside the code: alerts, manifests, and the schema of the policy."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.unit.policy.documents import make_document
from webhook.api.field import Path as FieldPath
from webhook.policy.document import load

MANIFESTS = Path(__file__).parents[4] / "manifests"


def documents() -> list[dict[str, object]]:
    """All objects in the manifests."""
    files = sorted(MANIFESTS.rglob("*.yaml"))
    return [each for file in files for each in yaml.safe_load_all(file.read_text()) if isinstance(each, dict)]


def test_alert_about_evictions_that_are_stuck_goes_by_the_oldest_pod_that_is_due() -> None:
    """H4: evictions for one rule do not hide that another one is stuck, and pods blocked by budgets count as well."""
    text = (MANIFESTS / "components/monitoring/alerts.yaml").read_text()
    _, _, alert = text.partition("alert: DeviceTaintWebhookEvictionStuck")
    assert "oldest_due_seconds" in alert.partition("- alert:")[0]


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="eviction.md L9")
def test_requests_for_the_lease_have_a_flow_schema() -> None:
    """L9: renewals of the lease are not queued behind the workloads of the cluster, nor behind our own evictions."""
    assert "FlowSchema" in [each.get("kind") for each in documents()]


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="eviction.md L6")
def test_grace_period_of_zero_is_refused_or_gets_a_warning() -> None:
    """L6: a deletion by force frees a device that containers still hold, so it takes a period of a second at least."""
    loaded = load(make_document(eviction=[{"gracePeriodSeconds": 0}]), FieldPath.root())
    found = [*loaded.errors, *[warning.error for warning in loaded.warnings]]
    assert any("gracePeriodSeconds" in str(error.field) for error in found)
