"""What an API server refuses in claims and templates (A1), in its own words and at its own paths.

That the rules are those of a server is proved in tests/apiserver/test_generated_whole.py; here each is turned on once.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import make_claim, make_request
from tests.tables import table
from tests.unit.validation.whole_objects import (
    CLAIM,
    DROP,
    LABEL,
    TEMPLATE,
    Edits,
    assert_reported,
    edited,
    reported,
    whole,
)

REFERENCE = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"

REQUESTS = "spec/devices/requests"
EXACTLY = f"{REQUESTS}/0/exactly"
CLAIMS: dict[str, tuple[Edits, list[str]]] = {
    "no name": ([(f"{REQUESTS}/2/name", DROP)], [f'spec.devices.requests[2].name: Invalid value: "": {LABEL}']),
    "two of one name": ([(f"{REQUESTS}/2/name", "all")], ['spec.devices.requests[2]: Duplicate value: "all"']),
    "no shape": (
        [(f"{REQUESTS}/2/exactly", DROP)],
        ["spec.devices.requests[2]: Required value: exactly one of `exactly` or `firstAvailable` is required"],
    ),
    "both shapes": (
        [(f"{REQUESTS}/2/firstAvailable", [{"name": "a", "deviceClassName": "a"}])],
        ["spec.devices.requests[2]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is requ"],
    ),
    "no class": ([(f"{REQUESTS}/2/exactly", {})], ["spec.devices.requests[2].exactly.deviceClassName: Required value"]),
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
    "too many selectors": (
        [(f"{EXACTLY}/selectors", [{}] * 33)],
        ["spec.devices.requests[0].exactly.selectors: Too many: 33: must have at most 32 items"],
    ),
    "a constraint on a request that is not there": (
        [("spec/devices/constraints/0/requests", ["all", "gpu/medium", "a/b/c", "gpu/large/x"])],
        [
            f'spec.devices.constraints[0].requests[1]: Invalid value: "gpu/medium": {REFERENCE}',
            f'spec.devices.constraints[0].requests[2]: Invalid value: "a/b/c": {REFERENCE}',
            f'spec.devices.constraints[0].requests[3]: Invalid value: "gpu/large/x": {REFERENCE}',
        ],
    ),
    "a constraint that names a request twice": (
        [("spec/devices/constraints/0/requests", ["all", "all"])],
        ['spec.devices.constraints[0].requests[1]: Duplicate value: "all"'],
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
}


@pytest.mark.parametrize(("edits", "expected"), CLAIMS.values(), ids=CLAIMS)
def test_a_claim_is_refused_in_the_words_of_the_server(edits: Edits, expected: list[str]) -> None:
    assert_reported(reported(edited(whole(CLAIM), *edits)), expected)


def test_a_template_is_judged_a_level_deeper() -> None:
    template = edited(whole(TEMPLATE), ("spec/spec/devices/requests/2/name", "all"), ("spec/metadata/name", "x"))
    assert reported(template) == [
        "spec.metadata.name: Forbidden: cannot be set",
        'spec.spec.devices.requests[2]: Duplicate value: "all"',
    ]


def test_metadata_of_a_template_may_be_written_out_empty() -> None:
    meta = {"labels": {"a": "b"}, "name": "", "namespace": None, "generation": 0}
    assert reported(edited(whole(TEMPLATE), ("spec/metadata", meta))) == []
    assert reported(edited(whole(TEMPLATE), ("spec/metadata", {**meta, "generation": 1}))) == [
        "spec.metadata.generation: Forbidden: cannot be set"
    ]


NO_CLASS = "exactly.deviceClassName: Required value"


@table(
    "minor, fields, errors",
    {
        "a count": (37, {"count": -1}, ["exactly.count: Invalid value: -1: must be greater than zero"]),
        "a class": (37, {"deviceClassName": "A"}, ['exactly.deviceClassName: Invalid value: "A"']),
        "a mode": (37, {"allocationMode": "Some"}, ['allocationMode: Unsupported value: "Some"']),
        "a mode beside a count": (37, {"count": -1, "allocationMode": "x"}, ["allocationMode: Unsupported value"]),
        "a mode, before 1.37": (36, {"allocationMode": "Some"}, ['exactly.allocationMode: Unsupported value: "Some"']),
        **{
            f"no class and no mode, which servers complete only of what has a class, {minor}": (
                minor,
                {"name": "all", "count": 1},
                [NO_CLASS, 'exactly.allocationMode: Unsupported value: "": supported values: "All", "ExactCount"'],
            )
            for minor in (36, 37)
        },
        "no class and no count": (
            *(37, {"name": "all", "allocationMode": "ExactCount"}),
            [NO_CLASS, "exactly.count: Invalid value: 0: must be greater than zero"],
        ),
    },
)
def test_a_flat_request_is_reported_where_the_server_reports_it(
    minor: int, fields: dict[str, Any], errors: list[str]
) -> None:
    claim = whole(CLAIM, "v1beta1")
    request = claim["spec"]["devices"]["requests"][0]
    claim["spec"]["devices"]["requests"][0] = fields if "name" in fields else request | fields
    found = reported(claim, minor=minor)
    assert_reported(found, [f"spec.devices.requests[0].{error}" for error in errors])


def test_the_spec_of_a_claim_is_not_judged_again() -> None:
    broken = make_claim(requests=[make_request(count=-1)])
    assert reported(broken, make_claim()) == []
    assert reported(broken) != []


def test_before_1_37_a_domain_may_be_in_upper_case() -> None:
    claim = edited(whole(CLAIM), ("spec/devices/constraints/1/distinctAttribute", "Example.com/model"))
    assert len(reported(claim)) == 1
    assert reported(claim, minor=36) == []


def test_before_1_35_a_duplicate_is_reported_at_its_name() -> None:
    claim = edited(whole(CLAIM), ("spec/devices/requests/2/name", "all"))
    assert reported(claim, minor=34) == ['spec.devices.requests[2].name: Duplicate value: "all"']


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_derived_attributes_of_one_name_are_reported_after_the_conversion(version: str) -> None:
    claim = whole(CLAIM, version)
    request = claim["spec"]["devices"]["requests"][0]
    exactly = request.get("exactly", request)
    exactly["derivedAttributes"] *= 2
    at = "spec.devices.requests[0].exactly.derivedAttributes[1]"
    assert reported(claim) == [f'{at}: Duplicate value: "{exactly["derivedAttributes"][0]["name"]}"']


def test_before_1_35_the_entries_of_a_long_list_are_judged_as_well() -> None:
    claim = edited(whole(CLAIM), ("spec/devices/constraints", [{}] * 33))
    assert sum(error.startswith("spec.devices.constraints") for error in reported(claim, minor=34)) == 34
    assert sum(error.startswith("spec.devices.constraints") for error in reported(claim)) == 1


def test_parameters_may_hold_what_json_can_spell() -> None:
    odd = {"surrogate": "\ud800", "large": 2**70, "none": None}
    assert reported(edited(whole(CLAIM), ("spec/devices/config/0/opaque/parameters", odd))) == []


@pytest.mark.parametrize(("minor", "at"), [(37, ""), (36, ""), (35, ".matchAttribute"), (33, ".matchAttribute")])
def test_constraint_on_nothing_is_reported_as_a_whole_from_1_36_on(minor: int, at: str) -> None:
    claim = edited(whole(CLAIM), ("spec/devices/constraints/0/matchAttribute", DROP))
    (error,) = [each for each in reported(claim, minor=minor) if each.startswith("spec.devices.constraints")]
    assert error.startswith(f"spec.devices.constraints[0]{at}: Required value")


def test_selector_without_an_expression_does_not_hide_a_wrong_one_after_it() -> None:
    selectors = [{}, {"cel": {"expression": "true true"}}]
    found = reported(edited(whole(CLAIM), ("spec/devices/requests/0/exactly/selectors", selectors)))
    at = "spec.devices.requests[0].exactly.selectors"
    assert [error.partition(": ")[0] for error in found] == [f"{at}[0].cel", f"{at}[1].cel.expression"]


@pytest.mark.parametrize(("minor", "judged"), [(37, ["matchAttribute", "distinctAttribute"]), (36, ["matchAttribute"])])
def test_second_attribute_of_a_constraint_is_judged_from_1_37_on(minor: int, judged: list[str]) -> None:
    at = "spec/devices/constraints/0"
    claim = edited(whole(CLAIM), (f"{at}/matchAttribute", "model"), (f"{at}/distinctAttribute", "model"))
    no_domain = 'Invalid value: "model": a fully qualified name must be a domain and a name'
    assert_reported(
        reported(claim, minor=minor), [f"spec.devices.constraints[0].{name}: {no_domain}" for name in judged]
    )


@table(
    "requests, unused",
    {
        "all requests": (None, []),
        "an exact request": (["all"], ["requests[1].firstAvailable[0]"]),
        "a request with its alternatives": (["gpu"], ["requests[0].exactly"]),
        "an alternative": (["gpu/large"], ["requests[0].exactly"]),
        "another alternative": (["gpu/small"], ["requests[0].exactly", "requests[1].firstAvailable[0]"]),
    },
)
def test_derived_attribute_is_for_a_constraint_on_its_request(requests: list[str] | None, unused: list[str]) -> None:
    constraint = {"requests": requests, "matchAttribute": "example.com/model"}
    error = 'Invalid value: "example.com/model": must be referenced by at least one matchAttribute or distinctAttribute'
    assert_reported(
        reported(edited(whole(CLAIM), ("spec/devices/constraints", [constraint]))),
        [f"spec.devices.{at}.derivedAttributes[0].name: {error}" for at in unused],
    )


def test_derived_attributes_of_a_flat_request_are_reported_where_they_are_written() -> None:
    """Save for what is checked after the conversion."""

    def deriving(*entries: dict[str, str]) -> list[str]:
        claim = edited(whole(CLAIM, "v1beta1"), ("spec/devices/requests/0/derivedAttributes", list(entries)))
        return reported(claim)

    written, normalized = (f"spec.devices.requests[0].{level}derivedAttributes" for level in ("", "exactly."))
    assert_reported(
        deriving({}, {"name": "model", "expression": "1"}),
        [
            f"{written}[0].name: Required value",
            f"{written}[0].expression: Required value",
            f'{normalized}[1].name: Invalid value: "model": must be referenced by at least one',
            f'{written}[1].name: Invalid value: "model": a fully qualified name must be',
        ],
    )
    assert f"{written}: Too many: 33: must have at most 32 items" in deriving(*[{}] * 33)
