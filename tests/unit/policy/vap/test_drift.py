"""Exported objects beside stored ones, and as files."""

from __future__ import annotations

import copy
from typing import Any, Final

import pytest

from tests.unit.policy.documents import make_entry, policy_of
from webhook.policy.vap.drift import AdmissionObjectKey, FallbackState, StoredObject, compare, key_of
from webhook.policy.vap.export import export
from webhook.policy.vap.objects import static_manifests

Json = dict[str, Any]
Stored = dict[AdmissionObjectKey, StoredObject]

NO_XID: Final = make_entry("no-xid", "deny", {"tolerations": {"keys": ["xid"]}})
OBJECTS: Final = export(policy_of(rules=[NO_XID])).objects


def stored(*objects: Json, labels: Any = None) -> Stored:
    """As a cluster has them once they were applied."""
    found = [
        StoredObject(key_of(obj), obj["metadata"]["labels"] if labels is None else labels, copy.deepcopy(obj["spec"]))
        for obj in objects
    ]
    return {each.key: each for each in found}


def states(wanted: Any, there: Stored) -> dict[str, str]:
    return {
        each.key.name: each.state.value for each in compare(wanted, there) if each.state is not FallbackState.IN_SYNC
    }


def test_what_is_equal_is_in_sync() -> None:
    assert {each.state for each in compare(OBJECTS, stored(*OBJECTS))} == {FallbackState.IN_SYNC}


def test_each_way_to_differ_has_a_name() -> None:
    first, second, third, *rest = OBJECTS
    changed = stored(first, *rest)
    changed[key_of(first)].spec["failurePolicy"] = "Ignore"  # type: ignore[index]
    foreign = stored(third, labels={"app.kubernetes.io/name": "other"})
    left = stored({**first, "metadata": {**first["metadata"], "name": "left"}})
    unrelated = stored({**first, "metadata": {**first["metadata"], "name": "unrelated"}}, labels={})
    found = compare(OBJECTS, {**changed, **foreign, **left, **unrelated})
    by_key = {(each.key.kind, each.key.name): each for each in found}
    assert by_key[first["kind"], first["metadata"]["name"]].fields == ("failurePolicy",)
    assert str(by_key[first["kind"], first["metadata"]["name"]]).endswith("is changed: spec.failurePolicy")
    assert by_key[second["kind"], second["metadata"]["name"]].state is FallbackState.MISSING
    assert by_key[third["kind"], third["metadata"]["name"]].state is FallbackState.FOREIGN
    assert by_key[first["kind"], "left"].state is FallbackState.LEFT_OVER
    assert (first["kind"], "unrelated") not in by_key


@pytest.mark.parametrize(
    "extra", [{"matchConditions": [{"name": "never", "expression": "false"}]}, {"paramKind": {"kind": "x"}}]
)
def test_what_somebody_has_added_is_a_difference_too(extra: Json) -> None:
    there = stored(*OBJECTS)
    there[key_of(OBJECTS[0])].spec.update(extra)  # type: ignore[attr-defined]
    assert states(OBJECTS, there) == {OBJECTS[0]["metadata"]["name"]: "changed"}


def test_files_have_names_that_the_api_does_not_give() -> None:
    made = static_manifests(OBJECTS)
    assert {each["kind"] for each in made} == {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    for each in made:
        assert each["metadata"]["name"].endswith(".static.k8s.io")
        assert each["spec"].get("policyName", each["metadata"]["name"]) == each["metadata"]["name"]
    assert static_manifests([]) == []
    assert not any("static" in obj["metadata"]["name"] for obj in OBJECTS)
