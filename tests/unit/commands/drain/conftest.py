"""Time for a drain, which goes by between two looks."""

from __future__ import annotations

import pytest

import webhook.commands.drain as module
from tests.unit.commands.rule_server import VerbRunner


@pytest.fixture
def clock(verb: VerbRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last of the rounds the user interrupts."""
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
