"""Why a rule did not match: the fields that did not hold, the actual value, and the value that the rule wants.

A match holds if each of its fields does. So each field is compiled as a match of its own and evaluated by the code
that decides (`Matcher`, `hit_of`); an explanation cannot differ from the result of a review.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from webhook.api.meta import LabelRequirement, format_time
from webhook.api.rules import EVICT
from webhook.api.taints import EXISTS, NO_EXECUTE, DeviceTaint, DeviceToleration
from webhook.expressions.engine import EvaluationError
from webhook.policy.decide import Judge
from webhook.policy.evaluation import CompiledException, RuleHit, Variables, hit_of
from webhook.policy.match import Matcher, Placement, Scope, Target
from webhook.policy.model import (
    Action,
    Match,
    NamespaceMatch,
    PolicyException,
    RequesterMatch,
    Rule,
    Subject,
    TaintMatch,
    TolerationMatch,
)
from webhook.policy.ports import Requester

_LABELS: Final = ("namespaces.labels[", "namespaces.matchExpressions[")


class Unmet(NamedTuple):
    """A field of a match that does not hold: the actual value, and the wanted one, both in words."""

    field: str
    asked: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.field}: {self.asked}, wanted {self.wanted}"


class PassedOver(NamedTuple):
    """An exception that lists a rule but does not apply, and why."""

    exception: PolicyException
    unmet: tuple[Unmet, ...]


class Considered(NamedTuple):
    """One rule of an evaluation. `hit` is None if it does not match, or is not reached.

    `unmet` are all fields that keep it from matching.
    """

    rule: Rule
    reached: bool
    hit: RuleHit | None
    unmet: tuple[Unmet, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()

    @property
    def decides(self) -> bool:
        """Whether evaluation ends here."""
        hit = self.hit
        return hit is not None and hit.exception is None and self.rule.action in {Action.ALLOW, Action.DENY}


class ClaimQuestion(NamedTuple):
    """A toleration, or (None) a whole request, and who asks where."""

    scope: Scope
    target: Target
    toleration: DeviceToleration | None

    def covered_by(self, condition: Matcher) -> bool:
        """Whether a match, compiled, is about it."""
        return condition.covers_scope(self.scope) and condition.covers(self.target, self.toleration)

    def asked(self, field: str, match: Match) -> str:
        """The actual value for a field of a match, in words."""
        scope, target, toleration = self
        if field.startswith(_LABELS):
            return _label_asked(scope, match)
        if field.startswith("namespaces."):
            return _quoted(scope.namespace)
        if toleration is not None and field.startswith("tolerations."):
            return _toleration_asked(field, toleration)
        words = {
            "requesters": _requester_asked(scope.requester),
            "deviceClasses": _quoted(target.device_class),
            "drivers": _drivers_asked(target.drivers),
            "adminAccess": _boolean(target.admin_access),
        }
        return words[field]


class TaintQuestion(NamedTuple):
    """A taint that is set, for which devices, and who sets it."""

    requester: Requester | None
    place: Placement
    taint: DeviceTaint

    def covered_by(self, condition: Matcher) -> bool:
        """Whether a match, compiled, is about it."""
        scope = Scope(self.requester, "", None)
        return condition.covers_scope(scope) and condition.covers_taint(self.place, self.taint)

    def asked(self, field: str, _: Match) -> str:
        """The actual value for a field of a match, in words."""
        place, taint = self.place, self.taint
        words = {
            "requesters": _requester_asked(self.requester),
            "drivers": _placed(place.driver, "driver"),
            "pools": _placed(place.pool, "pool"),
            "evict": _boolean(place.evict),
            "taints.keys": _quoted(taint.key),
            "taints.values": _quoted(taint.value),
            "taints.effects": f"{taint.effect} with {EVICT}" if place.evict else taint.effect,
        }
        return words[field]


Question = ClaimQuestion | TaintQuestion


def considered(judge: Judge, question: Question, now: datetime, variables: Variables) -> tuple[Considered, ...]:
    """Every rule on such a question, in order, including those after the one that decides; the default is the last."""
    found: list[Considered] = []
    reached = True
    for rule in _rules(judge, question):
        one = _considered(rule, question, judge.policy.exceptions, now, variables, reached=reached)
        reached = reached and not one.decides
        found.append(one)
    return tuple(found)


def _rules(judge: Judge, question: Question) -> Iterable[Rule]:
    if isinstance(question, TaintQuestion):
        return judge.policy.taint_rules
    return judge.rules_on(Subject.REQUEST if question.toleration is None else Subject.TOLERATION)


def _considered(
    rule: Rule,
    question: Question,
    exceptions: Iterable[PolicyException],
    now: datetime,
    variables: Variables,
    *,
    reached: bool,
) -> Considered:
    condition = Matcher(rule.match, allowing=rule.action is Action.ALLOW)
    unmet = tuple(_unmet(rule.match, question, variables, allowing=condition.allowing))
    if not reached or not question.covered_by(condition):
        return Considered(rule, reached, None, unmet)
    listing = [exception for exception in exceptions if rule.name in exception.rules]
    excuses = [
        CompiledException(exception, fitting)
        for exception in listing
        if exception.active(now) and question.covered_by(fitting := Matcher(exception.match, allowing=True))
    ]
    hit = hit_of(rule, excuses, variables)
    if hit is None or hit.exception is not None or rule.action is Action.ALLOW:
        return Considered(rule, reached, hit, unmet)
    over = (PassedOver(each, tuple(_unmet_by_exception(each, question, now, variables))) for each in listing)
    return Considered(rule, reached, hit, unmet, tuple(over))


def _unmet_by_exception(
    exception: PolicyException, question: Question, now: datetime, variables: Variables
) -> Iterator[Unmet]:
    time = format_time(now)
    if exception.not_before is not None and now < exception.not_before:
        yield Unmet("notBefore", time, f"{format_time(exception.not_before)} or later")
    if now >= exception.expires_at:
        yield Unmet("expiresAt", time, f"before {format_time(exception.expires_at)}")
    yield from _unmet(exception.match, question, variables, allowing=True)


# --- fields -------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """One field of a match, as a match of its own, and what it wants in words."""

    field: str
    match: Match
    wanted: str


def _unmet(match: Match, question: Question, variables: Variables, *, allowing: bool) -> Iterator[Unmet]:
    failed: set[str] = set()
    for part in _parts(match):
        alone = part.match
        if part.field == "tolerations.seconds" and "tolerations.effects" not in failed and match.tolerations:
            # seconds are those of the effects that the rule and the toleration share
            seconds = match.tolerations
            effects = TolerationMatch(effects=seconds.effects, above=seconds.above, at_most=seconds.at_most)
            alone = Match(tolerations=effects)
        if not question.covered_by(Matcher(alone, allowing=allowing)):
            failed.add(part.field)
            yield Unmet(part.field, question.asked(part.field, part.match), part.wanted)
    if match.when is None:
        return
    wanted = " ".join(match.when.source.split())
    try:
        if not match.when.evaluate(variables()):
            yield Unmet("when", "false", wanted)
    except EvaluationError as error:
        # an error counts as true for what refuses
        if allowing:
            yield Unmet("when", f"cannot be evaluated ({error})", wanted)


def _parts(match: Match) -> Iterator[_Part]:
    if match.namespaces is not None:
        yield from _namespace_parts(match.namespaces)
    if match.requesters is not None:
        yield _Part("requesters", Match(requesters=match.requesters), _requesters_wanted(match.requesters))
    lists = (
        ("deviceClasses", Match(device_classes=match.device_classes), match.device_classes),
        ("drivers", Match(drivers=match.drivers), match.drivers),
        ("pools", Match(pools=match.pools), match.pools),
    )
    for field, alone, patterns in lists:
        if patterns:
            yield _Part(field, alone, _one_of(patterns))
    if match.admin_access is not None:
        yield _Part("adminAccess", Match(admin_access=match.admin_access), _boolean(match.admin_access))
    if match.evict is not None:
        yield _Part("evict", Match(evict=match.evict), _boolean(match.evict))
    if match.tolerations is not None:
        yield from _toleration_parts(match.tolerations)
    if match.taints is not None:
        yield from _taint_parts(match.taints)


def _namespace_parts(match: NamespaceMatch) -> Iterator[_Part]:
    if match.names:
        alone = NamespaceMatch(names=match.names)
        yield _Part("namespaces.names", Match(namespaces=alone), _one_of(match.names))
    if match.except_names:
        alone = NamespaceMatch(except_names=match.except_names)
        yield _Part("namespaces.except", Match(namespaces=alone), f"not {_one_of(match.except_names)}")
    for label in match.labels:
        alone = NamespaceMatch(labels=(label,))
        yield _Part(f"namespaces.labels[{label[0]}]", Match(namespaces=alone), _quoted(label[1]))
    for expression in match.expressions:
        alone = NamespaceMatch(expressions=(expression,))
        field = f"namespaces.matchExpressions[{expression.key}]"
        yield _Part(field, Match(namespaces=alone), _expression_wanted(expression))


def _toleration_parts(match: TolerationMatch) -> Iterator[_Part]:
    for name, wanted in _listed(match):
        alone = TolerationMatch(**{name: getattr(match, name)})
        yield _Part(f"tolerations.{name}", Match(tolerations=alone), wanted)
    if match.above is not None:
        wanted = f"{NO_EXECUTE} for more than {match.above} s"
        yield _Part("tolerations.seconds", Match(tolerations=TolerationMatch(above=match.above)), wanted)
    if match.at_most is not None:
        alone = TolerationMatch(at_most=match.at_most)
        yield _Part("tolerations.seconds", Match(tolerations=alone), f"at most {match.at_most} s")


def _taint_parts(match: TaintMatch) -> Iterator[_Part]:
    for name, wanted in _listed(match):
        yield _Part(f"taints.{name}", Match(taints=TaintMatch(**{name: getattr(match, name)})), wanted)


def _listed(match: TolerationMatch | TaintMatch) -> Iterator[tuple[str, str]]:
    """The lists of a set of taints that narrow it, by the names of their fields, and what they want in words."""
    for name in ("keys", "values", "effects"):
        if patterns := getattr(match, name):
            yield name, _one_of(patterns, quoted=name != "effects")


# --- words --------------------------------------------------------------------------------------


def _quoted(text: str) -> str:
    return f'"{text}"'


def _boolean(value: bool) -> str:  # noqa: FBT001 -- a value to be shown
    return "true" if value else "false"


def _one_of(patterns: Iterable[str], *, quoted: bool = True) -> str:
    shown = [_quoted(pattern) if quoted else pattern for pattern in patterns]
    return shown[0] if len(shown) == 1 else f"one of {', '.join(shown)}"


def _label_asked(scope: Scope, match: Match) -> str:
    """The value of the one label that a part of a match looks at."""
    if scope.facts is None:
        return "not known"
    assert match.namespaces is not None
    key = next((key for key, _ in match.namespaces.labels), None) or match.namespaces.expressions[0].key
    value = scope.facts.labels.get(key)
    return "missing" if value is None else _quoted(value)


def _expression_wanted(requirement: LabelRequirement) -> str:
    match requirement.operator:
        case "In":
            return _one_of(requirement.values)
        case "NotIn":
            return f"not {_one_of(requirement.values)}"
        case "Exists":
            return "any value"
        case _:
            return "missing"


def _requester_asked(requester: Requester | None) -> str:
    if requester is None:
        return "not known"
    groups = ", ".join(map(_quoted, requester.groups)) or "none"
    return f"user {_quoted(requester.username)} (groups {groups if requester.groups_known else 'not known'})"


def _requesters_wanted(match: RequesterMatch) -> str:
    lists = (("user", match.users), ("group", match.groups), ("service account", match.service_accounts))
    return " or ".join(f"{noun} {_one_of(patterns)}" for noun, patterns in lists if patterns)


def _placed(name: str | None, noun: str) -> str:
    return f"any (no {noun} is named)" if name is None else _quoted(name)


def _drivers_asked(drivers: frozenset[str] | None) -> str:
    if drivers is None:
        return "not known"
    return " and ".join(map(_quoted, sorted(drivers))) or "none"


def _toleration_asked(field: str, toleration: DeviceToleration) -> str:
    match field:
        case "tolerations.keys":
            return _quoted(toleration.key) if toleration.key else "every key"
        case "tolerations.values":
            return "every value" if toleration.operator == EXISTS else _quoted(toleration.value)
        case "tolerations.effects":
            return toleration.effect or "every effect"
        case _:
            seconds = toleration.toleration_seconds
            time = "for ever" if seconds is None else f"{seconds} s"
            return time if toleration.effect in {"", NO_EXECUTE} else f"no {NO_EXECUTE}"
