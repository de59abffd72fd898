"""DT203: a stored rule with the same taint on all devices covers another only if it does as much."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec import structs

from tests.builders import NOW, decoded, make_admission_request, make_context
from tests.tables import table
from tests.unit.admission.guarding import fleet, tainting
from tests.unit.inventory.values import inventory_of
from webhook.admission.chain import validate
from webhook.api.meta import format_time
from webhook.api.rules import EVICTIONS_PER_SECOND, EXPIRES_AT, NOT_BEFORE, SCOPE
from webhook.inventory.state import Sight

SOON, LATER = (format_time(NOW + timedelta(days=days)) for days in (1, 7))


def covered(new: dict[str, str], stored: dict[str, str], *, deleting: bool = False) -> bool:
    """Whether advice says so of a rule, by the annotations of both."""
    other, _ = decoded(tainting(effect="NoSchedule", evict=True, name="stored", annotations=stored))
    inventory = inventory_of(*fleet(), structs.replace(other, deleting=deleting))
    request = make_admission_request(tainting(effect="NoSchedule", evict=True, name="new", annotations=new))
    decision = validate(request, make_context(sight=Sight(inventory)))
    return "DT203" in {finding.code for finding in decision.findings}


@table(
    "new, stored, expected",
    {
        "both have nothing more": ({}, {}, True),
        "the stored one waits": ({}, {NOT_BEFORE: LATER}, False),
        "the stored one waits longer": ({NOT_BEFORE: SOON}, {NOT_BEFORE: LATER}, False),
        "the new one waits longer": ({NOT_BEFORE: LATER}, {NOT_BEFORE: SOON}, True),
        "the stored one expires": ({}, {EXPIRES_AT: LATER}, False),
        "the stored one expires earlier": ({EXPIRES_AT: LATER}, {EXPIRES_AT: SOON}, False),
        "both expire": ({EXPIRES_AT: SOON}, {EXPIRES_AT: SOON}, True),
        "the new one expires": ({EXPIRES_AT: SOON}, {}, True),
        "the new one is for the hardware": ({SCOPE: "hardware"}, {}, False),
        "the new one is faster": ({EVICTIONS_PER_SECOND: "1000"}, {}, False),
        "the new one is slower": ({EVICTIONS_PER_SECOND: "1"}, {EVICTIONS_PER_SECOND: "5"}, True),
    },
)
def test_a_rule_adds_nothing_only_to_one_that_does_as_much(new: Any, stored: Any, *, expected: bool) -> None:
    assert covered(new, stored) is expected


def test_a_rule_that_is_being_deleted_covers_nothing() -> None:
    assert not covered({}, {}, deleting=True)
