"""What a drain prints of pods that are gone, or of which nothing is known."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import make_condition, make_meta, make_pod, make_rule, make_taint
from tests.unit.commands.drain.test_progress import SINCE, report
from tests.unit.commands.preview_runner import used
from webhook.api.pods import HOLD
from webhook.commands.drain import DrainEnd, DrainProgress, sight_of


def rule(name: str, effect: str = "NoSchedule") -> Any:
    meta = make_meta(name, uid=f"uid-of-{name}", generation=1, annotations={"devicetaint.io/evict": "true"})
    said = make_condition(
        type="devicetaint.io/Eviction",
        reason="Evicting",
        status="True",
        lastTransitionTime=SINCE,
        observedGeneration=1,
    )
    selector = {"driver": "gpu.example.com", "pool": "node-0"}
    taint = make_taint(effect=effect, time_added=SINCE)
    return make_rule(selector=selector, taint=taint, meta=meta, conditions=[said])


def pod(name: str, phase: str = "Running", **meta: Any) -> list[Any]:
    return [make_pod(name, name, phase=phase, meta=meta or None), used(name, "node-0/gpu-0")]


HELD = pod("held", annotations={HOLD: "until noon"})
TRAIN = pod("train")


@pytest.mark.parametrize(
    ("then", "text"),
    [
        ([*HELD, *TRAIN], "rule a is gone: the devices are open again"),
        ([rule("a", "None"), *HELD, *TRAIN], "rule a has effect None: the devices are open again"),
    ],
)
def test_no_pod_of_a_rule_that_was_taken_back_is_called_evicted(then: list[Any], text: str) -> None:
    progress = DrainProgress(["a"])
    assert list(progress.lines(report(rule("a"), *HELD, *TRAIN)))[1:] == ["2 pods to evict"]
    later = report(*then)
    assert list(progress.lines(later)) == []
    assert sight_of(later, ["a"]).end == DrainEnd(emptied=False, text=text)


@pytest.mark.parametrize("missing", ["Pod", "ResourceClaim", "ResourceSlice"])
def test_no_pod_that_may_not_be_read_for_a_while_is_called_evicted(missing: str) -> None:
    progress = DrainProgress(["a"])
    assert list(progress.lines(report(rule("a"), *TRAIN))) == ["1 pod to evict"]
    assert list(progress.lines(report(rule("a"), missing=frozenset({missing})))) == []
    assert list(progress.lines(report(rule("a"), *TRAIN))) == []
    assert list(progress.lines(report(rule("a")))) == ["pod ml/train evicted", "0 pods to evict"]


@pytest.mark.parametrize(("before", "after"), [(HELD, []), (HELD, pod("held", "Succeeded")), (TRAIN, [])])
def test_any_pod_that_is_gone_is_called_evicted(before: list[Any], after: list[Any]) -> None:
    """Two looks do not tell whether one that was held has ended by itself, or its limit was lifted between them."""
    progress, name = DrainProgress(["a"]), before[0]["metadata"]["name"]
    assert list(progress.lines(report(rule("a"), *before)))[-1] == "1 pod to evict"
    assert list(progress.lines(report(rule("a"), *after))) == [f"pod ml/{name} evicted", "0 pods to evict"]
