"""Evaluating rules in order: which of them match, and which decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from webhook.api.field import JSON
from webhook.api.taints import DeviceToleration
from webhook.expressions.engine import EvaluationError
from webhook.policy.index import TolerationIndex, positions
from webhook.policy.match import Matcher, Target
from webhook.policy.model import DECIDING, Action, Match, PolicyException, Rule, Subject

Variables = Callable[[], Mapping[str, JSON]]
"""The variables of `when`, built only when an expression needs them."""

_REMEMBERED_LENGTH: Final = 253
"""Characters of a valid class name. /mutate also sees names that no server has validated."""


class RuleHit(NamedTuple):
    """A rule that matched. `problem` is an error of its `when`; `exception` is the one that excuses it."""

    rule: Rule
    problem: str = ""
    exception: PolicyException | None = None

    @property
    def action(self) -> Action:
        """The action in effect: allow, if an exception applies."""
        return Action.ALLOW if self.exception is not None else self.rule.action

    @property
    def decides(self) -> bool:
        """Whether evaluation ends here."""
        return self.exception is None and self.rule.action in DECIDING


class Evaluation(NamedTuple):
    """The result of evaluating rules: those that matched, and for each the name and action that took effect."""

    hits: tuple[RuleHit, ...]
    names: tuple[tuple[str, Action], ...]
    silent: bool
    """Whether it is allowed and there is nothing to report."""

    @classmethod
    def of(cls, hits: tuple[RuleHit, ...]) -> Evaluation:
        """From the rules that matched, in order."""
        names = tuple((hit.rule.name if hit.exception is None else hit.exception.name, hit.action) for hit in hits)
        return cls(hits, names, all(hit.action is Action.ALLOW and hit.exception is None for hit in hits))


class Once:
    """Variables that are built when the first of many expressions needs them, and then kept."""

    __slots__ = ("_build", "_built", "_check")

    def __init__(self, build: Variables, check: Callable[[str], None]) -> None:
        """`check` is called with the name of the phase before each expression; it raises if there is no time."""
        self._build = build
        self._check = check
        self._built: Mapping[str, JSON] | None = None

    def __call__(self) -> Mapping[str, JSON]:
        """What `build` returned. Raises what `check` raises."""
        self._check("policy")
        built = self._built
        if built is None:
            built = self._built = self._build()
        return built


class CompiledException(NamedTuple):
    """An exception with its compiled match."""

    exception: PolicyException
    matcher: Matcher


class ScopedRule(NamedTuple):
    """A rule with the exceptions to it that are active in a scope."""

    rule: Rule
    matcher: Matcher
    exceptions: tuple[CompiledException, ...]

    @property
    def ends(self) -> bool:
        """Whether no rule after it can decide."""
        plain = self.rule.match.when is None and not self.exceptions
        return plain and self.rule.action in DECIDING

    @property
    def asks(self) -> bool:
        """Whether an expression takes part."""
        return self.rule.match.when is not None or any(
            each.exception.match.when is not None for each in self.exceptions
        )


class AppliedRules:
    """The rules on one subject that apply to a requester in a namespace."""

    __slots__ = ("_excused", "_rules", "_steps")

    def __init__(self, steps: Sequence[ScopedRule], excused: Mapping[int, ScopedRule], rules: int) -> None:
        """`steps`: all rules without exceptions; `excused`: those with exceptions that apply, by their position.

        `rules` is the set of those that apply, one bit each.
        """
        self._steps = steps
        self._excused = excused
        self._rules = rules

    def __bool__(self) -> bool:
        return bool(self._rules)

    def among(self, candidates: int) -> Iterator[ScopedRule]:
        """Those of a set of positions, in order."""
        steps, excused = self._steps, self._excused
        for number in positions(self._rules & candidates):
            yield excused.get(number) or steps[number]

    @property
    def refusing(self) -> str | None:
        """The first rule that may refuse something, whatever is asked for; None if none can."""
        for step in self.among(self._rules):
            if step.rule.action is Action.DENY:
                return step.rule.name
            if step.ends and step.matcher.covers_everything:
                return None
        return None


class ScopedJudge:
    """The part of a policy that applies to one requester in one namespace, and to all others with the same rules."""

    __slots__ = ("__weakref__", "_applied", "_asking", "_count_remembered", "_evaluated", "_lookup")

    def __init__(
        self,
        applied: Mapping[Subject, AppliedRules],
        lookup: Mapping[Subject, TolerationIndex],
        count_remembered: Callable[[], None],
    ) -> None:
        """`lookup` finds rules that may match. `count_remembered` is called for each evaluation kept in memory."""
        self._applied = applied
        self._lookup = lookup
        self._count_remembered = count_remembered
        self._evaluated: dict[tuple[Target, DeviceToleration | None], Evaluation] = {}
        self._asking: dict[tuple[Target, DeviceToleration | None], tuple[ScopedRule, ...]] = {}
        """Rules with expressions, which are evaluated each time."""

    @property
    def asks_requests(self) -> bool:
        """Whether any rule has whole requests as its subject."""
        return bool(self._applied[Subject.REQUEST])

    def refusing(self, subject: Subject) -> str | None:
        """The first rule on such a subject that may refuse one, whatever it is; None if none can."""
        return self._applied[subject].refusing

    def remembered(self, target: Target, toleration: DeviceToleration | None) -> Evaluation | None:
        """The cached evaluation, or None."""
        return self._evaluated.get((target, toleration))

    def evaluate(self, target: Target, toleration: DeviceToleration | None, variables: Variables) -> Evaluation:
        """The rules that match a toleration, or (None) the request itself, up to the one that decides."""
        key = target, toleration
        evaluation = self._evaluated.get(key)
        if evaluation is not None:
            return evaluation
        known = self._asking.get(key)
        steps = self._steps_for(target, toleration) if known is None else known
        evaluation = Evaluation.of(_evaluate(steps, variables))
        if known is None and len(target.device_class) <= _REMEMBERED_LENGTH:
            self._count_remembered()
            if any(step.asks for step in steps):
                self._asking[key] = steps
            else:
                self._evaluated[key] = evaluation
        return evaluation

    def _steps_for(self, target: Target, toleration: DeviceToleration | None) -> tuple[ScopedRule, ...]:
        """The rules whose match holds, `when` aside, in order, up to one that always decides."""
        subject = Subject.REQUEST if toleration is None else Subject.TOLERATION
        kept = []
        for step in self._applied[subject].among(self._lookup[subject].candidates(target, toleration)):
            if not step.matcher.covers(target, toleration):
                continue
            if step.exceptions:
                exceptions = tuple(
                    compiled for compiled in step.exceptions if compiled.matcher.covers(target, toleration)
                )
                step = ScopedRule(step.rule, step.matcher, exceptions)  # noqa: PLW2901 -- the same step, narrowed
            kept.append(step)
            if step.ends:
                break
        return tuple(kept)


def _evaluate(steps: tuple[ScopedRule, ...], variables: Variables) -> tuple[RuleHit, ...]:
    hits: list[RuleHit] = []
    for step in steps:
        hit = hit_of(step.rule, step.exceptions, variables)
        if hit is None:
            continue
        hits.append(hit)
        if hit.decides:
            break
    return tuple(hits)


def hit_of(rule: Rule, exceptions: Iterable[CompiledException], variables: Variables) -> RuleHit | None:
    """The hit of a rule whose match holds, `when` aside; None if its `when` does not hold."""
    holds, problem = when_holds(rule.match, variables, allowing=rule.action is Action.ALLOW)
    if not holds:
        return None
    if rule.action is Action.ALLOW:
        return RuleHit(rule)
    for compiled in exceptions:
        if when_holds(compiled.exception.match, variables, allowing=True)[0]:
            return RuleHit(rule, problem, compiled.exception)
    return RuleHit(rule, problem)


def when_holds(match: Match, variables: Variables, *, allowing: bool) -> tuple[bool, str]:
    """Return whether `when` holds, and the error that ended it: an error counts as true for what refuses."""
    if match.when is None:
        return True, ""
    try:
        return match.when.evaluate(variables()), ""
    except EvaluationError as error:
        return not allowing, str(error)
