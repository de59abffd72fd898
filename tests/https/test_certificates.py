"""Certificates as clients see them: protocols, client certificates, and a swap while requests come in."""

from __future__ import annotations

import socket
import ssl
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.builders import encoded, make_claim, make_review
from tests.https.conftest import StartServer
from tests.https.serving import DAY, HOST, SECONDS, Client, Server, eventually, now, post, write_pair
from tests.https.test_reviews import ALLOWED
from tests.unit.certificates import odd
from webhook.certificates.authority import Authority

REVIEW = encoded(make_review(make_claim()))
SWAPS = 50


def serial(client: Client) -> int:
    der = client.socket.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def test_newest_protocol_is_spoken_and_http_1_1_agreed_on(server: Server) -> None:
    context = server.trusting()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with server.connect(context) as client:
        assert (client.socket.version(), client.socket.selected_alpn_protocol()) == ("TLSv1.3", "http/1.1")


def test_review_is_answered_over_tls_1_2(server: Server) -> None:
    context = server.trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with server.connect(context) as client:
        client.send(post(REVIEW))
        assert (client.socket.version(), client.answer()) == ("TLSv1.2", ALLOWED)


def test_older_tls_is_refused(server: Server) -> None:
    context = server.trusting()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # which is just what is wanted here
        context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with server.connect(context) as client:
        assert client.socket.version() == "TLSv1.2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        server.connect(context)


def test_client_that_names_no_server_gets_the_certificate_too(server: Server) -> None:
    context = server.trusting()
    context.check_hostname = False
    with server.connect(context, name=None) as client:
        assert client.ask(post(REVIEW)) == ALLOWED


def test_plain_http_on_the_tls_port_harms_nobody(server: Server) -> None:
    with socket.create_connection(server.address, timeout=SECONDS) as plain:
        plain.sendall(post(REVIEW))
        with suppress(ConnectionError):
            assert not plain.recv(64).startswith(b"HTTP/")
    with server.connect() as client:
        assert client.ask(post(REVIEW)) == ALLOWED


def client_context(
    server: Server, folder: Path, authority: Authority | None, name: str = "kube-apiserver"
) -> ssl.SSLContext:
    context = server.trusting()
    if authority is not None:
        pair = authority.issue(name, now(), DAY, ExtendedKeyUsageOID.CLIENT_AUTH)
        (folder / "client.crt").write_bytes(pair.certificate)
        (folder / "client.key").write_bytes(pair.key)
        context.load_cert_chain(folder / "client.crt", folder / "client.key")
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_only_clients_of_the_client_ca_are_heard(
    start_server: StartServer, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    ours, theirs = (Authority.create(name, now=now(), lifetime=DAY) for name in ("ours", "theirs"))
    server = start_server(client_ca=ours)

    def ask(authority: Authority | None) -> bytes:
        context = client_context(server, tmp_path, authority)
        context.maximum_version = version
        with server.connect(context) as client:
            client.send(post(REVIEW))
            return client.answer()

    assert ask(ours) == ALLOWED
    for stranger in (theirs, None):
        with pytest.raises((OSError, EOFError)):
            ask(stranger)


def test_client_ca_is_swapped_with_its_file(start_server: StartServer, tmp_path: Path) -> None:
    old, new = (Authority.create(name, now=now(), lifetime=DAY) for name in ("old", "new"))
    server = start_server(client_ca=old)
    before = server.source.context
    (tmp_path / "clients.crt").write_bytes(new.certificate)
    eventually(lambda: server.source.context is not before)

    def ask(authority: Authority) -> bytes:
        with server.connect(client_context(server, tmp_path, authority)) as client:
            client.send(post(REVIEW))
            return client.answer()

    assert ask(new) == ALLOWED
    with pytest.raises((OSError, EOFError)):
        ask(old)


@dataclass
class Load:
    """Requests from several threads, half on kept connections and half on new ones, at a steady pace."""

    server: Server
    stopped: threading.Event = field(default_factory=threading.Event)
    answered: int = 0
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def go_on(self) -> None:
        """Returns after eight more answers, two from each thread on average."""
        enough = self.answered + 8
        eventually(lambda: self.answered >= enough or bool(self.faults))

    def run(self, *, kept: bool) -> None:
        context = self.server.trusting()
        while not self.stopped.is_set():
            try:
                with self.server.connect(context) as client:
                    for _ in range(10_000 if kept else 1):
                        assert client.ask(post(REVIEW)) == ALLOWED
                        with self.lock:
                            self.answered += 1
                        if self.stopped.wait(0.005):
                            break
            except Exception as error:  # noqa: BLE001 -- any is a failed request
                self.faults.append(repr(error))


def test_no_request_fails_while_the_certificate_is_swapped_fifty_times(start_server: StartServer) -> None:
    """One of the pairs is caught half written: the certificate is there for a while before its key."""
    server = start_server()
    load = Load(server)
    started = time.monotonic()
    with ExitStack() as stack:
        threads = [threading.Thread(target=load.run, kwargs={"kept": kept}) for kept in (True, True, False, False)]
        for thread in threads:
            thread.start()
            stack.callback(thread.join, SECONDS)
        stack.callback(load.stopped.set)
        seen = {current_serial(server)}
        for swap in range(SWAPS):
            if swap == SWAPS // 2:
                leave_half_written(server)
            swap_certificate(server)
            seen.add(current_serial(server))
            load.go_on()
    assert (load.faults, len(seen)) == ([], SWAPS + 1)
    rate = load.answered / (time.monotonic() - started)
    print(f"\n{SWAPS} swaps under {rate:.0f} requests/s, {load.answered} answered")


def swap_certificate(server: Server) -> None:
    before = server.source.context
    write_pair(server.folder, server.authority)
    eventually(lambda: server.source.context is not before)


def current_serial(server: Server) -> int:
    with server.connect() as client:
        return serial(client)


def leave_half_written(server: Server) -> None:
    """A new certificate without its key, until the server has noticed it several times; the old one is served."""
    before = current_serial(server)
    failures = server.metric("certificate_reload_failures_total")
    pair = server.authority.serving_pair(["127.0.0.1"], now=now(), lifetime=DAY)
    (server.folder / "tls.crt").write_bytes(pair.certificate)
    eventually(lambda: server.metric("certificate_reload_failures_total") >= failures + 3)
    assert current_serial(server) == before


def expired(server: Server) -> None:
    pair = server.authority.serving_pair([HOST], now=now() - 2 * DAY, lifetime=DAY)
    (server.folder / "tls.crt").write_bytes(pair.certificate)
    (server.folder / "tls.key").write_bytes(pair.key)


def unreadable(server: Server) -> None:
    """A folder: the one kind of file that nobody may read, not even root."""
    (server.folder / "tls.crt").unlink()
    (server.folder / "tls.crt").mkdir()


def mismatched(server: Server) -> None:
    (server.folder / "tls.key").write_bytes(server.authority.serving_pair([HOST], now=now(), lifetime=DAY).key)


def half_written(server: Server) -> None:
    pair = server.authority.serving_pair([HOST], now=now(), lifetime=DAY)
    (server.folder / "tls.key").write_bytes(pair.key)
    (server.folder / "tls.crt").write_bytes(pair.certificate[:300])


def of_version_two(server: Server) -> None:
    """F6: X.509 version 2, which its parser refuses with an error of its own."""
    pair = server.authority.serving_pair([HOST], now=now(), lifetime=DAY)
    (server.folder / "tls.crt").write_bytes(odd.CERTIFICATES["X.509 version 2"][0](pair.certificate))


def with_key_on_unknown_curve(server: Server) -> None:
    """F6."""
    pair = server.authority.serving_pair([HOST], now=now(), lifetime=DAY)
    (server.folder / "tls.key").write_bytes(odd.KEYS["a curve that is unknown"][0](pair.key))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (of_version_two, "the certificate cannot be read: 1 is not a valid X509 version"),
        (with_key_on_unknown_curve, "the key cannot be read: Curve 1.2.840.10045.3.1.119 is not supported"),
        (expired, "the certificate expired at "),
        (unreadable, "[Errno 21] Is a directory: "),
        (mismatched, "the key does not belong to the certificate"),
        (half_written, "the certificate cannot be read: "),
    ],
)
def test_a_pair_that_is_unfit_is_told_and_the_last_good_one_goes_on(
    start_server: StartServer, spoil: Callable[[Server], None], reason: str
) -> None:
    server = start_server()
    before = current_serial(server)
    spoil(server)
    tolerated = server.files.tolerated_failures
    # A poll between two writes finds another fault first.
    text = "failures in a row to load the changed certificate: " + reason
    eventually(lambda: text in (server.source.remark or ""))
    assert server.source.problem is None
    assert server.metric("certificate_reload_failures_total") >= tolerated
    with server.connect() as client:
        client.send(post(REVIEW))
        assert (serial(client), client.answer()) == (before, ALLOWED)
    with suppress(OSError):
        (server.folder / "tls.crt").rmdir()
    swap_certificate(server)
    eventually(lambda: server.source.remark is None)
    assert current_serial(server) != before
