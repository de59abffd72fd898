"""Which findings share an object."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.reports.finding import make_finding
from webhook.reports.shards import SizedFinding, place_of, shards

Division = dict[str, set[str]]

MOST: Final = 100
NAMES: Final = st.lists(st.text("abcdefgh", min_size=1, max_size=4), unique=True, max_size=120)


def divided(names: list[str], size: int = 10) -> Division:
    found = [SizedFinding(make_finding(name), size) for name in names]
    return {digits: {each.finding.subject.name for each in part} for digits, part in shards(found, MOST)}


@given(NAMES)
def test_each_finding_is_in_one_object_and_no_object_is_too_large(names: list[str]) -> None:
    objects = divided(names)
    assert sorted(name for part in objects.values() for name in part) == sorted(names)
    assert all(0 < len(part) * 10 <= MOST for part in objects.values())
    for digits, part in objects.items():
        assert all(place_of(make_finding(name).subject).startswith(digits) for name in part)


@given(NAMES)
def test_the_division_does_not_depend_on_the_order(names: list[str]) -> None:
    assert divided(names) == divided(names[::-1])


@given(NAMES, st.text("xyz", min_size=1, max_size=4))
def test_one_more_finding_changes_one_object_or_splits_it(names: list[str], added: str) -> None:
    before, after = divided(names), divided([*names, added])
    changed = {digits for digits in before.keys() | after.keys() if before.get(digits) != after.get(digits)}
    assert len(changed - after.keys()) <= 1
    split = changed - after.keys()
    assert all(digits.startswith(tuple(split)) for digits in changed) if split else len(changed) == 1


def test_what_fits_is_in_one_object() -> None:
    assert list(divided([f"c{number}" for number in range(10)])) == [""]
    assert len(divided([f"c{number}" for number in range(11)])) > 1
    assert divided([]) == {}


def test_findings_of_one_subject_stay_together_whatever_their_size() -> None:
    found = [SizedFinding(make_finding(rule=f"rule-{number}"), MOST) for number in range(3)]
    [(_, part)] = shards(found, MOST)
    assert len(part) == 3
