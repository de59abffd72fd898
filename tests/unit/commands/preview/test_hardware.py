"""`preview` of rules and slices that leave parts of the same hardware in service."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.builders import (
    DRIVER,
    make_claim,
    make_consumer,
    make_device,
    make_result,
    make_slice,
    make_status,
    make_taint,
)
from tests.unit.commands.preview_runner import PreviewRunner, rule

COUNTERS: Final = [{"counterSet": "gpu-0", "counters": {"memory": {"value": "8Gi"}}}]
TEXT: Final = "2 other devices of the same hardware stay in service, 1 of them in use by pod ml/a"
LEFT: Final = [
    {"driver": DRIVER, "pool": "node-0", "device": "mig-0", "claims": ["ml/a"], "pods": ["ml/a"], "podGroups": []},
    {"driver": DRIVER, "pool": "node-0", "device": "mig-1", "claims": [], "pods": [], "podGroups": []},
]


def gpu(effect: str = "") -> Any:
    taints = [make_taint(effect=effect)] if effect else None
    return make_slice(
        [
            make_device("gpu-0", taints, consumesCounters=COUNTERS),
            *[make_device(name, consumesCounters=COUNTERS) for name in ("mig-0", "mig-1")],
            make_device("gpu-1"),
        ]
    )


def dump() -> list[Any]:
    status = make_status(make_result(device="mig-0"))
    status["reservedFor"] = [make_consumer("a")]
    return [gpu(), make_claim(meta={"name": "a", "namespace": "ml"}, status=status)]


def siblings(run_preview: PreviewRunner, asked: Any) -> Any:
    return json.loads(run_preview(asked, "-o", "json", dump=dump())[1])["previews"][0]["siblings"]


def test_rule_on_a_full_device(run_preview: PreviewRunner) -> None:
    asked = rule("NoExecute", selector={"driver": DRIVER, "device": "gpu-0"})
    text = run_preview(asked, dump=dump())[1]
    assert f"  hardware   {TEXT}\n" in text
    assert f"{TEXT} [DT205]" in text
    assert siblings(run_preview, asked) == LEFT


def test_rule_that_does_nothing_is_simulated(run_preview: PreviewRunner) -> None:
    asked = rule("None", selector={"driver": DRIVER, "device": "gpu-0"})
    text = run_preview(asked, dump=dump())[1]
    assert TEXT in text
    assert "DT205" not in text
    assert siblings(run_preview, asked) == LEFT


def test_slice_with_a_new_taint(run_preview: PreviewRunner) -> None:
    for effect in ("NoExecute", "NoSchedule", "None"):
        assert TEXT in run_preview(gpu(effect), dump=dump())[1]
        assert siblings(run_preview, gpu(effect)) == LEFT


def test_nothing_is_shown_where_there_is_none(run_preview: PreviewRunner) -> None:
    asked = rule("NoExecute", selector={"driver": DRIVER, "device": "gpu-1"})
    assert "hardware" not in run_preview(asked, dump=dump())[1]
    assert siblings(run_preview, asked) == []
