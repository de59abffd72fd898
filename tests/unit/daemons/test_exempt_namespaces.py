"""Namespaces about which the registered webhook is never asked, in the audit of the worker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from tests.unit.commands.api_server import ApiServer, bare, serving
from tests.unit.commands.audit_runner import BROKEN, NO_BROKEN, claim
from tests.unit.daemons.test_periodic_audit import GROUP, judge
from webhook.cluster.client.credentials import KubeConfig
from webhook.cluster.client.rest import Cluster
from webhook.config.workers import parse_evict
from webhook.daemons.periodic_audit import AuditSources, PeriodicAudit
from webhook.policy.decide import PolicyStore
from webhook.policy.match import NamespaceFacts
from webhook.telemetry.workers import AuditMetrics

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def test_claims_of_exempt_namespaces_are_no_findings(tmp_path: Path) -> None:
    exempt = parse_evict("evict", ["--exempt-namespaces=infra", "--namespace=mine"], {}).exempt_namespaces
    claims = [bare(claim(BROKEN)) for _ in range(4)]
    for each, name in zip(claims, ("ml", "infra", "mine", "kube-system"), strict=True):
        each["metadata"]["namespace"] = name
    tables = ApiServer()
    tables.collections = {
        f"{GROUP}/deviceclasses": [],
        f"{GROUP}/resourceclaims": claims,
        f"{GROUP}/resourceclaimtemplates": [],
    }
    tables.objects = {GROUP: {"resources": [{"name": path.rsplit("/", 1)[1]} for path in tables.collections]}}
    policies, registry = PolicyStore(), CollectorRegistry()
    policies.use(judge(NO_BROKEN))
    sources = AuditSources(policies, lambda name: NamespaceFacts(name, {}), lambda: NOW, exempt)

    async def look() -> None:
        async with Cluster(KubeConfig(str(tmp_path / "kubeconfig"))) as cluster:
            await PeriodicAudit(cluster, sources, AuditMetrics(registry), 600.0).look()

    with serving(tables, tmp_path):
        asyncio.run(look())
    labels = {"resource": "resourceclaims", "reason": "refused", "rule": "no-broken"}
    assert registry.get_sample_value("device_taint_webhook_audit_findings", labels) == 2
    looked = {"resource": "resourceclaims"}
    assert registry.get_sample_value("device_taint_webhook_audit_objects", looked) == 2, "as in the verb"


def test_worker_passes_over_what_the_shipped_registration_leaves_out() -> None:
    assert parse_evict("evict", [], {"POD_NAMESPACE": "taints"}).exempt_namespaces == ("taints", "kube-system")
