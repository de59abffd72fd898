"""How many handshakes are under way at a time, and which of them skip the check of a client's certificate."""

from __future__ import annotations

import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.x509.oid import ExtendedKeyUsageOID

from webhook.certificates.authority import Authority
from webhook.certificates.contexts import HandshakeFailures, listening_context, pair_context
from webhook.server.settings import ListenerSettings
from webhook.telemetry.metrics import Metrics

NOW = datetime.now(UTC)  # noqa: TID251 -- OpenSSL judges by today
CA = Authority.create("test CA", now=NOW, lifetime=timedelta(days=1))
TRUSTING = ssl.create_default_context(cadata=CA.certificate.decode())
MOST = 3
BASE = Path(__file__).parents[3] / "manifests" / "base"


class Port:
    """A listener's context, and how many of its handshakes failed for a reason that has no name."""

    def __init__(self, *, client_certificates: bool = False, counting: bool = True) -> None:
        self.metrics = Metrics(version="0", resources=())
        pair = CA.serving_pair(["localhost"], now=NOW, lifetime=timedelta(hours=1))
        serving = pair_context(pair, CA.certificate if client_certificates else None)
        options: Any = {"tell_failure": HandshakeFailures(self.metrics).tell} if counting else {}
        self.tls = listening_context(
            lambda: serving, client_certificates=client_certificates, most_handshakes=MOST, **options
        )

    def begin(self) -> Connection:
        """A connection whose client has said nothing yet. Raises SSLError if it is refused."""
        connection = Connection(self.tls)
        with suppress(ssl.SSLWantReadError):
            connection.server.do_handshake()
        return connection

    @property
    def refused(self) -> float | None:
        counted = self.metrics.registry.get_sample_value
        return counted("device_taint_webhook_tls_handshake_failures_total", {"reason": "other"})


class Connection:
    """Both ends of a connection."""

    def __init__(
        self, tls: ssl.SSLContext, trusting: ssl.SSLContext = TRUSTING, session: ssl.SSLSession | None = None
    ) -> None:
        self.to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = trusting.wrap_bio(to_client, self.to_server, server_hostname="localhost", session=session)
        self.server: Any = tls.wrap_bio(self.to_server, to_client, server_side=True)

    def finish(self) -> None:
        """Lets both go on until the handshake is done."""
        for end in (self.client, self.server, self.client, self.server):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()


def test_handshake_beyond_the_limit_is_refused_at_once() -> None:
    port = Port()
    held = [port.begin() for _ in range(MOST)]
    with pytest.raises(ssl.SSLError, match="too many handshakes at a time"):
        port.begin()
    assert port.refused == 1
    for each in held:
        each.finish()
    assert {each.server.version() for each in held} == {"TLSv1.3"}


@pytest.mark.parametrize("how", ["finished", "cut off", "failed"])
def test_handshake_that_is_over_makes_room_for_another(how: str) -> None:
    port = Port()
    held = [port.begin() for _ in range(MOST)]
    if how == "finished":
        held[0].finish()
    elif how == "failed":
        held[0].to_server.write(b"no TLS at all")
        with pytest.raises(ssl.SSLError):
            held[0].server.do_handshake()
    else:
        del held[0]
    held.append(port.begin())
    with pytest.raises(ssl.SSLError):
        port.begin()


def test_unfinished_handshakes_take_less_than_half_of_the_memory() -> None:
    """One whose client has sent all but the end of the longest ClientHello takes 420 KiB."""
    assert ListenerSettings().handshakes * 420 < 512 * 1024 / 2


def test_handshake_may_last_as_long_as_the_most_patient_api_server_waits() -> None:
    entries = [
        entry
        for name in ("validating", "mutating")
        for entry in yaml.safe_load((BASE / f"{name}-webhook.yaml").read_text())["webhooks"]
    ]
    assert ListenerSettings().handshake_seconds == max(entry["timeoutSeconds"] for entry in entries)


@pytest.mark.parametrize(("demanded", "counting"), [(True, True), (True, False), (False, True)])
def test_session_is_resumed_only_where_no_client_certificate_is_demanded(
    tmp_path: Path, *, demanded: bool, counting: bool
) -> None:
    """The certificate may have ended, or its CA been taken out, since it was checked. TLS 1.3 has no sessions here."""
    pair = CA.issue("client", NOW, timedelta(hours=1), ExtendedKeyUsageOID.CLIENT_AUTH)
    (tmp_path / "client.pem").write_bytes(pair.certificate + pair.key)
    trusting = ssl.create_default_context(cadata=CA.certificate.decode())
    trusting.load_cert_chain(tmp_path / "client.pem")
    trusting.maximum_version = ssl.TLSVersion.TLSv1_2
    port = Port(client_certificates=demanded, counting=counting)
    first = Connection(port.tls, trusting)
    first.finish()
    second = Connection(port.tls, trusting, first.client.session)
    if demanded:
        with pytest.raises(ssl.SSLError, match="a resumed session skips the check"):
            second.finish()
        assert port.refused == counting
    else:
        second.finish()
        assert second.server.session_reused
