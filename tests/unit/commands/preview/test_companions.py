"""Pods that our worker evicts with the rest of their PodGroup, pods that it leaves alone, and gangs, in preview."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NOW_TEXT, make_consumer, make_meta, make_pod, make_toleration
from tests.unit.commands.preview_runner import (
    FIVE_MINUTES,
    GROUP,
    HEADER,
    OUT_OF_TREE,
    PreviewRunner,
    pool_slice,
    rule,
    squeezed,
    used,
)

NODE = {"driver": "gpu.example.com", "pool": "node-0"}
IN_RING: Any = {"schedulingGroup": {"podGroupName": "ring"}}
MIRRORED: Any = {"kubernetes.io/config.mirror": "x"}


def ring(uid: str = "ring-uid") -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": make_meta("ring", namespace="ml", uid=uid),
        "spec": {"disruptionMode": {"all": {}}},
    }


def asks(**fields: Any) -> Any:
    """A rule that our worker carries out."""
    return rule(
        "NoSchedule", selector=NODE, meta=make_meta("drain", annotations={"devicetaint.io/evict": "true"}), **fields
    )


def crew(*beside: Any, hit: tuple[Any, ...] = ()) -> list[Any]:
    """Pod `hit` of the group is on node-0, which is tainted; `beside` is on node-1; both use a claim of their own."""
    return [
        ring(),
        pool_slice("node-0"),
        *(hit or (used("hit", "node-0/gpu-0"), make_pod("hit", "hit", **IN_RING))),
        *(beside or (used("beside", "node-1/gpu-0"), make_pod("beside", "beside", **IN_RING))),
    ]


def outcomes(told: Any) -> dict[str, tuple[str, str, int | None]]:
    return {each["name"]: (each["outcome"], each["reason"], each["dueSeconds"]) for each in told["pods"]}


HIT = {"hit": ("Evicted", "NotTolerated", 0)}
ALONG = {"beside": ("Evicted", "WithPodGroup", 0)}


def test_pods_of_a_group_of_mode_all_go_along(run_preview: PreviewRunner) -> None:
    told = run_preview.told(asks(), dump=crew())
    assert outcomes(told) == HIT | ALONG
    assert told["summary"]["evicted"] == 2
    assert told["summary"]["companions"] == 1
    assert told["summary"]["waves"] == [{"seconds": 0, "pods": 2}]
    assert [(each["name"], each["evicted"], each["pods"]) for each in told["gangs"]] == [("ring", 2, 2)]
    (along,) = [each for each in told["pods"] if each["name"] == "beside"]
    assert (along["devices"], along["claims"], along["taint"]["effect"]) == ([], [], "NoExecute")
    shown = squeezed(run_preview(asks(), dump=crew())[1])
    assert "along 1 pod of these only with the rest of their PodGroup" in shown
    assert "ml/beside PodGroup/ring 0 now with PodGroup ring" in shown
    assert "evicted 2 pods" in shown


@pytest.mark.parametrize(
    ("asked", "policy", "along"),
    [
        (rule(selector=NODE), None, {}),
        (rule(selector=NODE), OUT_OF_TREE, ALONG),
        (rule("None", selector=NODE), OUT_OF_TREE, ALONG),
        (asks(), None, ALONG),
    ],
    ids=["in-tree", "inTreeEvictor: absent", "effect None", "/evict"],
)
def test_only_our_worker_takes_pods_along(run_preview: PreviewRunner, asked: Any, policy: Any, along: Any) -> None:
    assert outcomes(run_preview.told(asked, dump=crew(), policy=policy)) == HIT | along


def test_pods_on_their_way_out_take_no_other_along(run_preview: PreviewRunner) -> None:
    leaving = make_pod("hit", "hit", meta={"deletionTimestamp": NOW_TEXT}, **IN_RING)
    told = run_preview.told(asks(), dump=crew(hit=(used("hit", "node-0/gpu-0"), leaving)))
    assert outcomes(told) == {"hit": ("Leaving", "Terminating", None)}


def test_companions_go_with_the_first_and_keep_their_devices(run_preview: PreviewRunner) -> None:
    """One that tolerates the taint itself goes all the same."""
    hit = (
        used("late", "node-0/gpu-0", tolerations=[FIVE_MINUTES]),
        make_pod("late", "late", **IN_RING),
        used("soon", "node-0/gpu-1", tolerations=[make_toleration(effect="NoExecute", seconds=60)]),
        make_pod("soon", "soon", **IN_RING),
    )
    tolerating = (
        used("beside", "node-0/gpu-2", tolerations=[make_toleration(effect="NoExecute")]),
        make_pod("beside", "beside", **IN_RING),
    )
    told = run_preview.told(asks(), dump=crew(*tolerating, hit=hit))
    assert outcomes(told) == {
        "late": ("Evicted", "ToleratedForSeconds", 300),
        "soon": ("Evicted", "ToleratedForSeconds", 60),
        "beside": ("Evicted", "WithPodGroup", 60),
    }
    (along,) = [each for each in told["pods"] if each["name"] == "beside"]
    assert [each["device"] for each in along["devices"]] == ["gpu-2"]


@pytest.mark.parametrize(
    ("tolerations", "annotations", "expected"),
    [
        ([make_toleration(effect="NoExecute")], None, {"hit": ("Tolerates", "Tolerated", None)}),
        ([make_toleration(effect="NoExecute")], MIRRORED, {"hit": ("Tolerates", "Tolerated", None)}),
        (None, MIRRORED, {"hit": ("LeftAlone", "MirrorPod", None)}),
        *[
            (
                [make_toleration(effect="NoExecute", seconds=seconds)],
                None,
                {"hit": ("Evicted", "ToleratedForSeconds", seconds), "beside": ("Evicted", "WithPodGroup", seconds)},
            )
            for seconds in (10**12, 2**63 - 1)
        ],
    ],
    ids=["tolerates", "tolerates and is exempt", "is exempt", "goes after the calendar ends", "goes at the very end"],
)
def test_what_becomes_of_the_one_that_is_hit_decides_about_the_others(
    run_preview: PreviewRunner, tolerations: Any, annotations: Any, expected: Any
) -> None:
    hit = make_pod("hit", "hit", meta={"annotations": annotations} if annotations else None, **IN_RING)
    dump = crew(hit=(used("hit", "node-0/gpu-0", tolerations=tolerations), hit))
    assert outcomes(run_preview.told(asks(), dump=dump)) == expected


# --- left alone ---------------------------------------------------------------------------------


def reserved(name: str = "hit", **fields: Any) -> tuple[Any, ...]:
    """A claim that the group keeps reserved, and a pod that uses it and has a reservation of its own as well."""
    users = [make_consumer("ring", uid="ring-uid", **GROUP), make_consumer(name)]
    return used(name, "node-0/gpu-0", users=users), make_pod(name, name, **IN_RING, **fields)


def test_pods_whose_group_keeps_their_claims_are_left_alone(run_preview: PreviewRunner) -> None:
    told = run_preview.told(asks(), dump=crew(hit=reserved()))
    assert outcomes(told) == {"hit": ("LeftAlone", "HeldByPodGroup", None)}, "and take no other pod along"
    assert (told["summary"]["evicted"], told["summary"]["leftAlone"], told["summary"]["claims"]) == (0, 1, 0)
    assert [(each["outcome"], each["reason"], each["dueSeconds"]) for each in told["podGroups"]] == [
        ("LeftAlone", "HeldByPodGroup", None)
    ]
    shown = squeezed(run_preview(asks(), dump=crew(hit=reserved()))[1])
    assert "evicted no pods" in shown
    assert "left alone 1 pod by our worker" in shown
    assert "ml/hit PodGroup/ring 0 node-0/gpu-0 left alone PodGroup ring keeps its claims reserved" in shown
    group = "ml/ring: left alone, as its claims stay reserved until it is deleted; 1 pod known, not counted above"
    assert f"PodGroup {group}" in shown


def test_pod_that_is_exempt_and_kept_by_its_group_is_left_alone_as_exempt(run_preview: PreviewRunner) -> None:
    told = run_preview.told(asks(), dump=crew(hit=reserved(meta={"annotations": MIRRORED})))
    assert outcomes(told) == {"hit": ("LeftAlone", "MirrorPod", None)}


def test_pod_whose_group_keeps_its_claim_does_not_go_along_either(run_preview: PreviewRunner) -> None:
    users = [make_consumer("ring", uid="ring-uid", **GROUP)]
    held = used("held", "node-0/gpu-1", users=users), make_pod("held", "held", **IN_RING)
    told = run_preview.told(asks(), dump=crew(*held))
    assert outcomes(told) == HIT, "as the worker does: a taint hits it, so it is no companion"
    assert (told["summary"]["evicted"], [each["evicted"] for each in told["gangs"]]) == (1, [1])


@pytest.mark.parametrize("uid", ["ring-uid", "another"])
def test_reservation_of_a_group_that_is_gone_keeps_no_pod(run_preview: PreviewRunner, uid: str) -> None:
    dump = crew(hit=reserved())
    dump[0] = ring(uid=uid)
    told = run_preview.told(asks(), dump=dump)
    held = uid == "ring-uid"
    assert told["podGroups"][0]["outcome"] == ("LeftAlone" if held else "Evicted")
    assert outcomes(told)["hit"][0] == ("LeftAlone" if held else "Evicted")
    gone = run_preview.told(asks(), dump=dump[1:])
    assert (gone["podGroups"][0]["outcome"], outcomes(gone)["hit"][0]) == ("Evicted", "Evicted")
    assert gone["podGroups"][0]["pods"] == ["hit"]


def test_claim_of_its_own_is_enough_to_evict_a_pod(run_preview: PreviewRunner) -> None:
    claims = reserved()[0], used("own", "node-0/gpu-1", users=[make_consumer("hit")])
    told = run_preview.told(asks(), dump=crew(hit=(*claims, make_pod("hit", "hit", "own", **IN_RING))))
    assert outcomes(told) == HIT | ALONG


def test_in_tree_controller_leaves_no_pod_of_a_group_alone(run_preview: PreviewRunner) -> None:
    told = run_preview.told(rule(selector=NODE), dump=crew(hit=reserved()))
    assert outcomes(told) == HIT
    assert told["podGroups"][0]["outcome"] == "Evicted"


def test_pods_that_the_worker_skips_are_left_alone(run_preview: PreviewRunner) -> None:
    dump = [
        pool_slice("node-0"),
        used("mirror", "node-0/gpu-0"),
        make_pod("mirror", "mirror", meta={"annotations": MIRRORED}),
        used("daemon", "node-0/gpu-1"),
        make_pod("daemon", "daemon", owner="DaemonSet/d"),
        used("unknown", "node-0/gpu-2"),
    ]
    told = run_preview.told(asks(), dump=dump)
    assert outcomes(told) == {
        "unknown": ("Evicted", "NotTolerated", 0),
        "daemon": ("LeftAlone", "DaemonSet", None),
        "mirror": ("LeftAlone", "MirrorPod", None),
    }
    assert [each["name"] for each in told["pods"]] == ["unknown", "daemon", "mirror"], "who is evicted comes first"
    shown = squeezed(run_preview(asks(), dump=dump)[1])
    assert "ml/daemon DaemonSet/d 0 node-0/gpu-1 left alone pods of DaemonSets are skipped" in shown
    assert "ml/mirror - 0 node-0/gpu-0 left alone mirror pods cannot be evicted" in shown
    in_tree = outcomes(run_preview.told(rule(selector=NODE), dump=dump))
    assert {outcome for outcome, _, _ in in_tree.values()} == {"Evicted"}


# --- gangs --------------------------------------------------------------------------------------

JOB_SET = {"jobset.sigs.k8s.io/jobset-name": "train"}


def ranks(count: int, *, labels: Any = None, hit: int = 4, **fields: Any) -> list[Any]:
    """Pods with a claim each; the first few are on node-0, which is tainted."""
    found = []
    for number in range(count):
        name, node = f"rank-{number}", "node-0" if number < hit else "node-1"
        meta = {"labels": labels} if labels else None
        found += [used(name, f"{node}/gpu-{number}"), make_pod(name, name, meta=meta, **fields)]
    return found


def gang_lines(output: str) -> list[str]:
    return [line for line in squeezed(output) if line.startswith("gang")]


def test_gang_is_shown_with_all_of_its_pods(run_preview: PreviewRunner) -> None:
    dump = [pool_slice("node-0"), pool_slice("node-1"), *ranks(32, labels=JOB_SET, owner="Job/train-workers-0")]
    code, output = run_preview(rule(selector=NODE), dump=dump)
    assert code == 0
    assert gang_lines(output) == ["gang 4 of 32 pods of JobSet ml/train"]
    assert "JobSet/train" in output
    assert "Job/train-workers-0" not in output
    told = run_preview.told(rule(selector=NODE), dump=dump)
    assert told["gangs"] == [{"kind": "JobSet", "namespace": "ml", "name": "train", "evicted": 4, "pods": 32}]
    assert told["pods"][0]["owner"]["name"] == "train-workers-0"
    assert told["pods"][0]["rootOwner"] == {"kind": "JobSet", "name": "train"}


def test_gangs_are_those_of_the_policy(run_preview: PreviewRunner) -> None:
    dump = [pool_slice("node-0"), *ranks(3, hit=2, owner="Job/train")]
    assert gang_lines(run_preview(rule(selector=NODE), dump=dump)[1]) == []
    policy = {**HEADER, "eviction": [{"gang": "owner"}]}
    _, output = run_preview(rule(selector=NODE), dump=dump, policy=policy)
    assert gang_lines(output) == ["gang 2 of 3 pods of Job ml/train"]


def test_gangs_beyond_five_are_added_up(run_preview: PreviewRunner) -> None:
    pods = []
    for number in range(7):
        for rank in range(2):
            name = f"g{number}-{rank}"
            labels = {"jobset.sigs.k8s.io/jobset-name": f"train-{number}"}
            pods += [used(name, f"node-{rank}/gpu-{number}"), make_pod(name, name, meta={"labels": labels})]
    first, *others, last = gang_lines(run_preview(rule(selector=NODE), dump=[pool_slice("node-0"), *pods])[1])
    assert (first, len(others)) == ("gang 1 of 2 pods of JobSet ml/train-0", 3)
    assert last == "gangs 3 of 6 pods of 3 more"
