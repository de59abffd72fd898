"""Where the serving certificate comes from: files, or a CA of our own in a Secret.

The server knows CertificateSource and nothing else about certificates. Every replica that manages its own runs the same
loop: read what is stored, take the next step of `rotation` if there is one, read again.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import ClassVar, Final, assert_never

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from webhook.api.meta import format_time
from webhook.certificates.authority import SKEW, Authority
from webhook.certificates.contexts import client_ca_text, pair_context, serving_context
from webhook.certificates.parsing import Unusable, parsing
from webhook.certificates.rotation import (
    FIELDS,
    Authorities,
    Forget,
    Garbled,
    Keep,
    Leaf,
    Make,
    Plan,
    Promote,
    Spread,
    Step,
    Trust,
    alive,
    authorities_in,
    certificates_in,
    data_of,
    is_early,
    late_from,
    leaf_signer,
    next_step,
    signer_of,
    trusted_since,
)
from webhook.certificates.settings import (
    BundleStore,
    FileSettings,
    SecretStore,
    SelfManagedSettings,
    StoredBundles,
    StoredSecret,
    StoreError,
)
from webhook.flowcontrol.loop import LastingFault
from webhook.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

_NAME: Final = "device-taint-webhook CA"
_STEPS: Final = 12
"""More than any way from one state to its end takes, with a few steps that others were quicker to take."""
_SIGNING_KEYS: Final = (RSAPrivateKey, EllipticCurvePrivateKey, Ed25519PrivateKey, Ed448PrivateKey)


class CertificateSource(ABC):
    """Something that has a certificate to serve and keeps it fresh."""

    _renewed: ClassVar[str]
    """The word for what a certificate near its end was not."""
    _no_fault: ClassVar[str]
    """Why it was not, if there is no fault."""

    def __init__(
        self,
        settings: FileSettings | SelfManagedSettings,
        *,
        now: Callable[[], datetime],
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now` gives the wall-clock time in UTC, `clock` seconds that only go forward."""
        self._settings = settings
        self._now = now
        self._metrics = metrics
        self._context: ssl.SSLContext | None = None
        self._leaf: Leaf | x509.Certificate | None = None
        self._ends: datetime | None = None
        self._late = timedelta()
        self._client_ca: bytes | None = None
        self._fault = LastingFault(clock)
        self._loaded = asyncio.Event()

    @property
    def context(self) -> ssl.SSLContext | None:
        """The newest context that is fit to be served; None until there was one. Asked at each handshake."""
        return self._context

    @property
    def problem(self) -> str | None:
        """Why the process is not ready, or None: there is no certificate yet, or the one in use has ended.

        Not sooner: all replicas read the same Secret, so all of them would leave while they still serve well.
        """
        return self._ending(timedelta()) if self._ends else f"no certificate: {self._fault.text or 'not read yet'}"

    @property
    def remark(self) -> str | None:
        """What should be fixed before it becomes a problem, or None."""
        return self._ending(self._late)

    async def loaded(self) -> None:
        """Return once there is a context; never if there never is."""
        await self._loaded.wait()

    async def run(self) -> None:
        """Keep the certificate fresh; return only when cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._settings.poll_seconds if self._context else self._settings.first_poll_seconds)

    @abstractmethod
    async def look(self) -> None:
        """Do what is due. Faults are counted, and logged when they are new and every five minutes."""

    def _serve(
        self, context: ssl.SSLContext, leaf: Leaf | x509.Certificate, begins: datetime, ends: datetime, late: timedelta
    ) -> None:
        """Have new handshakes use this context; `late` is how much time is left when its end should be reported."""
        if self._leaf not in (None, leaf):
            self._metrics.certificate_rotations.labels("leaf").inc()
        self._context, self._leaf, self._ends, self._late = context, leaf, ends, late
        self._metrics.certificate_expiry_timestamp_seconds.set(ends.timestamp())
        self._metrics.certificate_not_before_timestamp_seconds.set(begins.timestamp())
        self._loaded.set()

    def _read_client_ca(self) -> tuple[bytes | None, str]:
        """Return the CAs of clients; if the file has none, the last that it had, and what is wrong with it."""
        file = self._settings.client_ca_file
        try:
            content = file.read_bytes() if file else None
            if content is not None and content != self._client_ca:
                client_ca_text(content)
        except (OSError, Unusable) as error:
            if self._client_ca is None:
                raise
            return self._client_ca, str(error)
        return content, ""

    def _failed(self, error: Exception) -> bool:
        """Count a failure; return whether to log it."""
        self._metrics.certificate_reload_failures.inc()
        return self._fault.failed(str(error))

    def _ending(self, late: timedelta) -> str | None:
        """Say when the certificate in use ends, if no more than this is left."""
        if self._ends is None or (left := self._ends - self._now()) > late:
            return None
        ends = "expires" if left > timedelta() else "expired"
        why = self._fault.text or self._no_fault
        return f"the certificate {ends} at {format_time(self._ends)} and was not {self._renewed}: {why}"


class FileSource(CertificateSource):
    """A pair of files whose content is polled.

    A new context is built beside the one in use and swapped in only when the pair parses, belongs together and is
    valid now. A half-written pair is thus kept out and tried again at the next poll.
    """

    _settings: FileSettings
    _renewed = "replaced"
    _no_fault = "files unchanged"
    _content: tuple[bytes, bytes] | None = None

    @property
    def remark(self) -> str | None:
        """What should be fixed before it becomes a problem: the end is near, or a dozen failures in a row."""
        ending, attempts = super().remark, self._fault.attempts
        if ending is not None or self._leaf is None or attempts < self._settings.tolerated_failures:
            return ending
        return f"{attempts} failures in a row to load the changed certificate: {self._fault.text}"

    async def look(self) -> None:
        """Read the files once, and replace the context if they changed and are usable."""
        try:
            self._load()
        except (OSError, Unusable) as error:
            if self._failed(error):
                log.warning("certificate not loaded", extra={"error": str(error), **self._fault.fields})
        else:
            self._fault.ended()

    def _load(self) -> None:
        content, (client_ca, fault) = self._read(), self._read_client_ca()
        if (content, client_ca) != (self._content, self._client_ca):
            self._replace(content, client_ca)
        if fault:
            raise Unusable(fault)

    def _replace(self, content: tuple[bytes, bytes], client_ca: bytes | None) -> None:
        settings = self._settings
        leaf = usable_leaf(*content, self._now())
        context = serving_context(settings.certificate_file, settings.key_file, client_ca, settings.cipher_suites)
        # Python loads pairs from paths only: the context must have been built from the very bytes that were checked.
        if self._read() != content:
            raise Unusable("the files changed while they were read")
        begins, ends = leaf.not_valid_before_utc, leaf.not_valid_after_utc
        # Short-lived certificates are renewed late in absolute terms, so late is a share of their own life.
        self._serve(context, leaf, begins, ends, late_from(ends - begins))
        self._content, self._client_ca = content, client_ca
        log.info(
            "certificate loaded",
            extra={
                "file": str(settings.certificate_file),
                "serial": f"{leaf.serial_number:x}",
                "notAfter": format_time(ends),
            },
        )

    def _read(self) -> tuple[bytes, bytes]:
        """Return certificate and key, to compare: equal content needs no new context."""
        return self._settings.certificate_file.read_bytes(), self._settings.key_file.read_bytes()


class SelfManagedSource(CertificateSource):
    """A serving certificate and a CA, each renewed at two thirds of its lifetime by the wall clock."""

    _settings: SelfManagedSettings
    _leaf: Leaf | None
    _renewed = "renewed"
    _no_fault = "not tried since"

    def __init__(
        self,
        settings: SelfManagedSettings,
        secret: SecretStore,
        bundles: Sequence[BundleStore],
        *,
        now: Callable[[], datetime],
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now` gives the wall-clock time in UTC, `clock` seconds that only go forward."""
        super().__init__(settings, now=now, metrics=metrics, clock=clock)
        self._secret = secret
        self._bundles = bundles
        self._plan = Plan(settings.leaf_lifetime, settings.settle)
        self._signing: bytes | None = None
        self._since: Mapping[bytes, datetime] = {}
        self._trusting: bool | None = None
        self._replaced_early = False
        """Whether this replica has replaced a CA that was not valid yet. It does so once, see `rotation`."""

    @property
    def problem(self) -> str | None:
        """Why the process is not ready: as for files, or the certificate is not valid yet, or it is not trusted.

        A Secret that cannot be used is none before: every replica would leave at once although it serves well. Nor is a
        CA that is not valid yet, since API servers accept it if only this clock is wrong.
        """
        problem, leaf = super().problem, self._leaf
        if problem is not None or leaf is None:
            return problem
        if is_early(leaf, self._now()):
            why = self._fault.text or self._no_fault
            return f"the certificate is valid only from {format_time(leaf.made - SKEW)} on, not renewed: {why}"
        if self._trusting is False:
            return f"no webhook configuration trusts the certificate: {self._fault.text or 'caBundle is being written'}"
        return None

    @property
    def remark(self) -> str | None:
        """What should be fixed before it becomes a problem: the end is near, or the last looks failed."""
        ending, attempts = super().remark, self._fault.attempts
        if ending is not None or not attempts:
            return ending
        return f"{attempts} failures in a row to renew the certificate: {self._fault.text}"

    async def look(self) -> None:
        """Take all steps that are due."""
        try:
            await self._converge()
        except (StoreError, Garbled, Unusable, OSError) as error:
            if self._failed(error):
                log.error("certificate renewal failed", extra={"error": str(error), **self._fault.fields})  # noqa: TRY400 -- the text says it
        else:
            if self._fault.attempts:
                log.info("certificate renewal works again", extra=self._fault.fields)
            self._fault.ended()

    async def _converge(self) -> None:
        for _ in range(_STEPS):
            # In this order: what is read of the bundles is not older than what the Secret says about them.
            stored = await self._secret.read()
            authorities = authorities_in(stored.data)
            self._tell_authority(authorities)
            unread = self._renew_leaf(authorities)
            seen, faults = await self._read_bundles()
            trust = [Trust(name, _entries(name, each)) for name, each in seen.items()]
            now = self._now()
            complete = not faults
            self._since = trusted_since(self._since, authorities, trust, now) if complete else {}
            self._note_trust(trust)
            step = next_step(
                authorities,
                trust,
                complete=complete,
                since=self._since,
                now=now,
                plan=self._plan,
                may_replace_early=not self._replaced_early,
            )
            if step is None:
                if faults or unread:
                    raise StoreError("; ".join(filter(None, [*faults, unread])))
                self._complain_of_early(authorities, now)
                return
            await self._take(step, stored, authorities, seen)
        raise StoreError("another writer changed the Secret or a webhook configuration during each attempt")

    def _complain_of_early(self, authorities: Authorities, now: datetime) -> None:
        """Raise Unusable if the CA that signs is not valid yet, and nothing is left to do about it at this look."""
        signing, successor = alive(authorities.signing, now), alive(authorities.next, now)
        signer = signing or successor
        if signer is None or not is_early(signer, now):
            return
        if signing is not None and successor is not None and not is_early(successor, now):
            then = "another one signs once API servers trust it"
        elif self._replaced_early:
            then = "this replica replaced one already, so its own clock may be behind: compare the clocks of the nodes"
        else:
            then = "compare the clocks of the nodes"
        raise Unusable(f"the CA is valid only from {format_time(signer.made - SKEW)} on: {then}")

    async def _read_bundles(self) -> tuple[dict[str, StoredBundles], list[str]]:
        """Read those that exist, and say what went wrong with the others."""
        seen, faults = {}, []
        for store in self._bundles:
            try:
                bundles = await store.read()
            except StoreError as error:
                faults.append(str(error))
                continue
            if bundles is not None:
                seen[store.name] = bundles
        return seen, faults

    async def _take(
        self, step: Step, stored: StoredSecret, authorities: Authorities, seen: Mapping[str, StoredBundles]
    ) -> None:
        """Write once, or once for each configuration; a failed one does not keep the others from being written."""
        now = self._now()
        match step:
            case Make(successor, _):
                made = signer_of(Authority.create(_NAME, now=now, lifetime=self._settings.ca_lifetime))
                changed = authorities.with_new(made, successor=successor)
            case Keep(certificates, until):
                changed = authorities.keeping(certificates, until)
            case Promote(until):
                changed = authorities.promoted(until)
            case Forget():
                changed = authorities.forgotten(now)
            case Spread(names, certificates):
                await self._spread(names, b"".join(certificates), seen)
                return
            case _:
                assert_never(step)
        others = {field: value for field, value in stored.data.items() if field not in FIELDS}
        if await self._secret.write({**others, **data_of(changed, now)}, stored.version):
            self._replaced_early = self._replaced_early or (isinstance(step, Make) and step.early)
            log.info("certificate authorities changed", extra={"step": type(step).__name__})

    async def _spread(self, names: Sequence[str], bundle: bytes, seen: Mapping[str, StoredBundles]) -> None:
        faults = []
        for store in self._bundles:
            if store.name in names:
                try:
                    if await store.write(bundle, seen[store.name].version):
                        log.info("caBundle written", extra={"configuration": store.name})
                except StoreError as error:
                    faults.append(str(error))
        if faults:
            raise StoreError("; ".join(faults))

    def _tell_authority(self, authorities: Authorities) -> None:
        signing = authorities.signing
        if signing is None:
            return
        self._metrics.certificate_authority_expiry_timestamp_seconds.set(signing.ends.timestamp())
        if self._signing not in (None, signing.pair.certificate):
            self._metrics.certificate_rotations.labels("ca").inc()
        self._signing = signing.pair.certificate

    def _note_trust(self, trust: Sequence[Trust]) -> None:
        """Note whether calls can succeed; unknown while no configuration exists or could be read."""
        entries = [entry for each in trust for entry in each.entries]
        issuer = self._leaf.issuer if self._leaf is not None else b""
        self._trusting = any(issuer in entry for entry in entries) if issuer and entries else None

    def _renew_leaf(self, authorities: Authorities) -> str:
        """Return what is wrong with the CAs of clients, if anything."""
        now, names = self._now().replace(microsecond=0), self._settings.names  # certificates know only whole seconds
        client_ca, fault = self._read_client_ca()
        signer = leaf_signer(authorities, self._leaf, self._since, now, self._plan, trusting=self._trusting)
        leaf = self._leaf
        if signer is not None:
            lifetime = min(self._settings.leaf_lifetime, signer.ends - now - timedelta(seconds=1))
            with parsing("the CA cannot sign a certificate"):
                pair = Authority.load(signer.pair).serving_pair(names, now=now, lifetime=lifetime)
            leaf = Leaf(pair, signer.pair.certificate, now, now + lifetime)
        if leaf is None or (leaf is self._leaf and client_ca == self._client_ca):
            return fault
        context = pair_context(leaf.pair, client_ca, self._settings.cipher_suites)
        self._serve(context, leaf, leaf.made, leaf.ends, late_from(self._settings.leaf_lifetime))
        self._client_ca = client_ca
        log.info("certificate issued", extra={"notAfter": format_time(leaf.ends), "names": names})
        return fault


def _entries(name: str, bundles: StoredBundles) -> tuple[dict[bytes, datetime], ...]:
    """Return the certificates in each bundle. A bundle that cannot be parsed counts as empty, and will be replaced."""
    entries = []
    for bundle in bundles.bundles:
        try:
            entries.append(certificates_in(bundle))
        except Unusable as error:
            log.warning("caBundle cannot be read", extra={"configuration": name, "error": str(error)})
            entries.append({})
    return tuple(entries)


def usable_leaf(certificate: bytes, key: bytes, now: datetime) -> x509.Certificate:
    """Return the first certificate of a chain in PEM, if the key belongs to it and it is valid now; raises Unusable."""
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
        raise Unusable(f"the certificate is valid only from {format_time(leaf.not_valid_before_utc)} on")
    if now >= leaf.not_valid_after_utc:
        raise Unusable(f"the certificate expired at {format_time(leaf.not_valid_after_utc)}")
    return leaf
