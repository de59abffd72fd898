from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import VALID_MANIFESTS, field_errors, make_device, make_slice, make_taint
from webhook.api.meta import GROUP, OWN_GROUP, GroupVersionKind
from webhook.validation.kinds import BY_KIND, KINDS
from webhook.validation.releases import RELEASES


def test_every_version_that_was_ever_served_is_known() -> None:
    """V-1: there are no rules in v1beta1."""
    assert {str(resource) for resource in KINDS} == {
        *(
            f"{resource}.{version}.{GROUP}"
            for resource in ("resourceclaims", "resourceclaimtemplates", "resourceslices")
            for version in ("v1", "v1beta2", "v1beta1", "v1alpha3")
        ),
        *(f"devicetaintrules.{version}.{GROUP}" for version in ("v1", "v1beta2", "v1alpha3")),
        f"resourceslicepatches.v1alpha3.{GROUP}",
        f"resourceslicepatches.v1alpha1.{OWN_GROUP}",
    }


def test_kinds_are_found_by_manifest() -> None:
    assert BY_KIND[GroupVersionKind(GROUP, "v1", "DeviceTaintRule")].resource == "devicetaintrules"
    assert len(BY_KIND) == len(KINDS)


def test_only_claims_and_rules_have_a_status_to_judge() -> None:
    with_status = {resource.resource for resource, row in KINDS.items() if row.status_errors is not None}
    assert with_status == {"resourceclaims", "devicetaintrules"}


@pytest.mark.parametrize("minor", RELEASES)
@pytest.mark.parametrize("name", VALID_MANIFESTS)
def test_what_is_valid_is_so_in_every_release(name: str, minor: int) -> None:
    assert field_errors(VALID_MANIFESTS[name], minor=minor) == []


def test_first_two_releases_differ_in_nothing() -> None:
    assert RELEASES[33] == replace(RELEASES[34], minor=33)


def first_revision(**options: object) -> dict[str, object]:
    return make_slice(version="v1alpha3", **options)  # type: ignore[arg-type] # fields as they come


def test_first_revision_has_no_effect_none() -> None:
    assert field_errors(first_revision(devices=[make_device(taints=[make_taint(effect="None")])])) == [
        'spec.devices[0].taints[0].effect: Unsupported value: "None": supported values: "NoExecute", "NoSchedule"'
    ]
