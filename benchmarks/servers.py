"""The servers under test as processes: how they start, and what they use."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from benchmarks.gobinaries import BenchmarkError
from benchmarks.interpreters import HERE, Interpreter
from tests.controlplane.pki import Authority
from tests.controlplane.processes import Process, free_port
from tests.controlplane.webhook_process import our_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OURS, PEER, NONE = "ours", "peer", "none"
POLICY, MANY_RULES = "ours, 50 rules", "ours, 1000 rules"
"""Names of the servers, as the tables show them; ours on another Python than the image's has it in its name."""

HOST = "127.0.0.1"
_POLL_SECONDS = 0.002
_READY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Cores:
    """Which core does what; the benchmark itself sleeps while it measures."""

    server: int
    load: int

    @classmethod
    def here(cls) -> Cores:
        """The first two that this process may use.

        Raises: BenchmarkError if there is only one.
        """
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) < 2:
            raise BenchmarkError("needs two cores: one for the server, one for the load")
        return cls(allowed[0], allowed[1])


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one process, in bytes."""

    resident: int
    peak: int


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a server, and how to see that it is ready."""

    name: str
    line: list[str]
    port: int
    ready: Callable[[], bool]


class Certificates:
    """A serving certificate for 127.0.0.1, its CA, and a client's view of both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca_file = folder / "ca.crt"
        authority = Authority("benchmark-ca")
        self.ca_pem = authority.pem
        authority.server(HOST, "localhost").write(folder)
        self.ca_file.write_bytes(self.ca_pem)

    def client_context(self) -> ssl.SSLContext:
        """Trusts that CA only."""
        return ssl.create_default_context(cadata=self.ca_pem.decode())


def ours(certificates: Certificates, name: str, *arguments: str, python: Interpreter = HERE) -> Command:
    """This project's server, from the work tree, on ports of its own."""
    port, health, metrics = free_port(), free_port(), free_port()
    line = ["webhook", "serve", "--standalone"]
    line += ["--bind-address", HOST, "--port", str(port), "--cert-dir", str(certificates.folder)]
    line += ["--health-probe-bind-address", f"{HOST}:{health}", "--metrics-bind-address", f"{HOST}:{metrics}"]
    started = python.module(certificates.folder, *line, *arguments)
    return Command(name, started, port, lambda: _answers_200(health, "/readyz"))


def peer(certificates: Certificates, name: str, executable: Path) -> Command:
    """The Go webhook."""
    port, metrics = free_port(), free_port()
    line = [str(executable), "--host", HOST, "--port", str(port), "--cert-dir", str(certificates.folder)]
    line += ["--metrics-bind-address", f"{HOST}:{metrics}"]
    return Command(name, line, port, lambda: _accepts(port) and _answers_200(metrics, "/metrics"))


class Server:
    """A running server, pinned to a core (if one is given) from its first instruction."""

    def __init__(self, command: Command, core: int | None, folder: Path) -> None:
        self.name = command.name
        self.port = command.port
        self.url = f"https://{HOST}:{command.port}/validate"
        log = folder / f"{command.name}.log"
        with on_core(core):
            self._process = Process(command.name, command.line, log, environment=our_environment())
        try:
            self._process.wait_ready(command.ready, seconds=_READY_SECONDS)
        except BaseException:
            self._process.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    @property
    def cpu_seconds(self) -> float:
        """Time on a CPU since the start, all threads, user and system."""
        # Fields 14 and 15 of proc(5); the second field is in parentheses and may hold anything.
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> Memory:
        """Now, and at most so far."""
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines())
        return Memory(*(int(status[field].split()[0]) * 1024 for field in ("VmRSS", "VmHWM")))


def seconds_to_ready(command: Command, core: int) -> float:
    """Starts a server with nothing between, waits until it is ready, ends it.

    Raises: BenchmarkError if it is not in time.
    """
    with tempfile.TemporaryFile() as log:
        started = time.monotonic()
        with on_core(core):
            process = subprocess.Popen(command.line, env=our_environment(), stdout=log, stderr=log)
        with process:
            try:
                while not command.ready():
                    if process.poll() is not None or time.monotonic() > started + _READY_SECONDS:
                        log.seek(0)
                        raise BenchmarkError(f"{command.name} does not get ready:\n{log.read().decode()[-2000:]}")
                    time.sleep(_POLL_SECONDS)
                return time.monotonic() - started
            finally:
                process.terminate()


@contextlib.contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """What is started in the block inherits the core, before it can look how many there are; None for any."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before if core is None else {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _answers_200(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=1)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
