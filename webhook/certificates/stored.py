"""Authorities as a Secret holds them: fields in the shape of a kubernetes.io/tls Secret, and some more.

| field                 | what it holds                                                      |
|-----------------------|--------------------------------------------------------------------|
| tls.crt, tls.key      | the CA that signs                                                  |
| ca.crt                | what has to be trusted, for people and tools; it is never read     |
| next.crt, next.key    | the CA that signs once every caBundle has it                       |
| old.crt, old.until    | CAs that are still trusted, and until when (RFC 3339)              |
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from webhook.api.meta import parse_time
from webhook.certificates.authority import Authority, Pair
from webhook.certificates.parsing import Unusable, parsing
from webhook.certificates.rotation import Authorities, Signer

FIELDS: Final = ("tls.crt", "tls.key", "ca.crt", "next.crt", "next.key", "old.crt", "old.until")


class Garbled(Exception):  # noqa: N818 -- it says what the Secret is
    """The Secret holds something that is not ours; the text says which field, and nothing of what is in it."""


def authorities_in(data: Mapping[str, bytes]) -> Authorities:
    """What the fields say; nothing if they are missing or empty. Raises Garbled."""
    until_text = data.get("old.until", b"").decode(errors="replace").strip()
    until = parse_time(until_text) if until_text else None
    if until_text and until is None:
        raise Garbled("old.until: must be a time such as 2026-01-31T12:00:00Z")
    try:
        old = tuple(certificates_in(data.get("old.crt", b"")))
    except Unusable as error:
        raise Garbled(f"old.crt: {error}") from None
    return Authorities(_signer(data, "tls"), _signer(data, "next"), old, until)


def data_of(authorities: Authorities, now: datetime) -> dict[str, bytes]:
    """The fields; those that have nothing to say are missing."""
    fields: dict[str, bytes] = {}
    for name, signer in (("tls", authorities.signing), ("next", authorities.next)):
        if signer is not None:
            fields |= {f"{name}.crt": signer.pair.certificate, f"{name}.key": signer.pair.key}
    if authorities.old and authorities.old_until is not None:
        fields |= {"old.crt": b"".join(authorities.old), "old.until": time_text(authorities.old_until).encode()}
    return fields | {"ca.crt": b"".join(authorities.trusted(now))}


def signer_of(authority: Authority) -> Signer:
    """An authority as rotation knows it."""
    return Signer(authority.pair, authority.made, authority.ends)


def certificates_in(bundle: bytes) -> dict[bytes, datetime]:
    """Each certificate of a bundle in one spelling, with its end. Raises Unusable for anything else."""
    if not bundle.strip():
        return {}
    with parsing("the certificates cannot be read"):
        certificates = x509.load_pem_x509_certificates(bundle)
        return {each.public_bytes(Encoding.PEM): each.not_valid_after_utc for each in certificates}


def time_text(time: datetime) -> str:
    """RFC 3339 in UTC, as Kubernetes writes it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _signer(data: Mapping[str, bytes], name: str) -> Signer | None:
    certificate, key = data.get(f"{name}.crt", b""), data.get(f"{name}.key", b"")
    if not certificate and not key:
        return None
    if not key or not certificate:
        there, missing = ("crt", "key") if certificate else ("key", "crt")
        raise Garbled(f"{name}.{missing}: must come with {name}.{there}")
    try:
        return signer_of(Authority.load(Pair(certificate, key)))
    except Unusable as error:
        raise Garbled(f"{name}.crt and {name}.key: {error}") from None
