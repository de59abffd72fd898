"""The last words of a `drain` whose reader is gone, whose rule was taken back, or whose node will be."""

from __future__ import annotations

from typing import Any

import pytest

import webhook.commands.drain as module
from tests.builders import make_condition, make_device, make_meta, make_slice
from tests.unit.commands.api_server import bare
from tests.unit.commands.rule_server import GROUP, RULES, RuleServer, VerbRunner, status

KEY = "devicetaint.io/drain"
PODS = "/api/v1/pods"
SLICES = f"{GROUP}/v1/resourceslices"
STAYS = "The taint stays. To take it back: kubectl dtaint untaint"

pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture(autouse=True)
def crowd(rule_server: RuleServer) -> None:
    rule_server.collections |= {PODS: [], "/api/v1/namespaces": [], "/apis/policy/v1/poddisruptionbudgets": []}


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
        "error: not drained: standard output cannot be written",
        f"{STAYS} --node=node-0 {KEY}:NoSchedule-",
    ]


def test_dry_run_that_nobody_reads_is_no_fault(verb: VerbRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "write_more", lambda _: 0)
    assert drain(verb, "node-0", "--dry-run=server") == (0, "", "")


# --- the command that takes it back --------------------------------------------------------------


def by_device(*nodes: str) -> Any:
    """A slice whose devices are each of a node."""
    devices = [make_device(f"gpu-{number}", nodeName=node) for number, node in enumerate(nodes)]
    return make_slice(devices, pool="rack-1", node_name=None, meta=make_meta("rack"), perDeviceNodeSelection=True)


@pytest.mark.parametrize(
    ("published", "undo"),
    [
        (make_slice(pool="node-5", node_name="node-5", meta=make_meta("a")), f"--node=node-5 {KEY}:NoSchedule-"),
        (
            make_slice(pool="rack-1", node_name="node-5", meta=make_meta("a")),
            f"gpu.example.com/rack-1 {KEY}:NoSchedule-",
        ),
        (by_device("node-5", "node-6"), f"gpu.example.com/rack-1/gpu-0 {KEY}:NoSchedule-"),
    ],
)
def test_command_that_takes_it_back_does_so_without_the_node(published: Any, undo: str, verb: VerbRunner) -> None:
    """Whatever the pool is called, and whether all of it belongs to the node."""
    slices = verb.server.collections[SLICES]
    slices.append(bare(published))
    code, _, error = drain(verb, "node-5")
    assert (code, error.endswith(f" To take it back: kubectl dtaint untaint {undo}\n")) == (130, True)
    slices.pop()
    for rule in verb.server.rules.values():
        rule["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    assert (verb("untaint", *undo.split())[0], verb.server.rules) == (0, {})


def test_command_that_takes_it_back_names_nothing_that_could_not_be_tainted(verb: VerbRunner) -> None:
    """The pool is published while the drain goes on."""
    slices = verb.server.collections[SLICES]
    slices.append(bare(make_slice(pool="rack-1", node_name="node-5", meta=make_meta("a"))))

    def more() -> None:
        (rule,) = verb.server.collections[RULES]
        released = make_condition(type="devicetaint.io/Released", status="True", reason="Released")
        rule["metadata"] |= {"uid": "u", "generation": 1}
        rule["status"] = {"conditions": [released]}
        slices.append(bare(make_slice(pool="rack-2", node_name="node-5", meta=make_meta("b"))))
        verb.server.refusals = [status(403, "Forbidden", "no")]

    verb.rounds += [more]
    code, _, error = drain(verb, "node-5")
    assert (code, "gpu.example.com/rack-2 cannot be tainted: " in error) == (1, True)
    assert error.endswith(f"{STAYS} gpu.example.com/rack-1 {KEY}:NoSchedule-\n")


# --- a rule that is taken back meanwhile ---------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "undo"),
    [
        (["node-0"], ""),
        (["node-0", "node-1"], f"{STAYS} --node=node-0 --node=node-1 {KEY}:NoSchedule-\n"),
        (
            ["gpu.example.com/node-0", "gpu.example.com/node-1"],
            f"{STAYS} gpu.example.com/node-1 {KEY}:NoSchedule-\n",
        ),
    ],
)
def test_taint_stays_only_where_a_rule_is_left(words: list[str], undo: str, verb: VerbRunner) -> None:
    """A colleague untaints node-0."""
    verb.rounds += [lambda: verb.server.collections[RULES].pop(0)]
    code, output, error = drain(verb, *words)
    name = output.partition("/node-0-")[2].partition("\n")[0]
    ended = f"error: not drained: rule node-0-{name} is gone: the devices are open again\n"
    assert (code, error) == (1, f"{ended}{undo}")
    for rule in verb.server.rules.values():
        rule["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    if undo:
        assert verb("untaint", *undo.split("untaint ")[1].split())[0] == 0
    assert verb.server.rules == {}
