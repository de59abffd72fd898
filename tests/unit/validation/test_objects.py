"""What an API server refuses beyond taints and tolerations (A1), in its own words and at its own paths.

That the rules are those of a server is proved in tests/apiserver/test_generated_whole.py; here each is turned on once.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.apiserver.breakage import whole_object
from tests.builders import make_claim, make_meta, make_patch, make_request, make_rule, make_slice
from webhook.api.meta import GroupVersionKind
from webhook.validation.objects import object_errors
from webhook.validation.releases import NEWEST, RELEASES

VERSIONS = ("v1", "v1beta2", "v1beta1")
CLAIM, TEMPLATE, SLICE, RULE = "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceTaintRule"
DROP = object()
LABEL = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"
REFERENCE = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
ONE_PLACE = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"


class _Form(random.Random):
    """Chooses one of the four forms of a slice."""

    def __init__(self, form: int) -> None:
        super().__init__(0)
        self.form = form

    def randrange(self, *_: int) -> int:  # type: ignore[override] # only the one call that breakage makes
        return self.form


def whole(kind: str, version: str = "v1", form: int = 0) -> dict[str, Any]:
    return whole_object(kind, version, _Form(form))


def edited(value: dict[str, Any], *edits: tuple[str, Any]) -> dict[str, Any]:
    """The object with fields set or dropped; a path is `spec/devices/0`."""
    for path, new in edits:
        *above, last = path.split("/")
        at: Any = value
        for step in above:
            at = at[int(step)] if isinstance(at, list) else at[step]
        if new is DROP:
            del at[last]
        elif isinstance(at, list):
            at[int(last)] = new
        else:
            at[last] = new
    return value


def told(value: dict[str, Any], old: Any = None, minor: int = 37) -> list[str]:
    kind = GroupVersionKind.parse(value["apiVersion"], value["kind"])
    return [str(error) for error in object_errors(value, old, kind, RELEASES[minor])]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("kind", "form"),
    [(CLAIM, 0), (TEMPLATE, 0), (RULE, 0), *((SLICE, form) for form in range(4))],
)
def test_an_object_with_everything_in_it_is_right(kind: str, form: int, version: str) -> None:
    assert told(whole(kind, "v1beta2" if kind == RULE else version, form)) == []


REQUESTS = "spec/devices/requests"
EXACTLY = f"{REQUESTS}/0/exactly"
CLAIMS: dict[str, tuple[list[tuple[str, Any]], list[str]]] = {
    "no name": ([(f"{REQUESTS}/2/name", DROP)], [f'spec.devices.requests[2].name: Invalid value: "": {LABEL}']),
    "two of one name": (
        [(f"{REQUESTS}/2/name", "all")],
        ['spec.devices.requests[2]: Duplicate value: "all"'],
    ),
    "no shape": (
        [(f"{REQUESTS}/2/exactly", DROP)],
        ["spec.devices.requests[2]: Required value: exactly one of `exactly` or `firstAvailable` is required"],
    ),
    "both shapes": (
        [(f"{REQUESTS}/2/firstAvailable", [{"name": "a", "deviceClassName": "a"}])],
        ["spec.devices.requests[2]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is requ"],
    ),
    "no class": (
        [(f"{REQUESTS}/2/exactly", {})],
        ["spec.devices.requests[2].exactly.deviceClassName: Required value"],
    ),
    "a wrong class": (
        [(f"{REQUESTS}/1/firstAvailable/0/deviceClassName", "A")],
        ['spec.devices.requests[1].firstAvailable[0].deviceClassName: Invalid value: "A": a lowercase RFC 1123 sub'],
    ),
    "too many requests": (
        [(REQUESTS, [{"name": "A"}] * 33), ("spec/devices/constraints", DROP), ("spec/devices/config", DROP)],
        ["spec.devices.requests: Too many: 33: must have at most 32 items"],
    ),
    "too many alternatives": (
        [(f"{REQUESTS}/2", {"name": "x", "firstAvailable": [{}] * 9})],
        ["spec.devices.requests[2].firstAvailable: Too many: 9: must have at most 8 items"],
    ),
    "two alternatives of one name": (
        [(f"{REQUESTS}/1/firstAvailable/1/name", "large")],
        ['spec.devices.requests[1].firstAvailable[1]: Duplicate value: "large"'],
    ),
    "a count of zero is one": ([(f"{EXACTLY}/count", 0)], []),
    "a negative count": (
        [(f"{EXACTLY}/count", -3)],
        ["spec.devices.requests[0].exactly.count: Invalid value: -3: must be greater than zero"],
    ),
    "all and a count": (
        [(f"{EXACTLY}/allocationMode", "All")],
        ["spec.devices.requests[0].exactly.count: Invalid value: 2: must not be specified when allocationMode is "],
    ),
    "an unknown mode": (
        [(f"{EXACTLY}/allocationMode", "Some")],
        ['spec.devices.requests[0].exactly.allocationMode: Unsupported value: "Some": supported values: "All", '],
    ),
    "a selector that does not parse": (
        [(f"{EXACTLY}/selectors/0/cel/expression", "device.driver ==")],
        ['spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: "device.driver ==": '],
    ),
    "a selector of nothing": (
        [(f"{EXACTLY}/selectors/0", {})],
        ["spec.devices.requests[0].exactly.selectors[0].cel: Required value"],
    ),
    "a long selector": (
        [(f"{EXACTLY}/selectors/0/cel/expression", "x" * 10241)],
        ["spec.devices.requests[0].exactly.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"],
    ),
    "too many selectors": (
        [(f"{EXACTLY}/selectors", [{}] * 33)],
        ["spec.devices.requests[0].exactly.selectors: Too many: 33: must have at most 32 items"],
    ),
    "a derived attribute that no constraint looks at": (
        [(f"{EXACTLY}/derivedAttributes/0/name", "example.com/other")],
        ['spec.devices.requests[0].exactly.derivedAttributes[0].name: Invalid value: "example.com/other": must be '],
    ),
    "a constraint on a request that is not there": (
        [("spec/devices/constraints/0/requests", ["all", "gpu/medium", "a/b/c"])],
        [
            f'spec.devices.constraints[0].requests[1]: Invalid value: "gpu/medium": {REFERENCE}',
            f'spec.devices.constraints[0].requests[2]: Invalid value: "a/b/c": {REFERENCE}',
        ],
    ),
    "a constraint that names a request twice": (
        [("spec/devices/constraints/0/requests", ["all", "all"])],
        ['spec.devices.constraints[0].requests[1]: Duplicate value: "all"'],
    ),
    "a constraint on nothing": (
        [("spec/devices/constraints/0/matchAttribute", DROP)],
        ["spec.devices.constraints[0]: Required value: exactly one of "],
    ),
    "an attribute without domain": (
        [("spec/devices/constraints/0/matchAttribute", "model")],
        ['spec.devices.constraints[0].matchAttribute: Invalid value: "model": a fully qualified name must be a '],
    ),
    "an attribute with a long name": (
        [("spec/devices/constraints/0/matchAttribute", f"example.com/{'x' * 33}")],
        ["spec.devices.constraints[0].matchAttribute: Too long: may not be more than 32 bytes"],
    ),
    "a configuration of nothing": (
        [("spec/devices/config/0/opaque", DROP)],
        ["spec.devices.config[0].opaque: Required value"],
    ),
    "a configuration for no driver": (
        [("spec/devices/config/0/opaque", {})],
        [
            "spec.devices.config[0].opaque.driver: Required value",
            "spec.devices.config[0].opaque.parameters: Required value",
        ],
    ),
    "parameters that are a list": (
        [("spec/devices/config/0/opaque/parameters", [])],
        ['spec.devices.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object'],
    ),
    "parameters that are too long": (
        [("spec/devices/config/0/opaque/parameters", {"x": "x" * 10240})],
        ["spec.devices.config[0].opaque.parameters: Too long: may not be more than 10240 bytes"],
    ),
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
        [
            'metadata.ownerReferences[1]: Invalid value: "p": /v1, Kind=Event is disallowed from being an owner',
        ],
    ),
    "a finalizer without domain": (
        [("metadata/finalizers", ["keep"])],
        ['metadata.finalizers[0]: Invalid value: "keep": name is neither a standard finalizer name nor is it'],
    ),
    "finalizers that exclude each other": (
        [("metadata/finalizers", ["orphan", "foregroundDeletion"])],
        ['metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and '],
    ),
    "a namespace": (
        [("metadata/namespace", "A")],
        [f'metadata.namespace: Invalid value: "A": {LABEL}'],
    ),
}

SLICES: dict[str, tuple[int, list[tuple[str, Any]], list[str]]] = {
    "no pool": (
        0,
        [("spec/pool", {})],
        [
            "spec.pool.name: Required value",
            "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
        ],
    ),
    "a generation below zero": (
        0,
        [("spec/pool/generation", -1)],
        ["spec.pool.generation: Invalid value: -1: must be greater than or equal to zero"],
    ),
    "no nodes": (0, [("spec/nodeName", DROP)], [f"spec: Required value: {ONE_PLACE}"]),
    "two sorts of nodes": (
        0,
        [("spec/allNodes", True)],
        [f'spec: Invalid value: "{{`nodeName`, `allNodes`}}": {ONE_PLACE}, but multiple fields are set'],
    ),
    "an empty node name": (
        0,
        [("spec/nodeName", ""), ("spec/allNodes", True)],
        ['spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string'],
    ),
    "not all nodes": (
        0,
        [("spec/allNodes", False)],
        ["spec.allNodes: Invalid value: false: must be either unset or set to true"],
    ),
    "a selector without terms": (
        1,
        [("spec/nodeSelector", {})],
        [
            "spec.nodeSelector.nodeSelectorTerms: Required value: must have at least one node selector term",
            "spec.nodeSelector.nodeSelectorTerms: Invalid value: 0: must have exactly one node selector term",
        ],
    ),
    "requirements": (
        1,
        [
            (
                "spec/nodeSelector/nodeSelectorTerms/0/matchExpressions",
                [
                    {"key": "a", "operator": "In"},
                    {"key": "a", "operator": "Exists", "values": ["x"]},
                    {"key": "a", "operator": "Lt"},
                    {"key": "a", "operator": "Is"},
                ],
            ),
            ("spec/nodeSelector/nodeSelectorTerms/0/matchFields", [{"key": "spec.x", "operator": "Exists"}]),
        ],
        [
            "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified",
            "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[1].values: Forbidden: may not be specified",
            "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[2].values: Required value: must be specified",
            'spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[3].operator: Invalid value: "Is": not a valid',
            'spec.nodeSelector.nodeSelectorTerms[0].matchFields[0].operator: Invalid value: "Exists": not a valid',
            'spec.nodeSelector.nodeSelectorTerms[0].matchFields[0].key: Invalid value: "spec.x": not a valid field',
        ],
    ),
    "two devices of one name": (
        0,
        [("spec/devices/1/name", "gpu-0")],
        ['spec.devices[1]: Duplicate value: "gpu-0"'],
    ),
    "a device's name": (
        0,
        [("spec/devices/1/name", "GPU")],
        [f'spec.devices[1].name: Invalid value: "GPU": {LABEL}'],
    ),
    "an attribute of nothing": (
        0,
        [("spec/devices/1/attributes", {"a": {}})],
        ['spec.devices[1].attributes[a]: Invalid value: "": must specify one of: `int`, `bool`, `string`, `version`, '],
    ),
    "attributes": (
        0,
        [
            (
                "spec/devices/1/attributes",
                {"a-b": {"int": 1}, "/x": {"int": 1}, "v": {"version": "1"}, "s": {"string": "x" * 65}},
            )
        ],
        [
            'spec.devices[1].attributes: Invalid value: "a-b": a valid C identifier must',
            'spec.devices[1].attributes: Invalid value: "": the domain must not be empty',
            'spec.devices[1].attributes[v].version: Invalid value: "1": must be a string compatible with semver.org',
            "spec.devices[1].attributes[s].string: Too long: may not be more than 64 bytes",
        ],
    ),
    "too many attributes": (
        0,
        [("spec/devices/1/attributes", {f"a{n}": {"int": n} for n in range(33)})],
        [
            "spec.devices[1]: Invalid value: 33: the total number of attributes and capacities must not exceed 32",
        ],
    ),
    "too many values": (
        0,
        [("spec/devices/1/attributes", {"a": {"ints": [1] * 49}})],
        ["spec.devices[1]: Invalid value: 49: the total number of attribute values must not exceed 48"],
    ),
    "a policy that nothing can use": (
        0,
        [("spec/devices/0/allowMultipleAllocations", DROP)],
        [
            "spec.devices[0].capacity[ranged].requestPolicy: Forbidden: allowMultipleAllocations must be true",
            "spec.devices[0].capacity[listed].requestPolicy: Forbidden: allowMultipleAllocations must be true",
        ],
    ),
    "a range": (
        0,
        [
            (
                "spec/devices/0/capacity/ranged/requestPolicy",
                {"default": "1", "validRange": {"min": "2", "max": "20", "step": "3"}},
            )
        ],
        [
            "spec.devices[0].capacity[ranged].requestPolicy.validRange.default: Invalid value: ",
            "spec.devices[0].capacity[ranged].requestPolicy.validRange.max: Invalid value: ",
            "spec.devices[0].capacity[ranged].requestPolicy.validRange.step: Invalid value: ",
        ],
    ),
    "a range without default": (
        0,
        [("spec/devices/0/capacity/ranged/requestPolicy/default", DROP)],
        ["spec.devices[0].capacity[ranged].requestPolicy.default: Required value: required when validRange is defined"],
    ),
    "options": (
        0,
        [("spec/devices/0/capacity/listed/requestPolicy/validValues", ["2", "2", "12", "8"])],
        [
            "spec.devices[0].capacity[listed].requestPolicy.validValues[3]: Invalid value: ",
            'spec.devices[0].capacity[listed].requestPolicy.validValues[1]: Duplicate value: "2"',
            "spec.devices[0].capacity[listed].requestPolicy.validValues[2]: Invalid value: ",
            "spec.devices[0].capacity[listed].requestPolicy.validValues: Invalid value: ",
        ],
    ),
    "counters that are taken": (
        0,
        [("spec/devices/0/consumesCounters", [{}, {"counterSet": "A", "counters": {"B": {"value": "1"}}}])],
        [
            "spec.devices[0].consumesCounters[0].counterSet: Required value",
            "spec.devices[0].consumesCounters[0].counters: Required value",
            f'spec.devices[0].consumesCounters[1].counterSet: Invalid value: "A": {LABEL}',
            f'spec.devices[0].consumesCounters[1].counters: Invalid value: "B": {LABEL}',
        ],
    ),
    "counters that are shared": (
        3,
        [("spec/sharedCounters/1/name", "set")],
        ['spec.sharedCounters[1]: Duplicate value: "set"'],
    ),
    "nodes of a device": (
        0,
        [("spec/devices/1/nodeName", "n")],
        ["spec.devices[1]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if"],
    ),
    "no nodes of a device": (
        2,
        [("spec/devices/1/nodeName", DROP)],
        ["spec.devices[1]: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when"],
    ),
    "conditions": (
        0,
        [
            ("spec/devices/0/bindingConditions", ["a", "a"]),
            ("spec/devices/0/bindingFailureConditions", ["a"]),
        ],
        [
            'spec.devices[0].bindingConditions[1]: Duplicate value: "a"',
            'spec.devices[0].bindingFailureConditions[0]: Invalid value: "a": bindingFailureConditions must not',
        ],
    ),
    "conditions without failures": (
        0,
        [("spec/devices/0/bindingFailureConditions", DROP)],
        ["spec.devices[0].bindingFailureConditions: Invalid value: []: bindingFailureConditions are required"],
    ),
    "resources of the node": (
        0,
        [("spec/devices/0/nodeAllocatableResources", {"gpu": {}, "cpu": {"mapping": {"capacityKey": "none"}}})],
        [
            'spec.devices[0].nodeAllocatableResources[gpu]: Invalid value: "gpu": must be a node allocatable res',
            "spec.devices[0].nodeAllocatableResources[gpu]: Required value: at least one of mapping or overhead must",
            'spec.devices[0].nodeAllocatableResources[cpu].mapping.capacityKey: Not found: "none"',
            "spec.devices[0].nodeAllocatableResources[cpu].mapping.capacityMultiplier: Required value: capacityMulti",
        ],
    ),
    "the type of partitions": (
        2,
        [("spec/partitionTypeAttribute", "gpu.example.com/fast")],
        [
            'spec.devices[0].attributes[gpu.example.com/fast]: Invalid value: "": must be a string value because',
        ],
    ),
    "operations": (
        0,
        [("spec/skipNodeOperations", ["NodePrepareResources", "Sleep"])],
        [
            'spec.skipNodeOperations[1]: Unsupported value: "Sleep": supported values: "*", "NodePrepareResources"',
            'spec.skipNodeOperations: Invalid value: ["NodePrepareResources","Sleep"]: NodePrepareResources cann',
        ],
    ),
    "a namespace": (0, [("metadata/namespace", "x")], ["metadata.namespace: Forbidden: not allowed on this type"]),
}


def assert_told(found: list[str], expected: list[str]) -> None:
    """Each error begins as expected, in order; long ones are cut in the table."""
    assert [message[: len(wanted)] for message, wanted in zip(found, expected, strict=False)] == expected, found
    assert len(found) == len(expected), found


@pytest.mark.parametrize(("edits", "expected"), CLAIMS.values(), ids=CLAIMS)
def test_a_claim_is_refused_in_the_words_of_the_server(edits: list[tuple[str, Any]], expected: list[str]) -> None:
    assert_told(told(edited(whole(CLAIM), *edits)), expected)


@pytest.mark.parametrize(("form", "edits", "expected"), SLICES.values(), ids=SLICES)
def test_a_slice_is_refused_in_the_words_of_the_server(
    form: int, edits: list[tuple[str, Any]], expected: list[str]
) -> None:
    assert_told(told(edited(whole(SLICE, form=form), *edits)), expected)


def test_a_template_is_judged_a_level_deeper() -> None:
    template = edited(whole(TEMPLATE), ("spec/spec/devices/requests/2/name", "all"), ("spec/metadata/name", "x"))
    assert told(template) == [
        "spec.metadata.name: Forbidden: cannot be set",
        'spec.spec.devices.requests[2]: Duplicate value: "all"',
    ]


def test_a_flat_request_is_told_where_the_server_tells_it() -> None:
    claim = edited(
        whole(CLAIM, "v1beta1"), ("spec/devices/requests/0/count", -1), ("spec/devices/requests/0/allocationMode", "x")
    )
    assert told(claim)[0].startswith("spec.devices.requests[0].allocationMode: Unsupported value")
    claim = edited(whole(CLAIM, "v1beta1"), ("spec/devices/requests/0/count", -1))
    assert told(claim) == ["spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero"]


def test_in_v1beta1_false_and_empty_are_the_same_as_missing() -> None:
    assert told(edited(whole(SLICE, "v1beta1"), ("spec/allNodes", False))) == []
    assert told(edited(whole(SLICE, "v1beta1", 3), ("spec/nodeName", ""))) == []


def test_an_owner_that_is_listed_twice_is_judged_once() -> None:
    claim = whole(CLAIM)
    claim["metadata"]["ownerReferences"] *= 2
    assert told(claim) == []


def test_of_a_list_that_is_too_long_no_entry_is_judged() -> None:
    devices = [{"name": "A", "nodeName": "x"}] * 129
    assert told(edited(whole(SLICE), ("spec/devices", devices))) == []  # that it is too long, /validate says


def test_an_update_is_not_told_what_was_wrong_before() -> None:
    old = edited(whole(SLICE), ("spec/devices/1/name", "GPU"))
    new = edited(whole(SLICE), ("spec/devices/1/name", "GPU"), ("spec/pool/generation", -1))
    assert told(new, old) == ["spec.pool.generation: Invalid value: -1: must be greater than or equal to zero"]


def test_the_spec_of_a_claim_is_not_judged_again() -> None:
    broken = make_claim(requests=[make_request(count=-1)])
    assert told(broken, make_claim()) == []
    assert told(broken) != []


def test_a_wrong_type_ends_the_walk() -> None:
    claim = make_claim(requests=[make_request(count="2"), {}])
    assert told(claim) == ['spec.devices.requests[0].exactly.count: Invalid value: "2": must be a 64-bit integer']


def test_before_1_37_a_domain_may_be_in_upper_case() -> None:
    claim = edited(whole(CLAIM), ("spec/devices/constraints/1/distinctAttribute", "Example.com/model"))
    assert len(told(claim)) == 1
    assert told(claim, minor=36) == []


def test_a_rule_and_a_patch_of_ours_are_judged_by_their_metadata_at_most() -> None:
    assert told(make_rule(meta=make_meta("x", labels={"a b": ""}))) != []
    assert list(object_errors(make_patch(), None, GroupVersionKind("devicetaint.io", "v1alpha1", "X"), NEWEST)) == []


@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_what_is_no_object_is_an_error_and_no_fault(value: Any) -> None:
    kind = GroupVersionKind.parse(make_slice()["apiVersion"], SLICE)
    assert list(object_errors(value, None, kind, NEWEST)) != []
