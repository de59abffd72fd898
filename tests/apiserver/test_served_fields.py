"""Unknown fields and wrong types: what check refuses is what a real API server cannot decode (A1)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.builders import (
    kind_of,
    make_alternatives,
    make_basic_device,
    make_claim,
    make_device,
    make_flat_request,
    make_meta,
    make_request,
    make_rule,
    make_slice,
    make_taint,
    make_template,
    make_toleration,
)
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.served_fields import RELEASES as WITH_FIELDS
from tests.controlplane.served_fields import encoded, fields_in, file_of, served_documents
from webhook.api.schema import api_versions_of
from webhook.validation.kinds import BY_KIND
from webhook.validation.objects import decoding_errors
from webhook.validation.releases import NEWEST, RELEASES
from webhook.validation.strict import strict_findings

_UNKNOWN = re.compile(r'unknown field "([^"]*)"')


@pytest.fixture
def newest(plane: ControlPlane) -> ControlPlane:
    """The control plane, if it is of the release that the fields were taken from."""
    if plane.server_version != versions.DEFAULT:
        pytest.skip(f"what is unknown depends on the release, and this is {plane.server_version}")
    return plane


def test_the_file_of_fields_is_what_the_server_serves(plane: ControlPlane) -> None:
    """If this fails after an upgrade: make openapi"""
    version = plane.server_version
    if version not in WITH_FIELDS:
        pytest.skip(f"the file of this minor release is not of {version}")
    assert file_of(version).read_text() == encoded(fields_in(served_documents(plane.client, version), version))


def test_each_version_has_the_kinds_of_the_table_and_of_check(plane: ControlPlane) -> None:
    """V-1: rules are never in v1beta1. By the same table `check` is asked about every pair of every release."""
    minor = versions.minor(plane.server_version)
    known = {kind for kinds in versions.SERVED[37].values() for kind in kinds}
    served: dict[str, set[str]] = {}
    for version in versions.api_versions(plane.server_version):
        resources = plane.client.get(f"/apis/{versions.GROUP}/{version}").object["resources"]
        served[version] = known & {resource["kind"] for resource in resources}
    assert served == {version: set(kinds) for version, kinds in versions.SERVED[minor].items()}
    for kind in known:
        ours = {version.removeprefix(f"{versions.GROUP}/") for version in api_versions_of(kind, (minor,))}
        assert ours == {version for version, kinds in served.items() if kind in kinds}, kind


TYPOS: dict[str, Any] = {
    "toleration": make_claim([make_toleration(tolerationSecond=5, timeAdded="x")]),
    "request": make_claim(requests=[make_request() | {"tolerations": [], "deviceClassName": "x"}]),
    "alternative": make_claim(requests=[make_alternatives([make_toleration(constraints=[])])]),
    "flat request": make_claim(requests=[make_flat_request(exactly={})], version="v1beta1"),
    "template": make_template() | {"status": {}},
    "template's claim": make_template(requests=[make_request(adminaccess=True)]),
    "device": make_slice([make_basic_device(), make_device(atributes={})]),
    "basic device": make_slice([make_device(taints=[]), make_basic_device(atributes={})], version="v1beta1"),
    "attributes": make_slice([make_device(attributes={"a": {"strng": "x"}}, capacity={"b": {"vlaue": "1"}})]),
    "selector": make_rule(
        selector={"deviceClassName": "x", "selectors": [{"cel": {"expression": "true"}}], "all": True}
    ),
    "taint": make_rule(taint=make_taint(data={"a": 1}, description="d", evictionsPerSecond=1), version="v1beta2"),
    "slice taints": make_slice([], taints=[{"device": "gpu-0", "taint": make_taint()}]),
    "metadata": make_rule(meta=make_meta("x", lables={}, ownerReferences=[{"nam": "x"}]), version="v1alpha3"),
    "root": make_rule() | {"extra": None},
    "free form": make_claim() | {"metadata": {"name": "x", "annotations": {"free": "form"}, "labels": {"a": "b"}}},
}


@pytest.mark.parametrize("manifest", TYPOS.values(), ids=TYPOS)
def test_the_server_refuses_the_same_fields(manifest: Any, newest: ControlPlane) -> None:
    resource = BY_KIND[kind_of(manifest)]
    namespaced = resource.resource in ("resourceclaims", "resourceclaimtemplates")
    url = path(manifest["apiVersion"], resource.resource, namespace="default" if namespaced else "")
    if namespaced:
        manifest = {**manifest, "metadata": {**manifest["metadata"], "namespace": "default"}}
    reply = newest.client.create(url, manifest, dry_run=True, field_validation="Strict")
    ours = [finding.error.field for finding in strict_findings(manifest, kind_of(manifest), NEWEST)]
    below = [field for field in ours if field.startswith("spec.taints[")]  # the server stops at what it does not know
    assert sorted(set(ours) - set(below)) == sorted(map(_as_ours, _UNKNOWN.findall(reply.message)))
    assert reply.ok is not bool(ours), reply.message


def _as_ours(field: str) -> str:
    """The server's paths write keys of maps like fields."""
    return re.sub(r"\.(attributes|capacity)\.([^.]+)", r".\1[\2]", field)


BAD_TYPES: dict[str, Any] = {
    "count": make_claim(requests=[make_request(count="2")]),
    "fraction": make_claim(requests=[make_request(count=1.0)]),
    "too large": make_claim(requests=[make_request(count=2**63)]),
    "admin access": make_claim(requests=[make_request(adminAccess="yes")]),
    "labels": make_claim(meta=make_meta("x", labels={"n": 1})),
    "finalizers": make_claim(meta=make_meta("x", finalizers="a/b")),
    "owner": make_claim(meta=make_meta("x", ownerReferences=["x"])),
    "quantity": make_claim(requests=[make_request(capacity={"requests": {"memory": "5 Gi"}})]),
    "empty quantity": make_claim(requests=[make_request(capacity={"requests": {"memory": ""}})]),
    "quantity with half an exponent": make_claim(requests=[make_request(capacity={"requests": {"memory": "1e"}})]),
    "quantity with two points": make_claim(requests=[make_request(capacity={"requests": {"memory": "1.2.3"}})]),
    "flat request": make_claim(requests=[make_flat_request(count="2")], version="v1beta1"),
    "selectors": make_template(requests=[make_request(selectors={"cel": {}})]),
    "attribute": make_slice([make_device(attributes={"a": {"int": "5"}})]),
    "basic device": make_slice([make_basic_device(attributes=[])], version="v1beta1"),
    "time": make_rule(meta=make_meta("x", creationTimestamp="today")),
    "status": make_claim() | {"status": {"reservedFor": [{"uid": 5}]}},
}
GOOD_TYPES: dict[str, Any] = {
    "quantities": make_claim(
        requests=[make_request(capacity={"requests": {"a": 1, "b": 1.5, "c": "1e3", "d": ".5", "e": ".", "f": None}})]
    ),
    "nulls": make_claim(meta=make_meta("x", labels={"a": None}, finalizers=None), requests=[make_request(count=None)]),
}


@pytest.mark.parametrize("manifest", (BAD_TYPES | GOOD_TYPES).values(), ids=BAD_TYPES | GOOD_TYPES)
def test_the_server_cannot_decode_the_same_objects(manifest: Any, plane: ControlPlane) -> None:
    resource = BY_KIND[kind_of(manifest)]
    rules = resource.resource == "devicetaintrules"
    served = (versions.rule_versions if rules else versions.api_versions)(plane.server_version)
    if resource.version not in served:
        pytest.skip(f"{plane.server_version} does not serve {resource.resource} of {resource.version}")
    namespaced = resource.resource in ("resourceclaims", "resourceclaimtemplates")
    url = path(manifest["apiVersion"], resource.resource, namespace="default" if namespaced else "")
    if namespaced:
        manifest = {**manifest, "metadata": {**manifest["metadata"], "namespace": "default"}}
    reply = plane.client.create(url, manifest, dry_run=True)
    release = RELEASES[versions.minor(plane.server_version)]
    ours = [str(error) for error in decoding_errors(manifest, kind_of(manifest), release)]
    assert (reply.code == 400) is bool(ours), (reply.message, ours)
