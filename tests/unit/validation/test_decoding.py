"""Wrong types anywhere in an object (A1)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import (
    VALID_MANIFESTS,
    kind_of,
    make_basic_device,
    make_claim,
    make_device,
    make_flat_request,
    make_meta,
    make_request,
    make_rule,
    make_slice,
    make_template,
)
from tests.tables import table
from webhook.api.meta import GroupVersionKind
from webhook.validation.objects import _SCALARS, decoding_errors
from webhook.validation.releases import NEWEST, RELEASES


def reported(manifest: Any, minor: int = 37) -> list[str]:
    return [str(error) for error in decoding_errors(manifest, kind_of(manifest), RELEASES[minor])]


EXACTLY = "spec.devices.requests[0].exactly"
INTEGER, LIST, OBJECT, TEXT = "a 64-bit integer", "a list", "an object", "a string"
QUANTITY = 'a quantity like "500m", "16Gi" or 4'
AMOUNTS = {"memory": "5 Gi", "x": 1.5, "y": "1e3", "z": ""}


def asking(**fields: Any) -> Any:
    return make_claim(requests=[make_request(**fields)])


def named(**meta: Any) -> Any:
    return make_claim(meta=make_meta("x", **meta))


@table(
    "manifest, wrong",
    {
        "a number as text": (asking(count="2"), [(f"{EXACTLY}.count", '"2"', INTEGER)]),
        "a number with a fraction": (asking(count=1.0), [(f"{EXACTLY}.count", "1.0", INTEGER)]),
        "a number that is too large": (asking(count=2**63), [(f"{EXACTLY}.count", f"{2**63}", INTEGER)]),
        "true as a number": (asking(count=True), [(f"{EXACTLY}.count", "true", INTEGER)]),
        "a word for true": (asking(adminAccess="yes"), [(f"{EXACTLY}.adminAccess", '"yes"', "true or false")]),
        "labels": (named(labels={"n": 1, "ok": "a", "none": None}), [("metadata.labels[n]", "1", TEXT)]),
        "an owner": (
            named(ownerReferences=[{"controller": 1}, "x"]),
            [
                ("metadata.ownerReferences[0].controller", "1", "true or false"),
                ("metadata.ownerReferences[1]", '"x"', OBJECT),
            ],
        ),
        "one text in place of a list": (named(finalizers="a/b"), [("metadata.finalizers", '"a/b"', LIST)]),
        "a number in a list of texts": (named(finalizers=["a/b", 5]), [("metadata.finalizers[1]", "5", TEXT)]),
        "a quantity": (
            asking(capacity={"requests": AMOUNTS}),
            [(f"{EXACTLY}.capacity.requests[{key}]", f'"{AMOUNTS[key]}"', QUANTITY) for key in ("memory", "z")],
        ),
        "a flat request": (
            make_claim(requests=[make_flat_request(count="2")], version="v1beta1"),
            [("spec.devices.requests[0].count", '"2"', INTEGER)],
        ),
        "a template": (
            make_template(requests=[make_request(selectors={"cel": {}})]),
            [(f"spec.{EXACTLY}.selectors", '"an object of 1 fields"', LIST)],
        ),
        "a device": (
            make_slice([make_device(attributes={"a": {"int": "5"}}, capacity={"b": {"value": True}})]),
            [
                ("spec.devices[0].attributes[a].int", '"5"', INTEGER),
                ("spec.devices[0].capacity[b].value", "true", QUANTITY),
            ],
        ),
        "a basic device": (
            make_slice([make_basic_device(attributes=[])], version="v1beta1"),
            [("spec.devices[0].basic.attributes", '"a list of 0 entries"', OBJECT)],
        ),
        "a time": (
            make_rule(meta=make_meta("x", creationTimestamp="today")),
            [("metadata.creationTimestamp", '"today"', 'a time like "2026-01-31T12:00:00Z" (RFC 3339)')],
        ),
    },
)
def test_a_wrong_type_is_reported_at_its_path(manifest: Any, wrong: list[tuple[str, str, str]]) -> None:
    assert reported(manifest) == [f"{path}: Invalid value: {value}: must be {right}" for path, value, right in wrong]


def test_free_form_json_may_be_anything() -> None:
    opaque = [{"opaque": {"driver": "d", "parameters": parameters}} for parameters in ({"a": 1}, [1], "x", 5, None)]
    claim = make_claim()
    claim["spec"]["devices"]["config"] = opaque
    assert reported(claim) == []


def test_null_reads_as_missing_at_every_depth() -> None:
    claim = make_claim(requests=[None, {"exactly": None}, make_request(count=None, selectors=[None])])
    assert reported(claim) == []


def test_a_field_that_an_older_release_lacks_has_no_type_there() -> None:
    device = make_device(attributes={"a": {"strings": 5}})
    assert len(reported(make_slice([device]))) == 1
    assert reported(make_slice([device]), 34) == []  # there it is an unknown field


def test_kinds_of_others_are_left_alone() -> None:
    assert list(decoding_errors({"spec": 5}, GroupVersionKind("apps", "v1", "Deployment"), NEWEST)) == []


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(["spec", "devices", "a"]), below),
    max_leaves=10,
)


@given(st.sampled_from(list(VALID_MANIFESTS.values())), st.data())
def test_any_value_in_any_place_gets_an_answer(manifest: Any, data: st.DataObject) -> None:
    broken = json.loads(json.dumps(manifest))
    at = broken
    while isinstance(at, dict | list) and at:
        key = data.draw(st.sampled_from(list(at) if isinstance(at, dict) else range(len(at))))
        if data.draw(st.booleans()):
            at[key] = data.draw(_JSON)
            break
        at = at[key]
    for error in decoding_errors(broken, kind_of(manifest), NEWEST):
        assert str(error)


@pytest.mark.parametrize(("name", "bits"), [("int32", 32), ("int64", 64)])
def test_whole_number_has_as_many_bits_as_its_type(name: str, bits: int) -> None:
    fits = _SCALARS[name][0]
    assert [fits(number) for number in (-(2 ** (bits - 1)), 0, 2 ** (bits - 1) - 1)] == [True, True, True]
    assert [fits(number) for number in (-(2 ** (bits - 1)) - 1, 2 ** (bits - 1), 1.0, True)] == [False] * 4
