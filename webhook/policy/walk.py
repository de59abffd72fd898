"""One walk over rules that fit: which of them match, and which decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.expressions.engine import EvaluationError
from webhook.policy.model import Action, PolicyException, Rule, Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from webhook.api.field import JSON
    from webhook.api.taints import DeviceToleration
    from webhook.policy.conditions import Matcher, Target
    from webhook.policy.index import TolerationIndex

    Variables = Callable[[], Mapping[str, JSON]]
    """The variables of `when`, put together only when an expression asks for them."""

_REMEMBERED_LENGTH: Final = 253
"""Characters of a class that can be there; /mutate also sees names that no server has looked at."""


class RuleHit(NamedTuple):
    """A rule that matched. `problem` is an error of its `when`; `exception` excuses from it."""

    rule: Rule
    problem: str = ""
    exception: PolicyException | None = None

    @property
    def action(self) -> Action:
        """What follows from it."""
        return Action.ALLOW if self.exception is not None else self.rule.action


class Evaluation(NamedTuple):
    """What came of a walk: the rules that matched, and what each of them, or the exception to it, came to."""

    hits: tuple[RuleHit, ...]
    names: tuple[tuple[str, Action], ...]
    silent: bool
    """Whether it was allowed and there is nothing to tell."""

    @classmethod
    def of(cls, hits: tuple[RuleHit, ...]) -> Evaluation:
        """From the rules that matched, in order."""
        names = tuple((hit.rule.name if hit.exception is None else hit.exception.name, hit.action) for hit in hits)
        return cls(hits, names, all(hit.action is Action.ALLOW and hit.exception is None for hit in hits))


class ExceptionMatcher(NamedTuple):
    """An exception, compiled."""

    exception: PolicyException
    condition: Matcher


class ScopedRule(NamedTuple):
    """A rule of the walk, with the exceptions to it that hold now."""

    rule: Rule
    condition: Matcher
    excuses: tuple[ExceptionMatcher, ...]

    @property
    def ends(self) -> bool:
        """Whether nothing after it can decide."""
        plain = self.rule.match.when is None and not self.excuses
        return plain and self.rule.action in {Action.ALLOW, Action.DENY}

    @property
    def asks(self) -> bool:
        """Whether an expression has a word in it."""
        return self.rule.match.when is not None or any(each.exception.match.when is not None for each in self.excuses)


class ScopedRules(NamedTuple):
    """The rules of a walk that one requester in one namespace meets, by their number in the whole walk."""

    steps: Mapping[int, ScopedRule]
    rules: int
    """The numbers as a set: one bit a rule."""
    tolerations: TolerationIndex | None = None
    """Where the walk is over tolerations."""

    @property
    def refusing(self) -> str | None:
        """The first rule that may refuse something, whatever is asked for; None if none can."""
        for step in self.steps.values():
            if step.rule.action is Action.DENY:
                return step.rule.name
            if step.ends and step.condition.covers_everything:
                return None
        return None

    def steps_for(self, target: Target, toleration: DeviceToleration | None) -> Iterator[ScopedRule]:
        """The rules that match natively, in order."""
        steps, rules = self.steps, self.rules
        if toleration is not None and self.tolerations is not None:
            rules &= self.tolerations.candidates(toleration)
        while rules:
            bit = rules & -rules
            rules ^= bit
            step = steps[bit.bit_length() - 1]
            if step.condition.covers(target, toleration):
                yield step


class ScopedJudge:
    """The part of a judge that one requester in one namespace meets."""

    __slots__ = ("_asking", "_may_remember", "_scoped", "_walked")

    def __init__(self, scoped: Mapping[Subject, ScopedRules], may_remember: Callable[[], bool]) -> None:
        self._scoped = scoped
        self._may_remember = may_remember
        self._walked: dict[tuple[Target, DeviceToleration | None], Evaluation] = {}
        self._asking: dict[tuple[Target, DeviceToleration | None], tuple[ScopedRule, ...]] = {}
        """Steps in which expressions have a word: those have to be asked each time."""

    @property
    def asks_requests(self) -> bool:
        """Whether any rule has whole requests as its subject."""
        return bool(self._scoped[Subject.REQUEST].rules)

    def refusing(self, subject: Subject) -> str | None:
        """The first rule on such a subject that may refuse one, whatever it is; None if none can."""
        return self._scoped[subject].refusing

    def known(self, target: Target, toleration: DeviceToleration | None) -> Evaluation | None:
        """What `walk` would give, if it is remembered."""
        return self._walked.get((target, toleration))

    def walk(self, target: Target, toleration: DeviceToleration | None, variables: Variables) -> Evaluation:
        """The rules that match a toleration, or (None) the request itself, up to the one that decides."""
        key = target, toleration
        walked = self._walked.get(key)
        if walked is not None:
            return walked
        steps = self._asking.get(key)
        if steps is None:
            steps = self._steps_for(target, toleration)
            asking = any(step.asks for step in steps)
            walked = Evaluation.of(_walk(steps, variables))
            if len(target.device_class) <= _REMEMBERED_LENGTH and self._may_remember():
                if asking:
                    self._asking[key] = steps
                else:
                    self._walked[key] = walked
            return walked
        return Evaluation.of(_walk(steps, variables))

    def _steps_for(self, target: Target, toleration: DeviceToleration | None) -> tuple[ScopedRule, ...]:
        """The rules that match natively, in order, as far as one can come to them."""
        scoped = self._scoped[Subject.REQUEST if toleration is None else Subject.TOLERATION]
        kept = []
        for step in scoped.steps_for(target, toleration):
            if step.excuses:
                excuses = tuple(excuse for excuse in step.excuses if excuse.condition.covers(target, toleration))
                step = ScopedRule(step.rule, step.condition, excuses)  # noqa: PLW2901 -- the same step, narrowed
            kept.append(step)
            if step.ends:
                break
        return tuple(kept)


def _walk(steps: tuple[ScopedRule, ...], variables: Variables) -> tuple[RuleHit, ...]:
    hits: list[RuleHit] = []
    for step in steps:
        hit = hit_of(step.rule, step.excuses, variables)
        if hit is None:
            continue
        hits.append(hit)
        if hit.exception is None and step.rule.action in {Action.ALLOW, Action.DENY}:
            break
    return tuple(hits)


def hit_of(rule: Rule, excuses: Iterable[ExceptionMatcher], variables: Variables) -> RuleHit | None:
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
        return RuleHit(rule)
    return RuleHit(rule, problem, next((excuse.exception for excuse in excuses if _holds(excuse, variables)), None))


def _holds(excuse: ExceptionMatcher, variables: Variables) -> bool:
    when = excuse.exception.match.when
    if when is None:
        return True
    try:
        return when.evaluate(variables())
    except EvaluationError:
        return False
