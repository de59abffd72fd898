"""Which devices belong to which node, by slices, devices, allocations and pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.builders import DRIVER, make_basic_device, make_consumer, make_device, make_meta, make_pod, make_slice
from tests.unit.commands.preview_runner import group_pod, used
from webhook.commands.shared.node_devices import NodeDevices, NodePlacement
from webhook.files.manifests import held_in
from webhook.inventory.state import Inventory

LABELS: Final = {
    "a": {"rack": "1", "slots": "8"},
    "b": {"rack": "1", "slots": "4"},
    "c": {"rack": "2"},
}


def term(key: str, operator: str, *values: str) -> Any:
    return {"key": key, "operator": operator, "values": list(values)}


def labels(*requirements: Any) -> Any:
    return {"nodeSelectorTerms": [{"matchExpressions": list(requirements)}]}


def names(*nodes: str, operator: str = "In") -> Any:
    return {"nodeSelectorTerms": [{"matchFields": [term("metadata.name", operator, *nodes)]}]}


RACK_1: Final = labels(term("rack", "In", "1"))


def shared(*devices: Any, pool: str = "fabric", version: str = "v1", **spec: Any) -> Any:
    return make_slice(
        devices or [make_device("gpu-0")], node_name=None, pool=pool, version=version, meta=make_meta(pool), **spec
    )


def each(**placement: Any) -> Any:
    """A pool in which each device says where it is."""
    return shared(make_device("gpu-0", **placement), perDeviceNodeSelection=True)


def claim(name: str, *devices: str, selector: Any = None, admin: bool = False, **more: Any) -> Any:
    made = used(name, *devices, **more)
    allocation = made["status"]["allocation"]
    allocation |= {"nodeSelector": selector} if selector else {}
    for result in allocation["devices"]["results"] if admin else ():
        result["adminAccess"] = True
    return made


def read(*objects: Any, labels: Mapping[str, Mapping[str, str]] = LABELS) -> NodeDevices:
    inventory, placement = Inventory(), NodePlacement()
    for one in objects:
        value, errors = held_in(one)
        assert not errors
        inventory.apply(None, value)
        placement.add(one)
    if placement.needs_labels:
        placement.labels = labels
    return NodeDevices(inventory, placement)


ON_A: Final = make_pod("job", "job", nodeName="a")
FOR_ALL: Final = shared(allNodes=True)


@pytest.mark.parametrize(
    ("objects", "nodes", "expected"),
    [
        # what is published
        ([make_slice(node_name="a", pool="a")], "a", ["a"]),
        ([make_slice(node_name="a", pool="a")], "b", []),
        ([each(nodeName="a")], "a", ["fabric/gpu-0"]),
        ([each(nodeName="a")], "b", []),
        ([each(nodeSelector=names("a"))], "a", ["fabric/gpu-0"]),
        ([each(nodeSelector=RACK_1)], "a", []),  # b can use it as well
        ([each(nodeSelector=RACK_1)], "ab", ["fabric/gpu-0"]),
        ([each(nodeSelector=labels(term("rack", "In", "2")))], "c", ["fabric/gpu-0"]),
        ([each(nodeSelector=labels(term("slots", "Gt", "5")))], "a", ["fabric/gpu-0"]),
        ([each(nodeSelector=labels(term("slots", "Lt", "5")))], "b", ["fabric/gpu-0"]),
        ([each(nodeSelector=labels(term("slots", "DoesNotExist")))], "c", ["fabric/gpu-0"]),
        ([each(nodeSelector=labels(term("rack", "In", "1"), term("slots", "NotIn", "8")))], "b", ["fabric/gpu-0"]),
        ([each(nodeSelector=names("a", "b", operator="NotIn"))], "c", ["fabric/gpu-0"]),
        ([each(nodeSelector={"nodeSelectorTerms": [{}]})], "abc", []),  # an empty term selects nothing
        ([each(allNodes=True)], "abc", []),
        ([shared(nodeSelector=labels(term("rack", "In", "2")))], "c", ["fabric/gpu-0"]),
        (
            [shared(make_basic_device("gpu-0", nodeName="a"), version="v1beta1", perDeviceNodeSelection=True)],
            "a",
            ["fabric/gpu-0"],
        ),
        # what an allocation holds
        ([claim("job", "a/gpu-0", selector=names("a"))], "a", ["a"]),  # the whole pool: its driver may come back
        ([claim("job", "fabric/gpu-9", selector=names("a"))], "a", ["fabric/gpu-9"]),
        ([claim("job", "fabric/gpu-9", selector=names("a"), users=[])], "a", ["fabric/gpu-9"]),
        ([claim("job", "fabric/gpu-9", selector=names("a"))], "b", []),
        ([claim("job", "fabric/gpu-9", selector=RACK_1)], "a", []),
        ([claim("job", "fabric/gpu-9", selector=RACK_1), ON_A], "a", ["fabric/gpu-9"]),
        ([FOR_ALL, claim("job", "fabric/gpu-0"), ON_A], "a", ["fabric/gpu-0"]),
        ([FOR_ALL, claim("job", "fabric/gpu-0"), ON_A], "b", []),
        ([FOR_ALL, claim("job", "fabric/gpu-0", admin=True), ON_A], "a", []),
        ([claim("job", "a/gpu-0", admin=True), ON_A], "a", ["a"]),
        ([make_slice(node_name="a", pool="a"), claim("job", "a/gone"), ON_A], "a", ["a"]),
        # a pod that the claim was reserved for before, and one of the same name
        ([claim("next", "fabric/gpu-9"), make_pod("job", "next", nodeName="a")], "a", []),
        ([claim("job", "fabric/gpu-9", users=[make_consumer("job", "another")]), ON_A], "a", []),
    ],
)
def test_what_belongs_to_nodes(objects: list[Any], nodes: str, expected: list[str]) -> None:
    found = read(*objects).on(set(nodes))
    assert [str(one).removeprefix(f"{DRIVER}/") for one in found] == expected


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([claim("job", "fabric/gpu-9", selector=RACK_1)], ["ml/job"]),
        ([claim("job", "fabric/gpu-9", selector=RACK_1, users=[])], ["ml/job"]),
        ([claim("job", "fabric/gpu-9", selector=RACK_1), make_pod("job", "job", nodeName="b")], []),
        ([claim("job", "fabric/gpu-9", selector=names("b", "c"))], []),
    ],
)
def test_allocation_for_several_nodes_may_be_on_any_of_them(objects: list[Any], expected: list[str]) -> None:
    """Such a device is not tainted, since another node may have it; but it is not free either."""
    found = read(*objects)
    assert (found.perhaps_on({"a"}), found.on({"a"})) == (expected, ())


def test_pods_of_a_group_say_where_its_claim_is() -> None:
    crew = make_consumer("crew", apiGroup="scheduling.k8s.io", resource="podgroups")
    pod = group_pod("worker", "crew", "job")
    pod["spec"]["nodeName"] = "a"
    devices = read(claim("job", "fabric/gpu-9", users=[crew]), pod)
    assert (devices.claims_on({"a"}), devices.claims_on({"b"})) == (["ml/job"], [])


def test_labels_are_read_only_where_a_selector_needs_them() -> None:
    for objects, needed in (
        ([make_slice(), each(nodeName="a"), FOR_ALL, claim("job", "a/gpu-0", selector=names("a"))], False),
        ([each(nodeSelector=RACK_1)], True),
        ([claim("job", "a/gpu-0", selector=RACK_1)], True),
    ):
        assert read(*objects).placement.needs_labels == needed


def test_node_of_a_device_is_the_only_one_that_can_use_it_or_does() -> None:
    devices = read(each(nodeName="a"), claim("job", "gone/gpu-0"), ON_A, shared(pool="wide", allNodes=True))
    nodes = {str(one).removeprefix(f"{DRIVER}/"): devices.node_of(one) for one in {*devices.reach, *devices.held}}
    assert nodes == {"fabric/gpu-0": "a", "gone/gpu-0": "a", "wide/gpu-0": ""}
