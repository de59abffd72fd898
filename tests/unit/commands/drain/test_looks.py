"""What a drain makes of one look: old conditions, lines that nobody can read, and rules that others change."""

from __future__ import annotations

from typing import Any

import pytest

import webhook.commands.drain as module
from tests.builders import make_condition
from tests.unit.commands.drain.test_old_conditions import (
    CONFIRMING,
    EVICT,
    IN_USE,
    NAME,
    cluster,
    drain,
    keep,
    nothing,
)
from tests.unit.commands.rule_server import RULES, RuleServer, VerbRunner

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


@pytest.mark.parametrize("taken_back", ["deleted", "effect None"])
def test_rule_that_was_taken_back_is_not_closed_again_once_there_is_room(
    taken_back: str, verb: VerbRunner, monkeypatch: pytest.MonkeyPatch, rule_server: RuleServer
) -> None:
    """A colleague takes it back after the look, before the rule is to evict."""
    keep(verb)
    ready: Any = module.Drain._ready

    def take_back(_: module.Drain, read: Any) -> Any:
        if not verb.rounds:
            if taken_back == "deleted":
                rule_server.collections[RULES].clear()
            for each in rule_server.collections[RULES]:
                each["spec"]["taint"]["effect"] = "None"
        ready(_, read)
        return tuple([module.WantedRule(each, _.taint) for each in _.waiting])

    monkeypatch.setattr(module.Drain, "_ready", take_back)
    verb.rounds += [nothing, nothing]
    drain(verb, "--wait-for-place")
    assert (verb.server.sent, NAME in str(rule_server.collections[RULES])) == ([], taken_back != "deleted")
