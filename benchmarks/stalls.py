"""What small claims wait for while others send claims of 2 MB, or hostile selectors: `make benchmark-stalls`.

One client asks small forbidden claims in turn, first alone, then beside sixteen that are connected and send large ones
as fast as they are answered, then beside sixteen with CEL selectors that are made to take long. Every small claim has
to be refused within its timeout of 3 s, and `/livez` beside the selectors has to answer within a second.
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
from tests.builders import encoded, make_claim, make_patch, make_request, make_review, make_taint, make_toleration
from tests.selectors.hostile import slowest

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from multiprocessing.sharedctypes import Synchronized
    from multiprocessing.synchronize import Barrier

_LARGE: Final = 16
_SMALL: Final = 2000
_LOWER: Final = 10
"""By how much clients with large claims are nicer than the one that is timed."""
_TIMEOUT_SECONDS: Final = 3
_PROBED: Final = 20
"""Small claims from one probe to the next."""
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


def _selecting(seed: int) -> bytes:
    """A patch with two selectors, which take as long to compile as any that were found."""
    selectors = [{"cel": {"expression": text}} for text in slowest(seed)]
    return encoded(make_review(make_patch(filter_={"selectors": selectors}, taints=[make_taint(effect="NoSchedule")])))


def _connected(port: int, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    connection = http.client.HTTPSConnection(HOST, port, context=context, timeout=_TIMEOUT_SECONDS)
    connection.connect()
    return connection


def _ask(connection: http.client.HTTPSConnection, body: bytes) -> float:
    """How long the answer took, in ms. Raises where it is missing, late, or lets the object pass."""
    start = time.perf_counter()
    connection.request("POST", _PATH, body, {"Content-Type": "application/json"})
    response: dict[str, Any] = json.loads(connection.getresponse().read())["response"]
    taken = time.perf_counter() - start
    if response["allowed"]:
        raise SystemExit("a forbidden claim was let in")
    return taken * 1000


def _flood(port: int, certificates: Certificates, body: bytes, connected: Barrier, answered: Synchronized[int]) -> None:
    """Large claims without a pause, on a connection that is kept, as API servers keep theirs."""
    # On the cores that all share, the client whose time is taken goes first.
    os.nice(_LOWER)
    connection = _connected(port, certificates.client_context())
    connected.wait()
    while True:
        _ask(connection, body)
        with answered.get_lock():
            answered.value += 1


def _p99(taken: list[float]) -> float:
    return statistics.quantiles(taken, n=100)[98]


def main() -> int:
    """1 if small claims wait for longer than they may."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificates = Certificates(folder)
        command = ours(certificates, "ours", "--policy-file", str(write(folder, MANY_RULES)))
        with Server(command, None, folder) as server:
            client, small = _connected(server.port, certificates.client_context()), _small()
            for _ in range(_SMALL):
                _ask(client, small)
            alone = [_ask(client, small) for _ in range(_SMALL)]
            beside, large_rate = _beside(server.port, certificates, client, small, [_large()] * _LARGE)
            before = server.memory.resident
            bodies = list(map(_selecting, range(_LARGE)))
            hostile, rate = _beside(server.port, certificates, client, small, bodies, command.ready)
            grown = (server.memory.resident - before) / 2**20
    print("| small claims | p50 ms | p99 ms | longest ms |\n|---|---:|---:|---:|")
    rows = (
        ("alone", alone),
        (f"beside {_LARGE} of 2 MB", beside),
        (f"beside {_LARGE} with hostile selectors", hostile),
    )
    for title, taken in rows:
        figures = " | ".join(f"{figure:.2f}" for figure in (statistics.median(taken), _p99(taken), max(taken)))
        print(f"| {title} | {figures} |")
    print(f"{large_rate:.0f} large claims a second were answered meanwhile, and {rate:.1f} patches with such selectors")
    print(f"The server grew by {grown:.0f} MiB beside the selectors")
    return int(_p99(beside) > _TIMES_IDLE * _p99(alone))


def _beside(
    port: int,
    certificates: Certificates,
    client: http.client.HTTPSConnection,
    small: bytes,
    bodies: list[bytes],
    probed: Callable[[], bool] = lambda: True,
) -> tuple[list[float], float]:
    """How long small claims took beside clients that each send a body without a pause, and how many of those a second.

    `probed` asks the port for probes, now and then, and has to say yes within a second.
    """
    connected, answered = multiprocessing.Barrier(len(bodies) + 1), multiprocessing.Value("i", 0)
    floods = [
        multiprocessing.Process(target=_flood, args=(port, certificates, body, connected, answered), daemon=True)
        for body in bodies
    ]
    for flood in floods:
        flood.start()
    try:
        connected.wait()
        start = time.perf_counter()
        taken = []
        for number in range(_SMALL):
            taken.append(_ask(client, small))
            asked = time.perf_counter()
            if not number % _PROBED and not (probed() and time.perf_counter() - asked < 1):
                raise SystemExit("a probe got no answer within a second")
        rate = answered.value / (time.perf_counter() - start)
        if not all(flood.is_alive() for flood in floods):
            raise SystemExit("a client beside the small claims got no answer in its time")
    finally:
        for flood in floods:
            flood.terminate()
    return taken, rate


if __name__ == "__main__":
    sys.exit(main())
