"""Lists and texts of whole objects at the exact sizes that an API server takes (A1): one more is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.validation.whole_objects import CLAIM, DROP, SLICE, Edits, assert_reported, edited, reported, whole

REQUEST = "spec/devices/requests/0/exactly"
DEVICE = "spec/devices/1"


def alternatives(count: int) -> Edits:
    each = [{"name": f"a{number}", "deviceClassName": "a"} for number in range(count)]
    return [("spec/devices/requests/2", {"name": "x", "firstAvailable": each})]


def requests(count: int) -> Edits:
    each = [{"name": f"r{number}", "exactly": {"deviceClassName": "a"}} for number in range(count)]
    return [("spec/devices/requests", each), ("spec/devices/constraints", DROP), ("spec/devices/config", DROP)]


def derived(count: int) -> Edits:
    names = [f"example.com/n{number}" for number in range(count)]
    return [
        (f"{REQUEST}/derivedAttributes", [{"name": name, "expression": '"a"'} for name in names]),
        ("spec/devices/constraints", [{"matchAttribute": name} for name in ["example.com/model", *names]][:32]),
    ]


def selectors(count: int) -> Edits:
    return [(f"{REQUEST}/selectors", [{"cel": {"expression": "true"}}] * count)]


def parameters(size: int) -> Edits:
    """Of that many bytes."""
    text = {"x": "x" * (size - len('{"x":""}'))}
    return [("spec/devices/config/0/opaque/parameters", text)]


CLAIMS: dict[str, tuple[Edits, Edits, str]] = {
    "requests": (requests(32), requests(33), "spec.devices.requests: Too many: 33: must have at most 32 items"),
    "alternatives": (
        alternatives(8),
        alternatives(9),
        "spec.devices.requests[2].firstAvailable: Too many: 9: must have at most 8 items",
    ),
    "constraints": (
        [("spec/devices/constraints", [{"matchAttribute": "example.com/model"}] * 32)],
        [("spec/devices/constraints", [{"matchAttribute": "example.com/model"}] * 33)],
        "spec.devices.constraints: Too many: 33: must have at most 32 items",
    ),
    "configurations": (
        [("spec/devices/config", [{"opaque": {"driver": "a", "parameters": {}}}] * 32)],
        [("spec/devices/config", [{"opaque": {"driver": "a", "parameters": {}}}] * 33)],
        "spec.devices.config: Too many: 33: must have at most 32 items",
    ),
    "selectors": (
        selectors(32),
        selectors(33),
        "spec.devices.requests[0].exactly.selectors: Too many: 33: must have at most 32 items",
    ),
    "parameters": (
        parameters(10240),
        parameters(10241),
        "spec.devices.config[0].opaque.parameters: Too long: may not be more than 10240 bytes",
    ),
    "parameters in bytes": (
        [("spec/devices/config/0/opaque/parameters", {"x": "é" * 5116})],
        [("spec/devices/config/0/opaque/parameters", {"x": "é" * 5117})],
        "spec.devices.config[0].opaque.parameters: Too long: may not be more than 10240 bytes",
    ),
    "an expression": (
        [(f"{REQUEST}/selectors/0/cel/expression", "true".ljust(10240))],
        [(f"{REQUEST}/selectors/0/cel/expression", "true".ljust(10241))],
        "spec.devices.requests[0].exactly.selectors[0].cel.expression: Too long: may not be more than 10240 bytes",
    ),
    "a count": (
        [(f"{REQUEST}/count", 1)],
        [(f"{REQUEST}/count", -1)],
        "spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero",
    ),
}


@pytest.mark.parametrize(("fine", "beyond", "error"), CLAIMS.values(), ids=CLAIMS)
def test_claim_of_the_largest_size_is_taken_and_a_larger_one_refused(fine: Edits, beyond: Edits, error: str) -> None:
    assert reported(edited(whole(CLAIM), *fine)) == []
    assert_reported(reported(edited(whole(CLAIM), *beyond)), [error])


def test_request_derives_at_most_32_attributes() -> None:
    at = "spec.devices.requests[0].exactly.derivedAttributes: Too many: 33: must have at most 32 items"
    assert at not in reported(edited(whole(CLAIM), *derived(32)))
    assert at in reported(edited(whole(CLAIM), *derived(33)))


@pytest.mark.parametrize("count", [1, 32, 33])
def test_names_of_derived_attributes_are_asked_for_unless_there_are_too_many(count: int) -> None:
    """What is checked before the conversion stops at the length."""
    at, empty = "spec.devices.requests[0].exactly.derivedAttributes", {"name": "", "expression": ""}
    found = reported(edited(whole(CLAIM), (f"{REQUEST}/derivedAttributes", [empty] * count)))
    required = [error for error in found if error.startswith(f"{at}[{count - 1}]") and "Required" in error]
    assert len(required) == (2 if count < 33 else 0)
    assert (f"{at}: Too many: 33: must have at most 32 items" in found) == (count == 33)


def test_selectors_are_parsed_up_to_16_kib_together() -> None:
    """A parser takes half a second for as much."""

    def with_broken_end(first: int) -> list[str]:
        texts = ["true".ljust(first), "true true".ljust(8192)]
        return reported(
            edited(whole(CLAIM), (f"{REQUEST}/selectors", [{"cel": {"expression": text}} for text in texts]))
        )

    at = "spec.devices.requests[0].exactly.selectors[1].cel.expression: Invalid value: "
    assert_reported(with_broken_end(8192), [at])
    assert with_broken_end(8193) == []


def attributes(count: int, capacities: int = 0) -> Edits:
    return [
        (f"{DEVICE}/attributes", {f"a{number}": {"int": 1} for number in range(count)}),
        (f"{DEVICE}/capacity", {f"c{number}": {"value": "1"} for number in range(capacities)}),
    ]


def values(*counts: int) -> Edits:
    return [(f"{DEVICE}/attributes", {f"a{at}": {"ints": list(range(count))} for at, count in enumerate(counts)})]


def conditions(field: str, count: int) -> Edits:
    texts = [f"example.com/c{number}" for number in range(count)]
    given = {
        "bindingConditions": ["example.com/other"],
        "bindingFailureConditions": ["example.com/failed"],
        field: texts,
    }
    return [(f"{DEVICE}/{name}", each) for name, each in given.items()]


def counters(count: int) -> Edits:
    return [("spec/sharedCounters/1/counters", {f"c{number}": {"value": "1"} for number in range(count)})]


def groups(count: int) -> Edits:
    return [("spec/devices/0/consumesCounters/0/compatibilityGroups", [f"g{number}" for number in range(count)])]


def consumptions(count: int) -> Edits:
    each = [{"counterSet": f"set{number}", "counters": {"c": {"value": "1"}}} for number in range(count)]
    return [("spec/devices/0/consumesCounters", each)]


def text(field: str, value: str) -> Edits:
    return [(f"{DEVICE}/attributes", {"a": {field: value}})]


ATTRIBUTES_AND_CAPACITIES = "the total number of attributes and capacities must not exceed 32"
VALUES = "the total number of attribute values must not exceed 48"
SLICES: dict[str, tuple[int, Edits, Edits, str]] = {
    "attributes": (
        0,
        attributes(32),
        attributes(33),
        f"spec.devices[1]: Invalid value: 33: {ATTRIBUTES_AND_CAPACITIES}",
    ),
    "attributes and capacities": (
        0,
        attributes(20, 12),
        attributes(20, 13),
        f"spec.devices[1]: Invalid value: 33: {ATTRIBUTES_AND_CAPACITIES}",
    ),
    "values": (0, values(40, 8), values(40, 9), f"spec.devices[1]: Invalid value: 49: {VALUES}"),
    "values, of which one is in no list": (
        0,
        [*values(47), (f"{DEVICE}/attributes/alone", {"int": 1})],
        [*values(48), (f"{DEVICE}/attributes/alone", {"int": 1})],
        f"spec.devices[1]: Invalid value: 49: {VALUES}",
    ),
    "a text": (
        0,
        text("string", "x" * 64),
        text("string", "x" * 65),
        "spec.devices[1].attributes[a].string: Too long: may not be more than 64 bytes",
    ),
    "a version": (
        0,
        text("version", "1.2.3-" + "x" * 58),
        text("version", "1.2.3-" + "x" * 59),
        "spec.devices[1].attributes[a].version: Too long: may not be more than 64 bytes",
    ),
    "conditions": (
        0,
        conditions("bindingConditions", 4),
        conditions("bindingConditions", 5),
        "spec.devices[1].bindingConditions: Too many: 5: must have at most 4 items",
    ),
    "conditions of failure": (
        0,
        conditions("bindingFailureConditions", 4),
        conditions("bindingFailureConditions", 5),
        "spec.devices[1].bindingFailureConditions: Too many: 5: must have at most 4 items",
    ),
    "groups": (
        0,
        groups(2),
        groups(3),
        "spec.devices[0].consumesCounters[0].compatibilityGroups: Too many: 3: must have at most 2 items",
    ),
    "consumptions": (
        0,
        consumptions(2),
        consumptions(3),
        "spec.devices[0].consumesCounters: Too many: 3: must have at most 2 items",
    ),
    "counters": (
        3,
        counters(32),
        counters(33),
        "spec.sharedCounters[1].counters: Too many: 33: must have at most 32 items",
    ),
    "generation": (
        0,
        [("spec/pool/generation", 0)],
        [("spec/pool/generation", -1)],
        "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
    ),
    "slices of a pool": (
        0,
        [("spec/pool/resourceSliceCount", 1)],
        [("spec/pool/resourceSliceCount", 0)],
        "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
    ),
    "overhead": (
        0,
        [("spec/devices/0/nodeAllocatableResources", {"cpu": {"overhead": {"perPod": "0"}}})],
        [("spec/devices/0/nodeAllocatableResources", {"cpu": {"overhead": {"perPod": "-1"}}})],
        'spec.devices[0].nodeAllocatableResources[cpu].overhead.perPod: Invalid value: "-1": must be non-negative',
    ),
}


@pytest.mark.parametrize(("form", "fine", "beyond", "error"), SLICES.values(), ids=SLICES)
def test_slice_of_the_largest_size_is_taken_and_a_larger_one_refused(
    form: int, fine: Edits, beyond: Edits, error: str
) -> None:
    assert reported(edited(whole(SLICE, form=form), *fine)) == []
    assert_reported(reported(edited(whole(SLICE, form=form), *beyond)), [error])


def ranged(capacity: str, most: str) -> list[str]:
    """What is said of a range from zero to the number in steps of one."""
    policy = {"validRange": {"min": "0", "max": most, "step": "1"}, "default": "0"}
    edit = ("spec/devices/0/capacity/listed", {"value": capacity, "requestPolicy": policy})
    return reported(edited(whole(SLICE), edit))


def test_numbers_that_are_counted_in_steps_fit_into_64_bits() -> None:
    at = "spec.devices[0].capacity[listed].requestPolicy.validRange.max"
    assert ranged("10E", str(2**63 - 1)) == []
    assert ranged("10E", str(2**63)) == [
        f'{at}: Invalid value: "{2**63}": must not be larger than 9223372036854775807',
    ]


def test_devices_are_judged_up_to_128_and_with_taints_up_to_64() -> None:
    def devices(count: int, taint: Any = None) -> list[str]:
        first = {"name": "A", **({"taints": [taint]} if taint else {})}
        others = [{"name": f"gpu-{number}"} for number in range(1, count)]
        return reported(edited(whole(SLICE), ("spec/devices", [first, *others])))

    at = 'spec.devices[0].name: Invalid value: "A": '
    assert_reported(devices(128), [at])
    assert devices(129) == []
    taint = {"key": "example.com/a", "effect": "NoSchedule"}
    assert_reported(devices(64, taint), [at])
    assert devices(65, taint) == []


def test_conditions_are_judged_unless_there_are_too_many() -> None:
    def binding(*wanted: str) -> list[str]:
        edits = [(f"{DEVICE}/bindingConditions", list(wanted)), (f"{DEVICE}/bindingFailureConditions", ["f"])]
        return reported(edited(whole(SLICE), *edits))

    at = "spec.devices[1].bindingConditions"
    assert_reported(binding("a", "b c"), [f'{at}[1]: Invalid value: "b c": '])
    assert_reported(binding("a", "b", "c", "d e"), [f'{at}[3]: Invalid value: "d e": '])
    assert_reported(binding("a", "b", "c", "d", "e f"), [f"{at}: Too many: 5: must have at most 4 items"])


def test_requests_of_a_constraint_are_judged_beside_their_number_until_1_34() -> None:
    """validateSet returns after the number from 1.35 on."""
    at = "spec.devices.constraints[0].requests"
    too_many = f"{at}: Too many: 33: must have at most 32 items"
    for minor, more in ((34, [f'{at}[1]: Invalid value: "a/b/c": ', f"{at}[2]: Duplicate value: "]), (35, [])):
        claim = edited(whole(CLAIM), ("spec/devices/constraints/0/requests", ["all", "a/b/c", *["all"] * 31]))
        found = [error for error in reported(claim, minor=minor) if error.startswith(at)]
        assert_reported(found[: 1 + len(more)] if more else found, [too_many, *more])
