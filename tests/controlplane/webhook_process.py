"""Our own server as a user starts it: a process of its own, with certificates from files, on free ports."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from tests.controlplane.pki import Authority
from tests.controlplane.processes import NotReadyError, Process, free_port

ROOT = Path(__file__).parents[2]
SERVE = (sys.executable, "-m", "webhook", "serve")
_HOST = "127.0.0.1"
_GRACE_SECONDS = 180.0  # it waits for reviews under way, up to 25 s by its own clock, and tests look at its exit code
_ATTEMPTS = 3  # as for the control plane: free ports are only very probably free


def our_environment() -> dict[str, str]:
    """Of a program of this checkout: what a developer has set for one of their own is not for it."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("DEVICE_TAINT_WEBHOOK_")}
    return {**inherited, "PYTHONPATH": str(ROOT)}


class WebhookProcess:
    """Starts on entry and is ready (/readyz) when entry returns; SIGTERM on exit.

    If the block ends in an exception, or keep_logs was set, the folder with log and certificates stays and is
    named on stderr.
    """

    def __init__(
        self,
        *arguments: str,
        standalone: bool = True,
        command: Sequence[str] = SERVE,
        authority: Authority | None = None,
        self_managed: bool = False,
    ) -> None:
        """arguments are added to the command line; authority signs the serving certificate for 127.0.0.1.

        self_managed: the server signs its own, and authority is of no use.
        """
        self._arguments = [*(["--standalone"] if standalone else []), *arguments]
        self._command = command
        self._self_managed = self_managed
        self.authority = authority or Authority("test-webhook-ca")
        self.keep_logs = False

    base_url: str
    """https://127.0.0.1:<port>, to which the paths /validate and /mutate are added."""
    health_url: str
    """http://127.0.0.1:<port>, with /healthz and /readyz."""
    metrics_url: str
    """http://127.0.0.1:<port>/metrics"""
    folder: Path
    """Log and certificates."""
    cert_dir: Path
    """tls.crt, tls.key, ca.crt: write new ones here to rotate."""
    process: Process
    """The running server."""

    @property
    def ca_pem(self) -> bytes:
        """What a client has to trust."""
        return self.authority.pem

    def metrics(self) -> str:
        """The metrics, in Prometheus' text format."""
        code, text = _get(self.metrics_url)
        assert code == 200, text
        return text

    def ready(self) -> bool:
        """/readyz answers 200."""
        try:
            return _get(f"{self.health_url}/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def logged(self) -> list[dict[str, Any]]:
        """Whole lines of its log, as it writes them by default: the last one may still be being written."""
        written = self.process.log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in written if line.startswith("{") and line.endswith("\n")]

    def stop(self) -> int:
        """Sends SIGTERM, waits, and gives the exit code."""
        return self.process.stop()

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="webhook-"))
        self.cert_dir = self.folder / "certs"
        self.authority.server(_HOST).write(self.cert_dir)
        (self.cert_dir / "ca.crt").write_bytes(self.ca_pem)
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                self._start()
                try:
                    self.process.wait_ready(self.ready)
                    break
                except NotReadyError:
                    self.stop()
                    if attempt == _ATTEMPTS or "address already in use" not in self.process.tail(100):
                        raise
        except BaseException:
            self._clean_up(keep=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        self._clean_up(keep=self.keep_logs or kind is not None)

    def _start(self) -> None:
        port, health, metrics = free_port(), free_port(), free_port()
        self.base_url = f"https://{_HOST}:{port}"
        self.health_url = f"http://{_HOST}:{health}"
        self.metrics_url = f"http://{_HOST}:{metrics}/metrics"
        command = [
            *self._command,
            f"--bind-address={_HOST}",
            f"--port={port}",
            *(["--self-managed-certificates"] if self._self_managed else [f"--cert-dir={self.cert_dir}"]),
            f"--health-probe-bind-address={_HOST}:{health}",
            f"--metrics-bind-address={_HOST}:{metrics}",
            *self._arguments,
        ]
        self.process = Process(
            "webhook",
            command,
            self.folder / "webhook.log",
            environment=our_environment(),
            grace_seconds=_GRACE_SECONDS,
        )

    def _clean_up(self, *, keep: bool) -> None:
        if keep:
            print(f"log of the webhook: {self.folder}", file=sys.stderr)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


def _get(url: str) -> tuple[int, str]:
    """(status, body), whatever proxies the environment names."""
    parts = urlsplit(url)
    with contextlib.closing(http.client.HTTPConnection(parts.netloc, timeout=30)) as connection:
        connection.request("GET", parts._replace(scheme="", netloc="").geturl())
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
