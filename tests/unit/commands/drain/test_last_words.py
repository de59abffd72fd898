"""The last words of a `drain` whose reader is gone, whose rule was taken back, or whose node will be."""

from __future__ import annotations

import pytest

import webhook.commands.drain as module
from tests.unit.commands.rule_server import GROUP, RuleServer, VerbRunner

KEY = "devicetaint.io/drain"
PODS = "/api/v1/pods"
SLICES = f"{GROUP}/v1/resourceslices"
CLAIMS = f"{GROUP}/v1/resourceclaims"
POOLS = ("gpu.example.com/node-0", "gpu.example.com/node-1")
STAYS = "The taint stays. To take it back: kubectl dtaint untaint"


@pytest.fixture(autouse=True)
def crowd(rule_server: RuleServer) -> None:
    rule_server.collections |= {PODS: [], "/api/v1/namespaces": [], "/apis/policy/v1/poddisruptionbudgets": []}


@pytest.fixture(autouse=True)
def clock(verb: VerbRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two looks are seven seconds apart; after the last of the rounds the user interrupts."""
    seconds = 0.0

    class Clock:
        """In place of the module `time`."""

        def monotonic(self) -> float:
            return seconds

        def sleep(self, pause: float) -> None:
            nonlocal seconds
            seconds += pause
            if not verb.rounds:
                raise KeyboardInterrupt
            verb.rounds.pop(0)()

    monkeypatch.setattr(module, "time", Clock())


def drain(verb: VerbRunner, *words: str) -> tuple[int, str, str]:
    return verb("drain", "--interval", "7", *words)


@pytest.mark.parametrize(("written", "code"), [(0, 1), (2, 2)])
def test_drain_whose_first_line_nobody_reads_is_not_emptied(
    written: int, code: int, verb: VerbRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe without a reader, and a full disk."""
    monkeypatch.setattr(module, "write_more", lambda _: written)
    ended, _, error = drain(verb, "node-0")
    assert (ended, len(verb.server.rules)) == (code, 1)
    assert error.splitlines() == [
        "error: not drained: standard output is closed",
        f"{STAYS} --node=node-0 {KEY}:NoSchedule-",
    ]


def test_dry_run_that_nobody_reads_is_no_fault(verb: VerbRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "write_more", lambda _: 0)
    assert drain(verb, "node-0", "--dry-run=server") == (0, "", "")
