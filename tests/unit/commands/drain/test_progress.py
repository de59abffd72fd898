"""What a drain prints between two looks, and how it ends, by what `status` finds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NOW, make_condition, make_meta, make_pod, make_rule, make_slice, make_taint
from tests.unit.commands.preview_runner import used
from webhook.api.pods import HOLD
from webhook.commands.drain import DrainEnd, DrainProgress, DrainSight, sight_of
from webhook.commands.shared.objects import StatusObjects, object_in
from webhook.commands.status.report import StatusReport, lines_of
from webhook.commands.status.views import StatusSettings
from webhook.eviction.modes import InTree, Mode
from webhook.policy.model import BUILTIN

SINCE = "2026-06-01T11:55:00Z"
EVICTION = "devicetaint.io/Eviction"
RELEASED = "devicetaint.io/Released"


def condition(kind: str, reason: str, status: str = "False", message: str = "", generation: int = 1) -> Any:
    fields = {"type": kind, "reason": reason, "status": status, "message": message, "lastTransitionTime": SINCE}
    return make_condition(**fields, observedGeneration=generation)


def rule(name: str, *conditions: Any, pool: str = "node-0") -> Any:
    meta = make_meta(name, uid=f"uid-of-{name}", generation=1, annotations={"devicetaint.io/evict": "true"})
    selector = {"driver": "gpu.example.com", "pool": pool}
    return make_rule(selector=selector, taint=make_taint(time_added=SINCE), meta=meta, conditions=conditions)


def report(*manifests: Any, missing: frozenset[str] = frozenset()) -> StatusReport:
    objects = StatusObjects()
    for each in (make_slice(), *manifests):
        value, errors = object_in(each)
        assert (value is not None, errors) == (True, [])
        assert value is not None
        objects.add(value)
    settings = StatusSettings(BUILTIN, Mode.DELEGATED, InTree.ACTIVE, NOW)
    return StatusReport(settings, missing=missing, lines=lines_of(objects, settings, missing)[0])


EVICTING = condition(EVICTION, "Evicting", "True", "1 pod pending")
COMPLETED = condition(EVICTION, "Completed")
NOTHING = condition(EVICTION, "NothingToDo")
FREE = condition(RELEASED, "Released", "True")
IN_USE = condition(RELEASED, "InUse", message="1 claim holds devices: ml/a (pod a)")
GOING_ON = DrainSight()


@pytest.mark.parametrize("said", [COMPLETED, NOTHING, EVICTING])
def test_drain_has_ended_when_no_allocation_holds_a_device(said: Any) -> None:
    end = DrainEnd(emptied=True, text="no allocation holds a device")
    assert sight_of(report(rule("a", said, FREE)), ["a"]).end == end


def test_drain_of_several_pools_ends_with_the_last() -> None:
    assert sight_of(report(rule("a", COMPLETED, FREE), rule("b", EVICTING, IN_USE)), ["a", "b"]) == GOING_ON
    ended = report(rule("a", COMPLETED, FREE), rule("b", COMPLETED, FREE), rule("other", EVICTING))
    assert sight_of(ended, ["a", "b"]).end is not None


@pytest.mark.parametrize("conditions", [[], [condition(EVICTION, "Completed", generation=0)]])
def test_worker_that_has_not_answered_yet(conditions: list[Any]) -> None:
    assert sight_of(report(rule("a", *conditions)), ["a"]) == DrainSight(answered=False)


def test_condition_of_an_earlier_generation_is_no_end() -> None:
    old = condition(RELEASED, "Released", "True", generation=0)
    assert sight_of(report(rule("a", EVICTING, old)), ["a"]).end is None


@pytest.mark.parametrize("said", [COMPLETED, NOTHING])
def test_devices_that_stay_in_use_are_named(said: Any) -> None:
    sight = sight_of(report(rule("a", said, IN_USE)), ["a"])
    assert sight == DrainSight(settled="a: 1 claim holds devices: ml/a (pod a)")
    assert sight_of(report(rule("a", said)), ["a"]).settled == "a: it is not known who holds its devices"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (condition(EVICTION, "Stopped", message="over the ceiling"), "Stopped: over the ceiling"),
        (condition(EVICTION, "HeldByPodGroup", message="crew"), "HeldByPodGroup: crew"),
        (condition(EVICTION, "ReturnsToDevice", message="Job"), "ReturnsToDevice: Job"),
        (condition(EVICTION, "ObserveOnly"), "the eviction worker is in mode observe, in which it evicts no pod"),
    ],
)
def test_worker_that_evicts_no_further_pod_ends_the_drain(said: Any, text: str) -> None:
    found = report(rule("a", said, IN_USE), rule("b", EVICTING))
    assert sight_of(found, ["a", "b"]).end == DrainEnd(emptied=False, text=text)


def test_rule_that_is_gone_ends_the_drain() -> None:
    end = DrainEnd(emptied=False, text="rule a is gone: the devices are open again")
    assert sight_of(report(rule("b", EVICTING)), ["a", "b"]).end == end


# --- lines --------------------------------------------------------------------------------------


def pod(name: str, **meta: Any) -> list[Any]:
    return [make_pod(name, name, meta=meta or None), used(name, "node-0/gpu-0")]


def test_what_happens_to_pods_is_printed_once() -> None:
    progress, a = DrainProgress(["a"]), rule("a", EVICTING)
    held = pod("held", annotations={HOLD: "until noon"})
    ending = pod("train", deletionTimestamp="2026-06-01T12:00:20Z")
    other = rule("other", EVICTING, pool="node-1")
    assert list(progress.lines(report(a, *pod("train"), *held, other))) == [
        "pod ml/held is held: hold: until noon",
        "2 pods to evict",
    ]
    assert list(progress.lines(report(a, *pod("train"), *held))) == []
    assert list(progress.lines(report(a, *ending, *held))) == ["evicting pod ml/train", "1 pod to evict, 1 terminating"]
    assert list(progress.lines(report(a, *held))) == ["pod ml/train evicted", "1 pod to evict"]
    assert list(progress.lines(report(a, *pod("held")))) == []
    assert list(progress.lines(report(a))) == ["pod ml/held evicted", "0 pods to evict"]


def test_pods_of_other_rules_are_not_its_concern() -> None:
    assert (
        list(DrainProgress(["b"]).lines(report(rule("a", EVICTING), *pod("train"), rule("b", EVICTING, pool="x"))))
        == []
    )
