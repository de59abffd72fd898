"""What our CA signs, judged by OpenSSL: a handshake between two contexts, without a socket."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from webhook.certificates.authority import Authority, Pair

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime.now(UTC).replace(microsecond=0)  # noqa: TID251 -- OpenSSL judges by today
DAY = timedelta(days=1)


@pytest.fixture
def authority() -> Authority:
    return Authority.create("test CA", now=NOW, lifetime=DAY)


def handshake(authority: Authority, pair: Pair, name: str, folder: Path) -> None:
    """A client that knows the CA meets a server with the pair. Raises ssl.SSLError."""
    for file, content in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (folder / file).write_bytes(content)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    asking = ssl.create_default_context(cadata=authority.certificate.decode())
    asking.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_server, server_hostname=name)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


@pytest.mark.parametrize("name", ["webhook.ns.svc", "localhost", "127.0.0.1", "::1"])
def test_serving_pair_holds_for_each_of_its_names(authority: Authority, name: str, tmp_path: Path) -> None:
    pair = authority.serving_pair(["webhook.ns.svc", "localhost", "127.0.0.1", "::1"], now=NOW, lifetime=DAY)
    handshake(authority, pair, name, tmp_path)


def test_serving_pair_holds_for_no_other_name(authority: Authority, tmp_path: Path) -> None:
    pair = authority.serving_pair(["localhost"], now=NOW, lifetime=DAY)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(authority, pair, "webhook.ns.svc", tmp_path)


def test_another_authority_is_not_trusted(authority: Authority, tmp_path: Path) -> None:
    other = Authority.create("test CA", now=NOW, lifetime=DAY)
    pair = other.serving_pair(["localhost"], now=NOW, lifetime=DAY)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(authority, pair, "localhost", tmp_path)


def test_client_pair_does_not_serve(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("localhost", NOW, DAY, ExtendedKeyUsageOID.CLIENT_AUTH)
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        handshake(authority, pair, "localhost", tmp_path)


def test_certificates_begin_a_little_before_now_and_end_when_told(authority: Authority) -> None:
    pair = authority.serving_pair(["localhost"], now=NOW, lifetime=timedelta(days=7))
    leaf = x509.load_pem_x509_certificate(pair.certificate)
    assert leaf.not_valid_before_utc == NOW - timedelta(minutes=5)
    assert leaf.not_valid_after_utc == NOW + timedelta(days=7)


def test_long_name_is_cut_in_the_subject_only(authority: Authority) -> None:
    name = f"{'a' * 60}.{'b' * 60}.svc"
    leaf = x509.load_pem_x509_certificate(authority.serving_pair([name], now=NOW, lifetime=DAY).certificate)
    assert leaf.subject.rfc4514_string() == f"CN={name[:64]}"
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [name]
