"""`drain`: the rules that it writes, how it watches, its exit codes, and what it says in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import webhook.commands.drain as module
from tests.builders import make_condition
from tests.unit.commands.rule_server import GROUP, RULES, SERVED, RuleServer, VerbRunner, rule_on, status

POOL = "gpu.example.com/node-0"
NAME = "node-0-drain-noschedule-"
KEY = "devicetaint.io/drain"
UNDO = f"kubectl dtaint untaint --node=node-0 {KEY}:NoSchedule-"
FREE = make_condition(type="devicetaint.io/Released", status="True", reason="Released")
COMPLETED = make_condition(type="devicetaint.io/Eviction", reason="Completed")
IN_USE = make_condition(type="devicetaint.io/Released", reason="InUse", message="1 claim holds devices: ml/a")


@pytest.fixture(autouse=True)
def crowd(rule_server: RuleServer) -> None:
    rule_server.collections |= {
        "/api/v1/pods": [],
        "/api/v1/namespaces": [],
        "/apis/policy/v1/poddisruptionbudgets": [],
    }
    rule_server.objects[f"{GROUP}/v1"] = {"resources": [{"name": name} for name in SERVED]}


@pytest.fixture(autouse=True)
def clock(verb: VerbRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two looks are seven seconds apart, or less at the end; after the last of the rounds the user interrupts."""
    seconds = 0.0

    def sleep(pause: float) -> None:
        nonlocal seconds
        assert 0 < pause <= 7
        seconds += pause
        if not verb.rounds:
            raise KeyboardInterrupt
        verb.rounds.pop(0)()

    class Clock:
        """In place of the module `time`."""

        def __init__(self) -> None:
            self.sleep = sleep

        def monotonic(self) -> float:
            return seconds

    monkeypatch.setattr(module, "time", Clock())


def say(verb: VerbRunner, *conditions: Any) -> Callable[[], None]:
    """The worker writes the status of every rule."""

    def write() -> None:
        for each in verb.server.collections[RULES]:
            each["metadata"] |= {"uid": each["metadata"]["name"], "generation": 1}
            each["status"] = {"conditions": list(conditions)}

    return write


def nothing() -> None:
    """Time goes by."""


def drain(verb: VerbRunner, *words: str) -> tuple[int, str, str]:
    return verb("drain", "--interval", "7", *words)


def test_devices_of_a_node_are_closed_and_emptied(verb: VerbRunner) -> None:
    verb.rounds += [nothing, say(verb, COMPLETED, FREE)]
    code, output, error = drain(verb, "node-0", "--reason", "firmware 1.2")
    assert (code, error) == (0, "")
    first, *rest = output.splitlines()
    assert first.startswith(f"{POOL} tainted by devicetaintrule.resource.k8s.io/{NAME}")
    assert rest == ["drained: no allocation holds a device", f"When the work is done: {UNDO}"]
    ((method, target, rule),) = verb.server.sent
    assert (method, target.partition("?")[0]) == ("POST", RULES)
    assert rule["spec"]["deviceSelector"] == {"driver": "gpu.example.com", "pool": "node-0"}
    assert rule["spec"]["taint"] == {"key": KEY, "effect": "NoSchedule"}  # with NoExecute pods would end at once
    assert rule["metadata"]["annotations"] == {
        "devicetaint.io/evict": "true",
        "devicetaint.io/description": "firmware 1.2",
    }


@pytest.mark.parametrize(
    ("words", "undo"),
    [
        ([POOL, "--key", "maint.example.com/x"], f"untaint {POOL} maint.example.com/x:NoSchedule-"),
        ([f"{POOL}/gpu-0"], f"untaint {POOL}/gpu-0 {KEY}:NoSchedule-"),
        (["node-0", "node-1"], f"untaint --node=node-0 --node=node-1 {KEY}:NoSchedule-"),
        (["-l", "pool=a100"], f"untaint --selector=pool=a100 {KEY}:NoSchedule-"),
        ([POOL, "--context", "here"], f"untaint {POOL} {KEY}:NoSchedule- --context=here"),
        (
            [POOL, "--as", "jane", "--as-group=x", "--as-group=y"],
            f"untaint {POOL} {KEY}:NoSchedule- --as=jane --as-group=x --as-group=y",
        ),
    ],
)
def test_command_that_takes_it_back_does(words: list[str], undo: str, verb: VerbRunner) -> None:
    verb.rounds += [say(verb, COMPLETED, FREE)]
    code, output, _ = drain(verb, *words)
    command = output.splitlines()[-1].removeprefix("When the work is done: ")
    assert (code, command) == (0, f"kubectl dtaint {undo}")
    for rule in verb.server.rules.values():
        rule["metadata"]["resourceVersion"] = "7"
    assert verb(*command.split()[2:])[0] == 0
    assert verb.server.rules == {}


def test_second_drain_writes_nothing_and_goes_on_watching(verb: VerbRunner) -> None:
    rule = rule_on("firmware", key=KEY, selector={"driver": "gpu.example.com", "pool": "node-0"})
    rule["metadata"]["annotations"] = {"devicetaint.io/evict": "true"}
    verb.server.keep(rule)
    verb.rounds += [say(verb, COMPLETED, FREE)]
    code, output, _ = drain(verb, "node-0")
    assert (code, verb.server.sent) == (0, [])
    assert output.startswith(f"{POOL} already tainted by devicetaintrule.resource.k8s.io/firmware\n")


def test_rule_that_does_not_evict_yet_is_changed(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("firmware", key=KEY, selector={"driver": "gpu.example.com", "pool": "node-0"}))
    verb.rounds += [say(verb, COMPLETED, FREE)]
    code, output, _ = drain(verb, "node-0")
    assert (code, output.split()[1]) == (0, "modified")
    assert verb.server.rules["firmware"]["metadata"]["annotations"] == {"devicetaint.io/evict": "true"}


def test_interrupt_leaves_the_taint_and_says_how_to_take_it_back(verb: VerbRunner) -> None:
    assert verb.rounds == []
    code, _, error = drain(verb, "node-0")
    assert (code, len(verb.server.rules)) == (130, 1)
    assert error == f"\ninterrupted: the taint stays, and the worker goes on. To take it back: {UNDO}\n"


def test_time_that_is_over_is_an_error(verb: VerbRunner) -> None:
    verb.rounds += [nothing] * 9
    code, _, error = drain(verb, "node-0", "--timeout", "10s")
    assert (code, len(verb.rounds)) == (1, 7)
    assert error == f"error: not drained: not empty within 10 s\nThe taint stays. To take it back: {UNDO}\n"


def test_who_keeps_a_device_for_good_ends_the_drain(verb: VerbRunner) -> None:
    """Claims go a while after their pods; pods that tolerate the taint stay."""
    verb.rounds += [say(verb, COMPLETED, IN_USE), *[nothing] * 9]
    code, _, error = drain(verb, "node-0", "--timeout", "0")
    assert (code, len(verb.rounds)) == (1, 4)
    assert "error: not drained: no further pod may be evicted, but node-0-drain-noschedule-" in error
    assert ": 1 claim holds devices: ml/a\n" in error


def test_text_of_a_condition_forges_no_line(verb: VerbRunner) -> None:
    """The name of a pod's owner, which anyone may choose, is part of it."""
    message = "x\n\x1b[32mdrained: no allocation holds a device\x1b[0m\n"
    verb.rounds += [say(verb, make_condition(type="devicetaint.io/Eviction", reason="Stopped", message=message))]
    code, _, error = drain(verb, "node-0")
    assert (code, error.count("\n"), "\x1b" in error) == (1, 2, False)


def test_silence_of_the_worker_is_reported_once(verb: VerbRunner) -> None:
    verb.rounds += [nothing] * 9
    assert drain(verb, "node-0", "--timeout", "60s")[2].count("no eviction worker has reported on this rule yet") == 1


def test_cluster_that_cannot_be_read_for_a_while_is_asked_again(verb: VerbRunner) -> None:
    verb.rounds += [lambda: verb.server.forbidden.add(RULES), nothing, verb.server.forbidden.clear]
    verb.rounds += [say(verb, COMPLETED, FREE)]
    code, _, error = drain(verb, "node-0")
    assert (code, error.count("the cluster cannot be read now: "), error.count("\n")) == (0, 1, 1)


# --- before anything is watched -----------------------------------------------------------------


def test_refusal_with_a_text_says_what_to_run(verb: VerbRunner) -> None:
    text = 'hits 2 pods; or to go ahead, set annotation devicetaint.io/confirm-impact to "v1 devices=2 of=x"'
    verb.server.refusals = [status(403, "Forbidden", text)]
    code, output, error = drain(verb, "node-0")
    assert (code, output) == (1, "")
    assert error.endswith("run:\n\n  kubectl dtaint drain --interval 7 node-0 '--confirm=v1 devices=2 of=x'\n")


def test_code_for_another_rule_is_wrong_usage(verb: VerbRunner) -> None:
    code, _, error = drain(verb, "node-0", "--confirm", "other=v1 devices=1")
    assert (code, verb.server.sent) == (2, [])
    assert "this command writes no such rule" in error


def test_drain_ends_when_its_reader_does(verb: VerbRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([None, 0])
    monkeypatch.setattr(module, "write_more", lambda _: next(answers))
    code, _, error = drain(verb, "node-0")
    assert (code, "not drained: standard output is closed" in error) == (1, True)


@pytest.mark.parametrize("mode", ["client", "server"])
def test_dry_run_watches_nothing(mode: str, verb: VerbRunner) -> None:
    code, output, _ = drain(verb, "node-0", f"--dry-run={mode}")
    assert (code, verb.server.rules, output.count("\n")) == (0, {}, 1)
    assert "dry run)" in output


def test_node_without_devices_is_an_error(verb: VerbRunner) -> None:
    assert drain(verb, "node-9")[::2] == (1, "error: no driver publishes devices of nodes node-9\n")


def test_idle_node_whose_devices_are_all_shared_is_an_error_that_says_so(verb: VerbRunner) -> None:
    (first, second) = (each["spec"] for each in verb.server.collections[f"{GROUP}/v1/resourceslices"])
    named = {"key": "metadata.name", "operator": "In", "values": [first.pop("nodeName"), second["nodeName"]]}
    first["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [named]}]}
    error = f"error: other nodes can use all devices there, and no allocation there holds one: {POOL}\n"
    assert drain(verb, "node-0")[::2] == (1, error)
