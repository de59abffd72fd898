"""Why a rule did not match: the fields that did not hold, the actual value, and the value that the rule wants.

Nothing is matched here. The code that decides (`Matcher`, `when_holds`, `hit_of`) leaves a trace of the fields that do
not hold, and they are put into words here; so an explanation cannot differ from the result of a review.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from webhook.api.meta import LabelRequirement, format_time
from webhook.api.rules import EVICT
from webhook.api.taints import EXISTS, NO_EXECUTE, DeviceTaint, DeviceToleration
from webhook.policy.decide import Judge
from webhook.policy.evaluation import CompiledException, RuleHit, Variables, hit_of, when_holds
from webhook.policy.match import EFFECTS, Matcher, Miss, Placement, Requester, Scope, Target, Trace
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
        return self.hit is not None and self.hit.decides


class ClaimQuestion(NamedTuple):
    """A toleration, or (None) a whole request, and who asks where."""

    scope: Scope
    target: Target
    toleration: DeviceToleration | None

    def misses(self, condition: Matcher) -> Trace:
        """Return the fields of a match, compiled, that do not hold for it."""
        trace = Trace()
        condition.covers_scope(self.scope, trace=trace)
        condition.covers(self.target, self.toleration, trace)
        return trace

    def asked(self, miss: Miss) -> str:
        """The actual value for a field of a match, in words."""
        scope, target, toleration = self
        field, part = miss
        if part is not None:
            return _label_asked(scope, _key_of(part))
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

    def misses(self, condition: Matcher) -> Trace:
        """Return the fields of a match, compiled, that do not hold for it."""
        trace = Trace()
        condition.covers_scope(Scope(self.requester, "", None), trace=trace)
        condition.covers_taint(self.place, self.taint, trace)
        return trace

    def asked(self, miss: Miss) -> str:
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
        return words[miss.field]


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
    misses = question.misses(condition)
    unmet = tuple(_unmet(rule.match, misses, question, variables, allowing=condition.allowing))
    if not reached or misses:
        return Considered(rule, reached, None, unmet)
    listing = [
        CompiledException(each, Matcher(each.match, allowing=True)) for each in exceptions if rule.name in each.rules
    ]
    over = [PassedOver(each.exception, tuple(_unmet_by_exception(each, question, now, variables))) for each in listing]
    excuses = [each for each, passed in zip(listing, over, strict=True) if not passed.unmet]
    hit = hit_of(rule, excuses, variables)
    if hit is None or hit.exception is not None or rule.action is Action.ALLOW:
        return Considered(rule, reached, hit, unmet)
    return Considered(rule, reached, hit, unmet, tuple(over))


def _unmet_by_exception(
    compiled: CompiledException, question: Question, now: datetime, variables: Variables
) -> Iterator[Unmet]:
    exception, condition = compiled
    outside = exception.outside(now)
    if outside:
        begins = exception.not_before if outside == "notBefore" else None
        wanted = f"before {format_time(exception.expires_at)}" if begins is None else f"{format_time(begins)} or later"
        yield Unmet(outside, format_time(now), wanted)
    yield from _unmet(exception.match, question.misses(condition), question, variables, allowing=True)


def _unmet(match: Match, misses: Trace, question: Question, variables: Variables, *, allowing: bool) -> Iterator[Unmet]:
    for miss in misses:
        field = miss.field if miss.part is None else f"{miss.field}[{_key_of(miss.part)}]"
        yield Unmet(field, question.asked(miss), _wanted(match, miss))
    holds, problem = when_holds(match, variables, allowing=allowing)
    if match.when is not None and not holds:
        asked = f"cannot be evaluated ({problem})" if problem else "false"
        yield Unmet("when", asked, " ".join(match.when.source.split()))


# --- words --------------------------------------------------------------------------------------


def _quoted(text: str) -> str:
    return f'"{text}"'


def _boolean(value: bool | None) -> str:  # noqa: FBT001 -- a value to be shown
    return "true" if value else "false"


def _one_of(patterns: Iterable[str], *, quoted: bool = True) -> str:
    shown = [_quoted(pattern) if quoted else pattern for pattern in patterns]
    return shown[0] if len(shown) == 1 else f"one of {', '.join(shown)}"


def _key_of(part: tuple[str, str] | LabelRequirement) -> str:
    return part.key if isinstance(part, LabelRequirement) else part[0]


def _label_asked(scope: Scope, key: str) -> str:
    if scope.facts is None:
        return "not known"
    value = scope.facts.labels.get(key)
    return "missing" if value is None else _quoted(value)


def _wanted(match: Match, miss: Miss) -> str:
    """The value that a field of a match wants, in words."""
    field, part = miss
    if part is not None:
        return _expression_wanted(part) if isinstance(part, LabelRequirement) else _quoted(part[1])
    names, taints = match.namespaces or NamespaceMatch(), match.tolerations or match.taints or TaintMatch()
    words = {
        "namespaces.names": _one_of(names.names),
        "namespaces.except": f"not {_one_of(names.except_names)}",
        "requesters": _requesters_wanted(match.requesters or RequesterMatch()),
        "deviceClasses": _one_of(match.device_classes),
        "drivers": _one_of(match.drivers),
        "pools": _one_of(match.pools),
        "adminAccess": _boolean(match.admin_access),
        "evict": _boolean(match.evict),
        "keys": _one_of(taints.keys),
        "values": _one_of(taints.values),
        "effects": _one_of(taints.effects or sorted(EFFECTS), quoted=False),
        "seconds": _seconds_wanted(match.tolerations or TolerationMatch()),
    }
    return words.get(field) or words[field.partition(".")[2]]


def _seconds_wanted(match: TolerationMatch) -> str:
    return f"{NO_EXECUTE} for more than {match.above} s" if match.at_most is None else f"at most {match.at_most} s"


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
