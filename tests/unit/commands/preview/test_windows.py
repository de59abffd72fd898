"""The windows of the policy in preview."""

from __future__ import annotations

from typing import Any

from tests.builders import make_pod
from tests.unit.commands.preview_runner import HEADER, OUT_OF_TREE, PreviewRunner, pool_slice, rule, used
from webhook.api.rules import EVICT, NOT_BEFORE

WINDOW = {"schedule": "0 22 * * *", "duration": "30m", "zone": "Europe/Berlin"}
NIGHTLY = {"windows": [WINDOW]}
WAIT = "wait for the window that opens at 2026-06-01T22:00:00+02:00 (Europe/Berlin)"
SHOWN = "0 22 * * * for 30 min (Europe/Berlin)"


def asked(**annotations: str) -> Any:
    return rule("NoSchedule", annotations={EVICT: "true", **annotations})


def policy(*profiles: Any, **fields: Any) -> Any:
    return {**HEADER, "eviction": list(profiles), **fields}


def crowd(count: int, **fields: Any) -> list[Any]:
    devices = [f"node-0/gpu-{number}" for number in range(count)]
    claims = [used(f"pod-{number}", device) for number, device in enumerate(devices)]
    pods = [make_pod(f"pod-{number}", f"pod-{number}", **fields) for number in range(count)]
    return [pool_slice("node-0"), *claims, *pods]


def notes(run_preview: PreviewRunner, manifest: Any, document: Any, dump: list[Any]) -> list[str]:
    found: list[str] = run_preview.told(manifest, dump=dump, policy=document)["notes"]
    return [each for each in found if "window" in each or "needs" in each or "alone" in each]


def test_windows_and_who_waits_for_them_are_noted(run_preview: PreviewRunner) -> None:
    slow = policy({**NIGHTLY, "maxPerMinute": 1})
    expected = [f"windows of profile 0, for pods here: {SHOWN}", f"40 pods {WAIT}"]
    assert notes(run_preview, asked(), slow, crowd(40)) == expected
    _, output = run_preview(asked(), dump=crowd(40), policy=slow)
    assert [line.strip().removeprefix("note: ") for line in output.splitlines() if "note:" in line][-2:] == expected


def test_pods_are_known_so_their_profile_is(run_preview: PreviewRunner) -> None:
    labelled = crowd(3, meta={"labels": {"app": "db"}}, priority=7)
    by_labels = {"podLabels": {"labels": {"app": "db"}}, "priority": {"atMost": 7}, "action": "skip"}
    document = policy(by_labels, NIGHTLY)
    assert notes(run_preview, asked(), document, labelled) == []
    pods = run_preview.told(asked(), dump=labelled, policy=document)["pods"]
    assert [(each["outcome"], each["reason"]) for each in pods] == [("LeftAlone", "ActionSkip")] * 3
    assert notes(run_preview, asked(), document, crowd(3)) == [
        f"windows of profile 1, for pods here: {SHOWN}",
        f"3 pods {WAIT}",
    ]


def test_pods_that_are_not_known_are_not_counted_in_a_profile_that_looks_at_them(run_preview: PreviewRunner) -> None:
    by_priority = {"namespaces": {"names": ["web"]}, "priority": {"atMost": 0}}
    dump = [each for each in crowd(40) if each["kind"] != "Pod"]
    dump.append(used("web", "node-0/gpu-50", namespace="web"))
    found = notes(run_preview, asked(), policy(by_priority, {**NIGHTLY, "maxPerMinute": 1}), dump)
    assert found[-1] == f"40 pods {WAIT}"


def test_time_of_the_rule_counts(run_preview: PreviewRunner) -> None:
    later = asked(**{NOT_BEFORE: "2026-06-02T12:00:00Z"})
    assert notes(run_preview, later, policy(NIGHTLY), crowd(7))[1:] == [
        "7 pods wait for the window that opens at 2026-06-02T22:00:00+02:00 (Europe/Berlin)"
    ]


def test_window_is_looked_for_from_when_pods_are_due(run_preview: PreviewRunner) -> None:
    patient = {"windows": [WINDOW], "grace": "9h"}
    assert notes(run_preview, asked(), policy(patient), crowd(3))[1:] == [
        "3 pods wait for the window that opens at 2026-06-02T22:00:00+02:00 (Europe/Berlin)"
    ]


def test_in_tree_controller_knows_no_windows(run_preview: PreviewRunner) -> None:
    assert notes(run_preview, rule(), policy(NIGHTLY), crowd(3)) == []
    assert notes(run_preview, rule("NoSchedule"), policy(NIGHTLY), crowd(3)) == []
    assert len(notes(run_preview, rule(), {**OUT_OF_TREE, "eviction": [NIGHTLY]}, crowd(3))) == 2
    assert notes(run_preview, asked(), policy({}), crowd(3)) == []


def test_slice_has_the_same(run_preview: PreviewRunner) -> None:
    tainted = pool_slice("node-0")
    tainted["spec"]["devices"][0]["taints"] = [{"key": "gpu.example.com/unhealthy", "effect": "NoExecute"}]
    found = notes(run_preview, tainted, {**OUT_OF_TREE, "eviction": [NIGHTLY]}, crowd(3))
    assert found[1:] == [f"1 pod {WAIT.replace('wait ', 'waits ')}"]
