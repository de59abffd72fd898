from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import decoded, make_claim, make_request, make_rule, make_toleration
from tests.tables import table
from webhook.validation.claims import tolerations_path
from webhook.validation.documented import crowded_list_error, documented_claim_errors, documented_rule_errors

if TYPE_CHECKING:
    from webhook.api.field import FieldError

EXISTS = 'must be "Exists" when key is empty, which means all keys and all values; or name a key'
EMPTY_KEY = make_toleration(key=None, operator="Equal", value="v")


def texts(errors: list[FieldError]) -> list[str]:
    return [str(error) for error in errors]


def test_crowded_list_is_reported_at_the_path_as_written() -> None:
    """Of a flat request, like what the server itself finds before it converts an object."""
    path = tolerations_path(False, 2, None, flat=True)  # noqa: FBT003 -- it has no name there
    error = crowded_list_error(path, 17)
    assert error.field == "spec.devices.requests[2].tolerations"


def claim_errors(requests: Any, version: str = "v1") -> list[str]:
    claim, _ = decoded(make_claim(requests=requests, version=version))
    return texts(list(documented_claim_errors(claim, None)))


@table(
    "requests, version, errors",
    {
        "17 tolerations (L-8)": (
            [make_request(tolerations=[make_toleration()] * 17)],
            "v1",
            [
                (
                    "spec.devices.requests[0].exactly.tolerations: Too many: 17: must have at most 16 items"
                    '; operator "Exists" without value covers all values of a key'
                )
            ],
        ),
        "no key with Equal (L-7)": (
            [make_request(tolerations=[EMPTY_KEY])],
            "v1",
            [f'spec.devices.requests[0].exactly.tolerations[0].operator: Invalid value: "Equal": {EXISTS}'],
        ),
    },
)
def test_tolerations_of_a_claim(requests: Any, version: str, errors: list[str]) -> None:
    assert claim_errors(requests, version) == errors


def annotated(name: str, text: str) -> Any:
    return decoded(make_rule(annotations={f"devicetaint.io/{name}": text}))[0]


@table(
    "name, text, error",
    {
        "10240 bytes of data": ("data", '{"a":"' + "x" * 10_232 + '"}', None),
        "more (N-9)": ("data", '{"a":"' + "x" * 10_233 + '"}', "Too long: may not be more than 10240 bytes"),
        "a list as data (N-9)": ("data", "[1]", 'Invalid value: "a list of 1 entries": must be a JSON object'),
        "null as data": ("data", "null", "Invalid value: null: must be a JSON object"),
        "a high rate": ("evictions-per-second", "9" * 19, None),
        **{
            f"{text!r} as rate (N-11)": (
                "evictions-per-second",
                text,
                f'Invalid value: "{text}": must be a whole number above zero, such as "10"',
            )
            for text in ("0", "000", "-1", "+1", "1.5", "", "ten", "1 ", "9" * 20, "\u0663")
        },
        "true": ("evict", "true", None),
        "false": ("evict", "false", None),
        "True": ("evict", "True", 'Invalid value: "True": must be "true" or "false"'),
        "a time": ("expires-at", "2026-06-01T12:00:00+02:00", None),
        "no time": (
            "expires-at",
            "tomorrow",
            'Invalid value: "tomorrow": must be a time like "2026-01-31T12:00:00Z" (RFC 3339)',
        ),
        "another scope": ("scope", "node", 'Invalid value: "node": must be "hardware"'),
        "any owner": ("owner", "\x00", None),
        "any ticket": ("ticket", "", None),
    },
)
def test_annotations_of_a_rule(name: str, text: str, error: str | None) -> None:
    errors = texts(list(documented_rule_errors(annotated(name, text), None)))
    assert errors == ([] if error is None else [f"metadata.annotations[devicetaint.io/{name}]: {error}"])


@pytest.mark.parametrize("text", ["{", '{"a":}', "", "[" * 100_000], ids=["cut", "no value", "empty", "deep"])
def test_data_annotation_must_be_json(text: str) -> None:
    (error,) = documented_rule_errors(annotated("data", text), None)
    assert error.field == "metadata.annotations[devicetaint.io/data]"
    assert error.detail == 'must be a JSON object, such as {"temperature": 97}'


def test_annotation_is_judged_again_only_if_it_changed() -> None:
    stored, changed = annotated("evict", "yes"), annotated("evict", "no")
    assert list(documented_rule_errors(stored, stored)) == []
    assert len(list(documented_rule_errors(changed, stored))) == 1
    assert list(documented_rule_errors(decoded(make_rule())[0], stored)) == []
