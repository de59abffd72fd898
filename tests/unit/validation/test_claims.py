from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import (
    field_errors,
    make_alternatives,
    make_claim,
    make_flat_request,
    make_meta,
    make_request,
    make_result,
    make_status,
    make_template,
    make_toleration,
)
from webhook.api.claims import DeviceRequest, ExactRequest
from webhook.api.taints import DeviceToleration
from webhook.validation.claims import SPEC, TEMPLATE_SPEC, everything_asked, semantic, toleration_lists
from webhook.validation.formats import label_key

if TYPE_CHECKING:
    from webhook.api.field import Path

BROKEN = make_toleration(operator="Gt")
GT = 'Unsupported value: "Gt": supported values: "Equal", "Exists"'
IMMUTABLE = 'Invalid value: "": field is immutable'


@pytest.mark.parametrize(
    ("requests", "fields"),
    [
        pytest.param([make_request(tolerations=[make_toleration()])], [], id="good ones"),
        pytest.param([make_request(tolerations=[make_toleration()] * 17)], [], id="17 of them (L-8)"),
        pytest.param([make_request(), make_request("b", [BROKEN])], ["[1].exactly.tolerations[0]"], id="exactly (L-9)"),
        pytest.param(
            [make_alternatives([make_toleration()], [make_toleration(), BROKEN])],
            ["[0].firstAvailable[1].tolerations[1]"],
            id="an alternative (L-10)",
        ),
        pytest.param(
            [make_flat_request(tolerations=[BROKEN])], ["[0].tolerations[0]"], id="flat, as v1beta1 writes it (L-10)"
        ),
        pytest.param(
            [make_request(tolerations=[BROKEN]) | make_alternatives([BROKEN])],
            ["[0].exactly.tolerations[0]", "[0].firstAvailable[0].tolerations[0]"],
            id="both shapes at once",
        ),
    ],
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


@pytest.mark.parametrize(
    ("new", "errors"),
    [
        pytest.param(STORED, [], id="unchanged"),
        pytest.param(STORED | {"metadata": make_meta("x", annotations={"a": "b"})}, [], id="metadata"),
        pytest.param(make_claim([make_toleration(key="b")]), [f"spec: {IMMUTABLE}"], id="another key (L-11)"),
        pytest.param(make_claim([]), [f"spec: {IMMUTABLE}"], id="no tolerations any more (L-11)"),
        pytest.param(make_claim([BROKEN]), [f"spec: {IMMUTABLE}"], id="a malformed one: only immutable (L-11)"),
    ],
)
def test_update_of_a_claim(new: Any, errors: list[str]) -> None:
    assert field_errors(new, STORED) == errors


def test_old_releases_judge_the_new_spec_as_well() -> None:
    at = "spec.devices.requests[0].exactly.tolerations[0].operator"
    assert field_errors(make_claim([BROKEN]), STORED, minor=34) == [f"spec: {IMMUTABLE}", f"{at}: {GT}"]


def test_update_of_a_template_is_judged_in_full() -> None:
    at = "spec.spec.devices.requests[0].exactly.tolerations[0].operator"
    stored = make_template([BROKEN])
    assert field_errors(stored, stored) == [f"{at}: {GT}"]  # L-11
    assert field_errors(make_template([BROKEN]), make_template()) == [f"spec: {IMMUTABLE}", f"{at}: {GT}"]
    assert field_errors(make_template([make_toleration()]), make_template([make_toleration()])) == []


@pytest.mark.parametrize(
    ("known", "at"),
    [
        pytest.param(True, "exactly.tolerations[0]", id="what was there is told at the normalized path"),
        pytest.param(False, "tolerations[0]", id="what is new at the path as written"),
    ],
)
def test_update_of_a_template_in_v1beta1(*, known: bool, at: str) -> None:
    new = make_template([BROKEN], version="v1beta1")
    old = make_template([BROKEN if known else make_toleration()], version="v1beta1")
    (error,) = [error for error in field_errors(new, old) if "immutable" not in error]
    assert error == f"spec.spec.devices.requests[0].{at}.operator: {GT}"


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        pytest.param({"a": None}, {}, True, id="null"),
        pytest.param({"a": []}, {}, True, id="an empty list"),
        pytest.param({"a": {}}, {}, True, id="an empty object"),
        pytest.param({"a": ""}, {}, True, id="an empty text"),
        pytest.param({"a": {"b": {"c": None}}}, {}, True, id="nothing, nested"),
        pytest.param({"operator": "Equal"}, {}, True, id="the default operator"),
        pytest.param({"allocationMode": "ExactCount", "count": 1}, {}, True, id="the default number of devices"),
        pytest.param({"operator": "Exists"}, {}, False, id="another operator"),
        pytest.param({"count": 2}, {}, False, id="another number"),
        pytest.param({"adminAccess": False}, {}, False, id="false behind a pointer is not missing"),
        pytest.param({"tolerationSeconds": 0}, {}, False, id="zero behind a pointer is not missing"),
        pytest.param({"a": [1, 2]}, {"a": [2, 1]}, False, id="another order"),
        pytest.param({"a": [{}]}, {"a": []}, False, id="an empty entry is an entry"),
    ],
)
def test_specs_are_compared_as_the_server_compares_them(left: Any, right: Any, *, same: bool) -> None:
    assert (semantic(left) == semantic(right)) is same


def test_omitted_operator_is_no_change() -> None:
    old = make_claim([make_toleration(operator="Equal")])
    assert field_errors(make_claim([make_toleration(operator=None)]), old) == []


def test_what_was_there_with_the_operator_omitted_is_not_new_with_the_operator_spelt_out() -> None:
    old, new = (
        make_template([make_toleration(key="-", operator=operator)], version="v1beta1") for operator in (None, "Equal")
    )
    at = "spec.spec.devices.requests[0].exactly.tolerations[0].key"
    assert field_errors(new, old) == [f'{at}: Invalid value: "-": {message}' for message in label_key("-")]


# --- status -------------------------------------------------------------------------------------


def claim_with(*tolerations: Any) -> dict[str, Any]:
    return make_claim(status=make_status(make_result(), make_result(tolerations)))


UNALLOCATED = make_claim()


@pytest.mark.parametrize(
    ("new", "old", "errors"),
    [
        pytest.param(claim_with(make_toleration()), UNALLOCATED, [], id="a good allocation"),
        pytest.param(
            claim_with(BROKEN),
            UNALLOCATED,
            [f"status.allocation.devices.results[1].tolerations[0].operator: {GT}"],
            id="a malformed toleration in an allocation (L-9)",
        ),
        pytest.param(claim_with(BROKEN), claim_with(BROKEN), [], id="unchanged: not judged again (L-13)"),
        pytest.param(
            claim_with(),
            claim_with(make_toleration()),
            [f"status.allocation: {IMMUTABLE}"],
            id="changed (L-13)",
        ),
        pytest.param(UNALLOCATED, claim_with(make_toleration()), [], id="removed (L-13)"),
        pytest.param(UNALLOCATED, UNALLOCATED, [], id="none at all"),
    ],
)
def test_status_of_a_claim(new: Any, old: Any, errors: list[str]) -> None:
    assert field_errors(new, old, status=True) == errors


@pytest.mark.parametrize("minor", [33, 34, 35, 36])
def test_allocations_are_checked_since_1_37(minor: int) -> None:
    assert field_errors(claim_with(BROKEN), UNALLOCATED, status=True, minor=minor) == []
    changed = [f"status.allocation: {IMMUTABLE}"]
    assert field_errors(claim_with(), claim_with(BROKEN), status=True, minor=minor) == changed


def test_spec_is_no_matter_of_the_status() -> None:
    assert field_errors(make_claim([BROKEN]), copy.deepcopy(UNALLOCATED), status=True) == []


# --- where requests and tolerations stand ----------------------------------------------------------


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
