"""`evict`, which stops itself (SIGSTOP) once, right before it sends an eviction: after all checks but the last one.

    python -m tests.apiserver.eviction.stopping NUMBER [ARGUMENT ...]

NUMBER is the eviction before which it stops. It goes on when it gets SIGCONT. Its connections stay usable for longer
than the 15 s after which aiohttp would close them, since a lease can be lost after 13.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partialmethod
from typing import Any, Final

import aiohttp

from webhook.cli import main
from webhook.cluster.client.rest import Cluster

_KEEPALIVE_SECONDS: Final = 600.0


def _keep_connections() -> None:
    aiohttp.TCPConnector.__init__ = partialmethod(  # type: ignore[method-assign, assignment]
        aiohttp.TCPConnector.__init__, keepalive_timeout=_KEEPALIVE_SECONDS
    )


def _stop_before(number: int) -> None:
    send, sent = Cluster._send, 0

    async def stopping(cluster: Cluster, request: Any, access: Any) -> aiohttp.ClientResponse:
        nonlocal sent
        if request.method == "POST" and request.path.endswith("/eviction") and b"dryRun" not in request.data:
            sent += 1
            if sent == number:
                os.kill(os.getpid(), signal.SIGSTOP)
        return await send(cluster, request, access)

    Cluster._send = stopping  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    _keep_connections()
    _stop_before(int(sys.argv.pop(1)))
    sys.exit(main())
