"""The habits of each release, as its source has them. All but the last are out, so none of this changes any more."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

import webhook
from webhook.api.meta import GROUP, OWN_GROUP, GroupVersionKind
from webhook.validation.kinds import BY_KIND, KINDS
from webhook.validation.releases import NEWEST, RELEASES

OLD = frozenset({"NoSchedule", "NoExecute"})
ALL = OLD | {"None"}
COMPARED: Final = re.compile(r"\bminor\b *[<>]|[<>]=? *[\w.]*\bminor\b")
SINCE_38 = (False, False, False, False, False, True)


def test_each_release_is_filed_under_its_own_number() -> None:
    assert {minor: release.minor for minor, release in RELEASES.items()} == {minor: minor for minor in range(33, 39)}
    assert NEWEST is RELEASES[37], "1.38 is a beta"


@pytest.mark.parametrize(
    ("habit", "values"),
    [
        ("taints_per_device", (4, 4, 16, 16, 16, 16)),
        ("effects", (OLD, OLD, ALL, ALL, ALL, ALL)),
        ("ratchets", (False, False, True, True, True, True)),
        ("declarative", (False, False, False, False, True, True)),
        ("devices_with_taints", (128, 128, 64, 64, 64, 64)),
        ("counters_apart", (False, False, True, True, True, True)),
        ("as_since_1_36", (False, False, False, True, True, True)),
        ("long_lists_end_the_look", (False, False, True, True, True, True)),
        ("allocations_checked", (False, False, False, False, True, True)),
        ("empty_driver_twice", (True, True, False, False, False, False)),
        ("rule_status", (False, False, True, True, True, True)),
        ("class_selectors", (True, True, False, False, False, False)),
        ("devices_as_one", SINCE_38),
        ("one_term_per_device", SINCE_38),
        ("one_slash", SINCE_38),
        ("capacity_requests_checked", SINCE_38),
        ("exact_fractions", SINCE_38),
        ("short_version_numbers", SINCE_38),
    ],
)
def test_habit_begins_or_ends_with_its_release(habit: str, values: tuple[object, ...]) -> None:
    assert tuple(getattr(RELEASES[minor], habit) for minor in range(33, 39)) == values


def test_rules_ask_for_habits_and_compare_no_releases() -> None:
    """The tables say what differs between servers; `flags.py` reads the release that a user names."""
    root = Path(webhook.__file__).parent
    tables = {"api/servers.py", "api/schema.py", "commands/shared/flags.py"}
    files = {str(file.relative_to(root)): file.read_text() for file in root.rglob("*.py")}
    assert [name for name, text in files.items() if COMPARED.search(text) and name not in tables] == []


# --- kinds ----------------------------------------------------------------------------------------


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


def test_first_two_releases_differ_in_nothing() -> None:
    assert RELEASES[33] == replace(RELEASES[34], minor=33)
