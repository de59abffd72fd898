"""What a drain makes of one look: old conditions, lines that nobody can read, and rules that others change."""

from __future__ import annotations

import pytest

import webhook.commands.drain as module
from tests.builders import make_condition
from tests.unit.commands.drain.test_old_conditions import (
    CONFIRMING,
    EVICT,
    IN_USE,
    cluster,
    drain,
    keep,
    nothing,
)
from tests.unit.commands.rule_server import VerbRunner

__all__ = ["cluster"]

pytestmark = pytest.mark.usefixtures("clock", "cluster")
STOPPED = make_condition(type="devicetaint.io/Eviction", reason="Stopped", message="over")
SILENT = "no eviction worker has reported on this rule yet"


@pytest.mark.parametrize(("words", "hints"), [([CONFIRMING], 1), ([], 0)])
def test_condition_of_before_a_change_is_no_answer(words: list[str], hints: int, verb: VerbRunner) -> None:
    keep(verb, STOPPED, IN_USE, **EVICT)
    verb.rounds += [nothing] * 5
    code, _, error = drain(verb, *words)
    assert (code, error.count(SILENT)) == (1, hints)
    assert "error: not drained: Stopped: over\n" in error


@pytest.mark.parametrize(("written", "code"), [(0, 1), (2, 2)])
def test_line_that_cannot_be_written_ends_every_look_in_the_same_way(
    written: int, code: int, verb: VerbRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe without a reader, and a full disk."""
    answers = iter([None, written])
    monkeypatch.setattr(module, "write_more", lambda _: next(answers))
    ended, _, error = drain(verb)
    assert (ended, error.splitlines()[0]) == (code, "error: not drained: standard output cannot be written")


@pytest.mark.parametrize("words", [["k:NoSchedule"], [""], ["node/a:b"]])
def test_word_that_names_no_node_is_wrong_usage(words: list[str], verb: VerbRunner) -> None:
    code, _, error = drain(verb, *words)
    assert (code, verb.server.sent) == (2, [])
    assert f"{words[0].removeprefix('node/')!r} cannot be the name of a node" in error
