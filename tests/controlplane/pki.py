"""Throw-away certificates for tests: a CA, what it signs, and a key pair for service account tokens.

Nothing here is used by the product, which signs its own (webhook.certificates). Keys are P-256: made in
microseconds, accepted by every component of a control plane.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Before "now", because clocks of two machines (or of a test that moves one) are never quite the same.
_SKEW = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its private key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str = "tls") -> tuple[Path, Path]:
        """Writes <name>.crt and <name>.key (readable by the owner only) and gives their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_bytes(self.certificate)
        key.touch(mode=0o600)
        key.write_bytes(self.key)
        return certificate, key


class Authority:
    """A certificate authority that lives as long as a test run."""

    def __init__(self, common_name: str = "test-ca") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(common_name)
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            _builder(self._name, self._key.public_key(), days=2)
            .issuer_name(self._name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
        )
        self._certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        """The CA certificate, what a client has to trust."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, *hosts: str, days: float = 1) -> Pair:
        """A serving certificate for the given DNS names and IP addresses; negative days make it expired."""
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._sign(hosts[0], (), ExtendedKeyUsageOID.SERVER_AUTH, names, days)

    def client(self, user: str, groups: Iterable[str] = (), *, days: float = 1) -> Pair:
        """A client certificate: an API server reads the user from CN and the groups from O."""
        return self._sign(user, groups, ExtendedKeyUsageOID.CLIENT_AUTH, None, days)

    def _sign(
        self,
        common_name: str,
        organizations: Iterable[str],
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
        days: float,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_name(common_name, organizations), key.public_key(), days)
            .issuer_name(self._name)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), private_pem(key))


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key, unencrypted, in the form that Go's and Python's TLS read."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def token_keys() -> tuple[bytes, bytes]:
    """(private, public) PEM: signs and verifies service account tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private_pem(key), public


def _builder(subject: x509.Name, public_key: ec.EllipticCurvePublicKey, days: float) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)  # noqa: TID251 - a certificate is made now, for now
    end = now + dt.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - _SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _name(common_name: str, organizations: Iterable[str] = ()) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
