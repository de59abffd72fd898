"""Contexts without a socket, and what our CA signs, judged by OpenSSL; the rest is seen in tests/https."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from webhook.certificates.authority import Authority, Pair
from webhook.certificates.contexts import HandshakeFailures, listening_context, pair_context, serving_context
from webhook.certificates.settings import CIPHER_SUITES
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from pathlib import Path


def nothing_yet() -> ssl.SSLContext | None:
    return None


def test_handshake_without_a_certificate_fails_with_an_alert_and_is_counted_as_such() -> None:
    """M6."""
    metrics = Metrics(version="0", resources=())
    serving = listening_context(nothing_yet, client_certificates=False, tell_failure=HandshakeFailures(metrics).tell)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(to_client, to_server, server_hostname="localhost")
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    with pytest.raises(ssl.SSLError):
        server.do_handshake()
    with pytest.raises(ssl.SSLError, match="INTERNAL_ERROR"):
        client.do_handshake()
    counted = metrics.registry.get_sample_value
    assert counted("device_taint_webhook_tls_handshake_failures_total", {"reason": "no_certificate"}) == 1


def test_pair_made_here_is_served_with_the_suites_that_are_named() -> None:
    """M16, for self-managed certificates."""
    now, day = datetime.now(UTC), timedelta(days=1)  # noqa: TID251 -- OpenSSL judges by today
    pair = Authority.create("test CA", now=now, lifetime=day).serving_pair(["localhost"], now=now, lifetime=day)
    context = pair_context(
        pair, None, ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"]
    )
    spoken = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] == "TLSv1.2"}
    assert spoken == {"ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305"}


@pytest.mark.parametrize("name", CIPHER_SUITES)
def test_each_suite_has_its_name_at_openssl(name: str) -> None:
    """M16: OpenSSL passes over names that it does not know, as long as it knows one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(CIPHER_SUITES[name])
    assert CIPHER_SUITES[name] in {cipher["name"] for cipher in context.get_ciphers()}


def test_key_with_a_password_is_refused_rather_than_asked_for(tmp_path: Path) -> None:
    """Without a callback OpenSSL would ask at the terminal, and wait."""
    key = ec.generate_private_key(ec.SECP256R1())
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    now, day = datetime.now(UTC), timedelta(days=1)  # noqa: TID251 -- OpenSSL judges by today
    pair = Authority.create("test CA", now=now, lifetime=day).serving_pair(["localhost"], now=now, lifetime=day)
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(locked)
    with pytest.raises(ValueError, match="the key has a password"):
        serving_context(tmp_path / "tls.crt", tmp_path / "tls.key", None)


def test_listening_context_keeps_to_what_is_promised() -> None:
    context = listening_context(nothing_yet, client_certificates=True)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.num_tickets == 0
    assert listening_context(nothing_yet, client_certificates=False).verify_mode is ssl.CERT_NONE


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
