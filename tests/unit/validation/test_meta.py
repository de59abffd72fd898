from __future__ import annotations

from typing import Any

import pytest

from tests.builders import field_errors, make_rule
from webhook.validation.formats import dns1123_subdomain

BAD = dns1123_subdomain("-")[0]
LONG = "must be no more than 253 bytes"


@pytest.mark.parametrize(
    ("meta", "errors"),
    [
        pytest.param({"name": "a" * 253}, [], id="a name of 253 bytes (R-1)"),
        pytest.param(
            {"name": "a" * 254}, [f'metadata.name: Invalid value: "{"a" * 254}": {LONG}'], id="a name of 254 bytes"
        ),
        pytest.param({"generateName": "gpu-"}, [], id="a prefix that ends in a dash"),
        pytest.param({"generateName": "a-"}, [], id="a prefix of a letter and a dash"),
        pytest.param({"generateName": "gpu"}, [], id="a prefix that does not"),
        pytest.param(
            {"generateName": "gpu_"},
            [
                f'metadata.name: Invalid value: "gpu_xxxxx": {BAD}',
                f'metadata.generateName: Invalid value: "gpu_": {BAD}',
            ],
            id="a malformed prefix is told twice, as the name is made first",
        ),
        pytest.param(
            {"generateName": "a" * 58 + "_"},
            [f'metadata.generateName: Invalid value: "{"a" * 58}_": {BAD}'],
            id="of a long prefix the server takes 58 characters",
        ),
        pytest.param(
            {"generateName": "a" * 57 + "_"},
            [
                f'metadata.name: Invalid value: "{"a" * 57}_xxxxx": {BAD}',
                f'metadata.generateName: Invalid value: "{"a" * 57}_": {BAD}',
            ],
            id="and all of them",
        ),
        pytest.param(
            {"generateName": "a_-"},
            [f'metadata.name: Invalid value: "a_-xxxxx": {BAD}'],
            id="the character before a dash is not looked at",
        ),
        pytest.param(
            {"generateName": "_b-"},
            [
                f'metadata.name: Invalid value: "_b-xxxxx": {BAD}',
                f'metadata.generateName: Invalid value: "_b-": {BAD}',
            ],
            id="and only that one",
        ),
        pytest.param(
            {"name": "a", "generateName": "-"},
            [f'metadata.generateName: Invalid value: "-": {BAD}'],
            id="a prefix beside a name is judged",
        ),
        pytest.param(
            {}, ["metadata.name: Required value: name or generateName is required"], id="neither name nor prefix"
        ),
    ],
)
def test_names_of_new_objects(meta: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(make_rule(meta=meta, version="v1beta2")) == errors


def test_name_of_a_stored_object_is_not_judged_again() -> None:
    stored = make_rule(meta={"name": "-"}, version="v1beta2")
    assert field_errors(stored, stored) == []
