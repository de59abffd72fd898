"""Pods as evictions see them, their groups, and their budgets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.builders import make_pod
from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta
from webhook.api.pods import (
    GANG,
    HOLD,
    MIRROR,
    DisruptionBudget,
    Owner,
    Pod,
    PodClaim,
    PodGroup,
    decode_budget,
    decode_pod,
    decode_pod_group,
    needs_disruption,
    to_labels,
)
from webhook.cluster.cache.pods import PodWire


def read(manifest: Any) -> Pod:
    errors: list[Any] = []
    pod = decode_pod(Reader.of(manifest, errors))
    assert errors == []
    return pod


def test_pod_is_read() -> None:
    """E-15, E-16, E-21."""
    manifest = make_pod("p", "gpu", owner="ReplicaSet/rs", priority=7, meta={"annotations": {HOLD: "why", MIRROR: "x"}})
    manifest["spec"]["resourceClaims"] += [{"name": "made", "resourceClaimTemplateName": "t"}, {"name": "not yet"}]
    manifest["spec"]["schedulingGroup"] = {"podGroupName": "group"}
    manifest["status"] |= {
        "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "p-extended"},
    }
    pod = read(manifest)
    assert pod.claims == (PodClaim("gpu"), PodClaim("p-made-x", generated=True), PodClaim(None, generated=True))
    assert (pod.node_name, pod.extended_claim, pod.pod_group) == ("node-0", "p-extended", "group")
    assert (pod.phase, pod.priority, pod.owner) == ("Running", 7, Owner("ReplicaSet", "rs", "uid-of-rs"))
    assert (pod.mirror, pod.hold, pod.deleting, pod.finished) == (True, "why", False, False)


def test_value_with_nothing_given_is_a_pod_that_says_nothing() -> None:
    assert read({"metadata": {"name": "p", "namespace": "ml"}}) == Pod(ObjectMeta("p", namespace="ml"))
    assert read({"metadata": {}, "spec": {"resourceClaims": [{"resourceClaimName": "c"}]}}).claims == (PodClaim("c"),)


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        pytest.param(None, False, id="none yet"),
        pytest.param([{"type": "Ready", "status": "True"}], True, id="ready"),
        pytest.param([{"type": "Ready", "status": "False"}], False, id="not ready"),
        pytest.param([{"type": "PodScheduled", "status": "True"}, {"type": "Ready"}], False, id="unknown"),
        pytest.param(
            [{"type": "PodScheduled", "status": "False"}, {"type": "Ready", "status": "True"}], True, id="two"
        ),
    ],
)
def test_pod_is_ready_by_its_condition(conditions: Any, ready: bool) -> None:  # noqa: FBT001
    manifest = make_pod("p", "gpu")
    manifest["status"]["conditions"] = conditions
    assert read(manifest).ready is ready


@pytest.mark.parametrize(
    ("phase", "finished"), [("Running", False), ("Pending", False), ("Succeeded", True), ("Failed", True)]
)
def test_pod_has_finished_by_its_phase(phase: str, finished: bool) -> None:  # noqa: FBT001
    assert read(make_pod("p", phase=phase)).finished is finished


def test_pod_that_is_being_deleted_is_known_by_its_time() -> None:
    pod = read(make_pod("p", meta={"deletionTimestamp": "2026-06-01T12:00:00Z"}))
    assert (pod.deleting, pod.grace_ends) == (True, datetime(2026, 6, 1, 12, tzinfo=UTC))
    pod = read(make_pod("p"))
    assert (pod.deleting, pod.grace_ends) == (False, None)


@pytest.mark.parametrize(
    ("fields", "uses", "held"),
    [
        ({}, False, False),
        ({"claims": (PodClaim("c"),)}, True, True),
        ({"claims": (PodClaim(None, generated=True),)}, True, True),
        ({"extended_claim": "c"}, True, True),
        ({"pod_group": "crew"}, False, True),
    ],
    ids=str,
)
def test_inventory_holds_pods_that_use_claims_and_those_of_groups(fields: Any, uses: bool, held: bool) -> None:  # noqa: FBT001
    pod = Pod(ObjectMeta("p", namespace="ml"), **fields)
    assert (pod.uses_claims, pod.is_held) == (uses, held)


@pytest.mark.parametrize(
    ("policy", "kind", "completes"),
    [
        ("Always", "ReplicaSet", False),
        ("Always", "", False),
        ("", "", False),
        ("Never", "", True),
        ("OnFailure", "ReplicaSet", True),
        ("", "Job", True),
    ],
)
def test_pod_completes_if_its_containers_are_not_always_restarted(policy: str, kind: str, *, completes: bool) -> None:
    owners = [{"kind": kind, "name": "o", "uid": "u", "controller": True}] if kind else []
    manifest = make_pod("p", restartPolicy=policy)
    manifest["metadata"]["ownerReferences"] = owners
    assert read(manifest).completes is completes


@pytest.mark.parametrize(
    ("version", "kind", "known_as"),
    [
        pytest.param("apps/v1", "DaemonSet", "DaemonSet", id="built in"),
        pytest.param("batch/v1", "Job", "Job", id="built in, of another group"),
        pytest.param("", "DaemonSet", "DaemonSet", id="in a file that does not say"),
        pytest.param("example.com/v1", "DaemonSet", "DaemonSet.example.com", id="of another group"),
        pytest.param("apps/v99", "DaemonSet", "DaemonSet.apps", id="of a version that is served nowhere"),
        pytest.param("v1", "DaemonSet", "DaemonSet.v1", id="of the core group"),
        pytest.param("apps", "ReplicaSet", "ReplicaSet.apps", id="of a group without a version"),
        pytest.param("batch.volcano.sh/v1alpha1", "Job", "Job.batch.volcano.sh", id="whose pods may go on for ever"),
        pytest.param("kubeflow.org/v1", "PyTorchJob", "PyTorchJob", id="that nothing built in is called"),
    ],
)
def test_owner_of_another_api_has_no_kind_that_is_built_in(version: str, kind: str, known_as: str) -> None:
    manifest = make_pod("p", "gpu", owner=f"{kind}/o", restartPolicy="Always")
    manifest["metadata"]["ownerReferences"][0]["apiVersion"] = version
    pod, wire = read(manifest), msgspec.convert(manifest, PodWire).to_value()
    assert [each.owner for each in (pod, wire)] == [Owner(known_as, "o", "uid-of-o")] * 2
    assert pod.completes is wire.completes is (known_as == "Job")


def test_labels_of_a_pod_are_in_the_order_of_their_keys() -> None:
    pod = read(make_pod("p", meta={"labels": {"b": "2", "a": "1", "c": ""}, "annotations": {GANG: "ranks"}}))
    assert (pod.labels, pod.gang) == ((("a", "1"), ("b", "2"), ("c", "")), "ranks")
    assert [pod.label(key) for key in ("a", "b", "c", "d")] == ["1", "2", "", None]
    assert (read(make_pod("p")).labels, read(make_pod("p")).gang) == ((), "")


def test_equal_texts_of_labels_are_one_value() -> None:
    """A hundred thousand pods have hardly a hundred different ones."""
    parts = [f"{part}-of-a-label" for part in ("key", "value", "key", "value")]
    texts = [text for key, value in (parts[:2], parts[2:]) for pair in to_labels({key: value}) for text in pair]
    assert texts[0] is texts[2]
    assert texts[1] is texts[3]


def read_group(spec: Any, **metadata: Any) -> tuple[PodGroup, list[str]]:
    errors: list[Any] = []
    manifest = {"kind": "PodGroup", "metadata": {"name": "crew", "namespace": "ml", **metadata}, "spec": spec}
    return decode_pod_group(Reader.of(manifest, errors)), [str(error) for error in errors]


@pytest.mark.parametrize(
    ("mode", "read_as"),
    [
        pytest.param({"all": {}}, "all", id="all"),
        pytest.param({"single": {}}, "single", id="single"),
        pytest.param("PodGroup", "all", id="all in v1alpha2"),
        pytest.param("Pod", "single", id="single in v1alpha2"),
        pytest.param("Other", "", id="a newer one"),
        pytest.param({"other": {}}, "", id="a newer one of the union"),
        pytest.param({"all": None, "single": {}}, "single", id="null is none"),
        pytest.param({}, "", id="empty"),
        pytest.param(None, "", id="null"),
    ],
)
def test_disruption_mode_is_read_in_both_shapes(mode: Any, read_as: str) -> None:
    group, errors = read_group({"disruptionMode": mode})
    assert (group, errors) == (PodGroup(ObjectMeta("crew", namespace="ml"), read_as), [])


def test_pod_group_without_a_spec_says_nothing_and_has_an_owner() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    group, errors = read_group(None, ownerReferences=[owner])
    assert (group.disruption_mode, group.owner, errors) == ("", Owner("Job", "train", "u"), [])


@pytest.mark.parametrize("mode", [7, {"all": 7}])
def test_disruption_mode_of_a_wrong_type_is_an_error(mode: Any) -> None:
    group, errors = read_group({"disruptionMode": mode})
    assert (group.disruption_mode, len(errors)) == ("", 1)
    assert "spec.disruptionMode" in errors[0]


def read_budget(generation: int | None = 2, **status: Any) -> DisruptionBudget:
    errors: list[Any] = []
    value = {"metadata": {"name": "web", "generation": generation}, "status": status}
    budget = decode_budget(Reader.of(value, errors))
    assert errors == []
    return budget


@pytest.mark.parametrize(
    ("generation", "observed", "allowed"),
    [(2, 1, None), (2, 2, 3), (2, 3, 3), (2, None, None), (1, None, None), (None, None, 3)],
)
def test_only_a_status_of_the_newest_generation_counts(
    generation: int | None, observed: int | None, allowed: int | None
) -> None:
    assert read_budget(generation, observedGeneration=observed, disruptionsAllowed=3).allowed == allowed


def test_figures_and_time_of_the_status() -> None:
    conditions = [
        {"type": "Other", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "DisruptionAllowed", "lastTransitionTime": "2026-02-01T00:00:00Z"},
        {"type": "DisruptionAllowed", "lastTransitionTime": "2026-03-01T00:00:00Z"},
    ]
    budget = read_budget(currentHealthy=4, desiredHealthy=5, conditions=conditions)
    assert (budget.healthy, budget.desired, budget.since) == (4, 5, datetime(2026, 2, 1, tzinfo=UTC))
    assert read_budget().since is None


@pytest.mark.parametrize(
    ("policy", "healthy", "desired", "frees"),
    [
        (None, 1, 2, False),
        (None, 2, 2, True),
        ("IfHealthyBudget", 3, 2, True),
        (None, 1, 0, False),
        ("AlwaysAllow", 0, 0, True),
    ],
)
@pytest.mark.parametrize("observed", [1, 2], ids=["late", "in time"])
def test_budget_frees_pods_that_are_not_ready(
    policy: str | None,
    healthy: int,
    desired: int,
    frees: bool,  # noqa: FBT001 -- a table's
    observed: int,
) -> None:
    """Also by a status of an older generation, as the Eviction API has it."""
    status = {"observedGeneration": observed, "currentHealthy": healthy, "desiredHealthy": desired}
    value = {"metadata": {"name": "web", "generation": 2}, "spec": {"unhealthyPodEvictionPolicy": policy}}
    budget = decode_budget(Reader.of({**value, "status": status}, []))
    assert needs_disruption(Pod(ObjectMeta("a"), phase="Running"), [budget]) is not frees


@pytest.mark.parametrize(
    ("fields", "budgets", "needs"),
    [
        ({"ready": True}, 0, False),
        ({"ready": True}, 1, True),
        ({}, 1, False),
        ({}, 2, True),
        ({"phase": "Unknown", "ready": True}, 1, True),
        ({"phase": "", "ready": True}, 1, True),
        ({"phase": "Pending", "ready": True}, 2, False),
        ({"phase": "Succeeded", "ready": True}, 2, False),
        ({"phase": "Failed", "ready": True}, 2, False),
        ({"deleting": True, "ready": True}, 2, False),
    ],
)
def test_pod_needs_a_disruption(fields: dict[str, Any], budgets: int, needs: bool) -> None:  # noqa: FBT001
    pod = Pod(ObjectMeta("a"), **{"phase": "Running", **fields})
    assert needs_disruption(pod, [DisruptionBudget(ObjectMeta("web"), always=True)] * budgets) is needs
