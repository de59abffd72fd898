"""What manifests say about a cluster."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.builders import make_claim, make_rule, make_template
from webhook.files.dump import Dump, class_drivers, labels_of
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
    assert [each.value["kind"] for each in dump.others] == ["DeviceTaintRule"]


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


def test_the_last_of_a_name_counts() -> None:
    assert dump_of(make_class('device.driver == "a"'), make_class('device.driver == "b"')).device_classes == {
        "gpu": frozenset({"b"})
    }


@pytest.mark.parametrize(
    ("value", "drivers"),
    [
        (make_class('device.driver == "a"', 'device.driver in ["a", "b"]'), frozenset({"a"})),
        (make_class("true"), None),
        (make_class(3, 'device.driver == "a"'), frozenset({"a"})),
        (make_class(), None),
        ({"spec": {}}, None),
        ({"spec": {"selectors": "x"}}, None),
        ({"spec": {"selectors": [3, {"other": {}}]}}, None),
    ],
)
def test_drivers_of_a_class(value: Any, drivers: frozenset[str] | None) -> None:
    assert class_drivers(value) == drivers


def test_labels_that_are_no_text_are_left_out() -> None:
    assert labels_of({"metadata": {"labels": {"a": "b", "c": 3}}}) == {"a": "b"}
    assert labels_of({"metadata": {"labels": []}}) == labels_of(3) == {}
