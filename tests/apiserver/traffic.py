"""A Service in front of replicas, and load that comes to them through the API server."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, Self
from urllib.parse import urlsplit

from tests.controlplane.plane import ControlPlane
from tests.controlplane.registration import calls, default_probes
from tests.controlplane.webhook_process import ROOT

Json = dict[str, Any]

PER_SECOND: Final = 200
"""The pace. Two cores that do nothing else keep up with it: API server, three replicas, and this."""
FLOOR: Final = 300
"""Requests: fewer would prove nothing. How many a second a busy machine reaches is printed, and proves nothing."""
_COMMAND: Final = (sys.executable, "-m", "tests.apiserver.traffic_process")
_SHAKE_SECONDS: Final = 0.1
_HEARD_SECONDS: Final = 1.0
_LATE_SECONDS: Final = 2.5
"""An API server hears of a caBundle within a second or so. What took longer only tells of a busy machine."""


class Balancer:
    """What a Service is to API servers: one address, and each new connection goes to the next replica in the list.

    A process of its own (traffic_process), there while the block lasts.
    """

    url: str
    """https://127.0.0.1:<port>; TLS passes through unread."""

    def __enter__(self) -> Self:
        # Not measured: it is no part of the product, and would be a third slower.
        environment = {k: v for k, v in os.environ.items() if k != "COVERAGE_PROCESS_START"}
        self._process = subprocess.Popen(
            _COMMAND, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lock = threading.Lock()
        self.url = f"https://127.0.0.1:{self._answer()['port']}"
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:  # closes its stdin, which ends it, and waits
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 0

    def lead_to(self, urls: Iterable[str]) -> None:
        """New connections go to these from now on; those that are open stay where they are."""
        self.order({"ports": [urlsplit(url).port for url in urls]})

    def cut(self) -> None:
        """Ends all connections, so that the next call goes to the next replica."""
        self.order({"cut": True})

    def order(self, order: Json) -> Json:
        """What the process answers."""
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            return self._answer()

    def _answer(self) -> Json:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process that balances has ended"
        answer: Json = json.loads(line)
        return answer


class Load:
    """Requests that the API server asks us about, at a steady pace, and handshakes like those of a slow API server.

    A webhook whose failurePolicy is Ignore fails in silence, so the API server's own count of failures is what tells.
    """

    def __init__(
        self, plane: ControlPlane, balancer: Balancer, bundle: Callable[[], bytes], server_name: str, *, per_second: int
    ) -> None:
        """bundle reads the caBundle; server_name is what the certificate is asked to hold for."""
        self._plane = plane
        self._balancer = balancer
        self._bundle = bundle
        self._server_name = server_name
        self._per_second = per_second
        self._stopped = threading.Event()
        self.handshakes = 0
        self.late = 0
        """Of these, those that failed and took too long to say anything."""
        self.sent = 0
        self.seconds = 0.0
        self.faults: Counter[str] = Counter()
        self.failed: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> Self:
        self._before = calls(self._plane).failed
        pki, server = self._plane.folder / "pki", urlsplit(self._plane.server)
        self._balancer.order(
            {
                "start": {
                    "host": server.hostname,
                    "port": server.port,
                    "ca": str(pki / "ca.crt"),
                    "certificate": str(pki / "admin.crt"),
                    "key": str(pki / "admin.key"),
                    "requests": [_request(collection, obj) for collection, obj in default_probes(self._plane)],
                    "interval_seconds": 1 / self._per_second,
                }
            }
        )
        self._hands = threading.Thread(target=self._shake_hands)
        self._hands.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._hands.join()
        self._report = self._balancer.order({"stop": True})
        self.sent, self.seconds = self._report["sent"], self._report["seconds"]
        self.faults.update(self._report["faults"])
        self.failed = calls(self._plane).failed - self._before

    @property
    def lost(self) -> tuple[Counter[tuple[str, str]], Counter[str]]:
        """Calls that failed as the API server counts them, by entry; requests and handshakes that did, by reason."""
        return self.failed, self.faults

    @property
    def rate(self) -> float:
        """Requests in a second, in the end."""
        return self.sent / self.seconds

    def __str__(self) -> str:
        milliseconds = [f"{self._report[name] * 1000:.0f}" for name in ("p50", "p99", "slowest")]
        return (
            f"{self.rate:.0f} requests/s through the API server for {self.seconds:.0f} s (p50, p99, slowest: "
            f"{', '.join(milliseconds)} ms), {self.handshakes} handshakes ({self.late} too late to count)"
        )

    def _shake_hands(self) -> None:
        """With the caBundle as it was a second ago: no API server hears of a change at once."""
        known = [(time.monotonic(), self._bundle())]
        while not self._stopped.wait(_SHAKE_SECONDS):
            now = time.monotonic()
            if now - known[-1][0] >= _HEARD_SECONDS / 4:
                known.append((now, self._bundle()))
            read, bundle = next((each for each in reversed(known) if each[0] <= now - _HEARD_SECONDS), known[0])
            context = ssl.create_default_context(cadata=bundle.decode())
            try:
                with socket.create_connection(self._balancer.address, timeout=10) as plain:
                    context.wrap_socket(plain, server_hostname=self._server_name).close()
            except OSError as error:
                if time.monotonic() - read <= _LATE_SECONDS:
                    self.faults[f"handshake: {error}"] += 1
                else:
                    self.late += 1
            self.handshakes += 1


def _request(collection: str, obj: Any) -> str:
    """The whole HTTP request of a dry run that creates it."""
    body = json.dumps(obj)
    assert body.isascii()
    head = (
        f"POST {collection}?dryRun=All HTTP/1.1",
        "Host: test",
        "Accept: application/json",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*head, "", body))
