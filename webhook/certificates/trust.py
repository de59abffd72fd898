"""What clients of API servers trust."""

from __future__ import annotations

import ssl


def trusting_context(ca_pem: str) -> ssl.SSLContext:
    """A client's context that trusts these CAs, and verifies as API servers and their clients in Go do.

    Python 3.13 refuses certificates without key identifiers or with a basic constraint that is not critical, which
    CAs of many clusters lack. Raises ssl.SSLError or ValueError for what is no CA in PEM.
    """
    context = ssl.create_default_context(cadata=ca_pem)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
