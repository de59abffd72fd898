"""Policies and tolerations of so few words that they meet all the time, and what Kubernetes says of them."""

from __future__ import annotations

from datetime import timedelta
from itertools import chain, permutations, product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hypothesis import strategies as st

from tests.builders import NOW
from webhook.api.taints import EQUAL, EXISTS, NO_EXECUTE, NO_SCHEDULE, NONE, DeviceToleration
from webhook.policy.match import NamespaceFacts, Requester, Scope, Target
from webhook.policy.model import (
    Action,
    Match,
    NamespaceMatch,
    Policy,
    PolicyException,
    RequesterMatch,
    Rule,
    Subject,
    TolerationMatch,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypothesis.strategies import SearchStrategy

EFFECTS: Final = (NONE, NO_SCHEDULE, NO_EXECUTE)
KEYS: Final = ("a/x", "a/y", "b/x", "c/z")
VALUES: Final = ("", "v", "w")
OUTSIDE: Final = "z/9"
"""A key and a value that only `*` describes."""
FOR_EVER: Final = float("inf")
TIMES: Final = tuple(NOW + timedelta(hours=hours) for hours in (-2, -1, 0, 1, 2))


# --- taints, as Kubernetes sees them ------------------------------------------------------------


class Taint(NamedTuple):
    key: str
    value: str
    effect: str


TAINTS: Final = tuple(Taint(*parts) for parts in product((*KEYS, OUTSIDE), (*VALUES, OUTSIDE), EFFECTS))


def tolerates(toleration: DeviceToleration, taint: Taint) -> bool:
    """resourceapi.ToleratesTaint, word for word."""
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.effect and toleration.effect != taint.effect:
        return False
    return toleration.operator == EXISTS or toleration.value == taint.value


def tolerated(toleration: DeviceToleration) -> Iterator[tuple[Taint, float]]:
    """Every taint that it tolerates, and for how many seconds."""
    seconds = toleration.toleration_seconds
    for taint in TAINTS:
        if tolerates(toleration, taint):
            yield taint, FOR_EVER if taint.effect != NO_EXECUTE or seconds is None else max(0, seconds)


def described(pattern: str, text: str) -> bool:
    """Whether a glob describes a text, by the table of all prefixes: slow, and too simple to be wrong."""
    row = [True] + [False] * len(text)
    for character in pattern:
        before, row = row, [character == "*" and row[0]]
        for at in range(1, len(text) + 1):
            row.append(
                row[at - 1] or before[at] if character == "*" else before[at - 1] and character in {"?", text[at - 1]}
            )
    return row[-1]


def _listed(patterns: tuple[str, ...], text: str) -> bool:
    return not patterns or any(described(pattern, text) for pattern in patterns)


def in_match(match: TolerationMatch, taint: Taint) -> bool:
    """Whether a taint is one of those that a match lists."""
    keys = _listed(match.keys, taint.key)
    return keys and _listed(match.values, taint.value) and (not match.effects or taint.effect in match.effects)


def is_met(match: TolerationMatch, toleration: DeviceToleration) -> bool:
    """Whether a rule that refuses means the toleration: it tolerates a taint of the match (for longer)."""
    met = [(taint, seconds) for taint, seconds in tolerated(toleration) if in_match(match, taint)]
    if match.above is None:
        return bool(met)
    return any(taint.effect == NO_EXECUTE and seconds > match.above for taint, seconds in met)


def is_held(match: TolerationMatch, toleration: DeviceToleration) -> bool:
    """Whether a rule that allows means the toleration: it tolerates nothing but taints of the match (nor longer)."""
    return all(
        in_match(match, taint) and (match.at_most is None or taint.effect != NO_EXECUTE or seconds <= match.at_most)
        for taint, seconds in tolerated(toleration)
    )


def is_wider(wide: DeviceToleration, narrow: DeviceToleration) -> bool:
    """Whether one tolerates all that the other does, for at least as long."""
    of_wide = dict(tolerated(wide))
    return all(of_wide.get(taint, -1) >= seconds for taint, seconds in tolerated(narrow))


# --- tolerations --------------------------------------------------------------------------------

_ALL: Final = [
    DeviceToleration(key, operator, value, effect, seconds)
    for key in ("", *KEYS)
    for operator, value in ((EXISTS, ""), *product(("", EQUAL), VALUES))
    for effect in ("", *EFFECTS)
    for seconds in (None, -1, 0, 30, 60, 61, 3600)
]
"""Whatever an API server takes; the documents want a key where the operator is not Exists."""


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[DeviceToleration, DeviceToleration]:
    """A toleration, and one that tolerates at least as much."""
    narrow = draw(tolerations)
    widened = draw(st.sets(st.sampled_from(["key", "value", "effect", "seconds"])))
    longer = draw(
        st.sampled_from([None, *(each for each in (0, 60, 3600) if each >= (narrow.toleration_seconds or 0))])
    )
    wide = DeviceToleration(
        "" if "key" in widened else narrow.key,
        EXISTS if "value" in widened else narrow.operator,
        "" if "value" in widened else narrow.value,
        "" if "effect" in widened else narrow.effect,
        (None if narrow.toleration_seconds is None else longer) if "seconds" in widened else narrow.toleration_seconds,
    )
    return narrow, wide


tolerations: SearchStrategy[DeviceToleration] = st.sampled_from(_ALL)
wider_pairs: SearchStrategy[tuple[DeviceToleration, DeviceToleration]] = _pairs()


def manifest_of(toleration: DeviceToleration) -> dict[str, Any]:
    fields = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    given: dict[str, Any] = {name: text for name, text in fields.items() if text}
    if toleration.toleration_seconds is not None:
        given["tolerationSeconds"] = toleration.toleration_seconds
    return given


# --- rules --------------------------------------------------------------------------------------


def _some(*patterns: str) -> SearchStrategy[tuple[str, ...]]:
    """None of them, one, or two; drawn at once, which is much quicker than one by one."""
    return st.sampled_from([(), *((pattern,) for pattern in patterns), *permutations(patterns, 2)])


effect_lists = st.sampled_from([*chain.from_iterable(permutations(EFFECTS, size) for size in range(4))])
limits = st.sampled_from([None, None, 0, 30, 60])
key_patterns = _some("*", "**", "a/*", "*/x", "?/x", "a/x", "b/?", "a/x*", "*a*")
value_patterns = _some("*", "", "v", "?", "w*")
refused_taints = st.builds(TolerationMatch, key_patterns, value_patterns, effect_lists, above=limits)
allowed_taints = st.builds(TolerationMatch, key_patterns, value_patterns, effect_lists, at_most=limits)
USERS: Final = ("jane", "system:serviceaccount:ci:runner", "system:admin")
NAMESPACES: Final = ("train-a", "train-prod", "infer")
DRIVERS: Final = ("gpu.example.com", "nic.example.com")
namespace_matches = st.builds(
    NamespaceMatch,
    _some("train-*", "infer", "*"),
    _some("train-prod"),
    st.sampled_from([(), (("team", "ml"),), (("team", "*"),)]),
)
requester_matches = st.builds(RequesterMatch, _some(*USERS, "*"), _some("ml-*", "ops"), _some("ci/runner", "ci/*"))


def matches(*, allowing: bool, subject: Subject = Subject.TOLERATION) -> SearchStrategy[Match]:
    """A match without `when`."""
    taints: SearchStrategy[Any] = allowed_taints if allowing else refused_taints
    return st.builds(
        Match,
        st.one_of(st.none(), namespace_matches),
        st.one_of(st.none(), requester_matches),
        _some("gpu", "n*"),
        _some(*DRIVERS, "gpu.*"),
        st.none() if subject is Subject.REQUEST else st.one_of(st.none(), taints, taints),
        st.sampled_from([None, None, True, False]),
    )


def taint_matches(*, allowing: bool) -> SearchStrategy[Match]:
    """A match that looks at nothing but the taints that are tolerated."""
    taints: SearchStrategy[Any] = allowed_taints if allowing else refused_taints
    return st.builds(Match, tolerations=st.one_of(st.none(), taints, taints))


@st.composite
def _rules(draw: st.DrawFn, *, anything: bool) -> tuple[Rule, ...]:
    rules = []
    for position in range(draw(st.integers(0, 5))):
        action = draw(st.sampled_from(Action))
        allowing = action is Action.ALLOW
        subject = draw(st.sampled_from(Subject)) if anything else Subject.TOLERATION
        match = draw(matches(allowing=allowing, subject=subject) if anything else taint_matches(allowing=allowing))
        rules.append(Rule(f"rule-{position}", action, match, subject))
    return tuple(rules)


@st.composite
def _policies(draw: st.DrawFn, *, anything: bool) -> Policy:
    rules = draw(_rules(anything=anything))
    names = ["default", *(rule.name for rule in rules if rule.action is not Action.ALLOW)]
    exceptions = []
    for position in range(draw(st.integers(0, 2))):
        start, end = sorted(draw(st.lists(st.sampled_from(TIMES), min_size=2, max_size=2, unique=True)))
        excused = tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)))
        match = draw(matches(allowing=True) if anything else taint_matches(allowing=True))
        not_before = draw(st.sampled_from([None, start]))
        exceptions.append(PolicyException(f"exception-{position}", excused, end, match, not_before=not_before))
    default = draw(st.sampled_from([Action.ALLOW, Action.DENY]))
    return Policy(default=default, rules=rules, exceptions=tuple(exceptions))


policies: SearchStrategy[Policy] = _policies(anything=True)
"""With rules of both subjects on everything but `when`, and exceptions that begin and end around NOW."""
taint_policies: SearchStrategy[Policy] = _policies(anything=False)
"""With rules and exceptions that look at tolerations only."""

# --- who asks, and for what ---------------------------------------------------------------------

FACTS: Final = {name: NamespaceFacts(name, {"team": "ml"} if name != "infer" else {}) for name in NAMESPACES}
requesters = st.one_of(
    st.none(),
    st.builds(
        Requester,
        st.sampled_from(USERS),
        _some("ml-a", "ops", "dev"),
        st.booleans(),
    ),
)
scopes: SearchStrategy[Scope] = st.builds(
    lambda requester, name, known: Scope(requester, name, FACTS[name] if known else None),
    requesters,
    st.sampled_from(NAMESPACES),
    st.booleans(),
)
targets: SearchStrategy[Target] = st.builds(
    Target,
    st.sampled_from(["gpu", "nic"]),
    st.sampled_from([None, frozenset(), frozenset(DRIVERS[:1]), frozenset(DRIVERS)]),
    st.booleans(),
)
times = st.sampled_from(TIMES)
