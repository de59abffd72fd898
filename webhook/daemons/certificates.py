"""Where the serving certificate comes from: files, or a CA of our own in the cluster. Part of `serve`'s composition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.certificates.settings import FileSettings
from webhook.certificates.source import FileSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from webhook.certificates.settings import SelfManagedSettings
    from webhook.certificates.source import CertificateSource
    from webhook.cluster.client.rest import Cluster
    from webhook.server.probes import Checks
    from webhook.telemetry.metrics import Metrics


def certificate_source(
    settings: FileSettings | SelfManagedSettings,
    cluster: Cluster | None,
    checks: Checks,
    *,
    now: Callable[[], datetime],
    metrics: Metrics,
) -> CertificateSource:
    """The source that the settings ask for, and its checks; the cluster is needed only if it is self-managed."""
    if isinstance(settings, FileSettings):
        files = FileSource(settings, now=now, metrics=metrics)
        checks.add("certificate", lambda: files.problem)
        checks.inform("certificate renewal", lambda: files.remark)
        return files
    # Here and not above: with files there may be no cluster, and its client brings its libraries.
    from webhook.certificates.self_managed import SelfManagedSource  # noqa: PLC0415
    from webhook.cluster.certificate_objects import MUTATING, VALIDATING, SecretObject, WebhookConfiguration  # noqa: PLC0415

    assert cluster is not None, "flags exclude each other"
    configurations = (
        WebhookConfiguration(cluster, VALIDATING, settings.validating_configuration),
        WebhookConfiguration(cluster, MUTATING, settings.mutating_configuration),
    )
    secret = SecretObject(cluster, *settings.secret)
    source = SelfManagedSource(settings, secret, configurations, now=now, metrics=metrics)
    checks.add("certificate", lambda: source.problem)
    checks.inform("certificate renewal", lambda: source.remark)
    return source
