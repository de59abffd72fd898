from __future__ import annotations

from typing import Any

from tests.builders import field_errors, make_rule
from tests.tables import table
from webhook.validation.formats import dns1123_subdomain

BAD = dns1123_subdomain("-")[0]


@table(
    "meta, errors",
    {
        "a name of 253 bytes (R-1)": ({"name": "a" * 253}, []),
        "a prefix of a letter and a dash": ({"generateName": "a-"}, []),
        "a prefix that does not": ({"generateName": "gpu"}, []),
        "of a long prefix the server takes 58 characters": (
            {"generateName": "a" * 58 + "_"},
            [f'metadata.generateName: Invalid value: "{"a" * 58}_": {BAD}'],
        ),
        "and all of them": (
            {"generateName": "a" * 57 + "_"},
            [
                f'metadata.name: Invalid value: "{"a" * 57}_xxxxx": {BAD}',
                f'metadata.generateName: Invalid value: "{"a" * 57}_": {BAD}',
            ],
        ),
        "the character before a dash is not looked at": (
            {"generateName": "a_-"},
            [f'metadata.name: Invalid value: "a_-xxxxx": {BAD}'],
        ),
        "and only that one": (
            {"generateName": "_b-"},
            [f'metadata.name: Invalid value: "_b-xxxxx": {BAD}', f'metadata.generateName: Invalid value: "_b-": {BAD}'],
        ),
        "a prefix beside a name is judged": (
            {"name": "a", "generateName": "-"},
            [f'metadata.generateName: Invalid value: "-": {BAD}'],
        ),
    },
)
def test_names_of_new_objects(meta: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(make_rule(meta=meta, version="v1beta2")) == errors


def test_name_of_a_stored_object_is_not_judged_again() -> None:
    stored = make_rule(meta={"name": "-"}, version="v1beta2")
    assert field_errors(stored, stored) == []
