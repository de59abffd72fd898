"""Where the serving certificate comes from. The server knows CertificateSource and nothing else about certificates."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from webhook.certificates.contexts import serving_context
from webhook.certificates.parsing import Unusable, parsing
from webhook.certificates.rotation import late_from
from webhook.certificates.settings import FileSettings
from webhook.certificates.stored import time_text
from webhook.flowcontrol.loop import LastingFault
from webhook.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

_SIGNING_KEYS: Final = (RSAPrivateKey, EllipticCurvePrivateKey, Ed25519PrivateKey, Ed448PrivateKey)


class CertificateSource(ABC):
    """Something that has a certificate to serve and keeps it fresh."""

    def __init__(
        self, *, now: Callable[[], datetime], metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`now` gives the wall-clock time in UTC, `clock` seconds that only go forward."""
        self._now = now
        self._metrics = metrics
        self._context: ssl.SSLContext | None = None
        self._fault = LastingFault(clock)
        self._loaded = asyncio.Event()

    @property
    def context(self) -> ssl.SSLContext | None:
        """The newest context that is fit to be served; None until there was one. Asked at each handshake."""
        return self._context

    @property
    @abstractmethod
    def problem(self) -> str | None:
        """Why the process is not ready, or None."""

    @property
    @abstractmethod
    def remark(self) -> str | None:
        """What should be fixed before it becomes a problem, or None."""

    async def loaded(self) -> None:
        """Returns once there is a context; never if there never is."""
        await self._loaded.wait()

    @abstractmethod
    async def run(self) -> None:
        """Keeps the certificate fresh; returns only when cancelled."""


@dataclass(frozen=True, slots=True)
class _Material:
    """The content of the files, to compare: equal content needs no new context."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None


class FileSource(CertificateSource):
    """A pair of files whose content is polled.

    A new context is built beside the one in use and swapped in only when the pair parses, belongs together and is
    valid now. A half-written pair is thus kept out and tried again at the next poll.
    """

    def __init__(
        self,
        settings: FileSettings,
        *,
        now: Callable[[], datetime],
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now` gives the wall-clock time in UTC, `clock` seconds that only go forward."""
        super().__init__(now=now, metrics=metrics, clock=clock)
        self._settings = settings
        self._material: _Material | None = None
        self._leaf: x509.Certificate | None = None

    @property
    def problem(self) -> str | None:
        """There is no certificate yet, or the one in use has ended.

        Not sooner: all replicas read the same Secret, so all of them would leave while they still serve well.
        """
        if self._leaf is None:
            return f"no certificate: {self._fault.text or 'not read yet'}"
        end = self._leaf.not_valid_after_utc
        if self._now() < end:
            return None
        return (
            f"the certificate expired at {time_text(end)} and was not replaced: {self._fault.text or 'files unchanged'}"
        )

    @property
    def remark(self) -> str | None:
        """What should be mended before it becomes a problem: the end is near, or a dozen failures in a row."""
        if self._leaf is None:
            return None
        end, left = self._leaf.not_valid_after_utc, self._leaf.not_valid_after_utc - self._now()
        # Short-lived certificates are renewed late in absolute terms, so for them it is a share of their life.
        if left <= late_from(end - self._leaf.not_valid_before_utc):
            ends = "expires" if left > timedelta() else "expired"
            why = self._fault.text or "files unchanged"
            return f"the certificate {ends} at {time_text(end)} and was not replaced: {why}"
        if self._fault.attempts >= self._settings.tolerated_failures:
            return f"{self._fault.attempts} failures in a row to load the changed certificate: {self._fault.text}"
        return None

    async def run(self) -> None:
        """Polls the files; returns only when cancelled."""
        settings = self._settings
        while True:
            self.poll()
            await asyncio.sleep(settings.poll_seconds if self._context else settings.first_poll_seconds)

    def poll(self) -> None:
        """Reads the files once, and replaces the context if they changed and are usable."""
        try:
            material = self._read()
            if material != self._material:
                leaf = usable_leaf(material.certificate, material.key, self._now())
                context = self._build(material)
                self._swap(material, leaf, context)
        except (OSError, Unusable) as error:
            self._fail(error)
        else:
            self._fault.ended()

    def _read(self) -> _Material:
        settings = self._settings
        return _Material(
            settings.certificate_file.read_bytes(),
            settings.key_file.read_bytes(),
            settings.client_ca_file.read_bytes() if settings.client_ca_file else None,
        )

    def _build(self, material: _Material) -> ssl.SSLContext:
        """The context for these very bytes: Python loads pairs from paths only, so the files are read again after."""
        settings = self._settings
        client_ca = None if material.client_ca is None else client_ca_text(material.client_ca)
        context = serving_context(settings.certificate_file, settings.key_file, client_ca, settings.cipher_suites)
        if self._read() != material:
            raise Unusable("the files changed while they were read")
        return context

    def _swap(self, material: _Material, leaf: x509.Certificate, context: ssl.SSLContext) -> None:
        if self._leaf is not None and leaf != self._leaf:
            self._metrics.certificate_rotations.labels("leaf").inc()
        self._material, self._leaf, self._context = material, leaf, context
        self._loaded.set()
        self._metrics.certificate_expiry.set(leaf.not_valid_after_utc.timestamp())
        self._metrics.certificate_not_before.set(leaf.not_valid_before_utc.timestamp())
        log.info(
            "certificate loaded",
            extra={
                "file": str(self._settings.certificate_file),
                "serial": f"{leaf.serial_number:x}",
                "notAfter": time_text(leaf.not_valid_after_utc),
            },
        )

    def _fail(self, error: Exception) -> None:
        """Counts each failure, and logs it when it is new and every five minutes."""
        text = f"{error}"
        self._metrics.certificate_reload_failures.inc()
        if self._fault.failed(text):
            log.warning("certificate not loaded", extra={"error": text, **self._fault.fields})


def usable_leaf(certificate: bytes, key: bytes, now: datetime) -> x509.Certificate:
    """The first certificate of a chain in PEM, if the key belongs to it and it is valid now; raises Unusable."""
    with parsing("the certificate cannot be read"):
        leaf = x509.load_pem_x509_certificates(certificate)[0]
        public_key = leaf.public_key()
        # Parsed when they are first read; clients refuse a certificate in which one is malformed or occurs twice.
        leaf.extensions, leaf.serial_number, leaf.not_valid_before_utc, leaf.not_valid_after_utc  # noqa: B018
    with parsing("the key cannot be read"):
        private = load_pem_private_key(key, password=None)
    if not isinstance(private, _SIGNING_KEYS):
        raise Unusable("the key must be one for RSA, ECDSA or EdDSA: no other kind signs TLS handshakes")
    if private.public_key() != public_key:
        raise Unusable("the key does not belong to the certificate")
    if now < leaf.not_valid_before_utc:
        raise Unusable(f"the certificate is valid only from {time_text(leaf.not_valid_before_utc)} on")
    if now >= leaf.not_valid_after_utc:
        raise Unusable(f"the certificate expired at {time_text(leaf.not_valid_after_utc)}")
    return leaf


def client_ca_text(pem: bytes) -> str:
    """CAs for clients as a context takes them; raises Unusable."""
    with parsing("the client CA cannot be read"):
        x509.load_pem_x509_certificates(pem)
    return pem.decode("ascii", "ignore")  # comments between the blocks may be in any language
