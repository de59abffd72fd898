"""What an API server refuses in slices (A1), in its own words and at its own paths.

That the rules are those of a server is proved in tests/apiserver/test_generated_whole.py; here each is turned on once.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.tables import table
from tests.unit.validation.whole_objects import DROP, LABEL, SLICE, assert_reported, edited, reported, whole

ONE_PLACE = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"

MISSING = "Required value: "
ALLOCATABLE = "devices/0/nodeAllocatableResources"
NO_MAPPING = {"gpu": {}, "cpu": {"mapping": {"capacityKey": "none"}}}
OTHER_COUNTERS = [{}, {"counterSet": "A", "counters": {"B": {"value": "1"}}}]

# The form of the slice, edits below `spec`, and what is said at a place below it.
SLICES: dict[str, tuple[int, dict[str, Any], str, list[str]]] = {
    "no pool": (
        0,
        {"pool": {}},
        ".pool",
        [".name: Required value", ".resourceSliceCount: Invalid value: 0: must be gr"],
    ),
    "no nodes": (0, {"nodeName": DROP}, "", [f": Required value: {ONE_PLACE}"]),
    "two sorts of nodes": (
        *(0, {"allNodes": True}, ': Invalid value: "{`nodeName`, `allNodes`}": '),
        [f"{ONE_PLACE}, but multiple fields are set"],
    ),
    "an empty node name": (
        *(0, {"nodeName": "", "allNodes": True}, ".nodeName"),
        [': Invalid value: "": must be either unset or set to a non-empty string'],
    ),
    "not all nodes": (
        0,
        {"allNodes": False},
        ".allNodes",
        [": Invalid value: false: must be either unset or set to true"],
    ),
    "a selector without terms": (
        *(1, {"nodeSelector": {}}, ".nodeSelector.nodeSelectorTerms: "),
        [f"{MISSING}must have at least one node selector term", "Invalid value: 0: must have exactly one node"],
    ),
    "two devices of one name": (0, {"devices/1/name": "gpu-0"}, ".devices[1]", [': Duplicate value: "gpu-0"']),
    "a device's name": (0, {"devices/1/name": "GPU"}, ".devices[1].name", [f': Invalid value: "GPU": {LABEL}']),
    "attributes": (
        *(0, {"devices/1/attributes": {"a-b": {"int": 1}, "/x": {"int": 1}, "v": {"version": "1"}}}),
        ".devices[1].attributes",
        [
            *(': Invalid value: "a-b": a valid C identifier must', ': Invalid value: "": the domain must not be empty'),
            '[v].version: Invalid value: "1": must be a string compatible with semver.org',
        ],
    ),
    "a policy that nothing can use": (
        *(0, {"devices/0/allowMultipleAllocations": DROP}, ".devices[0].capacity"),
        [f"[{name}].requestPolicy: Forbidden: allowMultipleAllocations must be true" for name in ("ranged", "listed")],
    ),
    "counters that are taken": (
        *(0, {"devices/0/consumesCounters": OTHER_COUNTERS}, ".devices[0].consumesCounters"),
        [
            *("[0].counterSet: Required value", "[0].counters: Required value"),
            *(f'[1].counterSet: Invalid value: "A": {LABEL}', f'[1].counters: Invalid value: "B": {LABEL}'),
        ],
    ),
    "counters that are shared": (
        *(3, {"sharedCounters/1/name": "set"}, ".sharedCounters[1]", [': Duplicate value: "set"']),
    ),
    "nodes of a device": (
        *(0, {"devices/1/nodeName": "n"}, ".devices[1]: Invalid value: null: "),
        ["`nodeName`, `nodeSelector` and `allNodes` can only be set if"],
    ),
    "no nodes of a device": (
        *(2, {"devices/1/nodeName": DROP}, f".devices[1]: {MISSING}"),
        ["exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when"],
    ),
    "conditions": (
        *(
            0,
            {"devices/0/bindingConditions": ["a", "a"], "devices/0/bindingFailureConditions": ["a"]},
            ".devices[0].binding",
        ),
        [
            'Conditions[1]: Duplicate value: "a"',
            'FailureConditions[0]: Invalid value: "a": bindingFailureConditions must not',
        ],
    ),
    "resources of the node": (
        *(0, {ALLOCATABLE: NO_MAPPING}, ".devices[0].nodeAllocatableResources"),
        [
            '[gpu]: Invalid value: "gpu": must be a node allocatable res',
            f"[gpu]: {MISSING}at least one of mapping or overhead must",
            '[cpu].mapping.capacityKey: Not found: "none"',
            f"[cpu].mapping.capacityMultiplier: {MISSING}capacityMulti",
        ],
    ),
    "operations": (
        *(0, {"skipNodeOperations": ["NodePrepareResources", "Sleep"]}, ".skipNodeOperations"),
        [
            '[1]: Unsupported value: "Sleep": supported values: "*", "NodePrepareResources"',
            ': Invalid value: ["NodePrepareResources","Sleep"]: NodePrepareResources cann',
        ],
    ),
}


@pytest.mark.parametrize(("form", "edits", "at", "expected"), SLICES.values(), ids=SLICES)
def test_a_slice_is_refused_in_the_words_of_the_server(
    form: int, edits: dict[str, Any], at: str, expected: list[str]
) -> None:
    changed = edited(whole(SLICE, form=form), *((f"spec/{path}", value) for path, value in edits.items()))
    assert_reported(reported(changed), [f"spec{at}{error}" for error in expected])


def test_a_slice_is_in_no_namespace() -> None:
    changed = edited(whole(SLICE), ("metadata/namespace", "x"))
    assert reported(changed) == ["metadata.namespace: Forbidden: not allowed on this type"]


def test_in_v1beta1_false_and_empty_are_the_same_as_missing() -> None:
    assert reported(edited(whole(SLICE, "v1beta1"), ("spec/allNodes", False))) == []
    assert reported(edited(whole(SLICE, "v1beta1", 3), ("spec/nodeName", ""))) == []


@pytest.mark.parametrize(("version", "level"), [("v1", ""), ("v1beta2", ""), ("v1beta1", "basic.")])
def test_attribute_without_a_value_is_reported_where_it_is_written_from_1_37_on(version: str, level: str) -> None:
    at = f"spec/devices/1/{level.replace('.', '/')}attributes"
    value = edited(whole(SLICE, version), (at, {"m": {}}))
    (now,) = reported(value)
    assert now.startswith(f'spec.devices[1].{level}attributes[m]: Invalid value: "": must specify one of: `int`, ')
    assert reported(value, minor=36) == [
        'spec.devices[1].attributes[m]: Invalid value: "": exactly one value must be specified'
    ]


def test_policy_of_a_capacity_has_at_most_10_options() -> None:
    def with_options(count: int) -> list[str]:
        policy = {"default": "2", "validValues": [str(number) for number in range(1, count + 1)]}
        capacity = {"value": "100", "requestPolicy": policy}
        return reported(edited(whole(SLICE), ("spec/devices/0/capacity/listed", capacity)))

    at = "spec.devices[0].capacity[listed].requestPolicy.validValues"
    assert with_options(10) == []
    assert with_options(11)[0] == f"{at}: Too many: 11: must have at most 10 items"


def test_of_a_list_that_is_too_long_no_entry_is_judged() -> None:
    devices = [{"name": "A", "nodeName": "x"}] * 129
    assert reported(edited(whole(SLICE), ("spec/devices", devices))) == []  # that it is too long, /validate says


def test_before_1_36_a_wrong_key_is_reported_at_the_key() -> None:
    devices = edited(whole(SLICE), ("spec/devices/1/attributes", {"a-b": {"int": 1}}))
    for minor in (36, 37):
        assert reported(devices, minor=minor)[0].startswith('spec.devices[1].attributes: Invalid value: "a-b"')
    assert reported(devices, minor=35)[0].startswith('spec.devices[1].attributes[a-b]: Invalid value: "a-b"')


def test_before_1_35_the_number_of_counter_sets_is_not_judged() -> None:
    sets = [{"name": f"set{number}", "counters": {"c": {"value": "1"}}} for number in range(9)]
    crowded = edited(whole(SLICE, form=3), ("spec/sharedCounters", sets))
    assert reported(crowded) == ["spec.sharedCounters: Too many: 9: must have at most 8 items"]
    assert reported(crowded, minor=34) == []


@pytest.mark.parametrize("field", ["capacityMultiplier", "deviceMultiplier"])
@pytest.mark.parametrize(("number", "positive"), [("1n", True), ("1", True), (1, True), ("0", False), ("-1", False)])
def test_multiplier_of_a_mapping_is_more_than_zero(field: str, number: Any, *, positive: bool) -> None:
    mapping = {field: number, **({"capacityKey": "ranged"} if field == "capacityMultiplier" else {})}
    edits = ("spec/devices/0/nodeAllocatableResources", {"cpu": {"mapping": mapping}})
    found = [error for error in reported(edited(whole(SLICE), edits)) if f"mapping.{field}" in error]
    place = f"spec.devices[0].nodeAllocatableResources[cpu].mapping.{field}"
    assert found == ([] if positive else [f'{place}: Invalid value: "{number}": must be positive'])


def test_wrong_group_of_a_counter_set_is_reported_where_it_is_written() -> None:
    at = "spec/devices/0/basic/consumesCounters/0/compatibilityGroups"
    assert_reported(
        reported(edited(whole(SLICE, "v1beta1"), (at, ["A"]))),
        ['spec.devices[0].basic.consumesCounters[0].compatibilityGroups[0]: Invalid value: "A": '],
    )


@table(
    "minor, more, errors",
    {
        "1.36, few": (36, 1, [': Invalid value: "A": ']),
        "1.36, too many": (36, 32, [": Too many: 33: must have at most 32 items"]),
        "1.37, too many": (37, 32, [": Too many: 33: must", ': Invalid value: "A": ']),
        "1.34 has no limit": (34, 32, ['[A]: Invalid value: "A": ']),
    },
)
def test_names_of_counters_are_judged_beside_their_number_from_1_37_on(
    minor: int, more: int, errors: list[str]
) -> None:
    counters = {name: {"value": "1"} for name in ("A", *(f"c{number}" for number in range(more)))}
    found = reported(edited(whole(SLICE, form=3), ("spec/sharedCounters/1/counters", counters)), minor=minor)
    assert_reported(found, [f"spec.sharedCounters[1].counters{error}" for error in errors])
