from __future__ import annotations

import pytest

from tests.unit.policy.documents import errors_of, make_document

FIELDS = "must have five fields: minute, hour, day of month, month, day of week"


@pytest.mark.parametrize("schedule", ["@daily", "* *"])
def test_schedule_that_is_too_short_is_refused_once_and_with_its_form(schedule: str) -> None:
    windows = [{"schedule": schedule, "duration": "8h"}]
    found = errors_of(make_document(eviction=[{"windows": windows}]))
    assert [FIELDS in str(each) for each in found] == [True], found


def test_account_without_a_name_is_not_called_empty() -> None:
    match = {"requesters": {"serviceAccounts": ["a/"]}}
    rule = {"name": "no", "action": "deny", "match": match}
    (found,) = errors_of(make_document(rules=[rule]))
    assert "must have at least 3 characters" in str(found)
