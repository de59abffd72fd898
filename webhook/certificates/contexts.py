"""TLS contexts: one for the listener that never changes, and one for each certificate that is served.

`load_cert_chain` on a context in use breaks it when the pair does not match: every handshake fails until a good pair
is loaded. So each pair gets a context of its own, and the listener's switches over at the start of each handshake.
"""

from __future__ import annotations

import contextlib
import math
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from webhook.certificates.authority import Pair
from webhook.certificates.handshakes import Tell, WatchedHandshake, watch
from webhook.certificates.parsing import parsing
from webhook.certificates.settings import CIPHER_SUITES, TLSVersion

_VERSIONS: Final = {TLSVersion.TLS12: ssl.TLSVersion.TLSv1_2, TLSVersion.TLS13: ssl.TLSVersion.TLSv1_3}


def serving_context(
    certificate_file: Path, key_file: Path, client_ca: str | None, cipher_suites: Sequence[str] = ()
) -> ssl.SSLContext:
    """A context with a pair, the CAs (PEM) of clients if they must show one, and the suites of TLS 1.2 if not all.

    Raises OSError for files that cannot be read, and Unusable for what OpenSSL refuses: a pair that cannot be parsed or
    does not match, a key with a password, CAs that are none.
    """
    context = _context()
    with parsing("certificate and key cannot be loaded"):
        context.load_cert_chain(certificate_file, key_file, password=_no_password)
    if cipher_suites:
        context.set_ciphers(":".join(CIPHER_SUITES[name] for name in cipher_suites))
    if client_ca is not None:
        with parsing("the client CA cannot be loaded"):
            context.load_verify_locations(cadata=client_ca)
        # Whether clients are asked is up to the listener's context, but Python shows their certificates only if this
        # one says so too.
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def pair_context(pair: Pair, client_ca: str | None, cipher_suites: Sequence[str] = ()) -> ssl.SSLContext:
    """The same for a pair that is in no file: a key that is made here never touches a disk."""
    with _file_of(pair.certificate + pair.key) as file:
        return serving_context(file, file, client_ca, cipher_suites)


@contextlib.contextmanager
def _file_of(content: bytes) -> Iterator[Path]:
    """A path that leads to the content as long as the block lasts: `load_cert_chain` takes nothing else."""
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
    tell_failure: Tell | None = None,
    handshake_seconds: float = math.inf,
) -> ssl.SSLContext:
    """The context to listen with: it has no certificate, each handshake takes what `newest` gives.

    OpenSSL calls back with and without a server name. A switch takes over the certificate, the suites of TLS 1.2 and
    the CAs for clients, but not whether they are asked nor which versions are spoken: that stays as the listener's
    context says. `tell_failure` is called for each handshake that fails; the loop gives each `handshake_seconds`.
    """
    context = _context()
    if tell_failure is not None:
        watch(context, tell_failure, handshake_seconds)
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
    # A resumed session would skip the check of the client's certificate, and API servers do not resume.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.num_tickets = 0
    # All that OpenSSL offers by default is sound; which of it is quick on its machine, a client knows.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    return context


def _no_password() -> str:
    raise ValueError("the key has a password")
