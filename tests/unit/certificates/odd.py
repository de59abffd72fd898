"""Certificates and keys that parsers refuse in ways of their own: bytes of good ones, changed in one place."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric import dsa, x25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_VERSION: Final = b"\xa0\x03\x02\x01\x02"
_CURVE: Final = bytes.fromhex("06082a8648ce3d030107")
_ALGORITHM: Final = bytes.fromhex("06072a8648ce3d0201")
_CONSTRAINTS: Final = bytes.fromhex("0603551d13")
_USAGE: Final = bytes.fromhex("0603551d0f")
_NOT_BEFORE: Final = b"\x17\x0d"


def der_of(pem: bytes) -> bytes:
    """The bytes between the first two lines with dashes."""
    return base64.b64decode(b"".join(pem.splitlines()[1:-1]))


def pem_of(der: bytes, label: str = "CERTIFICATE") -> bytes:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(der).decode()}-----END {label}-----\n".encode()


def _exchanged(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(pem: bytes) -> bytes:
        der = der_of(pem)
        assert old in der
        return pem_of(der.replace(old, new))

    return change


def _with_date_of_no_calendar(pem: bytes) -> bytes:
    der = der_of(pem)
    start = der.index(_NOT_BEFORE) + len(_NOT_BEFORE)
    return pem_of(der[:start] + b"9999999999" + der[start + 10 :])


CERTIFICATES: Final[Mapping[str, tuple[Callable[[bytes], bytes], str]]] = {
    "X.509 version 2": (_exchanged(_VERSION, _VERSION[:-1] + b"\x01"), "1 is not a valid X509 version"),
    "a version that there is not": (_exchanged(_VERSION, _VERSION[:-1] + b"\x09"), "9 is not a valid X509 version"),
    "a curve that is unknown": (
        _exchanged(_CURVE, _CURVE[:-1] + b"\x77"),
        "Curve 1.2.840.10045.3.1.119 is not supported",
    ),
    "a kind of key that is unknown": (
        _exchanged(_ALGORITHM, _ALGORITHM[:-1] + b"\x77"),
        "Unknown key type: 1.2.840.10045.2.119",
    ),
    "an extension twice": (_exchanged(_USAGE, _CONSTRAINTS), "Duplicate 2.5.29.19 extension found"),
    "an extension with the content of another": (_exchanged(_CONSTRAINTS, bytes.fromhex("0603551d11")), ""),
    "a date of no calendar": (_with_date_of_no_calendar, ""),
    "nothing in it": (lambda _: b"", ""),
    "nothing but a comment": (lambda _: b"# to do\n", ""),
    "no DER": (lambda _: pem_of(b"\x30\x03abc"), ""),
}
"""How to change a good certificate, and what the reason says at least."""


def _private(key: x25519.X25519PrivateKey | dsa.DSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _ec_key_on(curve: bytes) -> Callable[[bytes], bytes]:
    def change(pem: bytes) -> bytes:
        der = der_of(pem)
        assert _CURVE in der
        return pem_of(der.replace(_CURVE, curve), "PRIVATE KEY")

    return change


KEYS: Final[Mapping[str, tuple[Callable[[bytes], bytes], str]]] = {
    "a curve that is unknown": (_ec_key_on(_CURVE[:-1] + b"\x77"), "Curve 1.2.840.10045.3.1.119 is not supported"),
    "a key for X25519": (lambda _: _private(x25519.X25519PrivateKey.generate()), "the key must be "),
    "a key for DSA": (lambda _: _private(dsa.generate_private_key(1024)), "the key must be "),
    "an encrypted key that is none": (lambda _: pem_of(b"\x30\x00", "ENCRYPTED PRIVATE KEY"), ""),
    "zero bytes": (lambda _: bytes(100), ""),
}
"""The same for a good key for ECDSA on P-256."""
