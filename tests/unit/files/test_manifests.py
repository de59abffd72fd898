"""What manifests say about a cluster."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.builders import make_claim, make_meta, make_patch, make_pod, make_rule, make_slice, make_template
from webhook.api.rules import CELSelector
from webhook.api.slices import DeviceClassSelectors
from webhook.files.manifests import Dump, Stock, held_in, labels_of, patching_object_in
from webhook.files.read import parse


def dump_of(*objects: Any) -> Dump:
    dump = Dump()
    dump.add(parse("dump.yaml", yaml.safe_dump_all(objects).encode()).manifests)
    return dump


def make_class(*expressions: Any, name: str = "gpu", version: str = "v1") -> Any:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors},
    }


def test_objects_are_sorted_by_what_they_are_for() -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "labels": {"a": "b"}}}
    device_class = make_class('device.driver == "d"', version="v1beta1")
    dump = dump_of(namespace, device_class, make_template(), make_claim(), make_rule())
    assert dump.namespaces == {"ml": {"a": "b", "kubernetes.io/metadata.name": "ml"}}
    assert dump.device_classes == {"gpu": frozenset({"d"})}
    assert [each.value["kind"] for each in dump.claims] == ["ResourceClaimTemplate", "ResourceClaim"]
    assert [each.value["kind"] for each in dump.others] == ["DeviceClass", "DeviceTaintRule"]


@pytest.mark.parametrize(
    "value",
    [
        "text",
        {"kind": "Namespace"},
        {"apiVersion": "example.com/v1", "kind": "Namespace", "metadata": {"name": "x"}},
        {"apiVersion": "example.com/v1", "kind": "DeviceClass", "metadata": {"name": "x"}},
        {"apiVersion": "example.com/v1", "kind": "ResourceClaim"},
    ],
)
def test_what_only_looks_so_is_something_else(value: Any) -> None:
    dump = dump_of(value)
    assert (dump.namespaces, dump.device_classes, dump.claims, len(dump.others)) == ({}, {}, [], 1)


@pytest.mark.parametrize(("version", "kept"), [("", True), ("/", True), (None, False)])
def test_pod_is_kept_whatever_its_version_says(version: str | None, *, kept: bool) -> None:
    held, errors = held_in({**make_pod("train"), "apiVersion": version})
    assert (held is not None, errors) == (kept, [])


def test_the_last_of_a_name_counts() -> None:
    assert dump_of(make_class('device.driver == "a"'), make_class('device.driver == "b"')).device_classes == {
        "gpu": frozenset({"b"})
    }


def test_labels_that_are_no_text_are_left_out() -> None:
    assert labels_of({"metadata": {"labels": {"a": "b", "c": 3}}}) == {"a": "b"}
    assert labels_of({"metadata": {"labels": []}}) == labels_of(3) == {}


# --- inventory ----------------------------------------------------------------------------------


def stock_of(*objects: Any) -> Stock:
    stock = Stock()
    stock.add(parse("dump.yaml", yaml.safe_dump_all(objects).encode()).manifests)
    return stock


def test_a_stock_holds_what_taints_concern() -> None:
    """Pods without claims are counted, so that it is known whether the dump has pods, and not kept."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
    objects = [make_slice(), make_rule(), make_claim(), make_pod("a", "training"), make_pod("b"), namespace]
    stock = stock_of(*objects, make_template())
    inventory = stock.inventory
    assert stock.kinds == {"ResourceSlice": 1, "DeviceTaintRule": 1, "ResourceClaim": 1, "Pod": 2}
    assert (list(inventory.slices), list(inventory.rules)) == (["node-0-gpu"], ["unhealthy-gpu"])
    assert (list(inventory.claims), list(inventory.pods)) == (["ml/training"], ["ml/a"])
    assert inventory.pods_of("ml/training") == ("ml/a",)


def test_a_stock_holds_pod_groups_and_their_members() -> None:
    """Of whatever version; a PodGroup of another API group is another kind."""
    meta = {"name": "crew", "namespace": "ml"}
    spec: Any = {"disruptionMode": {"all": {}}}
    group = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PodGroup", "metadata": meta, "spec": spec}
    other = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "x"}}
    member = make_pod("launcher")
    member["spec"]["schedulingGroup"] = {"podGroupName": "crew"}
    stock = stock_of(group, other, member)
    assert stock.kinds == {"PodGroup": 1, "Pod": 1}
    assert {key: each.disruption_mode for key, each in stock.inventory.pod_groups.items()} == {"ml/crew": "all"}
    assert stock.inventory.members_of("ml/crew") == ("ml/launcher",)


def test_of_two_objects_of_a_name_the_last_counts() -> None:
    stock = stock_of(make_slice(pool="old"), make_slice(pool="new", version="v1beta2"))
    assert [value.pool for value in stock.inventory.slices.values()] == ["new"]


def test_a_version_to_come_is_not_taken_for_nothing() -> None:
    assert list(stock_of(make_claim(version="v2")).inventory.claims) == ["ml/training"]


def test_what_no_server_stores_is_left_out_and_told() -> None:
    stock = stock_of(make_claim(status=3), make_claim(meta=make_meta("fine", namespace="ml")))
    assert list(stock.inventory.claims) == ["ml/fine"]
    ((manifest, error),) = stock.malformed
    assert (manifest.document, str(error)) == (1, "status: Invalid value: 3: must be an object")


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        {"kind": "Pod"},
        {"apiVersion": "example.com/v1", "kind": "Pod"},
        {"apiVersion": "example.com/v1", "kind": "ResourceClaim"},
    ],
)
def test_other_objects_are_not_held(value: Any) -> None:
    assert held_in(value) == (None, [])


def test_a_stock_holds_patches_and_classes_by_name() -> None:
    """Both groups' patches; a class with its selectors."""
    device_class = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": "true"}}]},
    }
    old, new = make_patch(priority=1), make_patch(priority=2)
    planned = make_patch(meta=make_meta("planned")) | {"apiVersion": "resource.k8s.io/v1alpha3"}
    stock = stock_of(old, new, planned, device_class)
    assert {name: (each.priority, each.first_revision) for name, each in stock.patches.items()} == {
        "firmware": (2, False),
        "planned": (0, True),
    }
    assert stock.classes == {"gpu": DeviceClassSelectors("gpu", (CELSelector("true"),))}
    assert stock.kinds == {"ResourceSlicePatch": 3, "DeviceClass": 1}
    assert not stock.inventory.slices


def test_malformed_patch_is_left_out_of_a_stock() -> None:
    stock = stock_of(make_patch(priority="high"), make_patch(meta=make_meta("fine")))
    assert (list(stock.patches), [error.field for _, error in stock.malformed]) == (["fine"], ["spec.devices.priority"])


def test_only_patches_and_classes_are_patching_objects() -> None:
    assert patching_object_in(make_rule()) == (None, [])
    assert patching_object_in({"apiVersion": "example.com/v1", "kind": "DeviceClass"}) == (None, [])
    assert patching_object_in(3) == (None, [])
