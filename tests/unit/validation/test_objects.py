"""What an API server refuses in metadata, and how the rules for files are applied (A1)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import field_errors, make_claim, make_meta, make_patch, make_request, make_rule, make_slice
from tests.tables import table
from tests.unit.validation.whole_objects import (
    CLAIM,
    DROP,
    LABEL,
    RULE,
    SLICE,
    TEMPLATE,
    Edits,
    assert_reported,
    edited,
    reported,
    whole,
)
from webhook.api.meta import GroupVersionKind
from webhook.api.schema import served
from webhook.validation.formats import dns1123_subdomain
from webhook.validation.objects import object_errors
from webhook.validation.releases import NEWEST

VERSIONS = ("v1", "v1beta2", "v1beta1")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("kind", "form"), [(CLAIM, 0), (TEMPLATE, 0), (RULE, 0), *((SLICE, form) for form in range(4))]
)
@pytest.mark.parametrize("minor", [37, 38])
def test_an_object_with_everything_in_it_is_right(kind: str, form: int, version: str, minor: int) -> None:
    assert reported(whole(kind, "v1beta2" if kind == RULE else version, form), minor=minor) == []


METADATA: dict[str, tuple[Edits, list[str]]] = {
    "a label": (
        [("metadata/labels", {"a b": "c d"})],
        [
            'metadata.labels: Invalid value: "a b": name part must consist of',
            'metadata.labels: Invalid value: "c d": a valid label must be',
        ],
    ),
    "an annotation": (
        [("metadata/annotations", {"UPPER.example.com/x": "", "a/b/c": ""})],
        ['metadata.annotations: Invalid value: "a/b/c": a valid label key must'],
    ),
    "annotations that are too long": (
        [("metadata/annotations", {"a": "x" * 262144})],
        ["metadata.annotations: Too long: may not be more than 262144 bytes"],
    ),
    "annotations of the largest size": ([("metadata/annotations", {"a": "x" * 262143})], []),
    "annotations without values": ([("metadata/annotations", {"a": None, "b": "x" * 262142})], []),
    "annotations that are too long in bytes": (
        [("metadata/annotations", {"a": "é" * 131072})],
        ["metadata.annotations: Too long: may not be more than 262144 bytes"],
    ),
    "an owner without a name": (
        [("metadata/ownerReferences/0/name", DROP), ("metadata/ownerReferences/0/apiVersion", "a/b/c")],
        [
            'metadata.ownerReferences[0].apiVersion: Invalid value: "a/b/c": must be <group>/<version> or <version>',
            "metadata.ownerReferences[0].name: Required value: must not be empty",
        ],
    ),
    "two controllers": (
        [("metadata/ownerReferences/1/controller", True)],
        ['metadata.ownerReferences: Invalid value: "": Only one reference can have Controller set to true'],
    ),
    "an event as owner": (
        [("metadata/ownerReferences/1/kind", "Event")],
        ['metadata.ownerReferences[1]: Invalid value: "p": /v1, Kind=Event is disallowed from being an owner'],
    ),
    "a finalizer without domain": (
        [("metadata/finalizers", ["keep"])],
        ['metadata.finalizers[0]: Invalid value: "keep": name is neither a standard finalizer name nor is it'],
    ),
    "finalizers that exclude each other": (
        [("metadata/finalizers", ["orphan", "foregroundDeletion"])],
        ['metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and '],
    ),
    "a finalizer that excludes another one": ([("metadata/finalizers", ["orphan", "kubernetes"])], []),
    "a namespace": ([("metadata/namespace", "A")], [f'metadata.namespace: Invalid value: "A": {LABEL}']),
}


@pytest.mark.parametrize(("edits", "expected"), METADATA.values(), ids=METADATA)
def test_metadata_is_refused_in_the_words_of_the_server(edits: Edits, expected: list[str]) -> None:
    assert_reported(reported(edited(whole(CLAIM), *edits)), expected)


def test_an_owner_that_is_listed_twice_is_judged_once() -> None:
    claim = whole(CLAIM)
    owners = claim["metadata"]["ownerReferences"]
    owners.append({**owners[0], "blockOwnerDeletion": None})  # null is the same as missing
    assert reported(claim) == []
    owners.append({**owners[0], "name": "other"})
    assert len(reported(claim)) == 1


def test_an_update_does_not_report_what_was_wrong_before() -> None:
    old = edited(whole(SLICE), ("spec/devices/1/name", "GPU"))
    new = edited(whole(SLICE), ("spec/devices/1/name", "GPU"), ("spec/pool/generation", -1))
    assert reported(new, old) == ["spec.pool.generation: Invalid value: -1: must be greater than or equal to zero"]


def test_a_wrong_type_ends_the_walk() -> None:
    claim = make_claim(requests=[make_request(count="2"), {}])
    assert reported(claim) == ['spec.devices.requests[0].exactly.count: Invalid value: "2": must be a 64-bit integer']


def test_a_rule_and_a_patch_of_ours_are_judged_by_their_metadata_at_most() -> None:
    assert reported(make_rule(meta=make_meta("x", labels={"a b": ""}))) != []
    assert list(object_errors(make_patch(), None, GroupVersionKind("devicetaint.io", "v1alpha1", "X"), NEWEST)) == []


@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_what_is_no_object_is_an_error_and_no_fault(value: Any) -> None:
    kind = GroupVersionKind.parse(make_slice()["apiVersion"], SLICE)
    assert list(object_errors(value, None, kind, NEWEST)) != []


def _places(value: Any) -> list[dict[str, Any]]:
    """The object, and each object in it."""
    if isinstance(value, list):
        return [place for each in value for place in _places(each)]
    return [value, *_places(list(value.values()))] if isinstance(value, dict) else []


def _later_fields(minor: int) -> set[str]:
    then, now = served(minor).types, served().types
    return {field for name in then.keys() & now.keys() for field in now[name].keys() - then[name].keys()}


@pytest.mark.untraced
@pytest.mark.parametrize("wrong", [True, [3]])
@pytest.mark.parametrize("kind", [CLAIM, TEMPLATE, SLICE])
@pytest.mark.parametrize("minor", [34, 36])
def test_field_that_a_release_lacks_may_be_of_any_type(minor: int, kind: str, wrong: Any) -> None:
    """It is unknown there, which `strict` says; the rules knew later releases, and ended in a traceback."""
    later = _later_fields(minor)
    assert later
    for field in later:
        for position in range(len(_places(whole(kind)))):
            odd = whole(kind)
            _places(odd)[position].setdefault(field, wrong)
            found = reported(odd, minor=minor)
            assert [error for error in found if f".{field}" in error] == [], found


# --- names ----------------------------------------------------------------------------------------


BAD = dns1123_subdomain("-")[0]


LONG = "a" * 57 + "_"


@table(
    "meta, wrong",
    {
        "a name of 253 bytes (R-1)": ({"name": "a" * 253}, []),
        "a prefix of a letter and a dash": ({"generateName": "a-"}, []),
        "a prefix that does not": ({"generateName": "gpu"}, []),
        "of a long prefix the server takes 58 characters": (
            {"generateName": f"a{LONG}"},
            [("generateName", f"a{LONG}")],
        ),
        "and all of them": ({"generateName": LONG}, [("name", f"{LONG}xxxxx"), ("generateName", LONG)]),
        "the character before a dash is not looked at": ({"generateName": "a_-"}, [("name", "a_-xxxxx")]),
        "and only that one": ({"generateName": "_b-"}, [("name", "_b-xxxxx"), ("generateName", "_b-")]),
        "a prefix beside a name is judged": ({"name": "a", "generateName": "-"}, [("generateName", "-")]),
    },
)
def test_names_of_new_objects(meta: dict[str, Any], wrong: list[tuple[str, str]]) -> None:
    errors = [f'metadata.{field}: Invalid value: "{value}": {BAD}' for field, value in wrong]
    assert field_errors(make_rule(meta=meta, version="v1beta2")) == errors


def test_name_of_a_stored_object_is_not_judged_again() -> None:
    stored = make_rule(meta={"name": "-"}, version="v1beta2")
    assert field_errors(stored, stored) == []


# --- since 1.38 -----------------------------------------------------------------------------------


TERM = {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}
ONE_NODE: Edits = [("spec/perDeviceNodeSelection", True), ("spec/nodeName", None)]
AMOUNT = "must be greater than or equal to 0"
ONE_SLASH = "must not contain more than one slash"
DIGITS = "must be a string compatible with semver.org spec 2.0.0, with at most 18 digits in numbers"
DEVICE = "spec.devices[0]"
RANGE = f"{DEVICE}.capacity[m].requestPolicy.validRange"


def device(**fields: Any) -> Edits:
    return [("spec/devices", [{"name": "gpu-0", **fields}])]


def capacity(requests: dict[str, Any]) -> Edits:
    return [("spec/devices/requests/0/exactly/capacity", {"requests": requests})]


def ranged(default: str, **limits: str) -> Edits:
    policy = {"default": default, "validRange": limits}
    return device(allowMultipleAllocations=True, capacity={"m": {"value": "10", "requestPolicy": policy}})


ALTERNATIVE = {"name": "a", "deviceClassName": "gpu", "capacity": {"requests": {"m": "-1"}}}
REQUESTED = "devices.requests[0].exactly.capacity.requests"


def requests(spec: str, request: dict[str, Any], *constraints: dict[str, str]) -> Edits:
    values = {"requests": [{"name": "gpu", **request}], "config": [], "constraints": list(constraints)}
    return [(f"{spec}/devices/{name}", value) for name, value in values.items()]


SINCE: dict[str, tuple[str, Edits, list[str]]] = {
    "attribute with two slashes": (
        *(SLICE, device(attributes={"a/b/c": {"bool": True}})),
        [f'{DEVICE}.attributes: Invalid value: "a/b/c": {ONE_SLASH}'],
    ),
    "capacity with two slashes": (
        *(SLICE, device(capacity={"a/b/c": {"value": "1"}})),
        [f'{DEVICE}.capacity: Invalid value: "a/b/c": {ONE_SLASH}'],
    ),
    "constraint with two slashes": (
        *(CLAIM, requests("spec", {"exactly": {"deviceClassName": "gpu"}}, {"matchAttribute": "a/b/c"})),
        [f'spec.devices.constraints[0].matchAttribute: Invalid value: "a/b/c": {ONE_SLASH}'],
    ),
    "number of 19 digits in a version": (
        *(SLICE, device(attributes={"v": {"version": "1.0." + "9" * 19}})),
        [f'{DEVICE}.attributes[v].version: Invalid value: "1.0.{"9" * 19}": {DIGITS}'],
    ),
    "number of 19 digits before the release": (
        *(SLICE, device(attributes={"v": {"versions": ["1.0.0-1." + "9" * 19]}})),
        [f'{DEVICE}.attributes[v].versions[0]: Invalid value: "1.0.0-1.{"9" * 19}": {DIGITS}'],
    ),
    "node selector of two terms": (
        *(SLICE, [*ONE_NODE, *device(nodeSelector={"nodeSelectorTerms": [TERM, TERM]})]),
        [f"{DEVICE}.nodeSelector.nodeSelectorTerms: Invalid value: 2: must have exactly one node selector term"],
    ),
    "capacity asked for by a wrong name": (
        *(CLAIM, capacity({"a-b": "1", "a/b/c": "1"})),
        [
            f'spec.{REQUESTED}: Invalid value: "a-b": a valid C identifier',
            f'spec.{REQUESTED}: Invalid value: "a/b/c": {ONE_SLASH}',
        ],
    ),
    "negative capacity": (
        *(CLAIM, capacity({"m": "-1", "n": "0"}), [f'spec.{REQUESTED}[m]: Invalid value: "-1": {AMOUNT}']),
    ),
    "too many capacities": (
        *(CLAIM, capacity({f"m{number}": "-1" for number in range(33)})),
        [f"spec.{REQUESTED}: Too many: 33: must have at most 32 items"],
    ),
    "capacity of an alternative": (
        *(TEMPLATE, requests("spec/spec", {"firstAvailable": [ALTERNATIVE]})),
        [f'spec.spec.{REQUESTED.replace("exactly", "firstAvailable[0]")}[m]: Invalid value: "-1": {AMOUNT}'],
    ),
    "fraction that is no multiple of the step": (
        *(SLICE, ranged("1500m", min="1", step="1")),
        [f'{RANGE}.step: Invalid value: "1500m": value is not a multiple of a given step (1) from (1)'],
    ),
    "fraction of a thousandth": (
        *(SLICE, ranged("1", min="500u")),
        [f'{RANGE}.min: Invalid value: "500u": value cannot be represented as a milli value'],
    ),
}
UNTIL: dict[str, Edits] = {
    "fractions in steps": ranged("2", min="500m", step="1500m", max="5"),
    "options that round up to the same": device(
        allowMultipleAllocations=True,
        capacity={"m": {"value": "10", "requestPolicy": {"default": "1500m", "validValues": ["1500m", "1600m"]}}},
    ),
}


@pytest.mark.parametrize(("kind", "edits", "errors"), SINCE.values(), ids=SINCE)
def test_release_refuses_what_the_one_before_takes(kind: str, edits: Edits, errors: list[str]) -> None:
    changed = edited(whole(kind), *edits)
    assert reported(changed, minor=37) == []
    assert_reported(reported(changed, minor=38), errors)


@pytest.mark.parametrize("edits", UNTIL.values(), ids=UNTIL)
def test_release_takes_what_the_one_before_refuses(edits: Edits) -> None:
    changed = edited(whole(SLICE), *edits)
    assert reported(changed, minor=37) != []
    assert reported(changed, minor=38) == []


def test_key_of_a_mapping_is_a_name_before_it_is_looked_for() -> None:
    mapping = {"capacityKey": "a-b", "capacityMultiplier": "1"}
    changed = edited(whole(SLICE), *device(nodeAllocatableResources={"cpu": {"mapping": mapping}}))
    at = f"{DEVICE}.nodeAllocatableResources[cpu].mapping.capacityKey"
    assert_reported(reported(changed, minor=37), [f'{at}: Not found: "a-b"'])
    assert_reported(reported(changed, minor=38), [f'{at}: Invalid value: "a-b": a valid C identifier'])
