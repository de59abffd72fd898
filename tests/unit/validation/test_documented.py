from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import (
    decoded,
    make_alternatives,
    make_claim,
    make_flat_request,
    make_request,
    make_rule,
    make_template,
    make_toleration,
)
from webhook.validation.claims import tolerations_path
from webhook.validation.documented import (
    crowded_list_error,
    documented_claim_errors,
    documented_rule_errors,
    documented_template_errors,
)

if TYPE_CHECKING:
    from webhook.api.field import FieldError

EXISTS = 'must be "Exists" when key is empty, which means all keys and all values; or name a key'
EMPTY_KEY = make_toleration(key=None, operator="Equal", value="v")


def texts(errors: list[FieldError]) -> list[str]:
    assert all(error.documented for error in errors)
    return [str(error) for error in errors]


def test_crowded_list_is_reported_at_the_path_as_written() -> None:
    """Of a flat request, like what the server itself finds before it converts an object."""
    path = tolerations_path(False, 2, None, flat=True)  # noqa: FBT003 -- it has no name there
    error = crowded_list_error(path, 17)
    assert error.field == "spec.devices.requests[2].tolerations"
    assert error.documented, "it can be turned down, as the others of the documented rules"


def claim_errors(requests: Any, version: str = "v1") -> list[str]:
    claim, _ = decoded(make_claim(requests=requests, version=version))
    return texts(list(documented_claim_errors(claim, None)))


@pytest.mark.parametrize(
    ("requests", "version", "errors"),
    [
        pytest.param([make_request(tolerations=[make_toleration()] * 16)], "v1", [], id="16 tolerations"),
        pytest.param(
            [make_request(tolerations=[make_toleration()] * 17)],
            "v1",
            [
                (
                    "spec.devices.requests[0].exactly.tolerations: Too many: 17: must have at most 16 items"
                    '; operator "Exists" without value covers all values of a key'
                ),
            ],
            id="17 tolerations (L-8)",
        ),
        pytest.param(
            [make_flat_request(tolerations=[make_toleration()] * 17)],
            "v1beta1",
            [
                (
                    "spec.devices.requests[0].tolerations: Too many: 17: must have at most 16 items"
                    '; operator "Exists" without value covers all values of a key'
                ),
            ],
            id="told at the path as written",
        ),
        pytest.param([make_request(tolerations=[make_toleration(key=None)])], "v1", [], id="no key with Exists"),
        pytest.param(
            [make_request(tolerations=[EMPTY_KEY])],
            "v1",
            [f'spec.devices.requests[0].exactly.tolerations[0].operator: Invalid value: "Equal": {EXISTS}'],
            id="no key with Equal (L-7)",
        ),
        pytest.param(
            [make_alternatives([], [make_toleration(), {}])],
            "v1",
            [f'spec.devices.requests[0].firstAvailable[1].tolerations[1].operator: Invalid value: "Equal": {EXISTS}'],
            id="nothing at all, in an alternative (L-7)",
        ),
    ],
)
def test_tolerations_of_a_claim(requests: Any, version: str, errors: list[str]) -> None:
    assert claim_errors(requests, version) == errors


def test_tolerations_of_a_template() -> None:
    template, _ = decoded(make_template([EMPTY_KEY]))
    at = "spec.spec.devices.requests[0].exactly.tolerations[0].operator"
    assert texts(list(documented_template_errors(template, None))) == [f'{at}: Invalid value: "Equal": {EXISTS}']


def test_specs_that_cannot_change_are_not_judged_again() -> None:
    claim, _ = decoded(make_claim([EMPTY_KEY]))
    template, _ = decoded(make_template([EMPTY_KEY]))
    assert list(documented_claim_errors(claim, claim)) == []
    assert list(documented_template_errors(template, template)) == []


def annotated(name: str, text: str) -> Any:
    return decoded(make_rule(annotations={f"devicetaint.io/{name}": text}))[0]


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        pytest.param("data", "{}", None, id="an object as data"),
        pytest.param("data", '{"a":"' + "x" * 10_232 + '"}', None, id="10240 bytes of data"),
        pytest.param(
            "data", '{"a":"' + "x" * 10_233 + '"}', "Too long: may not be more than 10240 bytes", id="more (N-9)"
        ),
        pytest.param(
            "data",
            "[1]",
            'Invalid value: "a list of 1 entries": must be a JSON object',
            id="a list as data (N-9)",
        ),
        pytest.param("data", "null", "Invalid value: null: must be a JSON object", id="null as data"),
        pytest.param("description", "d" * 1024, None, id="1 KiB of description"),
        pytest.param(
            "description", "d" * 1023 + "ü", "Too long: may not be more than 1024 bytes", id="a byte more (N-10)"
        ),
        pytest.param("evictions-per-second", "1", None, id="a rate"),
        pytest.param("evictions-per-second", "9" * 18, None, id="a high rate"),
        *(
            pytest.param(
                "evictions-per-second",
                text,
                f'Invalid value: "{text}": must be a whole number above zero, such as "10"',
                id=f"{text!r} as rate (N-11)",
            )
            for text in ("0", "000", "-1", "+1", "1.5", "", "ten", "1 ", "9" * 19, "\u0663")
        ),
        pytest.param("evict", "true", None, id="true"),
        pytest.param("evict", "false", None, id="false"),
        pytest.param("evict", "True", 'Invalid value: "True": must be "true" or "false"', id="True"),
        pytest.param("expires-at", "2026-06-01T12:00:00+02:00", None, id="a time"),
        pytest.param(
            "expires-at",
            "tomorrow",
            'Invalid value: "tomorrow": must be a time like "2026-01-31T12:00:00Z" (RFC 3339)',
            id="no time",
        ),
        pytest.param("scope", "hardware", None, id="the scope that there is"),
        pytest.param("scope", "node", 'Invalid value: "node": must be "hardware"', id="another scope"),
        pytest.param("owner", "\x00", None, id="any owner"),
        pytest.param("ticket", "", None, id="any ticket"),
        pytest.param("unknown", "x", None, id="what we do not know is only advised on"),
    ],
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
