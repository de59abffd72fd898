"""Asks both servers the same reviews: only servers that agree are worth comparing."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.gobinaries import BenchmarkError
from benchmarks.servers import HOST

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.bodies import Case
    from benchmarks.servers import Certificates, Server


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an answer decides; texts are each server's own."""

    allowed: bool
    code: int
    causes: frozenset[tuple[str, str]]
    """(field, reason)"""

    def __str__(self) -> str:
        causes = ", ".join(f"{field}: {reason}" for field, reason in sorted(self.causes))
        return "allowed" if self.allowed else f"{self.code} [{causes}]"


def compare(cases: Iterable[Case], servers: Sequence[Server], certificates: Certificates) -> int:
    """How many reviews were compared.

    Raises: BenchmarkError naming every review on which one server differs from another or from what the case says.
    """
    disagreements = []
    compared = 0
    connections = [
        http.client.HTTPSConnection(HOST, server.port, timeout=30, context=certificates.client_context())
        for server in servers
    ]
    try:
        for case in cases:
            verdicts = [_verdict(connection, case.body) for connection in connections]
            compared += 1
            if len(set(verdicts)) > 1 or verdicts[0].allowed != case.allowed:
                said = "; ".join(f"{s.name}: {verdict}" for s, verdict in zip(servers, verdicts, strict=True))
                disagreements.append(f"  {case.name}: {said}")
    finally:
        for connection in connections:
            connection.close()
    if disagreements:
        raise BenchmarkError("\n".join(["the servers do not agree:", *disagreements]))
    return compared


def _verdict(connection: http.client.HTTPSConnection, body: bytes) -> Verdict:
    connection.request("POST", "/validate?timeout=10s", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != http.client.OK:
        raise BenchmarkError(f"{connection.port} answered {answer.status}: {content.decode(errors='replace')}")
    response = json.loads(content)["response"]
    status = response.get("status") or {}
    causes = (status.get("details") or {}).get("causes") or []
    return Verdict(
        allowed=response["allowed"],
        code=int(status.get("code") or http.client.OK),
        causes=frozenset((cause["field"], cause["reason"]) for cause in causes),
    )
