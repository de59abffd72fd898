from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import (
    field_errors,
    make_alternatives,
    make_claim,
    make_flat_request,
    make_request,
    make_result,
    make_status,
    make_template,
    make_toleration,
)
from tests.tables import table
from webhook.api.claims import DeviceRequest, ExactRequest
from webhook.api.taints import DeviceToleration
from webhook.validation.claims import SPEC, TEMPLATE_SPEC, everything_asked, semantic, toleration_lists
from webhook.validation.formats import label_key

if TYPE_CHECKING:
    from webhook.api.field import Path

BROKEN = make_toleration(operator="Gt")
GT = 'Unsupported value: "Gt": supported values: "Equal", "Exists"'
IMMUTABLE = 'Invalid value: "": field is immutable'


@table(
    "requests, fields",
    {
        "flat, as v1beta1 writes it (L-10)": ([make_flat_request(tolerations=[BROKEN])], ["[0].tolerations[0]"]),
        "both shapes at once": (
            [make_request(tolerations=[BROKEN]) | make_alternatives([BROKEN])],
            ["[0].exactly.tolerations[0]", "[0].firstAvailable[0].tolerations[0]"],
        ),
    },
)
def test_tolerations_of_all_shapes_are_judged(requests: Any, fields: list[str]) -> None:
    version = "v1beta1" if requests[0].get("tolerations") else "v1"
    assert field_errors(make_claim(requests=requests, version=version)) == [
        f"spec.devices.requests{field}.operator: {GT}" for field in fields
    ]
    assert field_errors(make_template(requests=requests, version=version)) == [
        f"spec.spec.devices.requests{field}.operator: {GT}" for field in fields
    ]


def test_claim_and_template_need_a_name() -> None:
    expected = ["metadata.name: Required value: name or generateName is required"]
    assert field_errors(make_claim(meta={})) == expected
    assert field_errors(make_template(meta={})) == expected
    assert field_errors(make_claim(meta={"generateName": "train-"})) == []


STORED = make_claim([make_toleration()])


def test_old_releases_judge_the_new_spec_as_well() -> None:
    at = "spec.devices.requests[0].exactly.tolerations[0].operator"
    assert field_errors(make_claim([BROKEN]), STORED, minor=34) == [f"spec: {IMMUTABLE}", f"{at}: {GT}"]
    assert field_errors(make_claim([BROKEN]), STORED) == [f"spec: {IMMUTABLE}"]


@table(
    "known, at",
    {
        "what was there is told at the normalized path": (True, "exactly.tolerations[0]"),
        "what is new at the path as written": (False, "tolerations[0]"),
    },
)
def test_update_of_a_template_in_v1beta1(*, known: bool, at: str) -> None:
    new = make_template([BROKEN], version="v1beta1")
    old = make_template([BROKEN if known else make_toleration()], version="v1beta1")
    (error,) = [error for error in field_errors(new, old) if "immutable" not in error]
    assert error == f"spec.spec.devices.requests[0].{at}.operator: {GT}"


@table(
    "left, right, same",
    {
        "null": ({"a": None}, {}, True),
        "an empty list": ({"a": []}, {}, True),
        "an empty object": ({"a": {}}, {}, True),
        "an empty text": ({"a": ""}, {}, True),
        "nothing, nested": ({"a": {"b": {"c": None}}}, {}, True),
        "the default operator": ({"operator": "Equal"}, {}, True),
        "the default number of devices": ({"allocationMode": "ExactCount", "count": 1}, {}, True),
        "another operator": ({"operator": "Exists"}, {}, False),
        "another number": ({"count": 2}, {}, False),
        "false behind a pointer is not missing": ({"adminAccess": False}, {}, False),
        "zero behind a pointer is not missing": ({"tolerationSeconds": 0}, {}, False),
        "equal amounts of a capacity": (
            {"capacity": {"requests": {"m": "1Gi"}}},
            {"capacity": {"requests": {"m": "1024Mi"}}},
            True,
        ),
        "an attribute that is called requests": (
            {"attributes": {"requests": {"string": "1Ki"}}},
            {"attributes": {"requests": {"string": "1024"}}},
            False,
        ),
        "another order": ({"a": [1, 2]}, {"a": [2, 1]}, False),
        "an empty entry is an entry": ({"a": [{}]}, {"a": []}, False),
    },
)
def test_specs_are_compared_as_the_server_compares_them(left: Any, right: Any, *, same: bool) -> None:
    assert (semantic(left) == semantic(right)) is same


def test_what_was_there_with_the_operator_omitted_is_not_new_with_the_operator_spelt_out() -> None:
    old, new = (
        make_template([make_toleration(key="-", operator=operator)], version="v1beta1") for operator in (None, "Equal")
    )
    at = "spec.spec.devices.requests[0].exactly.tolerations[0].key"
    assert field_errors(new, old) == [f'{at}: Invalid value: "-": {message}' for message in label_key("-")]


UNALLOCATED = make_claim()


def test_spec_is_no_matter_of_the_status() -> None:
    assert field_errors(make_claim([BROKEN]), copy.deepcopy(UNALLOCATED), status=True) == []


def test_allocation_that_is_changed_is_told_in_the_words_of_the_server() -> None:
    stored, new = (make_claim(status=make_status(make_result(each))) for each in ([make_toleration()], []))
    assert field_errors(new, stored, status=True) == [f"status.allocation: {IMMUTABLE}"]


TOLERATION = DeviceToleration("k", "Exists")
BARE, LISTED = ExactRequest(), ExactRequest(tolerations=(TOLERATION, TOLERATION))
REQUESTS = (
    DeviceRequest("both", LISTED, (BARE, LISTED)),
    DeviceRequest("nothing"),
    DeviceRequest("flat", LISTED, flat=True),
    DeviceRequest("bare", BARE),
)


@pytest.mark.parametrize(("spec", "at"), [(SPEC, "spec"), (TEMPLATE_SPEC, "spec.spec")])
def test_each_request_and_alternative_is_found_where_it_stands(spec: Path, at: str) -> None:
    found = list(everything_asked(spec, REQUESTS))
    first = f"{at}.devices.requests"
    assert [(str(each.path), each.exact, each.position, each.alternative) for each in found] == [
        (f"{first}[0].exactly", LISTED, 0, None),
        (f"{first}[0].firstAvailable[0]", BARE, 0, 0),
        (f"{first}[0].firstAvailable[1]", LISTED, 0, 1),
        (f"{first}[2].exactly", LISTED, 2, None),
        (f"{first}[3].exactly", BARE, 3, None),
    ]
    assert [each.path.written for each in found][3] == f"{first}[2]"
    assert str(found[2].tolerations) == f"{first}[0].firstAvailable[1].tolerations"
    assert str(found[2].toleration(1)) == f"{first}[0].firstAvailable[1].tolerations[1]"


@pytest.mark.parametrize(("spec", "at"), [(SPEC, "spec"), (TEMPLATE_SPEC, "spec.spec")])
def test_each_list_of_tolerations_that_is_not_empty_is_found(spec: Path, at: str) -> None:
    found = list(toleration_lists(spec, REQUESTS))
    assert [str(each) for each, _ in found] == [
        f"{at}.devices.requests[0].exactly.tolerations",
        f"{at}.devices.requests[0].firstAvailable[1].tolerations",
        f"{at}.devices.requests[2].exactly.tolerations",
    ]
    assert found[2][0].written == f"{at}.devices.requests[2].tolerations"
    assert {tolerations for _, tolerations in found} == {LISTED.tolerations}
