"""Pods, as far as evicting them is concerned."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.builders import make_pod
from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta
from webhook.api.pods import GANG, HOLD, MIRROR, Owner, Pod, PodClaim, decode_pod, to_labels
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


def test_claim_that_a_pod_names_directly_was_not_made_for_it() -> None:
    manifest = make_pod("p", "gpu")
    manifest["spec"]["resourceClaims"] += [{"name": "made", "resourceClaimTemplateName": "t"}]
    assert [each.generated for each in read(manifest).claims] == [False, True]


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
    assert (pod.deleting, pod.gone_by) == (True, datetime(2026, 6, 1, 12, tzinfo=UTC))
    pod = read(make_pod("p"))
    assert (pod.deleting, pod.gone_by) == (False, None)


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
