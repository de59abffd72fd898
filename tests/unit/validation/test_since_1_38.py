"""What 1.38 refuses and 1.37 takes, or the other way round, as read in the source of 1.38.0-beta.0."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.validation.whole_objects import CLAIM, SLICE, TEMPLATE, Edits, assert_reported, edited, reported, whole

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
