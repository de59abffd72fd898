"""M6: TLS handshakes that fail are counted by reason and logged; M16: the cipher suites that are spoken."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import encoded, make_claim, make_review
from tests.https.conftest import StartServer
from tests.https.serving import DAY, HOST, SECONDS, Client, Server, eventually, now, post
from tests.https.test_certificates import client_context
from tests.https.test_reviews import ALLOWED
from webhook.certificates.authority import Authority
from webhook.server.settings import ListenerSettings
from webhook.telemetry.metrics import HandshakeFailure

REVIEW = encoded(make_review(make_claim()))
BOTH_VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


def failures(server: Server) -> dict[str, float]:
    """The count of each reason that is not zero."""
    counts = {each.value: server.metric("tls_handshake_failures_total", reason=each) for each in HandshakeFailure}
    return {reason: count for reason, count in counts.items() if count}


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    names = ("reason", "error", "serverName", "times")
    records = [record for record in caplog.records if record.getMessage() == "TLS handshake failed"]
    assert {record.levelno for record in records} <= {logging.WARNING}
    return [{name: vars(record)[name] for name in names} for record in records]


def lines(caplog: pytest.LogCaptureFixture, count: int = 1) -> list[dict[str, Any]]:
    """The lines, once there are so many: a failure is counted a moment before it is logged."""
    eventually(lambda: len(logged(caplog)) >= count)
    return logged(caplog)


def fails(server: Server, context: ssl.SSLContext) -> None:
    """One review over a connection that does not come about; with TLS 1.3 the client notices when it reads."""

    def ask() -> None:
        with server.connect(context) as client:
            client.send(post(REVIEW))
            client.answer()

    with pytest.raises((OSError, EOFError)):
        ask()


def says(server: Server, data: bytes) -> None:
    """A connection that sends these bytes, and ends once the server says something or ends it."""
    with socket.create_connection(server.address, timeout=SECONDS) as plain:
        plain.sendall(data)
        with contextlib.suppress(ConnectionError):
            plain.recv(64)


@BOTH_VERSIONS
def test_client_that_does_not_know_the_ca_is_counted_and_logged(
    start_server: StartServer, caplog: pytest.LogCaptureFixture, version: ssl.TLSVersion
) -> None:
    server = start_server()
    context = ssl.create_default_context(cadata=Authority.create("x", now=now(), lifetime=DAY).certificate.decode())
    context.maximum_version = version
    with pytest.raises(ssl.SSLCertVerificationError):
        Client.connect(server.address, context, "localhost")
    eventually(lambda: failures(server) == {"certificate_rejected": 1})
    [line] = lines(caplog)
    assert line["error"].endswith("ALERT_UNKNOWN_CA")
    assert (line["reason"], line["serverName"], line["times"]) == ("certificate_rejected", "localhost", 1)


@BOTH_VERSIONS
@pytest.mark.parametrize(
    ("certificate", "reason", "error"),
    [
        pytest.param(False, "no_client_certificate", "PEER_DID_NOT_RETURN_A_CERTIFICATE", id="none"),
        pytest.param(True, "client_certificate_rejected", "unable to get local issuer certificate", id="of another CA"),
    ],
)
def test_client_without_a_certificate_of_the_client_ca_is_counted_and_logged(
    start_server: StartServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    version: ssl.TLSVersion,
    *,
    certificate: bool,
    reason: str,
    error: str,
) -> None:
    ours, theirs = (Authority.create(name, now=now(), lifetime=DAY) for name in ("ours", "theirs"))
    server = start_server(client_ca=ours)
    context = client_context(server, tmp_path, theirs if certificate else None)
    context.maximum_version = version
    fails(server, context)
    eventually(lambda: failures(server) == {reason: 1})
    assert [line["error"] for line in lines(caplog)] == [error]


@pytest.mark.parametrize(
    "data",
    [post(REVIEW), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00" * 64, b"SSH-2.0-OpenSSH_9.2\r\n", bytes(range(256))],
    ids=["a review", "http", "zeros", "ssh", "bytes"],
)
def test_what_is_not_tls_is_counted_and_logged(
    start_server: StartServer, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    server = start_server()
    says(server, data)
    eventually(lambda: failures(server) == {"not_tls": 1})
    assert [(line["reason"], line["serverName"]) for line in lines(caplog)] == [("not_tls", None)]


def test_connection_that_ends_without_a_byte_is_counted_and_not_logged(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A load balancer's probe, or a port scan."""
    server = start_server()
    for _ in range(3):
        socket.create_connection(server.address, timeout=SECONDS).close()
    eventually(lambda: failures(server) == {"closed": 3})
    assert logged(caplog) == []


def hello(server: Server) -> bytes:
    """What a client says first."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = server.trusting().wrap_bio(to_client, to_server, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return to_server.read()


@pytest.mark.parametrize("part", [slice(20), slice(None)], ids=["half of the first message", "the first message"])
def test_connection_that_ends_in_the_middle_is_counted_and_logged(
    start_server: StartServer, caplog: pytest.LogCaptureFixture, part: slice
) -> None:
    server = start_server()
    with socket.create_connection(server.address, timeout=SECONDS) as plain:
        plain.sendall(hello(server)[part])
        if part.stop is None:
            assert plain.recv(1)  # the server's answer has begun
    eventually(lambda: failures(server) == {"closed": 1})
    assert [line["error"] for line in lines(caplog)] == ["the connection ended in the middle of it"]


def test_client_that_says_nothing_is_counted_and_logged_when_its_time_is_up(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server(listener=ListenerSettings(handshake_seconds=0.2, drain_idle_seconds=0.0))
    says(server, b"")
    eventually(lambda: failures(server) == {"timeout": 1})
    assert [line["error"] for line in lines(caplog)] == ["not done after 0.2 s"]


def older(context: ssl.SSLContext) -> None:
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # old TLS is what is wanted here
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1


def other_suites(context: ssl.SSLContext) -> None:
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-CHACHA20-POLY1305")


@pytest.mark.parametrize("limit", [older, other_suites])
def test_client_that_speaks_no_protocol_of_ours_is_counted_and_logged(
    start_server: StartServer, caplog: pytest.LogCaptureFixture, limit: Callable[[ssl.SSLContext], None]
) -> None:
    server = start_server(cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",))
    context = server.trusting()
    limit(context)
    fails(server, context)
    eventually(lambda: failures(server) == {"no_common_protocol": 1})
    assert [line["reason"] for line in lines(caplog)] == ["no_common_protocol"]


def test_many_failures_of_one_reason_are_one_line(start_server: StartServer, caplog: pytest.LogCaptureFixture) -> None:
    server = start_server()
    for _ in range(20):
        says(server, post(REVIEW))
    eventually(lambda: failures(server) == {"not_tls": 20})
    assert [line["times"] for line in lines(caplog)] == [1]


def test_connection_that_comes_about_is_no_failure_whatever_becomes_of_it(server: Server) -> None:
    before = failures(server)
    assert server.ask(post(REVIEW)) == ALLOWED
    with server.connect() as client:
        assert client.ask(b"no http\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    plain = socket.create_connection(server.address, timeout=SECONDS)
    server.trusting().wrap_socket(plain, server_hostname=HOST).close()
    assert failures(server) == before


@pytest.mark.parametrize("suite", ["AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256"])
def test_suite_that_a_flag_names_is_the_only_one_of_tls_1_2(start_server: StartServer, suite: str) -> None:
    """M16. The certificate's context decides, as each handshake switches over to it."""
    server = start_server(cipher_suites=(f"TLS_ECDHE_ECDSA_WITH_{suite}",))
    context = server.trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with server.connect(context) as client:
        spoken = client.socket.cipher()
    assert spoken is not None
    assert spoken[0].replace("-", "").startswith(f"ECDHEECDSA{suite[:8].replace('_', '')}")
    with server.connect() as client:
        assert client.socket.version() == "TLSv1.3"
