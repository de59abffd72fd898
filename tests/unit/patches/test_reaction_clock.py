"""How long a taint has lasted goes by a clock that no one sets, and not by the time of day."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.unit.patches.reacting import NOW, make_reaction, make_signal, make_slice
from webhook.inventory.pools import Pools
from webhook.patches.reactions import react
from webhook.patches.reasons import FirstSights

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("first", "later"),
    [
        pytest.param(NOW + HOUR, NOW, id="an hour ahead when the taint was first seen, then put right"),
        pytest.param(NOW, NOW + HOUR, id="an hour ahead from then on"),
    ],
)
def test_reaction_waits_as_long_as_the_policy_says_though_the_clock_is_set(first: datetime, later: datetime) -> None:
    seconds = 0.0
    sights = FirstSights(lambda: seconds)
    pools = Pools()
    pools.apply(None, make_slice({"gpu-0": (make_signal(None),)}))
    reactions = (make_reaction(for_seconds=300.0),)
    assert react(pools, [], reactions, first, sights).rules == ()
    seconds = 299.0
    waits = react(pools, [], reactions, later, sights)
    assert (waits.rules, waits.next_seconds) == ((), 1.0)
    seconds = 300.0
    assert len(react(pools, [], reactions, later, sights).rules) == 1


def test_taint_that_was_seen_first_counts_though_the_clock_was_set_back() -> None:
    seconds = 0.0
    sights, reactions = FirstSights(lambda: seconds), (make_reaction(for_seconds=600.0),)
    first, second = make_signal(None, value="a"), make_signal(None, value="b")
    before, after = make_slice({"gpu-0": (first,)}), make_slice({"gpu-0": (first, second)})
    pools = Pools()
    pools.apply(None, before)
    react(pools, [], reactions, NOW + HOUR, sights)
    pools.apply(before, after)
    seconds = 500.0
    react(pools, [], reactions, NOW, sights)
    seconds = 600.0
    [rule] = react(pools, [], reactions, NOW, sights).rules
    assert rule.reasons[0].value == "a"
