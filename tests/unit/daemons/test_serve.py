"""`serve` from its flags to its end, in this process; what needs one of its own is in tests/https."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import signal
import ssl
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import UID, encoded, make_claim, make_review
from webhook import runtime
from webhook.certificates.authority import Authority
from webhook.daemons import serve

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOST = "127.0.0.1"
NOWHERE = ("--health-probe-bind-address=0", "--metrics-bind-address=0")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A CA whose pair lies in the test's folder."""
    now, day = datetime.now(UTC), timedelta(days=1)  # noqa: TID251 -- certificates of tests are valid today
    made = Authority.create("test CA", now=now, lifetime=day)
    pair = made.serving_pair([HOST], now=now, lifetime=day)
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    return made


class Lines(io.StringIO):
    """A stderr that says when a line with a message was written."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if '"msg":"ready"' in text or '"msg":"certificate not loaded"' in text:
            self.ready.set()
        return written

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]

    def port(self, server: str) -> int:
        return next(int(line["port"]) for line in self.records() if line.get("server") == server)


@pytest.fixture
def stderr(process_settings: None) -> Lines:  # noqa: ARG001 -- given back after the test
    """What `serve` writes."""
    return Lines()


def run(lines: Lines, *arguments: str) -> int:
    with contextlib.redirect_stderr(lines):
        return serve.run(arguments)


def serving(lines: Lines, visit: Callable[[], None], *arguments: str) -> int:
    """Runs `serve` with a visitor in a thread, which ends it with SIGTERM."""
    failures: list[BaseException] = []

    def visitor() -> None:
        try:
            assert lines.ready.wait(60)
            visit()
        except BaseException as error:  # noqa: BLE001 -- told to the test's own thread
            failures.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=visitor)
    thread.start()
    code = run(lines, "--standalone", f"--bind-address={HOST}", "--port=0", *arguments)
    thread.join(60)
    if failures:
        raise failures[0]
    return code


def test_serve_answers_reviews_probes_and_metrics_until_it_is_told_to_stop(
    tmp_path: Path, authority: Authority, stderr: Lines
) -> None:
    answers: list[tuple[int, bytes]] = []

    def ask(connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None) -> None:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answers.append((answer.status, answer.read()))
        connection.close()

    def visit() -> None:
        trust = ssl.create_default_context(cadata=authority.certificate.decode())
        review = encoded(make_review(make_claim()))
        ask(http.client.HTTPSConnection(HOST, stderr.port("reviews"), context=trust), "POST", "/validate", review)
        ask(http.client.HTTPConnection(HOST, stderr.port("health")), "GET", "/readyz")
        ask(http.client.HTTPConnection(HOST, stderr.port("metrics")), "GET", "/metrics")

    addresses = (f"--health-probe-bind-address={HOST}:0", f"--metrics-bind-address={HOST}:0")
    assert serving(stderr, visit, f"--cert-dir={tmp_path}", *addresses) == 0
    (review_code, review), ready, (metrics_code, metrics) = answers
    assert (review_code, json.loads(review)["response"]) == (200, {"uid": UID, "allowed": True})
    assert ready == (200, b"ok")
    assert metrics_code == 200
    assert b'reviews_total{code="200",operation="CREATE",path="/validate",resource="resourceclaims"} 1.0' in metrics
    messages = [line["msg"] for line in stderr.records()]
    policy = "no policy found: the built-in policy is in use"
    started = ["listening", "listening", policy, "certificate loaded", "listening", "ready"]
    assert messages == [*started, "stopping", "stopped"]


def test_signal_ends_the_wait_for_a_certificate_and_until_then_readyz_says_who_waits(
    tmp_path: Path, stderr: Lines
) -> None:
    """M0."""
    answers: list[tuple[int, str]] = []

    def visit() -> None:
        connection = http.client.HTTPConnection(HOST, stderr.port("health"))
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        answers.append((answer.status, answer.read().decode()))
        connection.close()

    address = f"--health-probe-bind-address={HOST}:0"
    assert serving(stderr, visit, f"--cert-dir={tmp_path}", address, "--metrics-bind-address=0") == 0
    said = [line["msg"] for line in stderr.records()]
    policy = "no policy found: the built-in policy is in use"
    assert said == ["listening", policy, "certificate not loaded", "stopping", "stopped"]
    [(code, text)] = answers
    assert code == 503
    assert "[+]policy ok\n" in text
    assert "[-]certificate failed: no certificate: " in text
    assert "[-]listener failed: not listening: waits for certificate\n" in text


@pytest.mark.usefixtures("authority")
def test_variable_that_nothing_reads_is_told_at_the_start(
    tmp_path: Path, stderr: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L18."""
    monkeypatch.setenv("DEVICE_TAINT_WEBHOOK_LOGFORMAT", "text")
    monkeypatch.setenv("DEVICE_TAINT_WEBHOOK_PORT_443_TCP", "tcp://10.96.7.7:443")
    assert serving(stderr, lambda: None, f"--cert-dir={tmp_path}", *NOWHERE) == 0
    told = [record for record in stderr.records() if record["msg"] == "unknown environment variable"]
    assert [(record["variable"], record["hint"]) for record in told] == [
        ("DEVICE_TAINT_WEBHOOK_LOGFORMAT", "perhaps DEVICE_TAINT_WEBHOOK_LOG_FORMAT")
    ]


@pytest.mark.usefixtures("authority")
def test_fault_of_ours_is_1_with_its_traceback(tmp_path: Path, stderr: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise KeyError("x")

    monkeypatch.setattr(runtime, "settle_memory", broken)
    code = run(stderr, "--standalone", f"--cert-dir={tmp_path}", f"--bind-address={HOST}", "--port=0", *NOWHERE)
    last = stderr.records()[-1]
    assert (code, last["msg"]) == (1, "stopped by an error")
    assert last["trace"].endswith("KeyError: 'x'")
