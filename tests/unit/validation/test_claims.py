from __future__ import annotations

import copy
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import (
    field_errors,
    make_alternatives,
    make_claim,
    make_flat_request,
    make_request,
    make_result,
    make_rule,
    make_status,
    make_taint,
    make_template,
    make_toleration,
)
from tests.tables import table
from webhook.api.claims import DeviceRequest, ExactRequest
from webhook.api.taints import DeviceTaint, DeviceToleration, TaintExtras
from webhook.validation.claims import SPEC, TEMPLATE_SPEC, everything_asked, semantic, toleration_lists
from webhook.validation.formats import label_key, label_value
from webhook.validation.releases import NEWEST
from webhook.validation.taints import taint_is_fine

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


# --- taints and tolerations -----------------------------------------------------------------------


THREE = '"NoExecute", "NoSchedule", "None"'
BAD_KEY = label_key("-")[0]
BAD_VALUE = label_value("-")[0]


DATA_TOO_LONG = ["data: Too long: may not be more than 10240 bytes"]
EVERYTHING = [
    f'key: Invalid value: "-": {BAD_KEY}',
    f'value: Invalid value: "-": {BAD_VALUE}',
    f'effect: Unsupported value: "-": supported values: {THREE}',
]


@table(
    "fields, errors",
    {
        "a plain one": ({}, []),
        "everything wrong: everything told": ({"key": "-", "value": "-", "effect": "-"}, EVERYTHING),
        "good extras": ({"data": {"a": [1]}, "description": "", "evictionsPerSecond": 1}, []),
        "null data is no data": ({"data": None}, []),
        "10240 bytes of data (N-9)": ({"data": {"a": "x" * 10_232}}, []),
        "10241 bytes of data (N-9)": ({"data": {"a": "x" * 10_233}}, DATA_TOO_LONG),
        "bytes of data, not characters (N-9)": ({"data": {"a": "ü" * 5_200}}, DATA_TOO_LONG),
        "1024 bytes of description (N-10)": ({"description": "x" * 1024}, []),
        "1025 bytes of description in 1024 characters (N-10)": (
            {"description": "x" * 1023 + "ü"},
            ["description: Too long: may not be more than 1024 bytes"],
        ),
        "a negative rate (N-11)": (
            {"evictionsPerSecond": -1},
            ["evictionsPerSecond: Invalid value: -1: must be greater than zero"],
        ),
    },
)
def test_taint_of_a_rule(fields: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(make_rule(taint=make_taint() | fields)) == [f"spec.taint.{error}" for error in errors]


AT = "spec.devices.requests[0].exactly.tolerations[0]"


@table(
    "toleration, errors",
    {
        "any number of seconds (L-6)": (make_toleration(seconds=-(2**63)), []),
        "seconds without effect (L-6)": (make_toleration(effect=None, seconds=5), []),
        "a value beside Exists (L-3)": (
            make_toleration(value="v"),
            ['value: Invalid value: "v": must be empty for operator `Exists`'],
        ),
        "everything wrong: everything told": (
            make_toleration(key="-", operator="Equal", value="-", effect="-"),
            EVERYTHING,
        ),
    },
)
def test_toleration_of_a_claim(toleration: Any, errors: list[str]) -> None:
    assert field_errors(make_claim([toleration])) == [f"{AT}.{error}" for error in errors]


def test_hand_written_checks_name_the_normalized_path() -> None:
    claim = make_claim([make_toleration(operator="Equal", value="-")], version="v1beta1")
    assert field_errors(claim) == [f'{AT}.value: Invalid value: "-": {BAD_VALUE}']


@table(
    "taint, fine",
    {
        "a plain one": (DeviceTaint("a", "b", "NoSchedule"), True),
        "one without value": (DeviceTaint("a" * 63, "", "None"), True),
        "the longest there is": (DeviceTaint("d" * 253 + "/" + "a" * 63, "v" * 63, "None"), True),
        "a malformed key": (DeviceTaint("-", "", "None"), False),
        "a malformed value": (DeviceTaint("a", "-", "None"), False),
        "an unknown effect": (DeviceTaint("a", "", "Evict"), False),
        "a key too long to be remembered": (DeviceTaint("a" * 600, "", "None"), False),
        "extras need a closer look": (DeviceTaint("a", "", "None", None, TaintExtras()), False),
    },
)
def test_short_look_at_a_taint(taint: DeviceTaint, *, fine: bool) -> None:
    assert taint_is_fine(taint, NEWEST) is fine


# --- specs that an update must not change ---------------------------------------------------------


SPEC_IMMUTABLE = ['spec: Invalid value: "": field is immutable']


def labelled(kind: str, **labels: str) -> Any:
    template = make_template()
    template["spec"]["metadata"] = {kind: labels}
    return template


@table(
    "old, new",
    {
        "with a default's name": ({"operator": "Equal"}, {}),
        "without a value": ({"team": "a"}, {"team": "a", "x": ""}),
    },
)
def test_labels_and_annotations_of_a_template_cannot_change(old: Any, new: Any) -> None:
    for kind in ("labels", "annotations"):
        assert field_errors(labelled(kind, **new), labelled(kind, **old)) == SPEC_IMMUTABLE
        assert field_errors(labelled(kind, **old), labelled(kind, **new)) == SPEC_IMMUTABLE


def test_no_labels_are_like_an_empty_map() -> None:
    assert field_errors(labelled("labels"), make_template()) == []


@table(
    "old, new, same",
    {
        "with another suffix": ("1Gi", "1024Mi", True),
        "as a number": ("1", 1, True),
        "another number": ("1Gi", "1G", False),
        "one that is none": ("1x", "1y", False),
    },
)
def test_quantities_of_a_request_are_the_same_if_their_numbers_are(old: Any, new: Any, *, same: bool) -> None:
    before = make_template(requests=[make_request(capacity={"requests": {"operator": old}})])
    after = deepcopy(before)
    after["spec"]["spec"]["devices"]["requests"][0]["exactly"]["capacity"]["requests"]["operator"] = new
    assert ("field is immutable" in "".join(field_errors(after, before))) is not same
