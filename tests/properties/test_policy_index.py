"""The indexes of a policy leave out no rule that trying each of them finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from tests.properties.policies import (
    DRIVERS,
    EFFECTS,
    effect_lists,
    key_patterns,
    matches,
    namespace_matches,
    requester_matches,
    scopes,
    targets,
    tolerations,
    value_patterns,
)
from webhook.api.taints import DeviceTaint
from webhook.policy.index import ScopeIndex, TaintIndex, TolerationIndex, positions
from webhook.policy.match import Matcher, Placement
from webhook.policy.model import Match, TaintMatch

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from webhook.api.taints import DeviceToleration
    from webhook.policy.match import Scope, Target


@st.composite
def _matchers(draw: st.DrawFn, taints: bool = False) -> list[Matcher]:  # noqa: FBT001, FBT002 -- two kinds
    found = []
    for _ in range(draw(st.integers(1, 6))):
        allowing = draw(st.booleans())
        kind: SearchStrategy[Any] = _taint_matches if taints else matches(allowing=allowing)
        found.append(Matcher(draw(kind), allowing=allowing))
    return found


_taint_matches = st.builds(
    Match,
    requesters=st.one_of(st.none(), requester_matches),
    namespaces=st.one_of(st.none(), namespace_matches),
    drivers=st.sampled_from([(), DRIVERS[:1], ("gpu.*",), DRIVERS]),
    taints=st.one_of(st.none(), st.builds(TaintMatch, key_patterns, value_patterns, effect_lists)),
    evict=st.sampled_from([None, True, False]),
)
_places = st.builds(
    Placement, st.sampled_from([None, *DRIVERS]), st.sampled_from([None, "node-0"]), st.none(), st.booleans()
)
_taints = st.builds(
    DeviceTaint, st.sampled_from(["a/x", "b/x", "xid"]), st.sampled_from(["", "v", "w1"]), st.sampled_from(EFFECTS)
)


@given(_matchers(), scopes)
def test_rule_that_applies_in_a_scope_is_a_candidate(matchers: list[Matcher], scope: Scope) -> None:
    applying = {number for number, matcher in enumerate(matchers) if matcher.covers_scope(scope)}
    assert applying <= set(positions(ScopeIndex(matchers).candidates(scope)))


@given(_matchers(), targets, st.one_of(st.none(), tolerations))
def test_rule_that_covers_a_toleration_is_a_candidate(
    matchers: list[Matcher], target: Target, toleration: DeviceToleration | None
) -> None:
    covering = {number for number, matcher in enumerate(matchers) if matcher.covers(target, toleration)}
    assert covering <= set(positions(TolerationIndex(matchers).candidates(target, toleration)))


@given(_matchers(taints=True), _places, _taints)
def test_rule_that_covers_a_taint_is_a_candidate(matchers: list[Matcher], place: Placement, taint: DeviceTaint) -> None:
    covering = {number for number, matcher in enumerate(matchers) if matcher.covers_taint(place, taint)}
    assert covering <= set(positions(TaintIndex(matchers).candidates(place, taint)))


@given(st.sets(st.integers(0, 200)))
def test_positions_in_a_set_are_its_bits_in_order(bits: set[int]) -> None:
    assert list(positions(sum(1 << bit for bit in bits))) == sorted(bits)
