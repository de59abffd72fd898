"""Settings of this room, and where self-managed certificates are stored as it sees it: `cluster` implements that.

Nothing here imports ssl or cryptography, so that reading flags stays quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple, Protocol

CIPHER_SUITES: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    # Kubernetes still takes these spellings.
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""Suites of TLS 1.2 by the names that Kubernetes' flags use, with OpenSSL's."""
TLS13_CIPHER_SUITES: Final = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""Those of TLS 1.3. All of them are always offered, as in Kubernetes: neither Go nor Python lets one choose."""


class TLSVersion(StrEnum):
    """The oldest version of TLS that is spoken, as Kubernetes' own flags spell it."""

    TLS12 = "VersionTLS12"
    TLS13 = "VersionTLS13"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """Where the pair lies, in the shape of a kubernetes.io/tls Secret, and how it is watched."""

    certificate_file: Path
    """PEM: the leaf first, then whatever stands between it and the CA that clients know."""
    key_file: Path
    """PEM, without a password."""
    client_ca_file: Path | None = None
    """PEM. When given, clients must show a certificate that one of these signed."""
    cipher_suites: tuple[str, ...] = ()
    """Of TLS 1.2, by the keys of CIPHER_SUITES; empty for OpenSSL's choice."""
    poll_seconds: float = 10.0
    """How often the content is compared: file events get lost, and a kubelet swaps whole directories."""
    first_poll_seconds: float = 1.0
    """The same while there is no certificate yet, when everything waits for it."""
    tolerated_failures: int = 12
    """This many failed polls in a row, two minutes' worth, before `/readyz?verbose` says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfManagedSettings:
    """A CA of our own, in a Secret, and who has to trust it."""

    secret: tuple[str, str]
    """Namespace and name."""
    validating_configuration: str
    mutating_configuration: str
    names: tuple[str, ...]
    """DNS names and IP addresses for the serving certificate; the first is its common name."""
    client_ca_file: Path | None = None
    """As for files."""
    cipher_suites: tuple[str, ...] = ()
    """As for files."""
    ca_lifetime: timedelta = timedelta(days=365)
    leaf_lifetime: timedelta = timedelta(hours=24)
    """At most a quarter of the CA's: what a CA signs at two thirds of its life must not end with it."""

    @property
    def poll_seconds(self) -> float:
        """How often Secret and configurations are read: a caBundle that is lost is missed by every call."""
        return min(10.0, self.leaf_lifetime.total_seconds() / 30)

    @property
    def first_poll_seconds(self) -> float:
        """The same while there is no certificate yet."""
        return min(1.0, self.poll_seconds)

    @property
    def settle(self) -> timedelta:
        """How long a caBundle has to be in place before it is relied on: a watch of an API server may lag behind."""
        return min(timedelta(minutes=10), self.ca_lifetime / 20)


class StoreError(Exception):
    """It could not be read or written; the text says what and why."""


class StoredSecret(NamedTuple):
    """What a Secret held when it was read."""

    data: Mapping[str, bytes]
    version: str


class SecretStore(Protocol):
    """One Secret. Raises StoreError."""

    async def read(self) -> StoredSecret:
        """Read all data."""

    async def write(self, data: Mapping[str, bytes], version: str) -> bool:
        """Replace all data, unless it changed since that version: then nothing, and false."""


class StoredBundles(NamedTuple):
    """What a webhook configuration had when it was read."""

    bundles: tuple[bytes, ...]
    """The caBundle of each webhook, empty where there is none."""
    version: str


class BundleStore(Protocol):
    """One webhook configuration. Raises StoreError."""

    @property
    def name(self) -> str:
        """Identifies it in messages."""

    async def read(self) -> StoredBundles | None:
        """Read the caBundles; None if there is no such configuration."""

    async def write(self, bundle: bytes, version: str) -> bool:
        """Give each webhook this caBundle, unless anything changed since that version: then nothing, and false."""
