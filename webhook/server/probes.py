"""Liveness, readiness and metrics: plain HTTP on ports of their own, for kubelets and Prometheus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from aiohttp import web

from webhook.server.responses import Answer, failure

Problem = Callable[[], str | None]
Handler = Callable[[web.BaseRequest], Awaitable[Answer]]

_TEXT: Final = "text/plain; charset=utf-8"
_READ_ONLY: Final = "GET, HEAD"


class Checks:
    """The named conditions of readiness. A check gives None when it holds, or a sentence about what is missing."""

    def __init__(self) -> None:
        self._checks: dict[str, Problem] = {}
        self._notes: dict[str, Problem] = {}

    def add(self, name: str, problem: Problem) -> None:
        """Add a condition; names appear in `/readyz?verbose` in the order they were added."""
        self._checks[name] = problem

    def inform(self, name: str, problem: Problem) -> None:
        """Add a check that `/readyz?verbose` lists, but that does not affect readiness."""
        self._notes[name] = problem

    def notes(self) -> Iterator[tuple[str, str | None]]:
        """Yield each check that does not affect readiness, with its problem or None."""
        for name, problem in self._notes.items():
            yield name, problem()

    def missing(self, *, besides: str) -> list[str]:
        """Return the names of the checks that fail, without `besides`, the one that asks."""
        return [name for name, problem in self._checks.items() if name != besides and problem() is not None]

    def problems(self) -> Iterator[tuple[str, str | None]]:
        """Yield each check of readiness, with its problem or None."""
        for name, problem in self._checks.items():
            yield name, problem()


def health(checks: Checks) -> Handler:
    """Make the handler of `/livez`, `/healthz` (this process answers) and `/readyz` (it should get requests).

    `/readyz?verbose` lists every check the way kube-apiserver does; a failed `/readyz` always does.
    """

    async def answer(request: web.BaseRequest) -> Answer:
        path, _, query = request.raw_path.partition("?")
        if path not in {"/livez", "/healthz", "/readyz"}:
            return failure(404, "no such path: use /livez, /readyz or /readyz?verbose")
        if request.method not in {"GET", "HEAD"}:
            return failure(405, "probes must use GET", allow=_READ_ONLY)
        if path != "/readyz":
            return Answer(b"ok", content_type=_TEXT)
        results = list(checks.problems())
        ready = all(problem is None for _, problem in results)
        if ready and "verbose" not in query:
            return Answer(b"ok", content_type=_TEXT)
        lines = [
            f"[+]{name} ok\n" if problem is None else f"[-]{name} failed: {problem}\n" for name, problem in results
        ]
        lines += [
            f"[+]{name} ok\n" if problem is None else f"[!]{name} not ok, does not count: {problem}\n"
            for name, problem in checks.notes()
        ]
        lines.append("readyz check passed\n" if ready else "readyz check failed\n")
        return Answer("".join(lines).encode(), status=200 if ready else 503, content_type=_TEXT)

    return answer


def exposition(encode: Callable[[str], tuple[bytes, str]]) -> Handler:
    """Make the handler of `/metrics`. `encode` gives the body and its type for an `Accept` header."""

    async def answer(request: web.BaseRequest) -> Answer:
        if request.raw_path.partition("?")[0] != "/metrics":
            return failure(404, "no such path: use /metrics")
        if request.method not in {"GET", "HEAD"}:
            return failure(405, "metrics must be read with GET", allow=_READ_ONLY)
        body, content_type = encode(request.headers.get("Accept", ""))
        return Answer(body, content_type=content_type)

    return answer
