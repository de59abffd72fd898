"""`drain`: the rules that it writes, how it watches, its exit codes, and what it says in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import webhook.commands.drain as module
from tests.builders import make_claim, make_condition, make_device, make_meta, make_pod, make_slice
from tests.unit.commands.api_server import bare
from tests.unit.commands.preview_runner import used
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
    assert (code, "not drained: standard output cannot be written" in error) == (1, True)


@pytest.mark.parametrize("mode", ["client", "server"])
def test_dry_run_watches_nothing(mode: str, verb: VerbRunner) -> None:
    code, output, _ = drain(verb, "node-0", f"--dry-run={mode}")
    assert (code, verb.server.rules, output.count("\n")) == (0, {}, 1)
    assert "dry run)" in output


# --- until pods find another place ---------------------------------------------------------------


CLASSES = f"{GROUP}/v1/deviceclasses"
CLAIMS = f"{GROUP}/v1/resourceclaims"
WAY_OUT = "to evict them all the same, run the same command without --wait-for-place"


@pytest.fixture
def cluster(rule_server: RuleServer) -> RuleServer:
    """Both nodes have two devices; pods train-0 and train-1 use those of node-0, web-0 and web-1 those of node-1."""
    rule_server.objects[f"{GROUP}/v1"] = {"resources": [{"name": name} for name in (*SERVED, "deviceclasses")]}
    expression = "device.driver == 'gpu.example.com'"
    gpu = {"metadata": {"name": "gpu.example.com"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
    rule_server.collections |= {
        CLASSES: [gpu],
        "/api/v1/nodes": [{"metadata": {"name": f"node-{number}"}} for number in range(2)],
    }
    for number in range(2):
        run(rule_server, f"train-{number}", f"node-0/gpu-{number}")
        run(rule_server, f"web-{number}", f"node-1/gpu-{number}", nodeName="node-1")
    return rule_server


def run(cluster: RuleServer, name: str, device: str, **pod: Any) -> None:
    """A pod with a claim of its own for one device; it has none if that is empty."""
    claim = used(name, device) if device else make_claim(meta=make_meta(name, namespace="ml"))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-of-{name}", "controller": True}
    claim["metadata"]["ownerReferences"] = [owner]
    cluster.collections[CLAIMS].append(bare(claim))
    cluster.collections["/api/v1/pods"].append(bare(make_pod(name, name, **pod)))


def end(verb: VerbRunner, *names: str, said: Sequence[Any] = ()) -> Callable[[], None]:
    """These pods go, with their claims, and the worker says so."""

    def go() -> None:
        for path in (CLAIMS, "/api/v1/pods"):
            left = [each for each in verb.server.collections[path] if each["metadata"]["name"] not in names]
            verb.server.collections[path] = left
        say(verb, *said)()

    return go


def evicting(cluster: RuleServer) -> set[str]:
    """The pools for which the worker evicts."""
    return {
        rule["spec"]["deviceSelector"]["pool"]
        for rule in cluster.rules.values()
        if (rule["metadata"].get("annotations") or {}).get("devicetaint.io/evict") == "true"
    }


def test_pods_are_evicted_once_all_of_them_find_another_place(verb: VerbRunner, cluster: RuleServer) -> None:
    seen: list[set[str]] = []
    verb.rounds += [nothing, end(verb, "web-0"), lambda: seen.append(evicting(cluster)), end(verb, "web-1")]
    verb.rounds += [lambda: seen.append(evicting(cluster)), end(verb, "train-0", "train-1", said=[COMPLETED, FREE])]
    code, output, error = drain(verb, "node-0", "--wait-for-place", "--reason", "firmware 1.2")
    assert (code, seen) == (0, [set(), {"node-0"}])
    assert output.splitlines()[1:3] == [
        f"{POOL}: all pods find a place, so the worker evicts them",
        "drained: no allocation holds a device",
    ]
    waits = f"kubectl dtaint drain: {POOL} waits with ml/train-0, ml/train-1: "
    assert error.splitlines() == [
        f"{waits}2 of 2 pods find no other device: 2 need gpu.example.com, 0 free",
        f"kubectl dtaint drain: {WAY_OUT}",
        f"{waits}1 of 2 pods finds no other device: 1 needs gpu.example.com, 0 free",
    ]
    closing, going = [sent["metadata"]["annotations"] for _, _, sent in cluster.sent]
    assert closing == {"devicetaint.io/description": "firmware 1.2"}
    assert going == {**closing, "devicetaint.io/evict": "true"}


def test_pool_whose_pods_find_places_does_not_wait_for_another(verb: VerbRunner, cluster: RuleServer) -> None:
    """On node-2 there is room for one pod, and train-0 takes it."""
    room = make_slice([make_device("gpu-0")], pool="node-2", node_name="node-2", meta=make_meta("node-2-gpu"))
    cluster.collections[f"{GROUP}/v1/resourceslices"].append(bare(room))
    cluster.collections["/api/v1/nodes"].append({"metadata": {"name": "node-2"}})
    end(verb, "train-1", "web-1")()

    def move() -> None:
        end(verb, "train-0")()
        run(cluster, "train-0", "node-2/gpu-0", nodeName="node-2")

    verb.rounds += [nothing, nothing, move]
    code, output, error = drain(verb, "node-0", "node-1", "--wait-for-place", "--timeout=20s")
    assert (code, evicting(cluster)) == (1, {"node-0"})
    assert f"{POOL}: all pods find a place" in output
    assert "gpu.example.com/node-1 waits with ml/web-0: " in error
    assert f"{POOL} waits" not in error


def test_time_that_is_over_names_who_waits_and_how_to_go_ahead(verb: VerbRunner, cluster: RuleServer) -> None:
    verb.rounds += [nothing] * 9
    code, _, error = drain(verb, "node-0", "--wait-for-place", "--timeout=40s")
    assert (code, evicting(cluster)) == (1, set())
    assert "no eviction worker has reported" not in error
    last = error.splitlines()[-2]
    assert last.startswith(f"error: not drained: not empty within 40 s; {POOL} waits with ml/train-0, ml/train-1: ")
    assert last.endswith(f"; {WAY_OUT}")
    verb.rounds[:] = [end(verb, "train-0", "train-1", said=[COMPLETED, FREE])]
    assert drain(verb, "node-0")[0] == 0
    assert evicting(cluster) == {"node-0"}


@pytest.mark.usefixtures("cluster")
def test_interrupt_says_who_waits(verb: VerbRunner) -> None:
    verb.rounds += [nothing]
    error = drain(verb, "node-0", "--wait-for-place")[2].splitlines()[-1]
    assert f"the worker goes on; {POOL} waits with ml/train-0, ml/train-1: " in error


@pytest.mark.parametrize("mode", ["client", "server"])
def test_dry_run_says_who_would_wait(mode: str, verb: VerbRunner, cluster: RuleServer) -> None:
    code, output, _ = drain(verb, "node-0", "--wait-for-place", f"--dry-run={mode}")
    _, waits, way_out = output.splitlines()
    assert (code, cluster.rules, waits.count("dry run"), way_out.startswith(WAY_OUT)) == (0, {}, 1, True)
    assert "waits with ml/train-0, ml/train-1: 2 of 2 pods find no other device" in waits
    end(verb, "web-0", "web-1")()
    assert drain(verb, "node-0", "--wait-for-place", f"--dry-run={mode}")[1].count("\n") == 1


def test_pods_wait_where_it_is_not_known_whether_there_is_a_place(verb: VerbRunner, cluster: RuleServer) -> None:
    end(verb, "web-0", "web-1")()
    cluster.forbidden.add(CLASSES)
    verb.rounds += [nothing] * 2
    _, _, error = drain(verb, "node-0", "--wait-for-place", "--timeout=10s")
    assert error.startswith("Warning: no permission to read deviceclasses, so it is unknown where pods find other")
    assert "it is not known whether 2 pods would find other devices: DeviceClasses are not known" in error
    assert (WAY_OUT in error, evicting(cluster)) == (True, set())


def test_pods_that_have_no_node_yet_take_places(verb: VerbRunner, cluster: RuleServer) -> None:
    """Such as those that an earlier eviction has made again."""
    end(verb, "web-0", "train-1")()
    run(cluster, "train-9", "", nodeName=None, phase="Pending")
    verb.rounds += [nothing, lambda: None if evicting(cluster) else end(verb, "train-9")(), nothing]
    drain(verb, "node-0", "--wait-for-place", "--timeout=20s")
    assert evicting(cluster) == {"node-0"}
    assert [each["metadata"]["name"] for each in cluster.collections["/api/v1/pods"]] == ["train-0", "web-1"]


def test_pods_of_daemon_sets_are_not_waited_for(verb: VerbRunner, cluster: RuleServer) -> None:
    end(verb, "train-0", "train-1")()
    run(cluster, "exporter", "node-0/gpu-0", owner="DaemonSet/exporter")
    verb.rounds += [nothing]
    assert "waits" not in drain(verb, "node-0", "--wait-for-place")[2]
    assert evicting(cluster) == {"node-0"}


def test_rule_that_has_a_new_status_is_written_at_the_next_look_and_a_refusal_ends_the_drain(
    verb: VerbRunner, cluster: RuleServer
) -> None:
    end(verb, "web-0", "web-1")()

    def refuse() -> None:
        cluster.refusals = [status(409, "Conflict", "changed")] * 5 + [status(403, "Forbidden", "over the limit")]

    verb.rounds += [refuse, nothing, nothing]
    code, _, error = drain(verb, "node-0", "--wait-for-place")
    assert (code, verb.rounds) == (1, [nothing])
    assert error.startswith("error: not drained: Error from server (Forbidden): over the limit\nThe taint stays.")


def test_only_a_drain_that_waits_reads_classes(verb: VerbRunner, cluster: RuleServer) -> None:
    for words, read in (([], False), (["--wait-for-place"], True)):
        cluster.asked.clear()
        verb.rounds += [nothing]
        assert drain(verb, "node-0", *words)[0] == 130
        assert any(each.startswith(CLASSES) for each in cluster.asked) is read


# --- a part -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "undo"),
    [
        (["node-0", "node-1"], f"--node=node-0 --node=node-1 {KEY}:NoSchedule-"),
        ([POOL, "gpu.example.com/node-1"], f"{POOL} {KEY}:NoSchedule-"),
    ],
)
@pytest.mark.parametrize("gone", ["the server", "the right"])
def test_part_that_was_written_is_named_with_the_command_that_takes_it_back(
    gone: str, words: list[str], undo: str, verb: VerbRunner
) -> None:
    original = verb.server.write

    def write(method: str, target: str, body: bytes) -> tuple[int, Any]:
        return original(method, target, body) if not verb.server.rules else status(403, "Forbidden", "no")

    if gone == "the server":
        verb.server.lasts = 3
    else:
        verb.server.write = write  # type: ignore[method-assign]
    code, output, error = drain(verb, *words)
    (name,) = verb.server.rules
    assert (code, output) == (2 if gone == "the server" else 1, "")
    assert error.splitlines()[1:] == [
        f"{POOL} tainted by devicetaintrule.resource.k8s.io/{name}",
        f"The taint stays. To take it back: kubectl dtaint untaint {undo}",
    ]
    verb.server.lasts = None
    verb.server.write = original  # type: ignore[method-assign]
    verb.server.rules[name]["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    assert (verb("untaint", *undo.split())[0], verb.server.rules) == (0, {})


def test_what_may_have_been_written_can_be_taken_back(verb: VerbRunner) -> None:
    verb.server.lasts = 0
    code, _, error = drain(verb, POOL)
    assert (code, error.splitlines()[1:]) == (
        2,
        [f"The taint stays. To take it back: kubectl dtaint untaint {POOL} {KEY}:NoSchedule-"],
    )
