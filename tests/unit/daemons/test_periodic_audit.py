"""The pass over what is at rest, that the worker makes from time to time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from tests.unit.commands.api_server import ApiServer, bare, serving
from tests.unit.commands.audit_runner import BROKEN, DANA, HEADER, NO_BROKEN, PLAIN, claim, template
from webhook.api.field import Path
from webhook.cluster.client.credentials import KubeConfig
from webhook.cluster.client.errors import ClusterError
from webhook.cluster.client.rest import Cluster
from webhook.daemons.periodic_audit import AuditSources, PeriodicAudit
from webhook.policy.decide import Judge, PolicyStore
from webhook.policy.document import load
from webhook.policy.match import NamespaceFacts
from webhook.telemetry.workers import AuditMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path as FilePath

NOW = datetime(2026, 6, 1, tzinfo=UTC)
GROUP = "/apis/resource.k8s.io/v1beta2"


def judge(*rules: Any) -> Judge:
    policy = load({**HEADER, "rules": list(rules)}, Path.root()).policy
    assert policy is not None
    return Judge(policy)


@pytest.fixture
def api_server(tmp_path: FilePath) -> Iterator[ApiServer]:
    tables = ApiServer()
    tables.collections = {
        f"{GROUP}/deviceclasses": [{"metadata": {"name": "odd"}, "spec": {"selectors": "none"}}],
        f"{GROUP}/resourceclaims": [bare(claim(PLAIN, name=f"c{number}")) for number in range(4)],
        f"{GROUP}/resourceclaimtemplates": [bare(template(BROKEN, author=DANA))],
    }
    tables.collections[f"{GROUP}/resourceclaims"].append(bare(claim(BROKEN, BROKEN, name="last")))
    resources = [{"name": path.rsplit("/", 1)[1]} for path in tables.collections]
    tables.objects = {GROUP: {"resources": resources}}
    with serving(tables, tmp_path):
        yield tables


@dataclass
class Pass:
    """A pass over what that server has."""

    kubeconfig: FilePath
    policies: PolicyStore = field(default_factory=PolicyStore)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.metrics = AuditMetrics(self.registry)

    def of(self, cluster: Cluster) -> PeriodicAudit:
        sources = AuditSources(self.policies, lambda name: NamespaceFacts(name, {}), lambda: NOW)
        return PeriodicAudit(cluster, sources, self.metrics, 600.0)

    def look(self) -> None:
        async def looked() -> None:
            async with Cluster(KubeConfig(str(self.kubeconfig))) as cluster:
                await self.of(cluster).look()

        asyncio.run(looked())

    def samples(self, name: str) -> dict[tuple[str, ...], float]:
        found = {}
        for metric in self.registry.collect():
            for sample in metric.samples:
                if sample.name == f"device_taint_webhook_audit_{name}":
                    found[tuple(sample.labels.values())] = sample.value
        return found


@pytest.fixture
def audit(tmp_path: FilePath) -> Pass:
    return Pass(tmp_path / "kubeconfig")


@pytest.mark.usefixtures("api_server")
def test_objects_that_would_be_refused_are_counted_by_rule_and_each_once(audit: Pass) -> None:
    audit.policies.use(judge(NO_BROKEN))
    audit.look()
    assert audit.samples("findings") == {
        ("resourceclaims", "refused", "no-broken"): 1.0,
        ("resourceclaimtemplates", "refused", "no-broken"): 1.0,
    }
    assert audit.samples("objects") == {("resourceclaims",): 5.0, ("resourceclaimtemplates",): 1.0}
    assert audit.samples("completed_timestamp_seconds") == {(): NOW.timestamp()}


@pytest.mark.usefixtures("api_server")
def test_what_only_the_candidate_would_refuse_is_told_apart_and_gone_once_it_is(audit: Pass) -> None:
    audit.policies.use_candidate(judge(NO_BROKEN))
    audit.look()
    assert set(audit.samples("findings")) == {
        ("resourceclaims", "refusedByCandidate", "no-broken"),
        ("resourceclaimtemplates", "refusedByCandidate", "no-broken"),
    }
    audit.policies.use_candidate(None)
    audit.look()
    assert audit.samples("findings") == {}


def test_a_cluster_that_does_not_answer_fails_the_pass_and_keeps_the_last_figures(
    api_server: ApiServer, audit: Pass
) -> None:
    audit.policies.use(judge(NO_BROKEN))
    audit.look()
    before = audit.samples("findings")
    api_server.forgetful = True  # the second page is gone
    with pytest.raises(ClusterError):
        audit.look()
    assert audit.samples("findings") == before


def test_a_failed_pass_is_counted_and_a_changed_policy_begins_another(api_server: ApiServer, audit: Pass) -> None:
    api_server.forgetful = True

    async def run() -> None:
        async with Cluster(KubeConfig(str(audit.kubeconfig))) as cluster, asyncio.timeout(60):
            work = asyncio.create_task(audit.of(cluster).run())
            while audit.samples("failures_total") != {(): 1.0}:  # noqa: ASYNC110 -- a metric tells nobody
                await asyncio.sleep(0.01)
            api_server.forgetful = False
            audit.policies.use(judge(NO_BROKEN))
            while not audit.samples("findings"):  # noqa: ASYNC110 -- likewise
                await asyncio.sleep(0.01)
            work.cancel()

    asyncio.run(run())
    assert audit.samples("failures_total") == {(): 1.0}
