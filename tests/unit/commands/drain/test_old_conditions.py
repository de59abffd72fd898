"""A drain that changes a rule of which the worker has already said something: that is of before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.builders import make_condition, make_pod
from tests.unit.commands.api_server import bare
from tests.unit.commands.preview_runner import used
from tests.unit.commands.rule_server import GROUP, RULES, SERVED, RuleServer, VerbRunner, rule_on
from webhook.commands.shared.words import DeviceAddress, TaintSpec, WantedRule

KEY = "devicetaint.io/drain"
NODE_0 = DeviceAddress("gpu.example.com", "node-0")
NAME = WantedRule(NODE_0, TaintSpec(KEY, "", "NoSchedule")).name
EVICT = {"devicetaint.io/evict": "true"}
CONFIRMING = "--confirm=v1 devices=2 claims=2 pods=2 namespaces=1 of=x"
COMPLETED = make_condition(type="devicetaint.io/Eviction", reason="Completed")
FREE = make_condition(type="devicetaint.io/Released", status="True", reason="Released")
IN_USE = make_condition(type="devicetaint.io/Released", reason="InUse", message="1 claim holds devices: ml/train")
PODS = "/api/v1/pods"

pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture(autouse=True)
def cluster(rule_server: RuleServer) -> None:
    """Pod train uses a device of node-0, and there is no class by which it could get another."""
    rule_server.objects[f"{GROUP}/v1"] = {"resources": [{"name": name} for name in (*SERVED, "deviceclasses")]}
    rule_server.collections |= {
        PODS: [bare(make_pod("train", "train"))],
        "/api/v1/namespaces": [],
        "/apis/policy/v1/poddisruptionbudgets": [],
        f"{GROUP}/v1/deviceclasses": [],
        "/api/v1/nodes": [{"metadata": {"name": f"node-{number}"}} for number in range(2)],
    }
    rule_server.collections[f"{GROUP}/v1/resourceclaims"].append(bare(used("train", "node-0/gpu-0")))


def keep(verb: VerbRunner, *conditions: Any, **annotations: str) -> None:
    rule = rule_on(NAME, key=KEY, selector={"driver": NODE_0.driver, "pool": NODE_0.pool}, annotations=annotations)
    verb.server.keep(rule)
    say(verb, *conditions)()


def say(verb: VerbRunner, *conditions: Any) -> Callable[[], None]:
    def write() -> None:
        for each in verb.server.collections[RULES]:
            each["status"] = {"conditions": [{**one, "observedGeneration": 1} for one in conditions]}

    return write


def freed(verb: VerbRunner) -> Callable[[], None]:
    def free() -> None:
        verb.server.collections |= {PODS: [], f"{GROUP}/v1/resourceclaims": []}
        say(verb, COMPLETED, FREE)()

    return free


def nothing() -> None:
    """Time goes by."""


def drain(verb: VerbRunner, *words: str) -> tuple[int, str, str]:
    return verb("drain", "--interval", "7", "node-0", *words)


@pytest.mark.parametrize("reason", ["Stopped", "ObserveOnly", "HeldByPodGroup", "ReturnsToDevice"])
def test_drain_that_confirms_goes_on_although_the_worker_had_given_up(reason: str, verb: VerbRunner) -> None:
    keep(verb, make_condition(type="devicetaint.io/Eviction", reason=reason), IN_USE, **EVICT)
    verb.rounds += [nothing, freed(verb)]
    code, output, _ = drain(verb, CONFIRMING)
    assert (code, output.split()[1]) == (0, "modified")


@pytest.mark.parametrize(("words", "looks"), [([CONFIRMING], 6), ([], 1)])
def test_worker_that_still_gives_up_a_while_later_ends_the_drain(
    words: list[str], looks: int, verb: VerbRunner
) -> None:
    """At once, if nothing has changed."""
    keep(verb, make_condition(type="devicetaint.io/Eviction", reason="Stopped", message="over"), IN_USE, **EVICT)
    verb.rounds += [nothing] * 5
    code, _, error = drain(verb, *words)
    assert (code, 6 - len(verb.rounds)) == (1, looks)
    assert "error: not drained: Stopped: over\n" in error


def test_drain_that_waits_for_a_place_outlasts_that_eviction_was_no_longer_requested(verb: VerbRunner) -> None:
    """Somebody has taken `/evict` off the rule, and the worker has said so."""
    keep(verb, make_condition(type="devicetaint.io/Eviction", reason="NothingToDo"), IN_USE)
    verb.rounds += [*[nothing] * 8, freed(verb)]
    code, output, error = drain(verb, "--wait-for-place")
    assert (code, output.split()[1], verb.rounds) == (0, "already", [])
    assert "waits with ml/train" in error


def test_rule_that_is_being_deleted_ends_a_drain_that_waits_for_places(verb: VerbRunner) -> None:
    """Its finalizer keeps it, so no look would ever find that it has gone."""
    keep(verb)

    def delete() -> None:
        for each in verb.server.collections[RULES]:
            each["metadata"] |= {"deletionTimestamp": "2026-06-01T11:00:00Z", "finalizers": ["example.com/x"]}
        verb.server.collections |= {PODS: []}

    verb.rounds += [delete, *[nothing] * 6]
    code, _, error = drain(verb, "--wait-for-place")
    assert (code, "which is being deleted" in error, len(verb.rounds) > 0) == (1, True, True)
