"""The habits of each release, as its source has them. Releases are out, so that none of this changes any more."""

from __future__ import annotations

import pytest

from webhook.validation.releases import NEWEST, RELEASES

OLD = frozenset({"NoSchedule", "NoExecute"})
ALL = OLD | {"None"}


def test_each_release_is_filed_under_its_own_number() -> None:
    assert {minor: release.minor for minor, release in RELEASES.items()} == {minor: minor for minor in range(33, 38)}
    assert NEWEST is RELEASES[37]


@pytest.mark.parametrize(
    ("habit", "values"),
    [
        ("taints_per_device", (4, 4, 16, 16, 16)),
        ("effects", (OLD, OLD, ALL, ALL, ALL)),
        ("ratchets", (False, False, True, True, True)),
        ("declarative", (False, False, False, False, True)),
        ("devices_with_taints", (128, 128, 64, 64, 64)),
        ("counters_halve_devices", (False, False, True, True, True)),
        ("list_attributes_halve_devices", (False, False, False, True, True)),
        ("long_lists_end_the_look", (False, False, True, True, True)),
        ("allocations_checked", (False, False, False, False, True)),
        ("empty_driver_twice", (True, True, False, False, False)),
        ("rule_status", (False, False, True, True, True)),
        ("class_selectors", (True, True, False, False, False)),
    ],
)
def test_habit_begins_or_ends_with_its_release(habit: str, values: tuple[object, ...]) -> None:
    assert tuple(getattr(RELEASES[minor], habit) for minor in range(33, 38)) == values
