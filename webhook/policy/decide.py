"""The walk: which rule decides a toleration, a request or a taint.

A `Judge` is a policy compiled. It remembers what it found for a requester, a namespace, a class and a toleration,
since a cluster asks for the same few all the time; with a thousand rules that is the difference between walking them
and not. What it remembers changes no answer.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.expressions.engine import EvaluationError
from webhook.policy.conditions import Condition, Scope
from webhook.policy.model import BUILTIN, DEFAULT_RULE, Action, Mode, Policy, PolicyException, Rule, Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from webhook.api.field import JSON
    from webhook.api.taints import DeviceTaint, DeviceToleration
    from webhook.policy.conditions import Placement, Target
    from webhook.policy.names import Requester

    Variables = Callable[[], Mapping[str, JSON]]
    """The variables of `when`, put together only when an expression asks for them."""

_REMEMBERED: Final = 8192
"""Answers that a judge remembers, over all scopes; then it begins anew."""
_REMEMBERED_GROUPS: Final = 64
"""Of requesters in more groups than this only the last is remembered, so that nobody fills the memory with names."""
_REMEMBERED_LENGTH: Final = 253
"""Characters of a class that can be there; /mutate also sees names that no server has looked at."""


class Hit(NamedTuple):
    """A rule that matched. `problem` is an error of its `when`; `exception` excuses from it."""

    rule: Rule
    problem: str = ""
    exception: PolicyException | None = None

    @property
    def action(self) -> Action:
        """What follows from it."""
        return Action.ALLOW if self.exception is not None else self.rule.action


class Walked(NamedTuple):
    """What came of a walk: the rules that matched, and what each of them, or the exception to it, came to."""

    hits: tuple[Hit, ...]
    names: tuple[tuple[str, Action], ...]
    silent: bool
    """Whether it was allowed and there is nothing to tell."""

    @classmethod
    def of(cls, hits: tuple[Hit, ...]) -> Walked:
        """From the rules that matched, in order."""
        names = tuple((hit.rule.name if hit.exception is None else hit.exception.name, hit.action) for hit in hits)
        return cls(hits, names, all(hit.action is Action.ALLOW and hit.exception is None for hit in hits))


class _Excuse(NamedTuple):
    exception: PolicyException
    condition: Condition


class _Step(NamedTuple):
    """A rule of the walk, with the exceptions to it that hold now."""

    rule: Rule
    condition: Condition
    excuses: tuple[_Excuse, ...]

    @property
    def ends(self) -> bool:
        """Whether nothing after it can decide."""
        plain = self.rule.match.when is None and not self.excuses
        return plain and self.rule.action in {Action.ALLOW, Action.DENY}

    @property
    def asks(self) -> bool:
        """Whether an expression has a word in it."""
        return self.rule.match.when is not None or any(each.exception.match.when is not None for each in self.excuses)


class Judge:
    """A policy, ready to decide."""

    def __init__(self, policy: Policy = BUILTIN) -> None:
        self.policy = policy
        self.documented_mode = policy.documented_rules.at_most(policy.mode)
        """How far the documented rules' word goes."""
        self._generated_mode = policy.mode.at_most(policy.generated_claims)
        default = Rule(DEFAULT_RULE, policy.default)
        self._compiled = {
            Subject.TOLERATION: _compiled([*_about(policy.rules, Subject.TOLERATION), default]),
            Subject.REQUEST: _compiled(_about(policy.rules, Subject.REQUEST)),
        }
        self._taint_rules = _compiled(policy.taint_rules)
        self._excuses = [_Excuse(entry, Condition(entry.match, allowing=True)) for entry in policy.exceptions]
        self._defaults = [(entry, Condition(entry.match, allowing=True)) for entry in policy.default_tolerations]
        times = {entry.expires_at for entry in policy.exceptions}
        times |= {entry.not_before for entry in policy.exceptions if entry.not_before is not None}
        self._turns = sorted(times)
        """When exceptions begin or end: between two of them nothing changes."""
        self._epoch = -1
        self._active: tuple[_Excuse, ...] = ()
        self._scopes: dict[Scope, ScopedJudge] = {}
        self._large: tuple[Scope, ScopedJudge] | None = None
        """Of the last requester in very many groups: one claim asks for its scope hundreds of times."""
        self._remembered = 0

    def claim_mode(self, *, generated: bool, updating: bool) -> Mode:
        """How far the policy's word goes. An update changes no spec, so what a stored object breaks is only told."""
        mode = self._generated_mode if generated else self.policy.mode
        return mode.at_most(Mode.WARN) if updating else mode

    @property
    def judges_claims(self) -> bool:
        """Whether anything can come of asking about tolerations or requests."""
        return bool(self.policy.rules) or self.policy.default is Action.DENY

    @property
    def judges_taints(self) -> bool:
        """Whether anything can come of asking about taints."""
        return bool(self.policy.taint_rules)

    def scoped(self, scope: Scope, now: datetime) -> ScopedJudge:
        """The rules for this requester in this namespace, at this time. To be used at once, not kept."""
        self._turn_to(now)
        large = self._large
        scoped = large[1] if large is not None and large[0] == scope else self._scopes.get(scope)
        if scoped is None:
            excuses = [excuse for excuse in self._active if excuse.condition.covers_scope(scope)]
            steps = {
                subject: tuple(
                    _Step(rule, condition, tuple(excuse for excuse in excuses if rule.name in excuse.exception.rules))
                    for rule, condition in compiled
                    if condition.covers_scope(scope)
                )
                for subject, compiled in self._compiled.items()
            }
            scoped = ScopedJudge(steps, self._remember if _worth_remembering(scope) else _never)
            if _worth_remembering(scope):
                self._remember()
                self._scopes[scope] = scoped
            else:
                self._large = scope, scoped
        return scoped

    def _remember(self) -> bool:
        """Whether there is room for one more answer; there always is, as a full memory is emptied."""
        self._remembered += 1
        if self._remembered > _REMEMBERED:
            self._forget()
        return True

    def _forget(self) -> None:
        self._scopes.clear()
        self._large = None
        self._remembered = 0

    def on_toleration(
        self, scope: Scope, target: Target, toleration: DeviceToleration, now: datetime, variables: Variables
    ) -> tuple[Hit, ...]:
        """The rules that match a toleration, up to the one that decides. Ends in no deny if it is allowed."""
        return self.scoped(scope, now).walk(target, toleration, variables).hits

    def on_request(self, scope: Scope, target: Target, now: datetime, variables: Variables) -> tuple[Hit, ...]:
        """The rules with subject `request` that match a request, up to the one that decides."""
        return self.scoped(scope, now).walk(target, None, variables).hits

    def on_taint(
        self, requester: Requester | None, place: Placement, taint: DeviceTaint, now: datetime, variables: Variables
    ) -> tuple[Hit, ...]:
        """The taint rules that match a taint, up to the one that decides."""
        self._turn_to(now)
        scope = Scope(requester, "", None)
        hits: list[Hit] = []
        for rule, condition in self._taint_rules:
            if not condition.covers_scope(scope) or not condition.covers_taint(place, taint):
                continue
            excuses = (
                excuse
                for excuse in self._active
                if rule.name in excuse.exception.rules
                and excuse.condition.covers_scope(scope)
                and excuse.condition.covers_taint(place, taint)
            )
            hit = _hit(rule, excuses, variables)
            if hit is not None:
                hits.append(hit)
                if hit.exception is None and rule.action in {Action.ALLOW, Action.DENY}:
                    break
        return tuple(hits)

    def defaults(self, scope: Scope, target: Target, variables: Variables) -> Iterator[DeviceToleration]:
        """The tolerations that `defaultTolerations` has for a request, in order."""
        for entry, condition in self._defaults:
            if not condition.covers_scope(scope) or not condition.covers(target, None):
                continue
            try:
                if entry.match.when is None or entry.match.when.evaluate(variables()):
                    yield from entry.tolerations
            except EvaluationError:
                continue

    def _turn_to(self, now: datetime) -> None:
        """Look at the exceptions that hold at that time; what was remembered holds between two turns only."""
        epoch = bisect_right(self._turns, now)
        if epoch != self._epoch:
            self._epoch = epoch
            self._active = tuple(excuse for excuse in self._excuses if excuse.exception.active(now))
            self._forget()


class ScopedJudge:
    """The part of a judge that one requester in one namespace meets."""

    __slots__ = ("_asking", "_may_remember", "_steps", "_walked")

    def __init__(self, steps: Mapping[Subject, tuple[_Step, ...]], may_remember: Callable[[], bool]) -> None:
        self._steps = steps
        self._may_remember = may_remember
        self._walked: dict[tuple[Target, DeviceToleration | None], Walked] = {}
        self._asking: dict[tuple[Target, DeviceToleration | None], tuple[_Step, ...]] = {}
        """Steps in which expressions have a word: those have to be asked each time."""

    @property
    def asks_requests(self) -> bool:
        """Whether any rule has whole requests as its subject."""
        return bool(self._steps[Subject.REQUEST])

    def known(self, target: Target, toleration: DeviceToleration | None) -> Walked | None:
        """What `walk` would give, if it is remembered."""
        return self._walked.get((target, toleration))

    def walk(self, target: Target, toleration: DeviceToleration | None, variables: Variables) -> Walked:
        """The rules that match a toleration, or (None) the request itself, up to the one that decides."""
        key = target, toleration
        walked = self._walked.get(key)
        if walked is not None:
            return walked
        steps = self._asking.get(key)
        if steps is None:
            steps = self._steps_for(target, toleration)
            asking = any(step.asks for step in steps)
            if len(target.device_class) <= _REMEMBERED_LENGTH and self._may_remember():
                if asking:
                    self._asking[key] = steps
                else:
                    self._walked[key] = Walked.of(_walk(steps, variables))
        return Walked.of(_walk(steps, variables))

    def _steps_for(self, target: Target, toleration: DeviceToleration | None) -> tuple[_Step, ...]:
        """The rules that match natively, in order, as far as one can come to them."""
        subject = Subject.REQUEST if toleration is None else Subject.TOLERATION
        return _reachable(
            _Step(
                step.rule,
                step.condition,
                tuple(excuse for excuse in step.excuses if excuse.condition.covers(target, toleration)),
            )
            for step in self._steps[subject]
            if step.condition.covers(target, toleration)
        )


def _about(rules: Iterable[Rule], subject: Subject) -> list[Rule]:
    return [rule for rule in rules if rule.subject is subject]


def _compiled(rules: Iterable[Rule]) -> list[tuple[Rule, Condition]]:
    return [(rule, Condition(rule.match, allowing=rule.action is Action.ALLOW)) for rule in rules]


def _never() -> bool:
    return False


def _worth_remembering(scope: Scope) -> bool:
    return scope.requester is None or len(scope.requester.groups) <= _REMEMBERED_GROUPS


def _reachable(steps: Iterator[_Step]) -> tuple[_Step, ...]:
    kept = []
    for step in steps:
        kept.append(step)
        if step.ends:
            break
    return tuple(kept)


def _walk(steps: tuple[_Step, ...], variables: Variables) -> tuple[Hit, ...]:
    hits: list[Hit] = []
    for step in steps:
        hit = _hit(step.rule, step.excuses, variables)
        if hit is None:
            continue
        hits.append(hit)
        if hit.exception is None and step.rule.action in {Action.ALLOW, Action.DENY}:
            break
    return tuple(hits)


def _hit(rule: Rule, excuses: Iterable[_Excuse], variables: Variables) -> Hit | None:
    """What comes of a rule that matches natively: nothing if its `when` says no."""
    problem = ""
    if rule.match.when is not None:
        try:
            if not rule.match.when.evaluate(variables()):
                return None
        except EvaluationError as error:
            if rule.action is Action.ALLOW:
                return None
            problem = str(error)
    if rule.action is Action.ALLOW:
        return Hit(rule)
    return Hit(rule, problem, next((excuse.exception for excuse in excuses if _holds(excuse, variables)), None))


def _holds(excuse: _Excuse, variables: Variables) -> bool:
    when = excuse.exception.match.when
    if when is None:
        return True
    try:
        return when.evaluate(variables())
    except EvaluationError:
        return False


BUILTIN_JUDGE: Final = Judge()
"""What decides where there is no document."""
