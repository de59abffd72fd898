"""A certificate authority and what it signs. Pure: the time comes in, nothing is read or written.

Keys are ECDSA on P-256: quick to make and to check, and known to every TLS client of the last fifteen years.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from webhook.certificates.parsing import Unusable, parsing

SKEW: Final = timedelta(minutes=5)
"""Certificates start this long before they are made: no two clocks agree."""
_LONGEST_COMMON_NAME: Final = 64
"""RFC 5280, ub-common-name."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM (`tls.crt` and `tls.key`)."""

    certificate: bytes
    key: bytes = field(repr=False)


class Authority:
    """A CA that lives in memory: what it signed can be checked for as long as its certificate is kept."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, common_name: str, *, now: datetime, lifetime: timedelta) -> Self:
        """Make a CA with a new key, which may sign leaves and nothing else. `now` is UTC."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(common_name)
        builder = (
            _builder(name, name, key.public_key(), now, lifetime)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(builder.sign(key, SHA256()), key)

    @classmethod
    def load(cls, pair: Pair) -> Self:
        """Return the CA that a pair holds. Raises Unusable."""
        with parsing("the certificate cannot be read"):
            certificates = x509.load_pem_x509_certificates(pair.certificate)
            if len(certificates) != 1:
                raise Unusable(f"must hold one certificate, and holds {len(certificates)}")
            public_key, is_ca = certificates[0].public_key(), _is_ca(certificates[0])
            certificates[0].subject  # noqa: B018 -- parsed when it is first read
        with parsing("the key cannot be read"):
            key = load_pem_private_key(pair.key, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise Unusable("the key must be one for ECDSA")
        if key.public_key() != public_key:
            raise Unusable("the key does not belong to the certificate")
        if not is_ca:
            raise Unusable("the certificate is not that of a CA")
        found = cls(certificates[0], key)
        with parsing("the dates of the certificate cannot be read"):
            found.made, found.ends  # noqa: B018 -- the same, and year 9999 has no time after it
        return found

    @property
    def certificate(self) -> bytes:
        """The CA's certificate as PEM: what clients have to know (`ca.crt`, `caBundle`)."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def pair(self) -> Pair:
        """Certificate and key, for where the CA is kept."""
        return Pair(self.certificate, _private_pem(self._key))

    @property
    def made(self) -> datetime:
        """When it was made (UTC), if it was made here."""
        return self._certificate.not_valid_before_utc + SKEW

    @property
    def ends(self) -> datetime:
        """When its certificate ends (UTC), and everything it signed with it."""
        return self._certificate.not_valid_after_utc

    def serving_pair(self, names: Sequence[str], *, now: datetime, lifetime: timedelta) -> Pair:
        """Make a key with a serving certificate for DNS names and IP addresses; the first is its common name."""
        alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
        return self.issue(names[0], now, lifetime, ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def issue(
        self,
        common_name: str,
        now: datetime,
        lifetime: timedelta,
        purpose: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None = None,
    ) -> Pair:
        """Make a key with a certificate for one purpose."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(_name(common_name), self._certificate.subject, key.public_key(), now, lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(issuer, critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, SHA256())
        return Pair(certificate.public_bytes(Encoding.PEM), _private_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + lifetime)
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return constraints.value.ca


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_LONGEST_COMMON_NAME])])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
