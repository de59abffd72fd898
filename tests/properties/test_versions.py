"""The same content gets the same verdict in every version that it can be written in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import (
    decoded,
    field_errors,
    make_basic_device,
    make_claim,
    make_device,
    make_flat_request,
    make_request,
    make_rule,
    make_slice,
    make_template,
)
from tests.properties.strategies import RIGHT, keys, right, rule_specs, taints, tolerations, values
from webhook.validation.kinds import BY_KIND, KINDS
from webhook.validation.releases import RELEASES

if TYPE_CHECKING:
    from webhook.api.field import FieldError

text_keys = keys.filter(lambda value: isinstance(value, str))
text_values = values.filter(lambda value: isinstance(value, str))
minors = st.sampled_from(list(RELEASES))


def normalized(manifest: Any, minor: int) -> list[tuple[str, str]]:
    """(type, normalized path) of every error; type errors come first and alone."""
    value, errors = decoded(manifest)
    if not errors:
        kind = f"{manifest['apiVersion']} {manifest['kind']}"
        row = next(KINDS[resource] for known, resource in BY_KIND.items() if str(known) == kind)
        errors = list(row.errors(value, None, RELEASES[minor]))
        return [_told(error) for error in errors]
    return [(error.type.value, _shape_free(str(error.path))) for error in errors]


def _told(error: FieldError) -> tuple[str, str]:
    return error.type.value, str(error.path)


def _shape_free(path: str) -> str:
    """Wrong types are told at the path as written."""
    return path.replace(".basic", "").replace(".exactly", "")


@given(st.lists(tolerations, max_size=3), minors)
def test_claims_and_templates_of_all_shapes_have_the_same_faults(listed: list[Any], minor: int) -> None:
    exact, flat = [make_request(tolerations=listed)], [make_flat_request(tolerations=listed)]
    expected = normalized(make_claim(requests=exact), minor)
    assert normalized(make_claim(requests=exact, version="v1beta2"), minor) == expected
    assert normalized(make_claim(requests=flat, version="v1beta1"), minor) == expected
    in_template = [(kind, path.replace("spec.", "spec.spec.", 1)) for kind, path in expected]
    assert normalized(make_template(requests=exact), minor) == in_template
    assert normalized(make_template(requests=flat, version="v1beta1"), minor) == in_template


@given(st.lists(taints, max_size=3), minors)
def test_slices_of_all_shapes_have_the_same_faults(listed: list[Any], minor: int) -> None:
    expected = normalized(make_slice([make_device(taints=listed)]), minor)
    assert normalized(make_slice([make_device(taints=listed)], version="v1beta2"), minor) == expected
    assert normalized(make_slice([make_basic_device(taints=listed)], version="v1beta1"), minor) == expected


@given(rule_specs, minors)
def test_rules_of_all_versions_have_the_same_faults(spec: Any, minor: int) -> None:
    expected = normalized(make_rule() | {"spec": spec}, minor)
    for version in ("v1beta2", "v1alpha3"):
        assert normalized(make_rule(version=version) | {"spec": spec}, minor) == expected


@given(text_keys, text_values, st.sampled_from(["NoSchedule", "", "Evict"]))
def test_taints_of_rules_and_slices_have_the_same_faults(key: str, value: str, effect: str) -> None:
    taint = {"key": key, "value": value, "effect": effect}
    of_rule = [error.removeprefix("spec.taint.") for error in field_errors(make_rule(taint=taint))]
    of_slice = [
        error.removeprefix("spec.devices[0].taints[0].")
        for error in field_errors(make_slice([make_device(taints=[taint])]))
    ]
    assert of_rule == of_slice


@given(right)
def test_what_did_not_change_is_valid_as_it_was(manifest: Any) -> None:
    for minor in (35, 36, 37):
        assert field_errors(manifest, manifest, minor=minor) == field_errors(manifest, minor=minor) == []


@given(RIGHT["slice"], RIGHT["slice"])
def test_valid_slices_can_follow_each_other(new: Any, old: Any) -> None:
    """Of one driver, pool and node, as these are."""
    assert field_errors(new, old) == []
