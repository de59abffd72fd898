"""The one place where errors of the parsers of certificates and keys become ours, and the CAs that clients trust.

It imports no `cryptography`, since the client of the cluster needs it at the start of verbs; `settings` not even `ssl`.

`cryptography` and OpenSSL document only some of what they raise, and `cryptography` parses parts of a certificate when
they are first read. So every use of either, on bytes from a file or from the cluster, is inside `parsing`.
"""

from __future__ import annotations

import contextlib
import ssl
import warnings
from collections.abc import Iterator


class Unusable(ValueError):  # noqa: N818 -- it says what the bytes are
    """A certificate or key is there but must not be used; the text says why, and never quotes a key."""


@contextlib.contextmanager
def parsing(what: str) -> Iterator[None]:
    """Raise Unusable for whatever a parser raises inside: `what`, then the parser's own words.

    Errors of the operating system, such as a missing file, are passed on: they name the file.
    """
    try:
        # Warnings about old algorithms would go to stderr, as lines that are not in the format of the log.
        with warnings.catch_warnings(action="ignore"):
            yield
    except Unusable:
        raise
    # UnsupportedAlgorithm, InvalidVersion, DuplicateExtension and others have no common class.
    except Exception as error:
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
            raise
        words = " ".join(str(error).split()) or type(error).__name__
        raise Unusable(f"{what}: {words}") from None


def trusting_context(ca_pem: str) -> ssl.SSLContext:
    """Make a client's context that trusts these CAs, and verifies as API servers and their clients in Go do.

    Python 3.13 refuses certificates without key identifiers or with a basic constraint that is not critical, which
    CAs of many clusters lack. Raises ssl.SSLError or ValueError for what is no CA in PEM.
    """
    context = ssl.create_default_context(cadata=ca_pem)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
