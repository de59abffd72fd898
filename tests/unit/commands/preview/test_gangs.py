"""Gangs that a taint breaks, and the owners at the top, in preview."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import make_meta, make_pod
from tests.unit.commands.preview_runner import HEADER, PreviewRunner, pool_slice, rule, used

JOB_SET = {"jobset.sigs.k8s.io/jobset-name": "train"}
ONE_DEVICE = {"driver": "gpu.example.com", "pool": "node-0"}


def ranks(count: int, *, labels: Any = None, hit: int = 4, **fields: Any) -> list[Any]:
    """Pods with a claim each; the first few are on node-0, which is tainted."""
    found = []
    for number in range(count):
        name, node = f"rank-{number}", "node-0" if number < hit else "node-1"
        meta = {"labels": labels} if labels else None
        found += [used(name, f"{node}/gpu-{number}"), make_pod(name, name, meta=meta, **fields)]
    return found


def gang_lines(output: str) -> list[str]:
    """Without the padding of the column."""
    return [" ".join(line.split()) for line in output.splitlines() if line.strip().startswith("gang")]


def test_gang_is_shown_with_all_of_its_pods(run_preview: PreviewRunner) -> None:
    dump = [pool_slice("node-0"), pool_slice("node-1"), *ranks(32, labels=JOB_SET, owner="Job/train-workers-0")]
    code, output = run_preview(rule(selector=ONE_DEVICE), dump=dump)
    assert code == 0
    assert gang_lines(output) == ["gang 4 of 32 pods of JobSet ml/train"]
    assert "JobSet/train" in output
    assert "Job/train-workers-0" not in output
    told = run_preview.told(rule(selector=ONE_DEVICE), dump=dump)
    assert told["gangs"] == [{"kind": "JobSet", "namespace": "ml", "name": "train", "evicted": 4, "pods": 32}]
    assert told["pods"][0]["owner"]["name"] == "train-workers-0"
    assert told["pods"][0]["rootOwner"] == {"kind": "JobSet", "name": "train"}


@pytest.mark.parametrize(("mode", "shown"), [("all", ["gang 2 of 3 pods of PodGroup ml/ring"]), ("single", [])])
def test_disruption_mode_of_a_pod_group_counts(run_preview: PreviewRunner, mode: str, shown: list[str]) -> None:
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": make_meta("ring", namespace="ml"),
        "spec": {"disruptionMode": {mode: {}}},
    }
    pods = ranks(3, hit=2, schedulingGroup={"podGroupName": "ring"})
    _, output = run_preview(rule(selector=ONE_DEVICE), dump=[group, pool_slice("node-0"), *pods])
    assert gang_lines(output) == shown
    assert "PodGroup/ring" in output, "instead of no owner"


def test_gangs_are_those_of_the_policy(run_preview: PreviewRunner) -> None:
    dump = [pool_slice("node-0"), *ranks(3, hit=2, owner="Job/train")]
    assert gang_lines(run_preview(rule(selector=ONE_DEVICE), dump=dump)[1]) == []
    policy = {**HEADER, "eviction": [{"gang": "owner"}]}
    _, output = run_preview(rule(selector=ONE_DEVICE), dump=dump, policy=policy)
    assert gang_lines(output) == ["gang 2 of 3 pods of Job ml/train"]


def test_pods_that_are_leaving_are_no_part_of_a_gang(run_preview: PreviewRunner) -> None:
    pods = [*ranks(3, labels=JOB_SET, hit=2)]
    pods[-1]["status"]["phase"] = "Succeeded"
    assert gang_lines(run_preview(rule(selector=ONE_DEVICE), dump=[pool_slice("node-0"), *pods])[1]) == [
        "gang 2 of 2 pods of JobSet ml/train"
    ]


def test_gang_of_one_pod_is_none(run_preview: PreviewRunner) -> None:
    dump = [pool_slice("node-0"), *ranks(1, labels=JOB_SET)]
    assert gang_lines(run_preview(rule(selector=ONE_DEVICE), dump=dump)[1]) == []


def test_gangs_beyond_five_are_added_up(run_preview: PreviewRunner) -> None:
    pods = []
    for number in range(7):
        for rank in range(2):
            name = f"g{number}-{rank}"
            labels = {"jobset.sigs.k8s.io/jobset-name": f"train-{number}"}
            pods += [used(name, f"node-{rank}/gpu-{number}"), make_pod(name, name, meta={"labels": labels})]
    lines = gang_lines(run_preview(rule(selector=ONE_DEVICE), dump=[pool_slice("node-0"), *pods])[1])
    assert lines[0] == "gang 1 of 2 pods of JobSet ml/train-0"
    assert len(lines) == 5
    assert lines[-1] == "gangs 3 of 6 pods of 3 more"
