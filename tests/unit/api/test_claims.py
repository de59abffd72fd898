from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.builders import (
    DRIVER,
    KEY,
    decoded,
    make_alternatives,
    make_claim,
    make_consumer,
    make_flat_request,
    make_request,
    make_result,
    make_scheduler_claim,
    make_status,
    make_template,
    make_toleration,
)
from tests.tables import table
from webhook.api.claims import (
    EXTENDED_RESOURCE,
    FROM_TEMPLATE,
    AllocationResult,
    Consumer,
    DeviceRequest,
    ExactRequest,
    ResourceClaim,
    allocated_classes,
    classes_only,
    decode_stored_claim,
)
from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta
from webhook.api.taints import DeviceToleration

TOLERATION = DeviceToleration(KEY, "Exists", "", "NoSchedule")


TOLERATED = ExactRequest("", DRIVER, tolerations=(TOLERATION,))
CHOICES = ExactRequest("choice-0", DRIVER, tolerations=(TOLERATION,)), ExactRequest("choice-1", DRIVER)


@table(
    "raw, request_",
    {
        "an exact request": (
            make_request(tolerations=[make_toleration()], adminAccess=True),
            DeviceRequest("gpu", structs.replace(TOLERATED, admin_access=True)),
        ),
        "a flat request, as v1beta1 writes it": (
            make_flat_request(tolerations=[make_toleration()]),
            DeviceRequest("gpu", TOLERATED, flat=True),
        ),
        "alternatives": (make_alternatives([make_toleration()], None), DeviceRequest("gpu", None, CHOICES)),
        "exactly wins over flat fields": (
            make_request(tolerations=[make_toleration()]) | {"tolerations": [{}]},
            DeviceRequest("gpu", TOLERATED),
        ),
        "a name alone is not flat": ({"name": "gpu"}, DeviceRequest("gpu")),
        "neither are an empty text and a zero, which servers write out": (
            {"name": "gpu", "deviceClassName": "", "count": 0},
            DeviceRequest("gpu"),
        ),
        "a number alone is flat": ({"name": "gpu", "count": 1}, DeviceRequest("gpu", ExactRequest(), flat=True)),
        "so is false, which stands behind a pointer": (
            {"name": "gpu", "adminAccess": False},
            DeviceRequest("gpu", ExactRequest(), flat=True),
        ),
        "a null request reads as an empty one": (None, DeviceRequest("")),
        "a null alternative reads as an empty one": (
            {"name": "gpu", "firstAvailable": [None]},
            DeviceRequest("gpu", None, (ExactRequest(),)),
        ),
    },
)
def test_request_is_read(raw: Any, request_: DeviceRequest) -> None:
    for manifest in (make_claim(requests=[raw]), make_template(requests=[raw])):
        value, errors = decoded(manifest)
        assert (value.requests, errors) == ((request_,), [])


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(None, id="null spec"),
        pytest.param({}, id="empty spec"),
        pytest.param({"devices": {}}, id="empty devices"),
        pytest.param({"devices": {"requests": None}}, id="null requests"),
    ],
)
def test_claim_without_requests_is_read(spec: Any) -> None:
    claim, errors = decoded(make_claim() | {"spec": spec})
    assert (claim.requests, claim.spec, errors) == ((), spec, [])


def test_status_of_a_claim_is_read() -> None:
    consumer = {"resource": "pods", "name": "train-0", "uid": "u"}
    status = make_status(make_result([make_toleration()])) | {"reservedFor": [consumer]}
    claim, errors = decoded(make_claim(status=status))
    assert claim.allocation == (AllocationResult("gpu", DRIVER, "node-0", "gpu-0", (TOLERATION,)),)
    assert claim.reserved_for == (Consumer("", "pods", "train-0", "u"),)
    assert errors == []


@pytest.mark.parametrize(
    ("owner", "group"),
    [
        ({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "controller": True}, "train"),
        ({"apiVersion": "scheduling.k8s.io/v1", "kind": "PodGroup", "controller": True}, "train"),
        ({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup"}, ""),
        ({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "controller": True}, ""),
        ({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "Workload", "controller": True}, ""),
        ({"apiVersion": "v1", "kind": "Pod", "controller": True}, ""),
    ],
    ids=["a group", "of another version", "that does not control", "of another API", "no group", "a pod"],
)
def test_stored_claim_knows_the_group_that_it_was_made_for(owner: dict[str, Any], group: str) -> None:
    """E-17."""
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}, {**owner, "name": "train", "uid": "2"}]
    errors: list[Any] = []
    claim = decode_stored_claim(Reader.of(make_claim(meta={"ownerReferences": owners}), errors))
    assert errors == []
    assert (claim.pod_group, claim.controller_uid) == (group, "2" if owner.get("controller") else "")


LONG_NAME = "a-name-that-is-so-long-that-nothing-of-what-follows-it-is-left-over"


def stored(manifest: Any) -> ResourceClaim:
    errors: list[Any] = []
    claim = decode_stored_claim(Reader.of(manifest, errors))
    assert errors == []
    return claim


@pytest.mark.parametrize(
    "manifest",
    [
        make_scheduler_claim("train", "node-0/gpu-0"),
        make_scheduler_claim("train", "node-0/gpu-0", request="container-12-request-3"),
        make_scheduler_claim("train", "node-0/gpu-0", "node-0/gpu-1"),
        make_scheduler_claim(LONG_NAME, "node-0/gpu-0"),
        make_scheduler_claim("train", "node-0/gpu-0", consumers=[]),
    ],
    ids=["one device", "another container", "two devices", "a name cut short", "a pod that has finished"],
)
def test_claim_of_the_scheduler_is_for_an_extended_resource(manifest: Any) -> None:
    assert stored(manifest).extended_resource


_POD = {"apiVersion": "v1", "kind": "Pod", "name": "train", "uid": "uid-of-train"}
_MARK = {EXTENDED_RESOURCE: "true"}


@pytest.mark.parametrize(
    "changes",
    [
        {"request": "gpu"},
        {"request": "container-0-request-0/choice-0"},
        {"request": "my-container-0-request-0"},
        {"request": "container-0-request-\u0661"},
        {"name": "train-gpu-x7k2p"},
        {"name": "train-extended-resources-"},
        {"name": "other-extended-resources-x7k2p"},
        {"annotations": {**_MARK, FROM_TEMPLATE: "extended-resources"}},
        {"annotations": {**_MARK, FROM_TEMPLATE: ""}},
        {"annotations": {EXTENDED_RESOURCE: "True"}},
        {"annotations": {}},
        {"tolerations": [make_toleration(effect="NoExecute")]},
        {"ownerReferences": []},
        {"ownerReferences": [{**_POD, "controller": False}]},
        {"ownerReferences": [{**_POD, "controller": True, "uid": "another"}]},
        {"ownerReferences": [{**_POD, "controller": True, "kind": "Job"}]},
        {"ownerReferences": [{**_POD, "controller": True, "apiVersion": "example.com/v1"}]},
        {"consumers": [make_consumer("other")]},
        {"consumers": [make_consumer("train"), make_consumer("other")]},
    ],
    ids=str,
)
def test_annotation_makes_no_claim_one_for_an_extended_resource(changes: dict[str, Any]) -> None:
    """In-tree eviction does not read the annotation, and anyone who may edit the claim can set it."""
    assert not stored(make_scheduler_claim("train", "node-0/gpu-0", **changes)).extended_resource


@pytest.mark.parametrize(
    ("status", "allocation"),
    [
        pytest.param(None, None, id="no status"),
        pytest.param({"allocation": None}, None, id="null allocation"),
        pytest.param({"allocation": {}}, (), id="empty allocation"),
        pytest.param({"allocation": {"devices": {}}}, (), id="allocation without devices"),
    ],
)
def test_claim_knows_whether_it_is_allocated(status: Any, allocation: Any) -> None:
    claim, errors = decoded(make_claim(status=status))
    assert (claim.allocation, errors) == (allocation, [])


WANTED = (
    DeviceRequest("gpu", ExactRequest("", "big", tolerations=(TOLERATION,)), flat=True),
    DeviceRequest("nic", None, (ExactRequest("fast", "rdma"), ExactRequest("any", "ethernet"))),
)


@pytest.mark.parametrize(
    ("allocated", "classes"),
    [
        pytest.param(("gpu", "nic/fast"), {"big", "rdma"}, id="the alternative that was taken"),
        pytest.param(("nic/any",), {"ethernet"}, id="only what was allocated"),
        pytest.param(("nic", "other"), set(), id="no request of that name"),
        pytest.param((), set(), id="nothing"),
    ],
)
def test_classes_are_those_of_the_allocated_devices(allocated: tuple[str, ...], classes: set[str]) -> None:
    results = tuple(AllocationResult(name, DRIVER, "node-0", "gpu-0") for name in allocated)
    for requests in (WANTED, classes_only(WANTED)):
        assert allocated_classes(ResourceClaim(ObjectMeta(), requests, results)) == classes
    assert allocated_classes(ResourceClaim(ObjectMeta(), WANTED)) == set()


def test_of_requests_only_classes_are_left() -> None:
    assert classes_only(WANTED) == (DeviceRequest("gpu", ExactRequest("", "big")), WANTED[1])


def test_template_keeps_the_metadata_for_its_claims() -> None:
    manifest = make_template()
    manifest["spec"]["metadata"] = {"annotations": {"a": "b"}}
    template, errors = decoded(manifest)
    assert template.claim_meta == ObjectMeta(annotations={"a": "b"})
    assert template.meta == ObjectMeta("training", namespace="ml")
    assert errors == []


def test_wrong_types_in_a_claim_are_told() -> None:
    spec = {
        "devices": {
            "requests": [
                {"name": 1, "exactly": {"deviceClassName": 2, "adminAccess": "yes", "tolerations": {}}},
                {"name": "b", "firstAvailable": [{"name": 3, "tolerations": [4]}]},
                5,
            ]
        }
    }
    status = {
        "allocation": {"devices": {"results": [{"request": 1, "driver": 2, "pool": 3, "device": 4}]}},
        "reservedFor": [{"apiGroup": 1, "resource": 2, "name": 3, "uid": 4}],
    }
    _, errors = decoded(make_claim(status=status) | {"spec": spec})
    at = "spec.devices.requests"
    assert sorted(error.field for error in errors) == sorted(
        [
            f"{at}[0].name",
            f"{at}[0].exactly.deviceClassName",
            f"{at}[0].exactly.adminAccess",
            f"{at}[0].exactly.tolerations",
            f"{at}[1].firstAvailable[0].name",
            f"{at}[1].firstAvailable[0].tolerations[0]",
            f"{at}[2]",
            *(f"status.allocation.devices.results[0].{name}" for name in ("request", "driver", "pool", "device")),
            *(f"status.reservedFor[0].{name}" for name in ("apiGroup", "resource", "name", "uid")),
        ]
    )
