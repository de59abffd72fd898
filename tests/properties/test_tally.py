"""A law of the worker's count: codes that take turns allow each of them once, whatever else happens between them."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.eviction.objects import rule
from webhook.api.rules import CONFIRM_IMPACT
from webhook.eviction.ceiling_group import CeilingGroup
from webhook.eviction.tally import Tally

PROVED: Final = ("one", "two", "three")
LIMIT: Final = 2
"""Of the policy, for a rule with another code or none."""
numbers = st.integers(0, 6)
turns = st.lists(st.sampled_from([*PROVED, "made up", ""]), min_size=1, max_size=12)


@given(st.fixed_dictionaries(dict.fromkeys(PROVED, numbers)), turns, st.lists(numbers, min_size=12, max_size=12))
def test_codes_allow_each_of_them_once_in_whatever_order_they_come(
    allowed: dict[str, int], codes: list[str], pods: list[int]
) -> None:
    """R4."""
    group, tally = CeilingGroup(), Tally(rule(annotations={CONFIRM_IMPACT: codes[0]}))
    group.add("uid-rule", tally)
    for code, number in zip(codes, pods, strict=False):
        group.follow(code, proved=code in allowed, rejudged=False)
        for _ in range(number):
            if group.counting < allowed.get(code, LIMIT):
                tally.count()
    in_force = set(codes) & set(PROVED)
    assert tally.evicted <= LIMIT + sum(max(allowed[code], LIMIT) for code in in_force)
    if len(set(codes)) == 1:
        assert tally.evicted <= allowed.get(codes[0], LIMIT)
