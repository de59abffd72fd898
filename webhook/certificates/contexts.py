"""TLS contexts: one for the listener that never changes, and one for each certificate that is served.

`load_cert_chain` on a context in use breaks it when the pair does not match: every handshake fails until a good pair
is loaded. So each pair gets a context of its own, and the listener's switches over at the start of each handshake.

Handshakes that fail are counted and logged, as the event loop drops their errors without a word. The cause is most
often a wrong caBundle, which otherwise only the API server's log would show.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from cryptography import x509

from webhook.certificates.authority import Pair
from webhook.certificates.parsing import parsing
from webhook.certificates.settings import CIPHER_SUITES, TLSVersion
from webhook.flowcontrol.loop import Sampled
from webhook.telemetry.metrics import HandshakeFailure, Metrics

Tell = Callable[[HandshakeFailure, str, str | None], None]
"""Takes reason, text and server name of a handshake that failed.

The text is empty for a connection that ended without a byte: load balancers and port scanners do that all day.
"""

log = logging.getLogger(__name__)

_LOGGED_EVERY_SECONDS: Final = 60.0
"""At most one line for each reason in this time: an API server with a wrong caBundle tries again with each request."""
_TIMER_SLACK_SECONDS: Final = 0.05
"""The loop's timer starts before ours, counts whole milliseconds, and may end by this much earlier by our clock."""
_REASONS: Final[tuple[tuple[str, HandshakeFailure], ...]] = (
    # Parts of OpenSSL's names for what went wrong; the first that is found counts. An alert is what the client sent.
    ("ALERT_UNKNOWN_CA", HandshakeFailure.CERTIFICATE_REJECTED),
    ("ALERT_BAD_CERTIFICATE", HandshakeFailure.CERTIFICATE_REJECTED),
    ("ALERT_CERTIFICATE_", HandshakeFailure.CERTIFICATE_REJECTED),
    ("ALERT_UNSUPPORTED_CERTIFICATE", HandshakeFailure.CERTIFICATE_REJECTED),
    ("PEER_DID_NOT_RETURN_A_CERTIFICATE", HandshakeFailure.NO_CLIENT_CERTIFICATE),
    ("CERTIFICATE_VERIFY_FAILED", HandshakeFailure.CLIENT_CERTIFICATE_REJECTED),
    ("CALLBACK_FAILED", HandshakeFailure.NO_CERTIFICATE),
    ("UNSUPPORTED_PROTOCOL", HandshakeFailure.NO_COMMON_PROTOCOL),
    ("ALERT_PROTOCOL_VERSION", HandshakeFailure.NO_COMMON_PROTOCOL),
    ("VERSION_TOO_LOW", HandshakeFailure.NO_COMMON_PROTOCOL),
    ("NO_SHARED_CIPHER", HandshakeFailure.NO_COMMON_PROTOCOL),
    ("NO_SUITABLE", HandshakeFailure.NO_COMMON_PROTOCOL),
    ("HTTP_REQUEST", HandshakeFailure.NOT_TLS),
    ("HTTPS_PROXY_REQUEST", HandshakeFailure.NOT_TLS),
    ("WRONG_VERSION_NUMBER", HandshakeFailure.NOT_TLS),
    ("RECORD", HandshakeFailure.NOT_TLS),
    ("UNEXPECTED_MESSAGE", HandshakeFailure.NOT_TLS),
    ("PACKET_LENGTH", HandshakeFailure.NOT_TLS),
    ("LENGTH_MISMATCH", HandshakeFailure.NOT_TLS),
)
_VERSIONS: Final = {TLSVersion.TLS12: ssl.TLSVersion.TLSv1_2, TLSVersion.TLS13: ssl.TLSVersion.TLSv1_3}


def serving_context(
    certificate_file: Path, key_file: Path, client_ca: bytes | None, cipher_suites: Sequence[str] = ()
) -> ssl.SSLContext:
    """Make a context with a pair, the CAs (PEM) of clients if they must show one, and suites of TLS 1.2 if not all.

    Raises OSError for files that cannot be read, and Unusable for what OpenSSL refuses: a pair that cannot be parsed or
    does not match, a key with a password, CAs that are none.
    """
    clients = None if client_ca is None else client_ca_text(client_ca)
    context = _context()
    with parsing("certificate and key cannot be loaded"):
        context.load_cert_chain(certificate_file, key_file, password=_no_password)
    if cipher_suites:
        context.set_ciphers(":".join(CIPHER_SUITES[name] for name in cipher_suites))
    if clients is not None:
        context.load_verify_locations(cadata=clients)
        # Whether clients are asked is up to the listener's context, but Python shows their certificates only if this
        # one says so too.
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def pair_context(pair: Pair, client_ca: bytes | None, cipher_suites: Sequence[str] = ()) -> ssl.SSLContext:
    """Do the same for a pair that is in no file: a key that is made here never touches a disk."""
    with _file_of(pair.certificate + pair.key) as file:
        return serving_context(file, file, client_ca, cipher_suites)


def client_ca_text(pem: bytes) -> str:
    """Return CAs for clients as a context takes them; raises Unusable."""
    with parsing("the client CA cannot be read"):
        x509.load_pem_x509_certificates(pem)
    text = pem.decode("ascii", "ignore")  # comments between the blocks may be in any language
    with parsing("the client CA cannot be loaded"):
        _context().load_verify_locations(cadata=text)
    return text


@contextlib.contextmanager
def _file_of(content: bytes) -> Iterator[Path]:
    """Give a path that leads to the content as long as the block lasts: `load_cert_chain` takes nothing else."""
    if not hasattr(os, "memfd_create"):  # not Linux: a laptop
        with tempfile.TemporaryDirectory() as folder:  # readable for this user only
            path = Path(folder) / "pair.pem"
            path.write_bytes(content)
            yield path
        return
    number = os.memfd_create("pair.pem")
    with open(number, "wb") as file:  # noqa: PTH123 -- there is no path yet
        file.write(content)
        file.flush()
        yield Path(f"/proc/self/fd/{number}")


def listening_context(
    newest: Callable[[], ssl.SSLContext | None],
    *,
    client_certificates: bool,
    oldest_version: TLSVersion = TLSVersion.TLS12,
    tell_failure: Tell = lambda *_: None,
    handshake_seconds: float = math.inf,
    most_handshakes: float = math.inf,
) -> ssl.SSLContext:
    """Make the context to listen with: it has no certificate, each handshake takes what `newest` gives.

    OpenSSL calls back with and without a server name. A switch takes over the certificate, the suites of TLS 1.2 and
    the CAs for clients, but not whether they are asked nor which versions are spoken: that stays as the listener's
    context says. `tell_failure` is called for each handshake that fails; the loop gives each `handshake_seconds`. One
    fails at once if `most_handshakes` are under way.
    """
    context = _context()
    attributes = {
        "tell": staticmethod(tell_failure),
        "timeout_seconds": handshake_seconds,
        "most": most_handshakes,
        "under_way": 0,
    }
    context.sslobject_class = type("WatchedHandshakeOfContext", (WatchedHandshake,), attributes)
    context.minimum_version = _VERSIONS[oldest_version]
    if client_certificates:
        context.verify_mode = ssl.CERT_REQUIRED

    def switch(connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, _own: ssl.SSLContext) -> int | None:
        if isinstance(connection, WatchedHandshake):
            connection.server_name = name
        context = newest()
        if context is None:
            return int(ssl.ALERT_DESCRIPTION_INTERNAL_ERROR)
        connection.context = context
        return None

    context.sni_callback = switch
    return context


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # A resumed session would skip the check of the client's certificate, and API servers do not resume. Session ids of
    # TLS 1.2 cannot be switched off, so WatchedHandshake refuses those.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.num_tickets = 0
    # All that OpenSSL offers by default is sound; which of it is quick on its machine, a client knows.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    return context


def _no_password() -> str:
    raise ValueError("the key has a password")


class WatchedHandshake(ssl.SSLObject):
    """The server's end of a TLS connection; reports a handshake that fails.

    A connection that ends, or that runs out of time, before OpenSSL sees a fault is noticed when the loop lets go of
    this object: no other sign of it reaches us.
    """

    # ssl creates these objects itself, so what they need is set on a subclass for each context.
    tell: Callable[[HandshakeFailure, str, str | None], None]
    timeout_seconds: float
    most: float
    under_way: int

    server_name: str | None = None
    """What the client asked for (SNI)."""
    _begun_at: float | None = None
    _heard = False
    _over = False

    def do_handshake(self) -> None:
        """Take one more step, with all that has come in. Raises what ssl raises."""
        if self._begun_at is None:
            self._begun_at = time.monotonic()
            type(self).under_way += 1
        else:
            self._heard = True
        try:
            self._go_on()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self._end()
            name = getattr(error, "reason", None) or ""  # not even None if it is our own
            text = getattr(error, "verify_message", None) or name or str(error)
            reason = next((reason for part, reason in _REASONS if part in name), HandshakeFailure.OTHER)
            type(self).tell(reason, text, self.server_name)
            raise
        self._end()

    def _go_on(self) -> None:
        if self.under_way > self.most:  # never so in a later step: the one that is too many ends here
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, "too many handshakes at a time")
        super().do_handshake()
        if self.session_reused and self.context.verify_mode is ssl.CERT_REQUIRED:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, "a resumed session skips the check of the client's certificate")

    def _end(self) -> None:
        self._over = True
        type(self).under_way -= 1

    def __del__(self) -> None:
        """Report a handshake that the end of the connection cut off."""
        if self._over or self._begun_at is None:
            return
        self._end()
        if time.monotonic() - self._begun_at >= self.timeout_seconds - _TIMER_SLACK_SECONDS:
            type(self).tell(HandshakeFailure.TIMEOUT, f"not done after {self.timeout_seconds:g} s", self.server_name)
        elif self._heard:
            type(self).tell(HandshakeFailure.CLOSED, "the connection ended in the middle of it", self.server_name)
        else:
            type(self).tell(HandshakeFailure.CLOSED, "", None)


class HandshakeFailures:
    """Counts each failure, and logs at most one a minute for each reason."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._sampled = {reason: Sampled(_LOGGED_EVERY_SECONDS) for reason in HandshakeFailure}

    def tell(self, reason: HandshakeFailure, error: str, server_name: str | None) -> None:
        """Count one handshake that failed; see `Tell`."""
        self._metrics.tls_handshake_failures.labels(reason).inc()
        if not error:
            return
        times = self._sampled[reason].take()
        if times:
            fields = {"reason": reason.value, "error": error, "serverName": server_name, "times": times}
            log.warning("TLS handshake failed", extra=fields)
