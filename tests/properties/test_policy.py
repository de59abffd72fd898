"""Laws of the toleration policy."""

from __future__ import annotations

from time import process_time
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.builders import NOW
from tests.properties.policies import (
    TIMES,
    allowed_taints,
    described,
    is_held,
    is_met,
    is_wider,
    matches,
    policies,
    refused_taints,
    scopes,
    taint_policies,
    targets,
    times,
    tolerations,
    wider_pairs,
)
from tests.unit.policy.documents import on_request
from webhook.policy import decide
from webhook.policy.decide import Judge
from webhook.policy.match import Glob, Scope, Target, TextSet, TolerationMatcher
from webhook.policy.model import DEFAULT_RULE, Action, Match, Policy, PolicyException, Rule, Subject

if TYPE_CHECKING:
    from datetime import datetime

    from webhook.api.taints import DeviceToleration
    from webhook.policy.evaluation import RuleHit
    from webhook.policy.model import TolerationMatch

ANYWHERE: Final = Scope(None, "train-a", None), Target("gpu", None, admin_access=False)
questions = st.tuples(scopes, targets, st.one_of(st.none(), tolerations))
Question = tuple[Scope, Target, "DeviceToleration | None"]


def asked(judge: Judge, question: Question, now: datetime = NOW) -> tuple[RuleHit, ...]:
    scope, target, toleration = question
    if toleration is None:
        return on_request(judge, scope, target, now, dict)
    return judge.on_toleration(scope, target, toleration, now, dict)


def is_denied(policy: Policy, question: Question, now: datetime = NOW) -> bool:
    return any(hit.action is Action.DENY for hit in asked(Judge(policy), question, now))


# --- sets of taints -----------------------------------------------------------------------------


@given(refused_taints, tolerations)
def test_rule_that_refuses_means_what_tolerates_one_of_its_taints(
    match: TolerationMatch, toleration: DeviceToleration
) -> None:
    assert TolerationMatcher(match).intersects(toleration) is is_met(match, toleration)


@given(allowed_taints, tolerations)
def test_rule_that_allows_means_what_tolerates_nothing_but_its_taints(
    match: TolerationMatch, toleration: DeviceToleration
) -> None:
    assert TolerationMatcher(match).contains(toleration) is is_held(match, toleration)


@given(taint_policies, wider_pairs, times)
def test_whoever_asks_for_more_is_never_allowed_where_less_is_denied(
    policy: Policy, pair: tuple[DeviceToleration, DeviceToleration], now: datetime
) -> None:
    narrow, wide = pair
    assert is_wider(wide, narrow)
    if is_denied(policy, (*ANYWHERE, narrow), now):
        assert is_denied(policy, (*ANYWHERE, wide), now)


# --- patterns -----------------------------------------------------------------------------------

letters = st.text("ab.*?/\n", max_size=8)
globs = st.text("ab.*?/\n[", max_size=8)


@given(globs, letters)
def test_globs_describe_what_the_table_of_prefixes_says(pattern: str, text: str) -> None:
    assert Glob(pattern).matches(text) is described(pattern, text)


@given(st.lists(globs, max_size=3), letters)
def test_set_of_patterns_holds_what_one_of_them_describes(patterns: list[str], text: str) -> None:
    texts = TextSet(patterns)
    assert texts.holds(text) is (not patterns or any(described(pattern, text) for pattern in patterns))
    assert not texts.everything or texts.holds("anything at all")


@given(st.lists(st.sampled_from(["*", "a", "?", "aa", "b"]), min_size=30, max_size=60).map("".join))
def test_no_pattern_takes_long_on_any_text(pattern: str) -> None:
    started = process_time()  # where there is a way to go back, it is years
    Glob(pattern).matches("a" * 5_000)
    Glob(f"{pattern}*b").matches("a" * 5_000)
    assert process_time() - started < 30


# --- rules --------------------------------------------------------------------------------------


@given(policies, st.data(), questions, times)
def test_another_rule_that_denies_never_allows_more(
    policy: Policy, data: st.DataObject, question: Question, now: datetime
) -> None:
    subject = data.draw(st.sampled_from(Subject))
    rule = Rule("another", Action.DENY, data.draw(matches(allowing=False, subject=subject)), subject)
    at = data.draw(st.integers(0, len(policy.rules)))
    stricter = structs.replace(policy, rules=(*policy.rules[:at], rule, *policy.rules[at:]))
    assert is_denied(stricter, question, now) or not is_denied(policy, question, now)


@given(policies, questions, times)
def test_rule_that_allows_taken_away_never_allows_more(policy: Policy, question: Question, now: datetime) -> None:
    for rule in (rule for rule in policy.rules if rule.action is Action.ALLOW):
        stricter = structs.replace(policy, rules=tuple(each for each in policy.rules if each is not rule))
        assert is_denied(stricter, question, now) or not is_denied(policy, question, now)


@given(policies, questions, times)
def test_rules_that_only_tell_decide_nothing(policy: Policy, question: Question, now: datetime) -> None:
    deciding = tuple(rule for rule in policy.rules if rule.action in {Action.ALLOW, Action.DENY})
    assert is_denied(structs.replace(policy, rules=deciding), question, now) is is_denied(policy, question, now)


@given(policies, questions, times)
def test_unknown_facts_never_allow_more(policy: Policy, question: Question, now: datetime) -> None:
    """Exceptions and rules that allow need to know; rules that deny do not."""
    scope, target, toleration = question
    unknown = Scope(None, scope.namespace, None), target._replace(drivers=None), toleration
    assert is_denied(policy, unknown, now) or not is_denied(policy, question, now)


# --- exceptions ---------------------------------------------------------------------------------


@given(policies, questions, times)
def test_exceptions_outside_their_times_change_nothing(policy: Policy, question: Question, now: datetime) -> None:
    holding = tuple(entry for entry in policy.exceptions if (entry.not_before or now) <= now < entry.expires_at)
    assert asked(Judge(structs.replace(policy, exceptions=holding)), question, now) == asked(
        Judge(policy), question, now
    )


@given(taint_policies, allowed_taints, tolerations, st.data())
def test_exception_does_nothing_but_take_its_rules_out_of_the_walk(
    policy: Policy, match: TolerationMatch, toleration: DeviceToleration, data: st.DataObject
) -> None:
    names = [rule.name for rule in policy.rules if rule.action is not Action.ALLOW]
    excused = tuple(data.draw(st.lists(st.sampled_from([*names, DEFAULT_RULE]), min_size=1, unique=True)))
    plain = structs.replace(policy, exceptions=())
    exception = PolicyException("excused", excused, TIMES[-1], Match(tolerations=match))
    question = (*ANYWHERE, toleration)
    found = asked(Judge(structs.replace(plain, exceptions=(exception,))), question)
    if not is_held(match, toleration):
        assert found == asked(Judge(plain), question)
        return
    without = structs.replace(
        plain,
        rules=tuple(rule for rule in plain.rules if rule.name not in excused),
        default=Action.ALLOW if DEFAULT_RULE in excused else plain.default,
    )
    told = [(hit.rule.name, hit.action) for hit in found if hit.exception is None]
    expected = [(hit.rule.name, hit.action) for hit in asked(Judge(without), question)]
    if DEFAULT_RULE in excused:  # an allowed default is told only where nothing excuses from a denying one
        told, expected = ([each for each in hits if each[0] != DEFAULT_RULE] for hits in (told, expected))
    assert told == expected
    assert all(hit.rule.name in excused for hit in found if hit.exception is not None)


# --- memory -------------------------------------------------------------------------------------


@given(policies, st.lists(st.tuples(questions, times), max_size=12), st.sampled_from([1, 3, 8192]))
def test_what_a_judge_remembers_changes_no_answer(
    policy: Policy, stream: list[tuple[Question, datetime]], memory: int
) -> None:
    with patch.object(decide, "_REMEMBERED", memory), patch.object(decide, "_REMEMBERED_GROUPS", 1):
        judge = Judge(policy)
        for _ in range(2):
            for question, now in stream:
                assert asked(judge, question, now) == asked(Judge(policy), question, now)
