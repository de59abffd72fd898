"""Several replicas with self-managed certificates behind one address, and load that comes through the API server."""

from __future__ import annotations

import base64
import contextlib
import copy
import itertools
import json
import os
import signal
import socket
import ssl
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from tests.apiserver.policy.stage import ACCOUNT, ACCOUNT_GROUPS
from tests.apiserver.registration.samples import MANIFESTS
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until
from tests.controlplane.registration import calls, configurations, default_probes
from tests.controlplane.webhook_process import WebhookProcess
from webhook.certificates.stored import authorities_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.controlplane.plane import ControlPlane
    from webhook.certificates.rotation import Authorities

Json = dict[str, Any]

CERTS: Final = Path(__file__).parents[2] / "certs"
NAMESPACE: Final = "device-taint-webhook"
SECRET: Final = path("v1", "secrets", namespace=NAMESPACE, name="device-taint-webhook-ca")
CONFIGURATIONS: Final = tuple(
    path("admissionregistration.k8s.io/v1", plural, name="device-taint-webhook")
    for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
)
_HOST: Final = "127.0.0.1"
_INSTALLED: Final = (
    MANIFESTS / "base/namespace.yaml",
    MANIFESTS / "base/access.yaml",
    MANIFESTS / "base/key.yaml",
    CERTS / "self-managed/secret.yaml",
    CERTS / "self-managed/access.yaml",
)


class Balancer:
    """What a Service is to API servers: one address, and each new connection goes to the next replica that is there."""

    def __init__(self) -> None:
        self.ports: tuple[int, ...] = ()
        self._listener = socket.create_server((_HOST, 0), backlog=512)
        self._turns = itertools.count()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        return f"https://{_HOST}:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        turn = next(self._turns)
        for offset in range(len(self.ports)):
            port = self.ports[(turn + offset) % len(self.ports)]
            try:
                replica = socket.create_connection((_HOST, port), timeout=5)
            except OSError:
                continue
            replica.settimeout(None)
            back = threading.Thread(target=_pump, args=(replica, caller), daemon=True)
            back.start()
            _pump(caller, replica)
            back.join()
            replica.close()
            break
        caller.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


class Load:
    """Requests that the API server asks us about, at a steady pace, and handshakes like those of a slow API server.

    A webhook whose failurePolicy is Ignore fails in silence, so the API server's own count of failures is what tells.
    """

    def __init__(self, plane: ControlPlane, address: tuple[str, int], per_second: int) -> None:
        self._plane = plane
        self._address = address
        self._interval = 1 / per_second
        self._probes = default_probes(plane)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._due = time.monotonic()
        self.sent = 0
        self.handshakes = 0
        self.faults: Counter[str] = Counter()
        self.failed: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> Self:
        self._before = calls(self._plane).failed
        self._began = self._due = time.monotonic()
        senders = [threading.Thread(target=self._send) for _ in range(8)]
        self._threads = [*senders, threading.Thread(target=self._shake_hands)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self.seconds = time.monotonic() - self._began
        self.failed = calls(self._plane).failed - self._before

    def _send(self) -> None:
        while not self._stopped.is_set():
            with self._lock:
                self._due = max(self._due + self._interval, time.monotonic() - 1)
                due, number = self._due, self.sent
                self.sent += 1
            time.sleep(max(0.0, due - time.monotonic()))
            collection, obj = self._probes[number % len(self._probes)]
            reply = self._plane.client.create(collection, obj, dry_run=True)
            if not reply.ok:
                with self._lock:
                    self.faults[f"{reply.code}: {reply.message}"] += 1

    def _shake_hands(self) -> None:
        """With the caBundle as it was a second ago: no API server hears of a change at once."""
        known: list[tuple[float, str]] = []
        while not self._stopped.wait(0.05):
            now = time.monotonic()
            if not known or now - known[-1][0] >= 0.2:
                known.append((now, bundles(self._plane)[0][0].decode()))
            older = [bundle for time_read, bundle in known if time_read <= now - 1]
            context = ssl.create_default_context(cadata=(older or [known[0][1]])[-1])
            try:
                with socket.create_connection(self._address, timeout=10) as plain:
                    context.wrap_socket(plain, server_hostname=_HOST).close()
            except OSError as error:
                with self._lock:
                    self.faults[f"handshake: {error}"] += 1
            self.handshakes += 1


def bundles(plane: ControlPlane) -> list[list[bytes]]:
    """The caBundles of both configurations."""
    found = [plane.client.get(each).object["webhooks"] for each in CONFIGURATIONS]
    return [[base64.b64decode(each["clientConfig"].get("caBundle", "")) for each in webhooks] for webhooks in found]


class Replicas:
    """The webhook installed with component self-managed, and processes that serve."""

    def __init__(self, plane: ControlPlane, *arguments: str) -> None:
        self.plane = plane
        self.client = plane.client
        self.running: list[WebhookProcess] = []
        self._arguments = arguments
        self.balancer = Balancer()

    def install(self) -> None:
        """Everything but the processes; the configurations lead to the balancer and trust nobody yet."""
        for file in _INSTALLED:
            done = self.plane.kubectl("apply", "-f", file)
            assert done.code == 0, done
        for configuration, url in zip(configurations(MANIFESTS), CONFIGURATIONS, strict=True):
            changed = copy.deepcopy(configuration)
            for webhook in changed["webhooks"]:
                webhook["clientConfig"] = {"url": self.balancer.url + webhook["clientConfig"]["service"]["path"]}
            _ = self.client.apply(url, changed, field_manager="test-registration").object

    @contextlib.contextmanager
    def serving(self, count: int) -> Iterator[Self]:
        """So many replicas, from start to end."""
        with self.balancer:
            try:
                for _ in range(count):
                    self.start()
                yield self
            finally:
                for each in self.running:
                    each.__exit__(None, None, None)

    def start(self) -> WebhookProcess:
        """One more replica; returns once it is ready."""
        kubeconfig = self.plane.kubeconfig_of(ACCOUNT, ACCOUNT_GROUPS)
        process = WebhookProcess(
            f"--kubeconfig={kubeconfig}",
            "--certificate-names=127.0.0.1",
            *self._arguments,
            standalone=False,
            self_managed=True,
        ).__enter__()
        self.running.append(process)
        self._balance()
        return process

    def kill(self, number: int) -> None:
        """SIGKILL: no last words, no last write."""
        process = self.running.pop(number)
        os.kill(process.process.pid, signal.SIGKILL)
        process.__exit__(None, None, None)
        self._balance()

    def _balance(self) -> None:
        self.balancer.ports = tuple(urlsplit(each.base_url).port or 0 for each in self.running)

    @property
    def address(self) -> tuple[str, int]:
        return _HOST, urlsplit(self.balancer.url).port or 0

    @property
    def data(self) -> dict[str, bytes]:
        """What the Secret holds."""
        fields = self.client.get(SECRET).object.get("data") or {}
        return {name: base64.b64decode(text) for name, text in fields.items()}

    @property
    def authorities(self) -> Authorities:
        return authorities_in(self.data)

    def write(self, data: Json | None) -> None:
        """Puts base64 into fields of the Secret; None for all of them takes everything out."""
        _ = self.client.patch(SECRET, {"data": data}).object

    def wait(self, condition: Callable[[Authorities], bool], what: str, seconds: float) -> Authorities:
        """Until the Secret is as it is waited for."""
        wait_until(lambda: condition(self.authorities), what, seconds=seconds)
        return self.authorities

    def issuers_trusted(self) -> bool:
        """Whether every caBundle is the one CA that signs, and nothing else is stored."""
        found = self.authorities
        if found.signing is None or found.next is not None or found.old:
            return False
        return {each for webhooks in bundles(self.plane) for each in webhooks} == {found.signing.pair.certificate}

    def called(self) -> bool:
        """Whether the API server reaches us: a probe of each kind is admitted, and no call failed."""
        before = calls(self.plane)
        replies = [self.client.create(collection, obj, dry_run=True) for collection, obj in default_probes(self.plane)]
        after = calls(self.plane)
        reached = after.answered != before.answered and after.failed == before.failed
        return reached and all(reply.ok for reply in replies)


def logged(process: WebhookProcess, message: str) -> list[Json]:
    """Lines of a replica's log."""
    lines = [json.loads(line) for line in process.process.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["msg"] == message]
