"""Which updates of a patch `taintRules` judge: those that change a taint as a whole, its time and rate among it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from tests.builders import KEY, NOW, NOW_TEXT
from tests.tables import table
from tests.unit.admission.patch_guarding import ask_patch, evicting, patching
from webhook.api.meta import format_time
from webhook.api.rules import EXPIRES_AT, OWNER, TICKET
from webhook.policy.model import Action, Match, Rule

LATER: Final = format_time(NOW + timedelta(days=3))
EARLIER: Final = format_time(NOW - timedelta(seconds=50))
YESTERDAY: Final = format_time(NOW - timedelta(days=1))


def taint(**fields: Any) -> Any:
    """A taint; without a time unless one is given."""
    given = evicting(**fields)
    return given if "time_added" in fields else {name: each for name, each in given.items() if name != "timeAdded"}


def is_judged(new: Any, old: Any) -> bool:
    rule = Rule("no", Action.DENY, Match())
    return rule.name in [each.rule for each in ask_patch(new, old, taint_rules=(rule,)).findings]


@table(
    "new, old, judged",
    {
        "nothing": (taint(time_added=EARLIER), taint(time_added=EARLIER), False),
        "an earlier time": (taint(time_added=NOW_TEXT), taint(time_added=LATER), True),
        "a later time": (taint(time_added=LATER), taint(time_added=NOW_TEXT), True),
        "a higher rate": (taint(evictionsPerSecond=1000), taint(evictionsPerSecond=1), True),
        "a rate": (taint(evictionsPerSecond=1000), taint(), True),
        "other data": (taint(data={"a": [1]}), taint(data={"a": [2]}), True),
        "the same data": (taint(data={"a": [1]}), taint(data={"a": [1]}), False),
        "the time that /mutate adds": (taint(time_added=NOW_TEXT), taint(), False),
        "a past time for none": (taint(time_added=YESTERDAY), taint(), True),
        "no time": (taint(), taint(), False),
    },
)
def test_update_is_judged_by_what_it_changes_of_a_taint(new: Any, old: Any, *, judged: bool) -> None:
    assert is_judged(patching("default", new), patching("default", old)) is judged


@table(
    "new, old, judged",
    {
        "one that goes": ({}, {TICKET: "OPS-1"}, True),
        "one that comes": ({EXPIRES_AT: LATER}, {}, True),
        "another value": ({OWNER: "b"}, {OWNER: "a"}, True),
        "the same": ({TICKET: "OPS-1"}, {TICKET: "OPS-1"}, False),
        "one of others": ({"example.com/a": "1"}, {}, False),
    },
)
def test_update_is_judged_if_it_changes_an_annotation_of_ours(
    new: dict[str, str], old: dict[str, str], *, judged: bool
) -> None:
    """As for a rule: `when` sees them."""
    one, other = (patching("default", taint()) for _ in range(2))
    one["metadata"]["annotations"], other["metadata"]["annotations"] = new, old
    assert is_judged(one, other) is judged


def test_softened_taint_that_stays_so_is_not_judged_again() -> None:
    new, old = (patching("default", taint(effect="NoSchedule"), softened=KEY, priority=each) for each in (1, 2))
    assert not is_judged(new, old)
    assert is_judged(old, new)
