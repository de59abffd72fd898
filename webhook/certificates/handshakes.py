"""TLS handshakes that failed: why, counted and logged. The event loop drops these errors without a word.

A failed handshake is most often a wrong caBundle, which otherwise only the API server's log would show.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from typing import Final

from webhook.flowcontrol.loop import Sampled
from webhook.telemetry.metrics import HandshakeFailure, Metrics

Tell = Callable[[HandshakeFailure, str, str | None], None]

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


def reason_of(error: ssl.SSLError) -> HandshakeFailure:
    """The reason that an error of OpenSSL counts under."""
    name = error.reason or ""
    return next((reason for part, reason in _REASONS if part in name), HandshakeFailure.OTHER)


class WatchedHandshake(ssl.SSLObject):
    """The server's end of a TLS connection; reports a handshake that fails.

    A connection that ends, or that runs out of time, before OpenSSL sees a fault is noticed when the loop lets go of
    this object: no other sign of it reaches us.
    """

    # ssl creates these objects itself, so what they need is set on a subclass for each context.
    tell: Callable[[HandshakeFailure, str, str | None], None]
    timeout_seconds: float

    server_name: str | None = None
    """What the client asked for (SNI)."""
    _begun_at: float | None = None
    _heard = False
    _over = False

    def do_handshake(self) -> None:
        """One more step, with all that has come in. Raises what ssl raises."""
        if self._begun_at is None:
            self._begun_at = time.monotonic()
        else:
            self._heard = True
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self._over = True
            text = getattr(error, "verify_message", None) or error.reason or str(error)
            type(self).tell(reason_of(error), text, self.server_name)
            raise
        self._over = True

    def __del__(self) -> None:
        """The end of the connection."""
        if self._over or self._begun_at is None:
            return
        if time.monotonic() - self._begun_at >= self.timeout_seconds - _TIMER_SLACK_SECONDS:
            type(self).tell(HandshakeFailure.TIMEOUT, f"not done after {self.timeout_seconds:g} s", self.server_name)
        elif self._heard:
            type(self).tell(HandshakeFailure.CLOSED, "the connection ended in the middle of it", self.server_name)
        else:
            type(self).tell(HandshakeFailure.CLOSED, "", None)


def watch(context: ssl.SSLContext, tell: Tell, timeout_seconds: float) -> None:
    """Calls `tell` with reason, text and server name for each handshake of this context that fails.

    The text is empty for a connection that ended without a byte: load balancers and port scanners do that all day.
    `timeout_seconds` is how long the loop lets a handshake take.
    """
    attributes = {"tell": staticmethod(tell), "timeout_seconds": timeout_seconds}
    context.sslobject_class = type("WatchedHandshakeOfContext", (WatchedHandshake,), attributes)


class HandshakeFailures:
    """Counts each failure, and logs at most one a minute for each reason."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._sampled = {reason: Sampled(_LOGGED_EVERY_SECONDS, clock) for reason in HandshakeFailure}

    def tell(self, reason: HandshakeFailure, error: str, server_name: str | None) -> None:
        """One handshake that failed; see `watch`."""
        self._metrics.count_handshake_failure(reason)
        if not error:
            return
        times = self._sampled[reason].take()
        if times:
            fields = {"reason": reason.value, "error": error, "serverName": server_name, "times": times}
            log.warning("TLS handshake failed", extra=fields)
