"""Component default-tolerations: what the policy adds, in every shape, and that it adds it once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.apiserver.manifests.installing import write_registrations
from tests.apiserver.policy.pods import NAMESPACE, PodWithClaim, acting_as, author_in, unused_name
from tests.apiserver.policy.rows import DANA
from tests.apiserver.policy.stage import Stage, make_policy
from tests.controlplane.client import path
from tests.controlplane.versions import GROUP

Json = dict[str, Any]

ADDED: Final = {
    "key": "maint.example.com/window",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 3600,
}
OWN: Final = {"key": "maint.example.com/window", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
OTHER: Final = {"key": "other.example.com/key", "operator": "Exists", "effect": "NoSchedule"}
DEFAULTS: Final = make_policy(defaultTolerations=[{"name": "wait-an-hour", "tolerations": [ADDED]}])

in_every_shape = pytest.mark.parametrize(
    ("kind", "version"),
    [
        (kind, version)
        for kind in ("ResourceClaim", "ResourceClaimTemplate")
        for version in ("v1", "v1beta2", "v1beta1")
    ],
)


def _register_component(stage: Stage) -> None:
    """In the place of the base."""
    stage.unregister()
    file = write_registrations(stage.plane.assets, "default-tolerations", stage.plane.folder)
    stage.register([file], stage.plane.folder)


@pytest.fixture(scope="module")
def overlaid(installed: Stage) -> Iterator[Stage]:
    """With the component, in the place of the base."""
    _register_component(installed)
    yield installed
    installed.unregister()
    installed.register()


@pytest.fixture
def adding(overlaid: Stage) -> Stage:
    overlaid.use(DEFAULTS)
    return overlaid


def _requests(version: str, first: list[Json], second: list[Json], third: list[Json]) -> list[Json]:
    """An exact request, and one of two alternatives."""

    def wanted(tolerations: list[Json]) -> Json:
        plain: Json = {"deviceClassName": "gpu.example.com"}
        return {**plain, "tolerations": tolerations} if tolerations else plain

    exact = wanted(first) if version == "v1beta1" else {"exactly": wanted(first)}
    alternatives = [{"name": "best", **wanted(second)}, {"name": "second", **wanted(third)}]
    return [{"name": "exact", **exact}, {"name": "either", "firstAvailable": alternatives}]


def _object(kind: str, version: str, *tolerations: list[Json]) -> Json:
    first, second, third = tolerations or ([], [], [])
    spec = {"devices": {"requests": _requests(version, first, second, third)}}
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": kind,
        "metadata": {"name": unused_name(), "namespace": NAMESPACE},
        "spec": {"spec": spec} if kind == "ResourceClaimTemplate" else spec,
    }


def _tolerations(obj: Json) -> list[list[Json]]:
    """Of the exact request, and of both alternatives; null counts as none."""
    spec = obj["spec"]["spec"] if obj["kind"] == "ResourceClaimTemplate" else obj["spec"]
    exact, either = spec["devices"]["requests"]
    asked = [exact.get("exactly", exact), *either["firstAvailable"]]
    return [each.get("tolerations") or [] for each in asked]


def _collection(obj: Json) -> str:
    return path(obj["apiVersion"], f"{obj['kind'].lower()}s", namespace=NAMESPACE)


@in_every_shape
def test_every_request_and_alternative_gets_them_once(adding: Stage, kind: str, version: str) -> None:
    obj = _object(kind, version)
    url = f"{_collection(obj)}/{obj['metadata']['name']}"
    dana = acting_as(adding, DANA)
    try:
        first = dana.apply(url, obj, field_manager="gitops").object
        assert _tolerations(first) == [[ADDED]] * 3
        second = dana.apply(url, obj, field_manager="gitops").object
        assert second == first
        obj["metadata"] |= {"resourceVersion": first["metadata"]["resourceVersion"], "labels": {"changed": "yes"}}
        answered = dana.replace(url, obj).object
        assert answered["spec"] == first["spec"]
        assert answered["metadata"]["labels"] == {"changed": "yes"}
    finally:
        adding.client.delete(url)


@in_every_shape
def test_kubectl_apply_twice_changes_nothing(adding: Stage, kind: str, version: str) -> None:
    obj = _object(kind, version)
    url = f"{_collection(obj)}/{obj['metadata']['name']}"
    try:
        stored = []
        for _ in range(2):
            done = adding.plane.kubectl("apply", "-f", "-", stdin=json.dumps(obj), user="dana")
            assert done.code == 0, done
            stored.append(adding.client.get(url).object)
        assert _tolerations(stored[0]) == [[ADDED]] * 3
        assert stored[1] == stored[0]
    finally:
        adding.client.delete(url)


@in_every_shape
def test_who_says_something_about_a_taint_is_left_to_it(adding: Stage, kind: str, version: str) -> None:
    obj = _object(kind, version, [OWN], [OTHER], [])
    reply = acting_as(adding, DANA).create(_collection(obj), obj, dry_run=True)
    assert _tolerations(reply.object) == [[OWN], [OTHER, ADDED], [ADDED]]


def test_what_was_there_before_the_policy_is_not_touched(adding: Stage) -> None:
    obj = _object("ResourceClaim", "v1")
    url = f"{_collection(obj)}/{obj['metadata']['name']}"
    adding.use(make_policy())
    dana = acting_as(adding, DANA)
    try:
        before = dana.apply(url, obj, field_manager="gitops").object
        adding.use(DEFAULTS)
        obj["metadata"]["labels"] = {"changed": "yes"}
        after = dana.apply(url, obj, field_manager="gitops").object
        assert after["spec"] == before["spec"]
        assert _tolerations(after) == [[], [], []]
    finally:
        adding.client.delete(url)


@pytest.mark.parametrize(
    ("before", "then"),
    [
        pytest.param(DEFAULTS, {}, id="a template with them"),
        pytest.param(make_policy(), {"generatedClaims": "enforce"}, id="a template from before the policy"),
    ],
)
def test_a_generated_claim_has_them_and_its_author(adding: Stage, before: Json, then: Json) -> None:
    """What is added to the claim itself does not make its author unknown."""
    template = _object("ResourceClaimTemplate", "v1")
    adding.use(before)
    stored = acting_as(adding, DANA).create(_collection(template), template).object
    try:
        adding.use({**DEFAULTS, "unknownAuthor": "deny", **then})
        with PodWithClaim(adding, stored, DANA) as pod:
            claim = pod.claim()
        assert _tolerations(claim) == [[ADDED]] * 3
        assert author_in(claim) == "dana"
    finally:
        adding.client.delete(f"{_collection(template)}/{template['metadata']['name']}")


@pytest.mark.whole
def test_without_the_component_claims_without_tolerations_stay_so(adding: Stage) -> None:
    adding.unregister()
    adding.register()
    obj = _object("ResourceClaim", "v1")
    try:
        assert _tolerations(acting_as(adding, DANA).create(_collection(obj), obj, dry_run=True).object) == [[], [], []]
    finally:
        _register_component(adding)
