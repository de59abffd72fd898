"""The walk: which rule decides a toleration, a request or a taint.

A `Judge` is a policy compiled. It remembers what it found for a requester, a namespace, a class and a toleration,
since a cluster asks for the same few all the time; with a thousand rules that is the difference between walking them
and not. What it remembers changes no answer.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from webhook.expressions.engine import EvaluationError
from webhook.policy.conditions import Condition, Scope
from webhook.policy.model import BUILTIN, DEFAULT_RULE, Action, Mode, Policy, Rule, Subject
from webhook.policy.walk import Excuse, Hit, ScopedJudge, Step, hit_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from webhook.api.taints import DeviceTaint, DeviceToleration
    from webhook.policy.conditions import Placement, Target
    from webhook.policy.names import Requester
    from webhook.policy.walk import Variables


_REMEMBERED: Final = 8192
"""Answers that a judge remembers, over all scopes; then it begins anew."""
_REMEMBERED_GROUPS: Final = 64
"""Of requesters in more groups than this only the last is remembered, so that nobody fills the memory with names."""


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
        self._excuses = [Excuse(entry, Condition(entry.match, allowing=True)) for entry in policy.exceptions]
        self._defaults = [(entry, Condition(entry.match, allowing=True)) for entry in policy.default_tolerations]
        times = {entry.expires_at for entry in policy.exceptions}
        times |= {entry.not_before for entry in policy.exceptions if entry.not_before is not None}
        self._turns = sorted(times)
        """When exceptions begin or end: between two of them nothing changes."""
        self._epoch = -1
        self._active: tuple[Excuse, ...] = ()
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
                    Step(rule, condition, tuple(excuse for excuse in excuses if rule.name in excuse.exception.rules))
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
            hit = hit_of(rule, excuses, variables)
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


def _about(rules: Iterable[Rule], subject: Subject) -> list[Rule]:
    return [rule for rule in rules if rule.subject is subject]


def _compiled(rules: Iterable[Rule]) -> list[tuple[Rule, Condition]]:
    return [(rule, Condition(rule.match, allowing=rule.action is Action.ALLOW)) for rule in rules]


def _never() -> bool:
    return False


def _worth_remembering(scope: Scope) -> bool:
    return scope.requester is None or len(scope.requester.groups) <= _REMEMBERED_GROUPS


BUILTIN_JUDGE: Final = Judge()
"""What decides where there is no document."""
