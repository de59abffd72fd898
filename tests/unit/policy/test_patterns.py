"""Many texts compared with patterns: what is found is what one by one finds, and few are looked at."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW
from tests.tables import table
from tests.unit.policy.documents import judge_of, make_defaults, make_entry, make_exception, policy_of
from webhook.api.taints import DeviceTaint
from webhook.inventory.pools import unchecked
from webhook.policy.limits import limits_for
from webhook.policy.match import FEW_TEXTS, Glob, Placement, Requester, Scope, Target, Texts, TextSet

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 30_000
CROWD = Requester("mallory", tuple(f"group-{number}-of-many" for number in range(MANY)))
SCOPE = Scope(CROWD, "ml", None)
TARGET = Target("gpu", None, admin_access=False)
TAINT = DeviceTaint("k.example.com/x", "", "NoExecute")
ANYWHERE = Placement(None, None)

letters = st.text("ab-", max_size=6)
patterns = st.lists(st.text("ab-*?", max_size=5), min_size=1, max_size=4)


@given(patterns, st.lists(letters, max_size=5), st.sampled_from(["", "ab", "a-b", "-"]))
def test_many_texts_match_as_one_by_one_do(given: list[str], texts: list[str], common: str) -> None:
    """F7."""
    crowd = [*texts, *[f"{common}{number}{common}" for number in range(FEW_TEXTS * 2)]]
    compiled = TextSet(given)
    assert compiled.holds_any_of(Texts(crowd), unchecked) is compiled.holds_any(crowd)


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        ("group-77-of-*", 1),
        ("*-77-of-many", MANY // 100 + 1),
        ("group-777*many", 111),
        ("*-7777-*", 1),
        ("ops-*", 0),
        ("*-admins", 0),
        ("*sre*", 0),
    ],
)
def test_pattern_is_compared_with_the_few_texts_that_may_match(pattern: str, most: int) -> None:
    """F7: five hundred rules on thirty thousand groups took half a minute."""
    assert len(list(Texts(CROWD.groups).like(Glob(pattern), unchecked))) <= most


@table(
    "number, pattern, looks",
    {
        "64 that may match are compared one by one": (64, "a-*-z", 0),
        "of 65 those with the longest piece are picked first": (65, "a-*-z", 1),
        "few begin as the pattern does": (MANY, "a-777-*", 0),
        "few end as it does": (MANY, "*-777-z", 0),
        "a pattern without letters": (MANY, "*", 0),
    },
)
def test_budget_is_asked_before_each_look_at_all_texts(number: int, pattern: str, looks: int) -> None:
    looked: list[int] = []
    Texts(f"a-{each}-z" for each in range(number)).like(Glob(pattern), lambda: looked.append(1))
    assert len(looked) == looks


def lapsing(steps: int) -> Callable[[], None]:
    """A budget that is spent after that number of looks at it."""
    looks = count(1)

    def check() -> None:
        if next(looks) > steps:
            raise TimeoutError

    return check


WHO: Any = {"requesters": {"groups": ["?", "??"]}}
"""No group has such a short name, and nothing in the patterns says so before each group was looked at."""
ENTRIES = 4
LOOKS = ENTRIES * 2 * MANY // 1000


def on_claims(check: Callable[[], None]) -> object:
    rules = [make_entry(f"r-{number}", match=WHO) for number in range(ENTRIES)]
    return judge_of(*rules).scoped(SCOPE, NOW, check)


def on_exceptions(check: Callable[[], None]) -> object:
    exceptions = [make_exception(f"e-{number}", ["r-0"], match=WHO) for number in range(ENTRIES)]
    return judge_of(make_entry("r-0"), exceptions=exceptions).scoped(SCOPE, NOW, check)


def on_taints(check: Callable[[], None]) -> object:
    rules = [make_entry(f"r-{number}", match=WHO) for number in range(ENTRIES)]
    return judge_of(taintRules=rules).on_taint(CROWD, ANYWHERE, TAINT, NOW, dict, check)


def on_defaults(check: Callable[[], None]) -> object:
    entries = [{**make_defaults(f"d-{number}"), "match": WHO} for number in range(ENTRIES)]
    return list(judge_of(defaultTolerations=entries).defaults(SCOPE, TARGET, dict, check))


def on_limits(check: Callable[[], None]) -> object:
    impact = policy_of(impact={"limits": [*[{**WHO, "pods": 1} for _ in range(ENTRIES)], {}]}).impact
    return limits_for(impact, CROWD, TAINT, "NoExecute", check)


@pytest.mark.untraced
@pytest.mark.parametrize("ask", [on_claims, on_exceptions, on_taints, on_defaults, on_limits])
def test_rules_on_groups_ask_the_budget_for_every_thousand_groups(ask: Callable[[Callable[[], None]], object]) -> None:
    """F7."""
    with pytest.raises(TimeoutError):
        ask(lapsing(LOOKS - 1))
    ask(lapsing(LOOKS * 2))


def test_taints_of_one_object_share_the_look_at_its_requester() -> None:
    """F7: a slice has up to a thousand taints."""
    judge = judge_of(taintRules=[make_entry("r-0", match=WHO), make_entry("r-1", "warn")])
    first = judge.on_taint(CROWD, ANYWHERE, TAINT, NOW, dict, lapsing(LOOKS))
    assert judge.on_taint(CROWD, ANYWHERE, TAINT, NOW, dict, lapsing(0)) == first
    assert [hit.rule.name for hit in first] == ["r-1"]
    known = Requester("jane", ("ab",))
    assert [hit.rule.name for hit in judge.on_taint(known, ANYWHERE, TAINT, NOW, dict)] == ["r-0"]
    assert [hit.rule.name for hit in judge.on_taint(None, ANYWHERE, TAINT, NOW, dict)] == ["r-0"]
