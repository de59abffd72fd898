"""Where the serving certificate comes from, and whether API servers are registered to call. Part of `serve`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NoReturn

from webhook.api.names import PROGRAM
from webhook.certificates.settings import FileSettings
from webhook.certificates.source import FileSource
from webhook.certificates.stores import StoreError
from webhook.runtime import Stage

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from webhook.certificates.settings import SelfManagedSettings
    from webhook.certificates.source import CertificateSource
    from webhook.cluster.ca_bundle import WebhookConfiguration
    from webhook.cluster.client.rest import Cluster
    from webhook.server.probes import Checks
    from webhook.telemetry.metrics import Metrics

_REGISTRATION_SECONDS: Final = 30.0


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
    from webhook.cluster.tls_secret import SecretObject  # noqa: PLC0415

    assert cluster is not None, "flags exclude each other"
    secret = SecretObject(cluster, *settings.secret)
    source = SelfManagedSource(settings, secret, _configurations(settings, cluster), now=now, metrics=metrics)
    checks.add("certificate", lambda: source.problem)
    checks.inform("certificate renewal", lambda: source.remark)
    return source


def registration_stage(settings: FileSettings | SelfManagedSettings, cluster: Cluster, metrics: Metrics) -> Stage:
    """Whether API servers are registered to call us. No stage waits for it: only a gauge depends on it.

    What cannot be read leaves the gauge as it was, so missing rights are no alert.
    """

    async def follow() -> NoReturn:
        configurations = _configurations(settings, cluster)
        while True:
            for each in configurations:
                with contextlib.suppress(StoreError):
                    metrics.set_registered(each.resource, registered=await each.is_registered())
            await asyncio.sleep(_REGISTRATION_SECONDS)

    return Stage(name="registration", work=follow)


def _configurations(settings: FileSettings | SelfManagedSettings, cluster: Cluster) -> list[WebhookConfiguration]:
    from webhook.cluster.ca_bundle import MUTATING, VALIDATING, WebhookConfiguration  # noqa: PLC0415 -- as above

    names = (PROGRAM, PROGRAM)
    if not isinstance(settings, FileSettings):
        names = settings.validating_configuration, settings.mutating_configuration
    return [WebhookConfiguration(cluster, each, name) for each, name in zip((VALIDATING, MUTATING), names, strict=True)]
