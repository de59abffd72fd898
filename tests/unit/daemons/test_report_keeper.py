"""Reports of one pass after the other, in a cluster that is a dictionary."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.builders import decoded, make_claim, make_meta, make_rule
from tests.unit.cluster.acting import RULES
from webhook.admission.audit import AtRest, AuditReason, Author
from webhook.api.field import Finding, Path, Severity, forbidden
from webhook.api.meta import NamespacedName
from webhook.cluster.client.errors import ClusterError, Refused, Unavailable
from webhook.daemons.report_keeper import ReportKeeper, ReportSources
from webhook.eviction.expiry import StaleTaints
from webhook.inventory.state import Inventory
from webhook.policy.store import PolicyStore
from webhook.reports.changes import StoredReport
from webhook.reports.objects import DIGEST, ReportId
from webhook.telemetry.reports import ReportMetrics

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
CLUSTER = ReportId("", "device-taint-webhook")


class KeptReports:
    """What an API server would keep."""

    def __init__(self) -> None:
        self.served = True
        self.objects: dict[ReportId, dict[str, Any]] = {}
        self.generations: dict[ReportId, int] = {}
        self.refuses: dict[str, ClusterError] = {}
        """Errors by namespace."""
        self.ending: set[str] = set()
        """Namespaces that are being deleted."""
        self.writes = 0

    async def is_served(self) -> bool:
        if "*" in self.refuses:
            raise self.refuses["*"]
        return self.served

    async def stored(self) -> dict[ReportId, StoredReport]:
        return {identity: self._stored(identity) for identity in self.objects}

    def _stored(self, identity: ReportId) -> StoredReport:
        digest = self.objects[identity]["metadata"]["annotations"][DIGEST]
        return StoredReport("u", self.generations[identity], digest)

    async def apply(self, identity: ReportId, manifest: dict[str, Any]) -> StoredReport | None:
        if identity.namespace in self.ending:
            return None
        if identity.namespace in self.refuses:
            raise self.refuses[identity.namespace]
        self.writes += 1
        self.objects[identity] = manifest
        self.generations[identity] = self.generations.get(identity, 0) + 1
        return self._stored(identity)

    async def delete(self, identity: ReportId, uid: str) -> None:
        assert uid == "u"
        del self.objects[identity]


@dataclass
class Passes:
    """A keeper, and what it depends on."""

    cluster: KeptReports = field(default_factory=KeptReports)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    inventory: Inventory = field(default_factory=Inventory)
    policies: PolicyStore = field(default_factory=PolicyStore)
    now: datetime = NOW
    leads: bool = True

    def __post_init__(self) -> None:
        sources = ReportSources(
            inventory=self.inventory,
            policies=self.policies,
            config_map=NamespacedName("ns", "policy"),
            stale=StaleTaints,
            rules=RULES,
            leads=lambda: self.leads,
            now=lambda: self.now,
        )
        self.keeper = ReportKeeper(self.cluster, sources, ReportMetrics(self.registry), 0.0)  # type: ignore[arg-type]

    def make(self, **found: list[str]) -> None:
        """One pass; names of claims that violate the policy, by namespace."""
        self.keeper.begin()
        for namespace, names in found.items():
            for name in names:
                error = forbidden(Path.root().child("spec"), "no")
                finding = Finding(Severity.DENY, error, rule="no-broken")
                claim = make_claim(meta=make_meta(name, namespace=namespace))
                self.keeper.add(claim, [AtRest("resourceclaims", AuditReason.REFUSED, Author.UNKNOWN, finding)])
        asyncio.run(self.keeper.finish())

    def names(self) -> dict[str, list[str]]:
        return {
            identity.namespace: [each["resources"][0]["name"] for each in manifest["results"]]
            for identity, manifest in self.cluster.objects.items()
        }

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"device_taint_webhook_reports_{name}", labels)


@pytest.fixture
def passes() -> Passes:
    return Passes()


def test_findings_become_reports_of_their_namespaces(passes: Passes) -> None:
    passes.make(train=["a", "b"], serve=["c"])
    assert {namespace: sorted(names) for namespace, names in passes.names().items()} == {
        "train": ["a", "b"],
        "serve": ["c"],
    }
    assert passes.sample("objects", kind="Report") == 2
    assert passes.sample("results") == 3
    assert passes.sample("served") == 1


def test_a_pass_that_finds_the_same_writes_nothing(passes: Passes) -> None:
    passes.make(train=["a"], serve=["c"])
    passes.now += timedelta(minutes=10)
    passes.make(train=["a"], serve=["c"])
    assert passes.cluster.writes == 2
    passes.make(train=["a", "b"], serve=["c"])
    assert passes.cluster.writes == 3
    assert passes.sample("actions_total", action="written") == 3


def test_a_finding_keeps_the_time_at_which_it_was_found_first(passes: Passes) -> None:
    passes.make(train=["a"])
    passes.now += timedelta(minutes=10)
    passes.make(train=["a", "b"])
    [manifest] = passes.cluster.objects.values()
    times = {each["resources"][0]["name"]: each["timestamp"]["seconds"] for each in manifest["results"]}
    assert times == {"a": NOW.timestamp(), "b": NOW.timestamp() + 600}


def test_a_report_without_findings_is_deleted(passes: Passes) -> None:
    passes.make(train=["a"], serve=["c"])
    passes.make(serve=["c"])
    assert passes.names() == {"serve": ["c"]}
    assert passes.sample("actions_total", action="deleted") == 1


def test_a_report_that_was_edited_is_written_again(passes: Passes) -> None:
    passes.make(train=["a"])
    [identity] = passes.cluster.objects
    passes.cluster.generations[identity] += 1
    passes.make(train=["a"])
    assert passes.cluster.writes == 2


def test_rules_and_the_policy_have_reports_too(passes: Passes) -> None:
    passes.inventory.apply(None, decoded(make_rule(selector={}))[0])
    passes.policies.reject("rules: Required value")
    passes.make()
    assert passes.names() == {"": ["unhealthy-gpu"], "ns": ["policy"]}
    assert passes.sample("objects", kind="ClusterReport") == 1


def test_without_the_kinds_nothing_is_written_or_logged_until_they_come(
    passes: Passes, caplog: pytest.LogCaptureFixture
) -> None:
    passes.cluster.served = False
    with caplog.at_level(logging.DEBUG, logger="webhook"):
        passes.make(train=["a"])
    assert passes.cluster.objects == {}
    assert caplog.records == []
    assert passes.sample("served") == 0
    passes.cluster.served = True
    passes.make(train=["a"])
    assert passes.names() == {"train": ["a"]}


def test_a_process_without_the_lease_writes_nothing(passes: Passes) -> None:
    passes.leads = False
    passes.make(train=["a"])
    assert passes.cluster.objects == {}


def test_a_refused_write_is_logged_once_and_the_others_are_tried(
    passes: Passes, caplog: pytest.LogCaptureFixture
) -> None:
    passes.cluster.refuses = {"a": Refused("403: forbidden", code=403)}
    with caplog.at_level(logging.WARNING, logger="webhook"):
        for _ in range(3):
            passes.make(a=["x"], b=["y"])
    assert passes.names() == {"b": ["y"]}
    assert [record.getMessage() for record in caplog.records] == ["reports not written"]
    assert passes.sample("actions_total", action="failed") == 3
    passes.cluster.refuses = {}
    passes.make(a=["x"], b=["y"])
    assert passes.names() == {"a": ["x"], "b": ["y"]}


def test_a_namespace_that_is_being_deleted_fails_no_pass(passes: Passes, caplog: pytest.LogCaptureFixture) -> None:
    passes.cluster.ending = {"a"}
    with caplog.at_level(logging.DEBUG, logger="webhook"):
        passes.make(a=["x"], b=["y"])
    assert passes.names() == {"b": ["y"]}
    assert caplog.records == []
    assert passes.sample("actions_total", action="skipped") == 1
    assert passes.sample("actions_total", action="failed") == 0


def test_an_api_server_that_does_not_answer_fails_no_pass(passes: Passes) -> None:
    passes.cluster.refuses = {"*": Unavailable("no answer")}
    passes.make(train=["a"])
    assert passes.sample("actions_total", action="failed") == 1
    passes.cluster.refuses = {}
    passes.make()
    assert passes.names() == {}, "findings of a pass that failed are not those of the next"


def test_findings_beyond_the_most_are_counted(passes: Passes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.daemons.report_keeper._RESULTS_MOST", 2)
    passes.make(train=["a", "b", "c"])
    assert passes.sample("results") == 2
    assert passes.sample("results_left_out") == 1
