"""What small claims wait for while one client sends claims of 2 MB: `make benchmark-stalls`.

One client asks small forbidden claims in turn, first alone, then beside sixteen that send large ones as fast
as they are answered. Every small claim has to be refused within its timeout of 3 s.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.policies import MANY_RULES, write
from benchmarks.servers import HOST, Certificates, Server, ours
from tests.builders import encoded, make_claim, make_request, make_review, make_toleration

if TYPE_CHECKING:
    import ssl

_LARGE: Final = 16
_SMALL: Final = 2000
_LOWER: Final = 10
"""By how much clients with large claims are nicer than the one that is timed."""
_TIMEOUT_SECONDS: Final = 3
_TIMES_IDLE: Final = 5
"""p99 beside large claims may be so many times p99 alone."""
_PATH: Final = f"/validate?timeout={_TIMEOUT_SECONDS}s"


def _large() -> bytes:
    tolerations = [[make_toleration(key=f"d{at}x{n}.example.com/a") for n in range(110)] for at in range(256)]
    requests = [
        {
            "name": f"q{at}",
            "firstAvailable": [
                {"name": f"s{n}", "deviceClassName": f"c{at}-{n}", "tolerations": tolerations[8 * at + n]}
                for n in range(8)
            ],
        }
        for at in range(32)
    ]
    return encoded(make_review(make_claim(requests=requests)))


def _small() -> bytes:
    """Forbidden, whatever the policy: seventeen tolerations."""
    return encoded(make_review(make_claim(requests=[make_request(tolerations=[make_toleration()] * 17)])))


def _ask(port: int, context: ssl.SSLContext, body: bytes, times: int) -> list[float]:
    """How long each answer took, in ms. Raises where one is missing, late, or lets the object pass."""
    connection = http.client.HTTPSConnection(HOST, port, context=context, timeout=_TIMEOUT_SECONDS)
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        connection.request("POST", _PATH, body, {"Content-Type": "application/json"})
        response: dict[str, Any] = json.loads(connection.getresponse().read())["response"]
        taken.append((time.perf_counter() - start) * 1000)
        if response["allowed"]:
            raise SystemExit("a forbidden claim was let in")
    connection.close()
    return taken


def _flood(port: int, certificates: Certificates, body: bytes) -> None:
    """Without a pause, on a connection that is kept, as API servers keep theirs."""
    # On the cores that all share, the client whose time is taken goes first.
    os.nice(_LOWER)
    while True:
        _ask(port, certificates.client_context(), body, sys.maxsize)


def _p99(taken: list[float]) -> float:
    return statistics.quantiles(taken, n=100)[98]


def main() -> int:
    """1 if small claims wait for longer than they may."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificates = Certificates(folder)
        command = ours(certificates, "ours", "--policy-file", str(write(folder, MANY_RULES)))
        with Server(command, None, folder) as server:
            context, small = certificates.client_context(), _small()
            _ask(server.port, context, small, _SMALL)
            alone = _ask(server.port, context, small, _SMALL)
            arguments = (server.port, certificates, _large())
            floods = [multiprocessing.Process(target=_flood, args=arguments, daemon=True) for _ in range(_LARGE)]
            for flood in floods:
                flood.start()
            try:
                beside = _ask(server.port, context, small, _SMALL)
            finally:
                for flood in floods:
                    flood.terminate()
    print("| small claims | p50 ms | p99 ms | longest ms |\n|---|---:|---:|---:|")
    for title, taken in (("alone", alone), (f"beside {_LARGE} of 2 MB", beside)):
        figures = " | ".join(f"{figure:.2f}" for figure in (statistics.median(taken), _p99(taken), max(taken)))
        print(f"| {title} | {figures} |")
    return int(_p99(beside) > _TIMES_IDLE * _p99(alone))


if __name__ == "__main__":
    sys.exit(main())
