"""Lists and texts of whole objects at the exact sizes that an API server takes (A1): one more is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.tables import table
from tests.unit.validation.whole_objects import CLAIM, DROP, SLICE, Edits, assert_reported, edited, reported, whole

REQUEST = "spec/devices/requests/0/exactly"
DEVICE = "spec/devices/1"
AT = "spec.devices[1]"


def alternatives(count: int) -> Edits:
    each = [{"name": f"a{number}", "deviceClassName": "a"} for number in range(count)]
    return [("spec/devices/requests/2", {"name": "x", "firstAvailable": each})]


def requests(count: int) -> Edits:
    each = [{"name": f"r{number}", "exactly": {"deviceClassName": "a"}} for number in range(count)]
    return [("spec/devices/requests", each), ("spec/devices/constraints", DROP), ("spec/devices/config", DROP)]


def selectors(count: int) -> Edits:
    return [(f"{REQUEST}/selectors", [{"cel": {"expression": "true"}}] * count)]


def parameters(size: int) -> Edits:
    """Of that many bytes."""
    text = {"x": "x" * (size - len('{"x":""}'))}
    return [("spec/devices/config/0/opaque/parameters", text)]


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


Maker = Callable[[int], Edits]
MANY: dict[str, tuple[str, int, Maker, int, str]] = {
    "requests": (CLAIM, 0, requests, 32, "spec.devices.requests"),
    "alternatives": (CLAIM, 0, alternatives, 8, "spec.devices.requests[2].firstAvailable"),
    "constraints": (
        *(CLAIM, 0, lambda count: [("spec/devices/constraints", [{"matchAttribute": "example.com/model"}] * count)]),
        *(32, "spec.devices.constraints"),
    ),
    "configurations": (
        *(CLAIM, 0, lambda count: [("spec/devices/config", [{"opaque": {"driver": "a", "parameters": {}}}] * count)]),
        *(32, "spec.devices.config"),
    ),
    "selectors": (CLAIM, 0, selectors, 32, "spec.devices.requests[0].exactly.selectors"),
    "conditions": (SLICE, 0, partial(conditions, "bindingConditions"), 4, f"{AT}.bindingConditions"),
    "conditions of failure": (
        *(SLICE, 0, partial(conditions, "bindingFailureConditions"), 4, f"{AT}.bindingFailureConditions"),
    ),
    "groups": (SLICE, 0, groups, 2, "spec.devices[0].consumesCounters[0].compatibilityGroups"),
    "consumptions": (SLICE, 0, consumptions, 2, "spec.devices[0].consumesCounters"),
    "counters": (SLICE, 3, counters, 32, "spec.sharedCounters[1].counters"),
}


@pytest.mark.parametrize(("kind", "form", "make", "most", "at"), MANY.values(), ids=MANY)
def test_longest_list_is_taken_and_a_longer_one_refused(kind: str, form: int, make: Maker, most: int, at: str) -> None:
    assert reported(edited(whole(kind, form=form), *make(most))) == []
    error = f"{at}: Too many: {most + 1}: must have at most {most} items"
    assert_reported(reported(edited(whole(kind, form=form), *make(most + 1))), [error])


LONG: dict[str, tuple[str, Maker, int, str]] = {
    "parameters": (CLAIM, parameters, 10240, "spec.devices.config[0].opaque.parameters"),
    "an expression": (
        CLAIM,
        lambda size: [(f"{REQUEST}/selectors/0/cel/expression", "true".ljust(size))],
        10240,
        "spec.devices.requests[0].exactly.selectors[0].cel.expression",
    ),
    "a text": (
        SLICE,
        lambda size: [(f"{DEVICE}/attributes", {"a": {"string": "x" * size}})],
        64,
        f"{AT}.attributes[a].string",
    ),
    "a version": (
        SLICE,
        lambda size: [(f"{DEVICE}/attributes", {"a": {"version": "1.2.3-".ljust(size, "x")}})],
        64,
        f"{AT}.attributes[a].version",
    ),
}


@pytest.mark.parametrize(("kind", "make", "most", "at"), LONG.values(), ids=LONG)
def test_longest_text_is_taken_and_a_longer_one_refused(kind: str, make: Maker, most: int, at: str) -> None:
    assert reported(edited(whole(kind), *make(most))) == []
    error = f"{at}: Too long: may not be more than {most} bytes"
    assert_reported(reported(edited(whole(kind), *make(most + 1))), [error])


TOGETHER = f"{AT}: Invalid value: 33: the total number of attributes and capacities must not exceed 32"
VALUES = f"{AT}: Invalid value: 49: the total number of attribute values must not exceed 48"
ALONE = (f"{DEVICE}/attributes/alone", {"int": 1})
RESOURCES = "spec/devices/0/nodeAllocatableResources"


@table(
    "kind, path, fine, beyond, error",
    {
        "parameters in bytes": (
            *(CLAIM, "spec/devices/config/0/opaque/parameters", {"x": "é" * 5116}, {"x": "é" * 5117}),
            "spec.devices.config[0].opaque.parameters: Too long: may not be more than 10240 bytes",
        ),
        "a count": (
            *(CLAIM, f"{REQUEST}/count", 1, -1),
            "spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero",
        ),
        "generation": (
            *(SLICE, "spec/pool/generation", 0, -1),
            "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
        ),
        "slices of a pool": (
            *(SLICE, "spec/pool/resourceSliceCount", 1, 0),
            "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
        ),
        "overhead": (
            *(SLICE, RESOURCES, {"cpu": {"overhead": {"perPod": "0"}}}, {"cpu": {"overhead": {"perPod": "-1"}}}),
            'spec.devices[0].nodeAllocatableResources[cpu].overhead.perPod: Invalid value: "-1": must be non-negative',
        ),
    },
)
def test_value_at_its_limit_is_taken_and_one_beyond_refused(
    kind: str, path: str, fine: Any, beyond: Any, error: str
) -> None:
    assert reported(edited(whole(kind), (path, fine))) == []
    assert_reported(reported(edited(whole(kind), (path, beyond))), [error])


@table(
    "fine, beyond, error",
    {
        "attributes": (attributes(32), attributes(33), TOGETHER),
        "attributes and capacities": (attributes(20, 12), attributes(20, 13), TOGETHER),
        "values": (values(40, 8), values(40, 9), VALUES),
        "values, of which one is in no list": ([*values(47), ALONE], [*values(48), ALONE], VALUES),
    },
)
def test_settings_of_a_device_at_their_limit_are_taken_and_one_more_refused(
    fine: Edits, beyond: Edits, error: str
) -> None:
    assert reported(edited(whole(SLICE), *fine)) == []
    assert_reported(reported(edited(whole(SLICE), *beyond)), [error])


def ranged(capacity: str, most: str) -> list[str]:
    """What is said of a range from zero to the number in steps of one."""
    policy = {"validRange": {"min": "0", "max": most, "step": "1"}, "default": "0"}
    edit = ("spec/devices/0/capacity/listed", {"value": capacity, "requestPolicy": policy})
    return reported(edited(whole(SLICE), edit))


def test_numbers_that_are_counted_in_steps_fit_into_64_bits() -> None:
    at = "spec.devices[0].capacity[listed].requestPolicy.validRange.max"
    assert ranged("10E", str(2**63 - 1)) == []
    assert ranged("10E", str(2**63)) == [f'{at}: Invalid value: "{2**63}": must not be larger than 9223372036854775807']


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
