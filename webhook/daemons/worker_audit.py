"""The worker's periodic audit, with what is made of its findings: metrics always, OpenReports on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.daemons.periodic_audit import periodic_audit
from webhook.daemons.report_keeper import report_keeper
from webhook.telemetry.audit import AuditMetrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from webhook.cluster.client.throttled import ThrottledCluster
    from webhook.config.evict import EvictSettings
    from webhook.daemons.periodic_audit import AuditSources, PeriodicAudit
    from webhook.daemons.report_keeper import ReportSources


def worker_audit(
    settings: EvictSettings,
    cluster: ThrottledCluster,
    sources: AuditSources,
    reports: ReportSources,
    registry: CollectorRegistry,
) -> PeriodicAudit | None:
    """The audit that the settings ask for; None without an interval."""
    interval = settings.audit_interval
    if interval is None:
        return None
    seconds = interval.total_seconds()
    metrics = AuditMetrics(registry)
    metrics.set_interval(seconds)
    keeper = report_keeper(cluster, reports, registry) if settings.open_reports else None
    return periodic_audit(cluster, sources, metrics, seconds, keeper)
