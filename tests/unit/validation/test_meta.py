from __future__ import annotations

from typing import Any

from tests.builders import field_errors, make_rule
from tests.tables import table
from webhook.validation.formats import dns1123_subdomain

BAD = dns1123_subdomain("-")[0]


LONG = "a" * 57 + "_"


@table(
    "meta, wrong",
    {
        "a name of 253 bytes (R-1)": ({"name": "a" * 253}, []),
        "a prefix of a letter and a dash": ({"generateName": "a-"}, []),
        "a prefix that does not": ({"generateName": "gpu"}, []),
        "of a long prefix the server takes 58 characters": (
            {"generateName": f"a{LONG}"},
            [("generateName", f"a{LONG}")],
        ),
        "and all of them": ({"generateName": LONG}, [("name", f"{LONG}xxxxx"), ("generateName", LONG)]),
        "the character before a dash is not looked at": ({"generateName": "a_-"}, [("name", "a_-xxxxx")]),
        "and only that one": ({"generateName": "_b-"}, [("name", "_b-xxxxx"), ("generateName", "_b-")]),
        "a prefix beside a name is judged": ({"name": "a", "generateName": "-"}, [("generateName", "-")]),
    },
)
def test_names_of_new_objects(meta: dict[str, Any], wrong: list[tuple[str, str]]) -> None:
    errors = [f'metadata.{field}: Invalid value: "{value}": {BAD}' for field, value in wrong]
    assert field_errors(make_rule(meta=meta, version="v1beta2")) == errors


def test_name_of_a_stored_object_is_not_judged_again() -> None:
    stored = make_rule(meta={"name": "-"}, version="v1beta2")
    assert field_errors(stored, stored) == []
