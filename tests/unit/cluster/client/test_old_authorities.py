"""Clusters whose CA is older than the rules that Python 3.13 applies: kubectl connects to them, and so do we."""

from __future__ import annotations

import asyncio
import base64
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.unit.cluster.client.test_credentials import kubeconfig
from webhook.cluster.client.connections import certificate_end
from webhook.cluster.client.credentials import InCluster, KubeConfig

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.cluster.client.credentials import Access

_HOST = "localhost"


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python 3.13 does by itself, also on older versions."""
    create = ssl.create_default_context

    def strict(*args: Any, **kwargs: Any) -> ssl.SSLContext:
        context = create(*args, **kwargs)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)


@pytest.fixture
def pki(tmp_path: Path) -> tuple[str, ssl.SSLContext]:
    """A CA without key usage and identifiers, and the context of a server with a certificate that it signed."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = _certificate("ca", "ca", ca_key, ca_key).sign(ca_key, hashes.SHA256())
    names = x509.SubjectAlternativeName([x509.DNSName(_HOST)])
    served = _certificate(_HOST, "ca", key, ca_key).add_extension(names, critical=False).sign(ca_key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "pair").write_bytes(private + served.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair")
    return ca.public_bytes(pem).decode(), context


def _certificate(
    subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)  # noqa: TID251 -- TLS asks
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=key is signer, path_length=None), critical=False)
    )


def _connect(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """A handshake in memory. Raises SSLCertVerificationError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname=_HOST)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (asking, answering, asking, answering):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert asking.getpeercert()


def test_a_strict_client_refuses_it(pki: tuple[str, ssl.SSLContext]) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        _connect(ssl.create_default_context(cadata=pki[0]), pki[1])


def test_a_pod_connects(pki: tuple[str, ssl.SSLContext], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")
    (tmp_path / "ca.crt").write_text(pki[0])
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    _connect(_tls(asyncio.run(InCluster(environment, tmp_path).load())), pki[1])


def test_a_kubeconfig_connects(pki: tuple[str, ssl.SSLContext], tmp_path: Path) -> None:
    ca = base64.b64encode(pki[0].encode()).decode()
    path = kubeconfig(tmp_path, {"token": "abc"}, **{"certificate-authority-data": ca})
    _connect(_tls(asyncio.run(KubeConfig(path).load())), pki[1])


def test_doctor_takes_a_bundle_that_an_api_server_takes(pki: tuple[str, ssl.SSLContext]) -> None:
    async def test() -> datetime:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=pki[1])
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await certificate_end("127.0.0.1", port, _HOST, pki[0].encode(), 30.0)

    assert asyncio.run(test()) > datetime.now(UTC)  # noqa: TID251 -- TLS asks


def _tls(access: Access) -> ssl.SSLContext:
    assert access.tls is not None
    return access.tls
