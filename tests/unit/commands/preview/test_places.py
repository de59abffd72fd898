"""`preview` says which evicted pods find no other device, who can never come back, and what is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.builders import DRIVER, make_device, make_meta, make_patch, make_pod, make_slice, make_taint
from tests.tables import table
from tests.unit.commands.api_server import ApiServer, bare, cluster_of, serving
from tests.unit.commands.impact_suites import CLASS
from tests.unit.commands.preview_runner import pool_slice, rule, squeezed, used

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.commands.preview_runner import PreviewRunner

ON_ONE: Final = rule(selector={"driver": DRIVER, "pool": "node-0"})
ON_ALL: Final = rule(selector={"driver": DRIVER})
PODS: Final = [
    each
    for number in range(4)
    for each in (used(f"train-{number}", f"node-0/gpu-{number}"), make_pod(f"train-{number}", f"train-{number}"))
]
SLICES: Final = [pool_slice("node-0"), pool_slice("node-1")]
ROOMY: Final = [CLASS, *SLICES, *PODS]
TIGHT: Final = [*ROOMY, *[used(f"stay-{each}", f"node-1/gpu-{each}") for each in range(3)]]
AUTOSCALED: Final = "the cluster has an autoscaler: it sees no device taints, so it adds no node for pods that find no"


def asking(claim: Any, **exactly: Any) -> Any:
    """The claim with another request."""
    (request,) = claim["spec"]["devices"]["requests"]
    return {**claim, "spec": {"devices": {"requests": [{**request, "exactly": {**request["exactly"], **exactly}}]}}}


def node(name: str, **spec: Any) -> Any:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": name}}, "spec": spec}


def lines(run_preview: PreviewRunner, asked: Any, dump: Any) -> list[str]:
    """What stands in the block of the figures about places."""
    code, output = run_preview(asked, dump=dump)
    assert code == 0, output
    found = squeezed(output)
    starts = [at for at, line in enumerate(found) if line.startswith("places")]
    if not starts:
        return []
    end = next(at for at, line in enumerate(found) if line.startswith("claims"))
    return [line.removeprefix("places ") for line in found[starts[0] : end]]


@table(
    "asked, dump, said",
    {
        "all find one, and nothing is said": (ON_ONE, ROOMY, []),
        "some find none": (ON_ONE, TIGHT, [f"3 of 4 pods find no other device: 3 need {DRIVER}, 0 free"]),
        "a dump without classes": (
            ON_ONE,
            ROOMY[1:],
            ["it is not known whether 4 pods would find other devices: DeviceClasses are not known"],
        ),
        "no pod is evicted": (rule("NoSchedule", selector={"driver": DRIVER}), ROOMY, []),
        "claims alone say it as well": (
            ON_ONE,
            [each for each in TIGHT if each["kind"] != "Pod"],
            [f"3 of 4 pods find no other device: 3 need {DRIVER}, 0 free"],
        ),
        "some can never come back": (
            ON_ALL,
            ROOMY,
            [
                f"4 of 4 pods find no other device: 4 need {DRIVER}, 0 free",
                "4 pods can never come back while the taint stands: ml/train-0, ml/train-1, ml/train-2 and 1 more",
            ],
        ),
    },
)
def test_text_says_who_finds_no_other_device(
    asked: Any, dump: Any, said: list[str], run_preview: PreviewRunner
) -> None:
    assert lines(run_preview, asked, dump) == said


def test_pods_that_want_all_devices_of_a_node_never_come_back_to_one_that_has_a_taint(
    run_preview: PreviewRunner,
) -> None:
    dump = [CLASS, SLICES[0], asking(PODS[0], allocationMode="All"), PODS[1]]
    one = rule(selector={"driver": DRIVER, "pool": "node-0", "device": "gpu-0"})
    assert lines(run_preview, one, dump) == [
        f"1 of 1 pod finds no other device: 1 needs all {DRIVER}, 3 free",
        "1 pod cannot come back while the taint stands: ml/train-0",
    ]


def test_json_names_all_pods_that_find_none(run_preview: PreviewRunner) -> None:
    assert run_preview.told(ON_ONE, dump=TIGHT)["places"] == [
        {
            "needs": DRIVER,
            "free": 0,
            "pods": 4,
            "found": 1,
            "none": 3,
            "unknown": 0,
            "why": "",
            "never": False,
            "pending": ["ml/train-1", "ml/train-2", "ml/train-3"],
        }
    ]


def test_json_says_why_it_is_not_known(run_preview: PreviewRunner) -> None:
    (found,) = run_preview.told(ON_ONE, dump=ROOMY[1:])["places"]
    assert (found["found"], found["none"], found["unknown"], found["pending"]) == (0, 0, 4, [])
    assert found["why"] == "DeviceClasses are not known"


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        pytest.param([node("node-0"), node("node-1")], 0, id="a node that takes pods"),
        pytest.param([node("node-0"), node("node-1", unschedulable=True)], 4, id="a node that is cordoned"),
        pytest.param([node("node-0")], 4, id="a node that is gone"),
        pytest.param([], 0, id="nodes are not known"),
    ],
)
def test_pods_find_devices_only_on_nodes_that_take_pods(
    nodes: list[Any], said: int, run_preview: PreviewRunner
) -> None:
    places = run_preview.told(ON_ONE, dump=[*ROOMY, *nodes])["places"]
    assert sum(each["none"] for each in places) == said


def test_patches_and_slices_say_it_too(run_preview: PreviewRunner) -> None:
    patch = make_patch(filter_={"driver": DRIVER, "pool": "node-0"}, taints=[make_taint(effect="NoExecute")])
    slice_ = make_slice(
        [make_device(f"gpu-{each}", [make_taint(effect="NoExecute")]) for each in range(4)], meta=make_meta("node-0")
    )
    for asked in (patch, slice_):
        assert sum(each["none"] for each in run_preview.told(asked, dump=TIGHT)["places"]) == 3


# --- from a cluster -------------------------------------------------------------------------------

RESOURCES: Final = "/apis/resource.k8s.io/v1"
AUTOSCALER: Final = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"


@pytest.fixture
def api_server(run_preview: PreviewRunner) -> Iterator[ApiServer]:
    tables = cluster_of(*TIGHT, node("node-0"), node("node-1"), empty=["DeviceTaintRule", "Namespace"])
    with serving(tables, run_preview.folder):
        yield tables


def told_by_cluster(run_preview: PreviewRunner) -> Any:
    return run_preview.told(ON_ONE, "--kubeconfig", "kubeconfig", dump=None)


def test_cluster_is_asked_for_classes_nodes_and_autoscalers(api_server: ApiServer, run_preview: PreviewRunner) -> None:
    told = told_by_cluster(run_preview)
    assert [(each["found"], each["none"]) for each in told["places"]] == [(1, 3)]
    assert not any(AUTOSCALED in note for note in told["notes"])
    asked = {target.partition("?")[0] for target in api_server.asked}
    assert {f"{RESOURCES}/deviceclasses", "/api/v1/nodes", "/apis/karpenter.sh/v1", AUTOSCALER} <= asked


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param("/apis/karpenter.sh/v1", {"resources": [{"name": "nodepools"}]}, id="Karpenter"),
        pytest.param(AUTOSCALER, {"kind": "ConfigMap", "metadata": {}}, id="Cluster Autoscaler"),
    ],
)
def test_note_says_that_an_autoscaler_does_not_help(
    path: str, value: Any, api_server: ApiServer, run_preview: PreviewRunner
) -> None:
    api_server.objects[path] = value
    assert [note for note in told_by_cluster(run_preview)["notes"] if AUTOSCALED in note]
    api_server.collections[f"{RESOURCES}/resourceclaims"] = [bare(each) for each in PODS if "status" in each][:2]
    assert not [note for note in told_by_cluster(run_preview)["notes"] if AUTOSCALED in note], "all pods find devices"


@pytest.mark.parametrize(
    ("path", "unknown"),
    [
        pytest.param(f"{RESOURCES}/deviceclasses", 4, id="classes"),
        pytest.param("/api/v1/nodes", 0, id="nodes"),
        pytest.param(AUTOSCALER, 0, id="the autoscaler"),
    ],
)
def test_right_that_is_refused_is_done_without(
    path: str, unknown: int, api_server: ApiServer, run_preview: PreviewRunner
) -> None:
    api_server.collections.pop(path, None)
    api_server.objects[path] = 403
    assert sum(each["unknown"] for each in told_by_cluster(run_preview)["places"]) == unknown
