"""R11: effects of taint rules mean what a taint does: one whose devices our worker empties has NoExecute as well."""

from __future__ import annotations

from itertools import chain, combinations, product
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.builders import NOW
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, NONE, DeviceTaint
from webhook.policy.coverage import EarlierRules, apart
from webhook.policy.decide import Judge
from webhook.policy.match import Matcher, Placement, Requester
from webhook.policy.model import Action, Match, Policy, PolicyException, Rule, TaintMatch
from webhook.policy.vap.cel import taint_condition

if TYPE_CHECKING:
    from collections.abc import Iterator

EFFECTS: Final = (NONE, NO_SCHEDULE, NO_EXECUTE)
LISTS: Final = tuple(chain.from_iterable(combinations(EFFECTS, size) for size in range(4)))
MATCHES: Final = tuple(
    Match(taints=TaintMatch(effects=effects), evict=evict) for effects in LISTS for evict in (None, True, False)
)
SET: Final = tuple(product((*EFFECTS, "Later"), (False, True)))
"""Every effect, with and without the annotation; one that a later release might have."""


def acting(effect: str, evict: bool) -> set[str]:  # noqa: FBT001 -- half of a pair
    """The effects that a taint has, counted by hand."""
    return {effect, NO_EXECUTE} if evict and effect == NO_SCHEDULE else {effect}


def covered(match: Match, effect: str, evict: bool, *, allowing: bool) -> bool:  # noqa: FBT001 -- as above
    place = Placement("gpu.example.com", "node-0", evict=evict)
    return Matcher(match, allowing=allowing).covers_taint(place, DeviceTaint("a/x", "", effect))


@pytest.mark.parametrize("effects", LISTS, ids=lambda each: ",".join(each) or "none listed")
def test_rule_that_refuses_meets_an_effect_of_the_taint_and_one_that_allows_contains_them(
    effects: tuple[str, ...],
) -> None:
    match = Match(taints=TaintMatch(effects=effects))
    for effect, evict in SET:
        has = acting(effect, evict)
        assert covered(match, effect, evict, allowing=False) is (not effects or bool(has & set(effects)))
        assert covered(match, effect, evict, allowing=True) is (not effects or has <= set(effects))


def test_rule_that_is_never_reached_meets_no_taint_that_gets_to_it() -> None:
    """DT101, over every pair of rules."""
    found = 0
    for first, second in product((Action.ALLOW, Action.DENY), repeat=2):
        for one, two in product(MATCHES, repeat=2):
            earlier = EarlierRules()
            earlier.add(Rule("first", first, one))
            if earlier.covering(Rule("second", second, two)) is not None:
                found += 1
                assert not _gets_past(first, one, second, two), (first, one, second, two)
    assert found > len(MATCHES)


def _gets_past(first: Action, one: Match, second: Action, two: Match) -> bool:
    return any(
        covered(two, effect, evict, allowing=second is Action.ALLOW)
        and not covered(one, effect, evict, allowing=first is Action.ALLOW)
        for effect, evict in _of_servers()
    )


def test_nothing_is_allowed_and_refused_by_taint_matches_that_are_apart() -> None:
    pairs = [pair for pair in product(MATCHES, repeat=2) if apart(*pair)]
    assert pairs
    for allowed, refused in pairs:
        assert not any(
            covered(allowed, *each, allowing=True) and covered(refused, *each, allowing=False) for each in SET
        )


@pytest.mark.parametrize("allowing", [True, False])
def test_exported_condition_means_the_same(allowing: bool) -> None:  # noqa: FBT001 -- a parameter
    for match in MATCHES:
        expression = taint_condition(match, allowing=allowing).whole
        for effect, evict in _of_servers():
            variables = {"evict": evict, "selector": {}}
            rule = {"spec": {"taint": {"key": "a/x", "effect": effect}}}
            expected = covered(match, effect, evict, allowing=allowing)
            assert evaluated(expression, object=rule, variables=variables) is expected, (expression, effect, evict)


def _of_servers() -> Iterator[tuple[str, bool]]:
    return ((effect, evict) for effect, evict in SET if effect in EFFECTS)


def test_exception_excuses_from_nothing_that_it_does_not_contain() -> None:
    keep_away = Match(taints=TaintMatch(effects=(NO_SCHEDULE,)))
    refuse = Rule("refuse", Action.DENY)
    excuse = PolicyException("excuse", ("refuse",), NOW.replace(year=NOW.year + 1), keep_away)
    judge = Judge(Policy(taint_rules=(refuse,), exceptions=(excuse,)))

    def outcome(*, evict: bool) -> list[Action]:
        place = Placement("gpu.example.com", None, evict=evict)
        taint = DeviceTaint("a/x", "", NO_SCHEDULE)
        return [hit.action for hit in judge.on_taint(Requester("jane"), place, taint, NOW, dict)]

    assert (outcome(evict=False), outcome(evict=True)) == ([Action.ALLOW], [Action.DENY])


def evaluated(expression: str, **variables: Any) -> bool:
    from tests.unit.policy.cel import evaluated as by_celpy  # noqa: PLC0415 -- celpy takes a second to import

    return by_celpy(expression, **variables)
