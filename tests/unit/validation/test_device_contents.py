"""What a device of a slice may hold (A1), each rule turned on once more where it has a second half."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import make_basic_device, make_device, make_slice
from tests.tables import table
from tests.unit.validation.whole_objects import DROP, SLICE, assert_reported, edited, reported, whole
from webhook.validation.device_objects import device_faults

DEVICE = "spec/devices/1"
AT = "spec.devices[1]"


def with_field(name: str, value: Any, *, form: int = 0, minor: int = 37) -> list[str]:
    """What is said of the second device with this field, each error without the path of the device."""
    found = reported(edited(whole(SLICE, form=form), (f"{DEVICE}/{name}", value)), minor=minor)
    assert all(error.startswith(AT) for error in found), found
    return [error.removeprefix(AT) for error in found]


@pytest.mark.parametrize(
    ("attribute", "errors"),
    [
        ({"strings": ["x" * 64, "é" * 32]}, []),
        ({"strings": ["x", "x" * 65]}, [".attributes[a].strings[1]: Too long: may not be more than 64 bytes"]),
        ({"strings": ["é" * 33]}, [".attributes[a].strings[0]: Too long: may not be more than 64 bytes"]),
        ({"versions": ["1.2.3", "1"]}, ['.attributes[a].versions[1]: Invalid value: "1": must be a string compat']),
        ({"bools": [False]}, []),
        (
            {"int": 1, "ints": []},
            [
                ".attributes[a].ints: Invalid value: []: must not be empty if specified",
                '.attributes[a]: Invalid value: "": exactly one value must be specified',
            ],
        ),
        (
            {"int": 1, "bool": True},
            ['.attributes[a]: Invalid value: "": must specify exactly one of: `int`, `bool`, `string`, '],
        ),
        (
            {"int": 1, "ints": [1]},
            ['.attributes[a]: Invalid value: "": must specify exactly one of: `int`, `bool`, `string`, '],
        ),
        (
            {"bools": [True], "ints": [1]},
            ['.attributes[a]: Invalid value: "": must specify exactly one of: `int`, `bool`, `string`, '],
        ),
    ],
    ids=str,
)
def test_attribute_has_one_value_or_one_list(attribute: Any, errors: list[str]) -> None:
    assert_reported(with_field("attributes", {"a": attribute}), errors)


def test_before_1_37_an_empty_list_counts_as_a_value() -> None:
    empty = ".attributes[a].ints: Invalid value: []: must not be empty if specified"
    one = '.attributes[a]: Invalid value: "": exactly one value must be specified'
    assert with_field("attributes", {"a": {"ints": []}}, minor=36) == [empty]
    assert with_field("attributes", {"a": {"int": 1, "ints": []}}, minor=36) == [empty, one]


TERMS: dict[str, Any] = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({"nodeSelector": TERMS}, []),
        ({"allNodes": True}, []),
        ({"nodeName": "", "allNodes": True}, ['.nodeName: Invalid value: "": must not be empty']),
        ({"nodeName": "A"}, ['.nodeName: Invalid value: "A": a lowercase RFC 1123 subdomain must']),
        ({"nodeName": "a", "allNodes": False}, [".allNodes: Invalid value: false: must be either unset or set to tr"]),
        (
            {"nodeSelector": {}},
            [".nodeSelector.nodeSelectorTerms: Required value: must have at least one node selector term"],
        ),
        (
            {"nodeName": "a", "allNodes": True},
            [': Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, or `allNodes`'],
        ),
    ],
    ids=str,
)
def test_device_says_in_one_way_on_which_nodes_it_is(fields: dict[str, Any], errors: list[str]) -> None:
    edits = [(f"{DEVICE}/{name}", value) for name, value in fields.items()]
    value = edited(whole(SLICE, form=2), (f"{DEVICE}/nodeName", DROP), *edits)
    assert_reported(reported(value), [f"{AT}{error}" for error in errors])


REQUIREMENTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "one of none": ({"key": "a", "operator": "In"}, ["values: Required value: must be specified"]),
    "there, with a value": ({"key": "a", "operator": "Exists", "values": ["x"]}, ["values: Forbidden: may not be"]),
    "less than nothing": ({"key": "a", "operator": "Lt"}, ["values: Required value: must be specified"]),
    "another word": ({"key": "a", "operator": "Is"}, ['operator: Invalid value: "Is": not a valid']),
    "one of several": ({"key": "a", "operator": "In", "values": ["x", "y"]}, []),
    "none of them": ({"key": "a", "operator": "NotIn"}, ["values: Required value: must be specified when `operator`"]),
    "absent, with a value": ({"key": "a", "operator": "DoesNotExist", "values": ["x"]}, ["values: Forbidden: may not"]),
    "more": ({"key": "a", "operator": "Gt", "values": ["1"]}, []),
    "less": ({"key": "a", "operator": "Lt", "values": ["1"]}, []),
    "more than two": (
        {"key": "a", "operator": "Gt", "values": ["1", "2"]},
        ["values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'"],
    ),
    "a wrong key": ({"key": "a b", "operator": "Exists"}, ['key: Invalid value: "a b": name part must consist']),
    "a wrong value": (
        {"key": "a", "operator": "In", "values": ["x", "c d"]},
        ['values[1]: Invalid value: "c d": a valid label must be'],
    ),
}


@pytest.mark.parametrize(("requirement", "errors"), REQUIREMENTS.values(), ids=REQUIREMENTS)
def test_requirement_of_a_node_selector(requirement: Any, errors: list[str]) -> None:
    at = "spec/nodeSelector/nodeSelectorTerms/0/matchExpressions"
    found = reported(edited(whole(SLICE, form=1), (at, [{"key": "a", "operator": "Exists"}, requirement])))
    path = "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[1]"
    assert_reported(found, [f"{path}.{error}" for error in errors])


NAME = {"key": "metadata.name", "operator": "NotIn"}


@pytest.mark.parametrize(
    ("requirement", "errors"),
    [
        ({**NAME, "values": ["n"]}, []),
        ({**NAME, "values": []}, ["values: Required value: must be only one value"]),
        ({**NAME, "values": ["n", "m"]}, ["values: Required value: must be only one"]),
        ({**NAME, "operator": "In", "values": ["Node"]}, ['values[0]: Invalid value: "Node": a']),
        (
            {"key": "spec.x", "operator": "Exists"},
            ['operator: Invalid value: "Exists": not a valid', 'key: Invalid value: "spec.x": not a valid field'],
        ),
    ],
    ids=str,
)
def test_field_of_a_node_has_one_value(requirement: Any, errors: list[str]) -> None:
    at = "spec/nodeSelector/nodeSelectorTerms/0/matchFields"
    found = reported(edited(whole(SLICE, form=1), (at, [{**NAME, "values": ["n"]}, requirement])))
    path = "spec.nodeSelector.nodeSelectorTerms[0].matchFields[1]"
    assert_reported(found, [f"{path}.{error}" for error in errors])


KEYED = {"capacityKey": "listed", "capacityMultiplier": "1"}


@pytest.mark.parametrize(
    ("mapping", "errors"),
    [
        (KEYED, []),
        ({"deviceMultiplier": "1"}, []),
        ({}, ['mapping: Invalid value: "": must specify one of: `capacityKey`, `deviceMultiplier`']),
        (
            {**KEYED, "deviceMultiplier": "1"},
            ['mapping: Invalid value: "": must specify exactly one of: `capacityKey`, `deviceMultiplier`'],
        ),
        (
            {**KEYED, "capacityKey": ""},
            ['mapping.capacityKey: Invalid value: "": capacityKey must not be an empty string'],
        ),
        (
            {"deviceMultiplier": "1", "capacityMultiplier": "0"},
            ["mapping.capacityKey: Required value: capacityKey is required when capacityMultiplier is set"],
        ),
        (
            {"capacityKey": "listed"},
            ["mapping.capacityMultiplier: Required value: capacityMultiplier is required when capacityKey is set"],
        ),
    ],
    ids=str,
)
def test_resource_of_the_node_is_mapped_in_one_way(mapping: Any, errors: list[str]) -> None:
    at = "spec/devices/0/nodeAllocatableResources"
    for resource in ("cpu", "memory", "hugepages-2Mi"):
        found = reported(edited(whole(SLICE), (at, {resource: {"mapping": mapping}})))
        path = f"spec.devices[0].nodeAllocatableResources[{resource}]"
        assert found == [f"{path}.{error}" for error in errors]


@pytest.mark.parametrize(
    ("overhead", "errors"),
    [
        ({"perPod": "1"}, []),
        ({"perContainer": "0"}, []),
        ({}, [': Invalid value: "": at least one of perPod or perContainer must be set']),
        ({"perPod": "1", "perContainer": "-1n"}, ['.perContainer: Invalid value: "-1n": must be non-negative']),
    ],
    ids=str,
)
def test_overhead_is_for_pods_or_for_containers(overhead: Any, errors: list[str]) -> None:
    found = reported(edited(whole(SLICE), ("spec/devices/0/nodeAllocatableResources", {"cpu": {"overhead": overhead}})))
    assert found == [f"spec.devices[0].nodeAllocatableResources[cpu].overhead{error}" for error in errors]


def test_conditions_of_binding_and_of_failure_need_each_other() -> None:
    for name, other in (
        ("bindingConditions", "bindingFailureConditions"),
        ("bindingFailureConditions", "bindingConditions"),
    ):
        assert with_field(other, ["a"]) == [f".{name}: Invalid value: []: {name} are required to use {other}"]


def ranged(default: str, **limits: str) -> dict[str, Any]:
    return {"validRange": limits, "default": default}


STEP, LEAST, MOST = ".validRange.step: Invalid", ".validRange.min: Invalid", ".validRange.max: Invalid"
DEFAULT = ".validRange.default: Invalid"


@table(
    "policy, errors",
    {
        "nothing": ({}, []),
        "a default": ({"default": "1"}, []),
        "no options beside a range": ({"validValues": [], **ranged("1", min="1")}, []),
        "options without default": (
            {"validValues": ["1"]},
            [".default: Required value: required when validValues is defined"],
        ),
        "a range without default": (
            {"validRange": {"min": "1"}},
            [".default: Required value: required when validRange is defined"],
        ),
        "a range without min": (ranged("1"), [".validRange.min: Required value: required when validRange is defined"]),
        "options and a range": (
            {"validValues": ["1"], **ranged("1", min="1")},
            [': Forbidden: exactly one policy can be specified, cannot specify "validValues" and "validRange" at t'],
        ),
        "a default that is no option": (
            {"validValues": ["1", "3"], "default": "2"},
            ['.validValues: Invalid value: "2": default value is not valid'],
        ),
        "options that round up to the same": (
            {"validValues": ["1500m", "2"], "default": "2"},
            ['.validValues[1]: Duplicate value: "2"'],
        ),
        "min above the capacity": (
            ranged("200", min="200"),
            ['.validRange.min: Invalid value: "200": min is larger than capacity value: 100'],
        ),
        "min above max": (
            ranged("3", min="3", max="2"),
            [
                '.validRange.max: Invalid value: "3": min is larger than max: 2',
                '.validRange.default: Invalid value: "3": default is more than max: 2',
            ],
        ),
        "a default below min": (
            ranged("1", min="2"),
            ['.validRange.default: Invalid value: "1": default is less than min: 2'],
        ),
        "max between steps": (
            ranged("5", min="0", max="7", step="5"),
            ['.validRange.step: Invalid value: "7": value is not a multiple of a given step (5) from (0)'],
        ),
        # at the ends of what is allowed
        "an option as large as the capacity": ({"validValues": ["1", "100"], "default": "1"}, []),
        "a larger option": ({"validValues": ["1", "101"], "default": "1"}, [".validValues[1]: Invalid"]),
        "the second below the first": ({"validValues": ["2", "1"], "default": "1"}, [".validValues[1]: Invalid"]),
        "min as large as the capacity": (ranged("100", min="100"), []),
        "min and max are the same": (ranged("2", min="2", max="2"), []),
        "max as the capacity": (ranged("100", min="2", max="100"), []),
        "a larger max": (ranged("2", min="2", max="101"), [MOST]),
        "above max": (ranged("4", min="2", max="3"), [DEFAULT]),
        "one step to the capacity": (ranged("90", min="90", step="10"), []),
        "a longer one": (ranged("90", min="90", step="11"), [STEP]),
        "no step": (ranged("0", min="0", step="0"), [STEP]),
        "two steps": (ranged("10", min="0", step="5"), []),
        "between steps": (ranged("11", min="0", step="5"), [STEP]),
        "one below zero": (ranged("0", min="-1", step="1"), [LEAST]),
    },
)
def test_policy_of_a_capacity(policy: Any, errors: list[str]) -> None:
    capacity = {"value": "100", "requestPolicy": policy}
    found = reported(edited(whole(SLICE), ("spec/devices/0/capacity/listed", capacity)))
    assert_reported(found, [f"spec.devices[0].capacity[listed].requestPolicy{error}" for error in errors])


@pytest.mark.parametrize("others", [["NodeUnprepareResources"], ["*"]])
def test_preparation_may_be_skipped_if_its_undoing_is(others: list[str]) -> None:
    operations = ["NodePrepareResources", *others]
    assert reported(edited(whole(SLICE), ("spec/skipNodeOperations", operations))) == []
    assert reported(edited(whole(SLICE), ("spec/skipNodeOperations", others))) == []


COUNTERS: dict[str, Any] = {"consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}]}
TAINTED: dict[str, Any] = {"taints": [{"key": "example.com/a", "effect": "NoSchedule"}]}
LISTED: dict[str, Any] = {"attributes": {"a": {"ints": [1]}}}


@pytest.mark.parametrize(
    ("fields", "count", "minor", "judged"),
    [
        ({}, 128, 37, True),
        ({}, 129, 37, False),
        (TAINTED, 64, 37, True),
        (TAINTED, 65, 37, False),
        (COUNTERS, 64, 37, True),
        (COUNTERS, 65, 37, False),
        (COUNTERS, 65, 35, False),
        (COUNTERS, 65, 34, True),
        (LISTED, 64, 37, True),
        (LISTED, 65, 37, False),
        (LISTED, 65, 35, True),
        ({"attributes": {"a": {"int": 1}}}, 65, 37, True),
    ],
)
def test_devices_are_judged_up_to_128_and_up_to_64_if_one_of_them_is_large(
    fields: dict[str, Any], count: int, minor: int, *, judged: bool
) -> None:
    devices = [{"name": "A", **fields}, *[{"name": f"gpu-{number}"} for number in range(1, count)]]
    found = reported(edited(whole(SLICE), ("spec/devices", devices)), minor=minor)
    assert_reported(found, ['spec.devices[0].name: Invalid value: "A": '] if judged else [])


KIND = "gpu.example.com/kind"
NO_TEXT = f'spec.devices[0].attributes[{KIND}]: Invalid value: "": must be a string value because'


@pytest.mark.parametrize(
    ("name", "attributes", "errors"),
    [
        (KIND, {"kind": {"string": "x"}}, []),
        (KIND, {KIND: {"string": "x"}}, []),
        (KIND, {}, [f"spec.devices[0].attributes[{KIND}]: Required value: device consumes counters and `partition"]),
        (KIND, {"kind": {"int": 1}}, [NO_TEXT]),
        (KIND, {KIND: {"int": 1}, "kind": {"string": "x"}}, [NO_TEXT]),
        ("kind", {}, ['spec.partitionTypeAttribute: Invalid value: "kind": a fully qualified name must be']),
        (f"{KIND}-b", {}, ['spec.partitionTypeAttribute: Invalid value: "kind-b": a valid C identifier must']),
    ],
    ids=str,
)
def test_partitions_have_the_attribute_that_distinguishes_them(name: str, attributes: Any, errors: list[str]) -> None:
    edits = [("spec/partitionTypeAttribute", name), ("spec/devices/0/attributes", attributes)]
    assert_reported(reported(edited(whole(SLICE, form=2), *edits)), errors)


PARTITION: Any = {
    "partitionTypeAttribute": "gpu.example.com/type",
    "sharedCounters": [{"name": "a", "counters": {"b": {"value": "1"}}}],
}
USES: Any = {"consumesCounters": [{"counterSet": "a", "counters": {"b": {"value": "1"}}}]}


@pytest.mark.parametrize(
    ("device", "fault"),
    [
        ({"attributes": {f"a{number}": {"int": 1} for number in range(32)}}, ""),
        ({"attributes": {f"a{number}": {"int": 1} for number in range(33)}}, "must not exceed 32"),
        (
            {"allowMultipleAllocations": True, "capacity": {"m": {"value": "1Gi", "requestPolicy": {
                "default": "2Gi", "validValues": ["2Gi"]}}}},
            "capacity[m].requestPolicy",
        ),
        ({"attributes": {f"a{number}": {"ints": [1, 2, 3, 4, 5]} for number in range(10)}}, "must not exceed 48"),
    ],
)  # fmt: skip
def test_device_that_no_server_would_take(device: Any, fault: str) -> None:
    for version, made in (("v1", make_device(**device)), ("v1beta1", make_basic_device(**device))):
        found = device_faults(make_slice([], version=version)["spec"])(made)
        assert (fault in " ".join(found)) if fault else found == []


def test_attribute_that_the_slice_needs() -> None:
    faults = device_faults(make_slice([make_device()], **PARTITION)["spec"])
    assert faults(make_device(**USES, attributes={"type": {"string": "half"}})) == []
    assert "it must be set" in " ".join(faults(make_device(**USES)))
    faults = device_faults(make_slice([], version="v1beta1", **PARTITION)["spec"])
    assert "it must be set" in " ".join(faults(make_basic_device(**USES)))
    assert faults(make_basic_device(**USES, attributes={"type": {"string": "half"}})) == []


def test_other_devices_are_not_looked_at() -> None:
    manifest = make_slice([make_device("Wrong"), make_device("Wrong")])
    assert device_faults(manifest["spec"])(make_device()) == []
