"""Probes and metrics over their own listener, in plain HTTP."""

from __future__ import annotations

import asyncio
import http.client
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from webhook.server.listener import Listener
from webhook.server.probes import Checks, exposition, health
from webhook.server.settings import Address, ListenerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

QUICK = ListenerSettings(drain_idle_seconds=0.0)
HEALTHY = {"certificate": None, "listener": None}
TORN = {"certificate": "no certificate", "listener": None}


def ask(handler: Any, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    """(status, content type, body) of one request to a listener that lives for it."""

    def request(port: int) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
        finally:
            connection.close()

    async def scenario() -> tuple[int, str, str]:
        listener = Listener("health", Address(host="127.0.0.1"), handler, QUICK)
        await listener.start()
        try:
            return await asyncio.to_thread(request, listener.port)
        finally:
            await listener.stop()

    return asyncio.run(scenario())


def checks(problems: Mapping[str, str | None]) -> Checks:
    made = Checks()
    for name in problems:
        made.add(name, partial(problems.get, name))
    return made


@pytest.mark.parametrize(
    ("path", "problems", "code", "body"),
    [
        ("/livez", TORN, 200, "ok"),
        ("/healthz", TORN, 200, "ok"),
        ("/readyz", HEALTHY, 200, "ok"),
        ("/readyz?verbose", HEALTHY, 200, "[+]certificate ok\n[+]listener ok\nreadyz check passed\n"),
        ("/readyz", TORN, 503, "[-]certificate failed: no certificate\n[+]listener ok\nreadyz check failed\n"),
        ("/readyz?verbose", TORN, 503, "[-]certificate failed: no certificate\n[+]listener ok\nreadyz check failed\n"),
    ],
)
def test_probe_is_answered(path: str, problems: Mapping[str, str | None], code: int, body: str) -> None:
    assert ask(health(checks(problems)), path) == (code, "text/plain; charset=utf-8", body)


def test_probe_by_head_has_no_body() -> None:
    assert ask(health(checks(HEALTHY)), "/readyz", "HEAD") == (200, "text/plain; charset=utf-8", "")


@pytest.mark.parametrize(("path", "method", "code"), [("/", "GET", 404), ("/livez", "POST", 405)])
def test_probe_that_is_none_gets_a_status(path: str, method: str, code: int) -> None:
    status, content_type, body = ask(health(checks(HEALTHY)), path, method)
    assert (status, content_type) == (code, "application/json")
    assert f'"code":{code}' in body


def encode(accept: str) -> tuple[bytes, str]:
    return b"x 1\n", f"text/{accept}"


def test_metrics_are_given_in_the_type_that_is_asked_for() -> None:
    assert ask(exposition(encode), "/metrics?x", Accept="plain") == (200, "text/plain", "x 1\n")


@pytest.mark.parametrize(("path", "method", "code"), [("/", "GET", 404), ("/metrics", "POST", 405)])
def test_request_for_other_than_metrics_gets_a_status(path: str, method: str, code: int) -> None:
    assert ask(exposition(encode), path, method)[0] == code


@pytest.mark.parametrize(
    ("problem", "line"),
    [(None, "[+]inventory ok\n"), ("not read yet", "[!]inventory not ok, does not count: not read yet\n")],
)
def test_what_does_not_count_is_told_and_leaves_the_process_ready(problem: str | None, line: str) -> None:
    made = checks(HEALTHY)
    made.inform("inventory", lambda: problem)
    assert ask(health(made), "/readyz") == (200, "text/plain; charset=utf-8", "ok")
    told = f"[+]certificate ok\n[+]listener ok\n{line}readyz check passed\n"
    assert ask(health(made), "/readyz?verbose") == (200, "text/plain; charset=utf-8", told)
