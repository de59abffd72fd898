"""Where the serving certificate comes from: files, or a CA of our own in the cluster. Part of `serve`'s composition."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from webhook.certificates.settings import FileSettings
from webhook.certificates.source import FileSource
from webhook.certificates.stores import Stored, StoredBundles, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from webhook.certificates.settings import SelfManagedSettings
    from webhook.certificates.source import CertificateSource
    from webhook.cluster.ca_bundle import WebhookConfiguration
    from webhook.cluster.client.rest import Cluster
    from webhook.cluster.tls_secret import SecretObject
    from webhook.server.probes import Checks
    from webhook.telemetry.metrics import Metrics

_T = TypeVar("_T")


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
    from webhook.cluster.ca_bundle import MUTATING, VALIDATING, WebhookConfiguration  # noqa: PLC0415
    from webhook.cluster.tls_secret import SecretObject  # noqa: PLC0415

    assert cluster is not None, "flags exclude each other"
    configurations = (
        WebhookConfiguration(cluster, VALIDATING, settings.validating_configuration),
        WebhookConfiguration(cluster, MUTATING, settings.mutating_configuration),
    )
    secret = _Secret(SecretObject(cluster, *settings.secret))
    bundles = [_Configuration(each) for each in configurations]
    source = SelfManagedSource(settings, secret, bundles, now=now, metrics=metrics)
    checks.add("certificate", lambda: source.problem)
    checks.inform("certificate renewal", lambda: source.remark)
    return source


class _Secret:
    """A Secret as the certificates want it."""

    def __init__(self, secret: SecretObject) -> None:
        self._secret = secret

    async def read(self) -> Stored:
        return Stored(*await _told(self._secret.read()))

    async def write(self, data: Mapping[str, bytes], version: str) -> bool:
        return await _told(self._secret.write(data, version))


class _Configuration:
    """A webhook configuration as the certificates want it."""

    def __init__(self, configuration: WebhookConfiguration) -> None:
        self._configuration = configuration
        self.name = configuration.name

    async def read(self) -> StoredBundles | None:
        found = await _told(self._configuration.read())
        return StoredBundles(*found) if found is not None else None

    async def write(self, bundle: bytes, version: str) -> bool:
        return await _told(self._configuration.write(bundle, version))


async def _told(asked: Awaitable[_T]) -> _T:
    """What was answered; the cluster's errors in the words of the other room, which may not know it."""
    from webhook.cluster.client.errors import ClusterError  # noqa: PLC0415 -- as above

    try:
        return await asked
    except ClusterError as error:
        raise StoreError(str(error)) from error
